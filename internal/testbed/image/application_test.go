package image

import (
	"bytes"
	"context"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"unnest.io/unnest/internal/measure/workload"
)

// The image of containers has what the servers of applications need: they start in it, without
// anything else of the root file system, and serve.
func TestApplicationContainer(t *testing.T) {
	privileged(t)
	builder := Builder{Cache: CacheDir()}
	root, err := builder.Root(t.Context(), DefaultRecipe())
	if err != nil {
		t.Fatal(err)
	}
	for name, p := range map[string]workload.Params{"memcached": {}, "nginx": {Rate: 1}} {
		t.Run(name, func(t *testing.T) {
			w, err := workload.Lookup(name)
			if err != nil {
				t.Fatal(err)
			}
			layer, err := DefaultRecipe().Containing(w.Programs()...).layer(root, nil)
			if err != nil {
				t.Fatal(err)
			}
			inside := t.TempDir()
			unpack := exec.CommandContext(t.Context(), "tar", "-xC", inside)
			unpack.Stdin = bytes.NewReader(layer)
			if out, err := unpack.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			startInside(t, inside, w.Server(p, workload.Endpoint{Port: 5001}), w.Ready())
		})
	}
}

// startInside starts a server in a root directory, with namespaces of its own, and waits until
// it prints that it is ready.
func startInside(t *testing.T, root string, server []string, ready string) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	const enter = `root=$1; shift; mkdir "$root/proc" "$root/dev"; mount -t proc proc "$root/proc"; touch "$root/dev/null"; mount --bind /dev/null "$root/dev/null"
		ip link set lo up; PATH=/usr/sbin:/usr/bin:/sbin:/bin exec chroot "$root" "$@" 2>&1`
	cmd := exec.CommandContext(ctx, "unshare", append([]string{"--mount", "--net", "--pid", "--fork", "--kill-child", "sh", "-c", enter, "enter", filepath.Clean(root)}, server...)...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	for part := make([]byte, 256); !strings.Contains(said.String(), ready); {
		n, err := out.Read(part)
		said.Write(part[:n])
		if err != nil {
			t.Errorf("it does not print %q: %v:\n%s", ready, err, said.String())
			break
		}
	}
	stop()
	_, _ = io.Copy(io.Discard, out)
	_ = cmd.Wait() // it is killed
}
