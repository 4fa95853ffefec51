package install

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const network = `{"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "brfusion", "server": "10.0.0.1:7443"}, {"type": "portmap"}]}`

// newNode returns a node whose plugin is a script. It writes its input to the file asked, and
// fails if there is a file broken.
func newNode(t *testing.T) (n Node, dir string) {
	t.Helper()
	dir = t.TempDir()
	n = Node{
		Binary: filepath.Join(dir, "unnest-cni"), Plugins: []string{"brfusion", "hostlo"},
		BinDir: filepath.Join(dir, "bin"), Config: filepath.Join(dir, "10-pods.conflist"), ConfDir: filepath.Join(dir, "net.d"),
		count: func(context.Context, string, []byte) (NICs, error) { return NICs{}, nil },
	}
	script := "#!/bin/sh\n[ $CNI_COMMAND = STATUS ] && [ $CNI_PATH = " + n.BinDir + " ] && cat >" + dir + "/asked || exit 3\n" +
		"[ ! -e " + dir + "/broken ] || { echo '{\"code\": 50, \"msg\": \"no daemon\"}'; exit 1; }\n"
	err := errors.Join(os.WriteFile(n.Binary, []byte(script), 0o755), os.WriteFile(n.Config, []byte(network), 0o600),
		os.Mkdir(n.BinDir, 0o755), os.Mkdir(n.ConfDir, 0o755))
	if err != nil {
		t.Fatal(err)
	}
	return n, dir
}

func names(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return strings.Join(all, " ")
}

func (n Node) want(t *testing.T, when, plugins, networks string) {
	t.Helper()
	if got := names(t, n.BinDir); got != plugins {
		t.Errorf("%s: plugins %q, want %q", when, got, plugins)
	}
	if got := names(t, n.ConfDir); got != networks {
		t.Errorf("%s: networks %q, want %q", when, got, networks)
	}
}

