package cluster

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"unnest.io/unnest/internal/cli/terminal"
)

// execute runs "unnest cluster" with args and returns its output.
func execute(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, errOut bytes.Buffer
	cmd := NewCmd(terminal.Streams{In: strings.NewReader(""), Out: &out, Err: &errOut})
	cmd.SetArgs(args)
	cmd.SetOut(io.Discard)
	cmd.SetErr(io.Discard)
	err = cmd.ExecuteContext(t.Context())
	return out.String(), errOut.String(), err
}

// Wrong usage is refused before anything is made.
func TestWrongUsage(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"up", "--nodes", "0"}, "--nodes 0: want 1 to 50"},
		{[]string{"up", "--nodes", "51"}, "--nodes 51: want 1 to 50"},
		{[]string{"up", "--vcpus", "0"}, "--vcpus 0: want 1 to 255"},
		{[]string{"up", "--memory", "512MiB"}, "--memory 512MiB: want at least 768MiB"},
		{[]string{"up", "--slots", "0"}, "--slots 0: want 1 to 128"},
		{[]string{"up", "--slots", "129"}, "--slots 129: want 1 to 128"},
		{[]string{"up", "--pool", "-1"}, "--pool -1: want 0 or more"},
		{[]string{"up", "--shares", "9"}, "--shares 9: want 0 to 8"},
		{[]string{"up", "--port", "65536"}, "--port 65536: want 0 to 65535"},
		{[]string{"up", "--network", "flannel"}, "want one of brfusion, bridge"},
		{[]string{"up", "--proxy-mode", "ipvs"}, "want one of iptables, nftables"},
		{[]string{"up", "--ip-families", "ipv5"}, "want one of ipv4, ipv6, ipv4,ipv6"},
		{[]string{"up", "node1"}, `unexpected argument "node1"`},
		{[]string{"kubeconfig"}, "no cluster is up"},
		{[]string{"status"}, "no cluster is up"},
		{[]string{"load"}, "missing argument ARCHIVE"},
		{[]string{"load", "image.tar"}, "no cluster is up"},
	} {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "state")
			t.Setenv("UNNEST_STATE", dir)
			stdout, _, err := execute(t, tt.args...)
			if err == nil || !strings.Contains(err.Error(), tt.want) || stdout != "" {
				t.Errorf("got %v, stdout %q; want %q", err, stdout, tt.want)
			}
			if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("something was made (%v)", err)
			}
		})
	}
}

// The controller of split pods is next to unnest, or where `make kubernetes` has put it in a source tree.
func TestFindController(t *testing.T) {
	for _, at := range []string{"lib/unnest-kube", "src/bin/kubernetes/unnest-kube", "src/bin/unnest-kube", ""} {
		dir := t.TempDir()
		lib, programs := filepath.Join(dir, "lib"), filepath.Join(dir, "src/bin/kubernetes")
		if err := errors.Join(os.Mkdir(lib, 0o700), os.MkdirAll(programs, 0o700)); err != nil {
			t.Fatal(err)
		}
		want := filepath.Join(dir, at)
		if at == "" {
			want = ""
		} else if err := os.WriteFile(want, nil, 0o700); err != nil {
			t.Fatal(err)
		}
		got, err := findController(lib, programs+"/")
		if got != want || (err == nil) != (at != "") || err != nil && !strings.Contains(err.Error(), "--kubernetes DIR") {
			t.Errorf("%s: got %q, %v", at, got, err)
		}
	}
}

// A machine that lacks programs is refused before those of Kubernetes are looked for.
func TestUpChecksTheMachine(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, _, err := execute(t, "up", "--kubernetes", "/nowhere", "--accel", "tcg")
	if err == nil || !strings.Contains(err.Error(), "apt-get install ") || !strings.Contains(err.Error(), " qemu-system-x86") {
		t.Errorf("got %v", err)
	}
}