func TestEnsure(t *testing.T) {
	n, dir := newNode(t)
	broken := filepath.Join(dir, "broken")
	if err := os.WriteFile(broken, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Ensure(t.Context()); err == nil || err.Error() != "ask plugin brfusion for its status: no daemon" {
		t.Errorf("got %v", err)
	}
	n.want(t, "without a daemon", "brfusion hostlo", "")
	if err := os.Remove(broken); err != nil {
		t.Fatal(err)
	}
	n.ensure(t)
	n.want(t, "with a daemon", "brfusion hostlo", "10-pods.conflist")
	asked, err := os.ReadFile(filepath.Join(dir, "asked"))
	if want := `{"cniVersion":"1.1.0","name":"pods","server":"10.0.0.1:7443","type":"brfusion"}`; string(asked) != want || err != nil {
		t.Errorf("STATUS got %s, %v, want %s", asked, err, want)
	}
	// It repairs what is missing or changed, and leaves the rest alone.
	before, err := os.Stat(filepath.Join(n.BinDir, "brfusion"))
	if err != nil {
		t.Fatal(err)
	}
	installed := filepath.Join(n.ConfDir, "10-pods.conflist")
	err = errors.Join(os.Remove(filepath.Join(n.BinDir, "hostlo")), os.WriteFile(installed, []byte("{}"), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	// What a process leaves that is killed is removed, once it is old.
	killed := filepath.Join(n.BinDir, ".hostlo.part-1")
	if err := os.WriteFile(killed, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	n.ensure(t)
	n.want(t, "repaired", ".hostlo.part-1 brfusion hostlo", "10-pods.conflist")
	old := time.Now().Add(-2 * time.Hour)
	if err := errors.Join(os.Chtimes(killed, old, old), os.Chmod(filepath.Join(n.BinDir, "hostlo"), 0o644)); err != nil {
		t.Fatal(err)
	}
	n.ensure(t)
	n.want(t, "repaired again", "brfusion hostlo", "10-pods.conflist")
	if info, err := os.Stat(filepath.Join(n.BinDir, "hostlo")); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("hostlo has the mode %v (%v), want 0755", info.Mode(), err)
	}
	if content, err := os.ReadFile(installed); string(content) != network || err != nil {
		t.Errorf("the network is %s, %v", content, err)
	}
	if after, err := os.Stat(filepath.Join(n.BinDir, "brfusion")); err != nil || !os.SameFile(before, after) {
		t.Errorf("a plugin that was right was replaced (%v)", err)
	}
	// A network that works stays while the daemon does not answer: running pods need it.
	if err := os.WriteFile(broken, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Ensure(t.Context()); err == nil {
		t.Error("without a daemon: no error")
	}
	n.want(t, "without a daemon again", "brfusion hostlo", "10-pods.conflist")
}

// A network whose file has the name of the copy is installed, and a copy does not stay next to another one.
func TestEnsureNameOfCopy(t *testing.T) {
	n, dir := newNode(t)
	n.Config = filepath.Join(dir, copyName)
	if err := os.WriteFile(n.Config, []byte(network), 0o600); err != nil {
		t.Fatal(err)
	}
	n.ensure(t)
	n.want(t, "by that name", "brfusion hostlo", copyName)
	n.Config = filepath.Join(dir, "10-pods.conflist")
	n.ensure(t)
	n.want(t, "by another name", "brfusion hostlo", "10-pods.conflist")
}

func (n Node) ensure(t *testing.T) NICs {
	t.Helper()
	nics, err := n.Ensure(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return nics
}

// A node whose pods have all NICs is healthy, though its plugin would add no pod. One that has
// none to give is not.
func TestEnsureOnFullNode(t *testing.T) {
	n, dir := newNode(t)
	if err := os.WriteFile(filepath.Join(dir, "broken"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	full := NICs{Known: true, Attached: 8, Limited: "no free slot"}
	n.count = func(_ context.Context, plugin string, stdin []byte) (NICs, error) {
		if plugin != "brfusion" || !strings.Contains(string(stdin), "10.0.0.1:7443") {
			t.Errorf("counts the NICs of %s with %s", plugin, stdin)
		}
		return full, nil
	}
	if got := n.ensure(t); got != full {
		t.Errorf("got %+v, want %+v", got, full)
	}
	n.want(t, "full", "brfusion hostlo", "10-pods.conflist")
	if _, err := os.Stat(filepath.Join(dir, "asked")); err != nil {
		t.Errorf("the plugin was not asked, so it did not renew the certificate: %v", err)
	}
	full.Attached = 0
	if _, err := n.Ensure(t.Context()); err == nil {
		t.Error("without any NIC: no error")
	}
}

func TestStatusRequest(t *testing.T) {
	for list, want := range map[string]string{
		`{`:                               "unexpected end of JSON input",
		`{"name": "a", "type": "bridge"}`: "it has no plugins: want a network configuration list",
		`{"plugins": [{"name": "a"}]}`:    `type "" of its first plugin: want the name of a plugin`,
		`{"plugins": [{"type": "../x"}]}`: `type "../x" of its first plugin: want the name of a plugin`,
	} {
		if _, _, err := statusRequest([]byte(list)); err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", list, err, want)
		}
	}
}

// The kubelet learns by /healthz whether pods can get NICs.
func TestHealth(t *testing.T) {
	results := make(chan error)
	var log bytes.Buffer
	ensure := func(ctx context.Context) (NICs, error) {
		select {
		case err := <-results:
			return NICs{}, err
		case <-ctx.Done():
			return NICs{}, ctx.Err()
		}
	}
	k := keeper{ensure: ensure, log: slog.New(slog.NewTextHandler(&log, nil)), now: health{err: errors.New("not checked yet")}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- k.run(ctx, address, "", time.Millisecond) }()
	want := func(status int, text string) {
		t.Helper()
		var got string
		for begin := time.Now(); time.Since(begin) < time.Minute; time.Sleep(time.Millisecond) {
			answer, err := http.Get("http://" + address + "/healthz")
			if err != nil {
				continue // it does not listen yet
			}
			body, err := io.ReadAll(answer.Body)
			answer.Body.Close()
			if got = string(body); err == nil && answer.StatusCode == status && got == text {
				return
			}
		}
		t.Errorf("got %q, want %d and %q", got, status, text)
	}
	want(http.StatusServiceUnavailable, "not checked yet\n")
	results <- nil
	want(http.StatusOK, "ok\n")
	results <- errors.Join(errors.New("no daemon"), errors.New("really"))
	want(http.StatusServiceUnavailable, "no daemon; really\n")
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if text := log.String(); strings.Count(text, "\n") != 2 || !strings.Contains(text, `cause="no daemon\nreally"`) {
		t.Errorf("the log is\n%s", text)
	}
}

func TestUsage(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "") // not in a pod
	var out bytes.Buffer
	for _, args := range [][]string{{"now"}, {"-interval", "0s"}, {"-reserve", "-1"}, {"-color"}, {"-node", "node1"}} {
		if code := Main(t.Context(), args, &out, &out); code != 2 {
			t.Errorf("%v: exit code %d, want 2", args, code)
		}
	}
}
