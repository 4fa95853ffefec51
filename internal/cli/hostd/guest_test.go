package hostd

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/cli/terminal"
	"unnest.io/unnest/internal/hostd/record"
	"unnest.io/unnest/internal/hostd/status"
)

// host is a configuration with one guest, and a state directory.
type host struct {
	t                  *testing.T
	dir, config, state string
	stderr, stderd     text
}

func newHost(t *testing.T) *host {
	dir := t.TempDir()
	h := &host{t: t, dir: dir, config: filepath.Join(dir, "hostd.yaml"), state: filepath.Join(dir, "state")}
	h.write(`# ours
listen: 10.200.0.1:7443
tenants:
  - {name: default, bridge: br0} # the only one
guests:
  - {name: node1, tenant: default, index: 1, qmp: /nowhere/qmp}
`)
	return h
}

func (h *host) write(text string) {
	h.t.Helper()
	if err := os.WriteFile(h.config, []byte(text), 0o600); err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) read() string {
	h.t.Helper()
	text, err := os.ReadFile(h.config)
	if err != nil {
		h.t.Fatal(err)
	}
	return string(text)
}

// run runs a command and returns its standard output.
func (h *host) run(args ...string) (string, error) {
	var out bytes.Buffer
	cmd := NewCmd(terminal.Streams{Out: &out, Err: &h.stderr}, Run)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(append(args, "--config", h.config, "--state", h.state))
	err := cmd.ExecuteContext(h.t.Context())
	return out.String(), err
}

func (h *host) mustRun(args ...string) string {
	h.t.Helper()
	out, err := h.run(args...)
	if err != nil {
		h.t.Fatalf("%q: %v", args, err)
	}
	return out
}

// serve runs the daemon until the test ends.
func (h *host) serve() {
	h.t.Helper()
	ctx, cancel := context.WithCancel(h.t.Context())
	ended := make(chan error, 1)
	go func() {
		cmd := NewCmd(terminal.Streams{Err: &h.stderd}, Run)
		cmd.SetArgs([]string{"--config", h.config, "--state", h.state, "--listen", "127.0.0.1:0"})
		ended <- cmd.ExecuteContext(ctx)
	}()
	h.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			h.t.Error(err)
		}
	})
	for end := time.Now().Add(time.Minute); h.stderd.count("hostd: serving") == 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			h.t.Fatal("the daemon does not start")
		}
	}
}

// A guest is added to the file and to the daemon that runs, with an archive for the guest,
// and removed again.
func TestGuest(t *testing.T) {
	h := newHost(t)
	before, out := h.read(), filepath.Join(h.dir, "node2.tar")
	h.serve()
	q2 := h.brokenQEMU()
	printed := h.mustRun("guest", "add", "node2", "--qmp", q2, "--address", "10.201.0.9,fe80::9", "--output", out)
	if printed != "ssh root@node2 tar -C / -xf - < "+out+"\n" {
		t.Errorf("printed %q", printed)
	}
	want := before + "  - name: node2\n    tenant: default\n    qmp: " + q2 + "\n    index: 2\n    addresses:\n    - 10.201.0.9\n    - fe80::9\n"
	if h.read() != want {
		t.Errorf("got:\n%s\nwant:\n%s", h.read(), want)
	}
	f, err := os.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if h, err := tar.NewReader(f).Next(); err != nil || h.Name != "etc/unnest/" {
		t.Errorf("archive begins with %+v, %v", h, err)
	}
	if names := h.guests(); names != "node2" {
		t.Errorf("the daemon has %q, want node2 alone: node1 is not enrolled", names)
	}
	list := h.mustRun("guest", "list")
	for _, part := range []string{"node1  default  1      /nowhere/qmp", "not enrolled", "node2  default  2      " + q2, "10.201.0.9 fe80::9", "does not answer"} {
		if !strings.Contains(list, part) {
			t.Errorf("list has no %q:\n%s", part, list)
		}
	}
	if _, err := h.run("guest", "remove", "node2"); err == nil || !strings.Contains(err.Error(), "use --force") || h.read() != want {
		t.Errorf("without --force: got %v and:\n%s", err, h.read())
	}
	h.mustRun("guest", "remove", "node2", "--force")
	if h.read() != before || h.guests() != "" {
		t.Errorf("after removal the daemon has %q, and the file:\n%s", h.guests(), h.read())
	}
	if _, err := os.Stat(record.Path(h.state, "node2")); !os.IsNotExist(err) {
		t.Errorf("record of the removed guest: %v", err)
	}
}

// brokenQEMU returns a socket that hangs up.
func (h *host) brokenQEMU() string { return h.hangUp(filepath.Join(h.dir, "q")) }

// hangUp serves a socket that accepts connections and ends them.
func (h *host) hangUp(path string) string {
	h.t.Helper()
	l, err := new(net.ListenConfig).Listen(h.t.Context(), "unix", path)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { l.Close() })
	go func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			c.Close()
		}
	}()
	return path
}

func (h *host) guests() string {
	h.t.Helper()
	s, err := status.Ask(h.t.Context(), h.state)
	if err != nil {
		h.t.Fatal(err)
	}
	var names []string
	for _, g := range s.Guests {
		names = append(names, g.Name)
	}
	return strings.Join(names, " ")
}

// A command that fails changes nothing: no file, no record, no archive.
func TestGuestFails(t *testing.T) {
	h := newHost(t)
	before, taken := h.read(), filepath.Join(h.dir, "taken.tar")
	if err := os.WriteFile(taken, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := record.Write(h.state, record.Guest{
		Name: "lab", Tenant: "default", Index: 3, QMP: "/q", CertificateSHA256: strings.Repeat("0a", 32),
	}); err != nil {
		t.Fatal(err)
	}
	out := []string{"--output", filepath.Join(h.dir, "new.tar")}
	for want, args := range map[string][]string{
		"missing argument GUEST":               {"guest", "add"},
		"want one of the keys qmp and libvirt": append([]string{"guest", "add", "node2"}, out...),
		"guest node1 is in":                    append([]string{"guest", "add", "node1", "--qmp", "/q"}, out...),
		"has a guest of that name":             append([]string{"guest", "add", "lab", "--qmp", "/q"}, out...),
		"file exists":                          {"guest", "add", "node2", "--qmp", "/q", "--output", taken},
		"no such file":                         append([]string{"guest", "add", "node2", "--qmp", "/q", "--plugin", "/nowhere/cni"}, out...),
		`--address "x": want an IP address`:    append([]string{"guest", "add", "node2", "--qmp", "/q", "--address", "x"}, out...),
		`--server "x": want IP-ADDRESS:PORT`:   append([]string{"guest", "add", "node2", "--qmp", "/q", "--server", "x"}, out...),
		"needs mac":                            append([]string{"guest", "add", "node2", "--qmp", "/q", "--tap", "t"}, out...),
		"no such tenant":                       append([]string{"guest", "add", "node2", "--qmp", "/q", "--tenant", "t"}, out...),
		"guest node2 is not in":                {"guest", "remove", "node2"},
	} {
		_, err := h.run(args...)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", args, err, want)
		}
		if h.read() != before {
			t.Fatalf("%q: the file has changed:\n%s", args, h.read())
		}
	}
	for _, path := range []string{out[1], record.Path(h.state, "node2")} {
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Errorf("%s: %v, want none", path, err)
		}
	}
	if text, err := os.ReadFile(taken); err != nil || string(text) != "mine" {
		t.Errorf("another's file has %q, %v", text, err)
	}
}

// Without a daemon the commands change the file only.
func TestGuestWithoutDaemon(t *testing.T) {
	h := newHost(t)
	out := filepath.Join(h.dir, "x.tar")
	h.mustRun("guest", "add", "node2", "--libvirt", "d2", "--pool", "0", "--output", out)
	if !strings.Contains(h.read(), "domain: d2") || !strings.Contains(h.read(), "pool: 0") || h.stderr.count("the daemon does not run") != 1 {
		t.Errorf("got:\n%s\n%s", h.read(), &h.stderr.b)
	}
	if list := h.mustRun("guest", "list"); !strings.Contains(list, "libvirt d2") {
		t.Errorf("list:\n%s", list)
	}
	before := h.read()
	if _, err := h.run("guest", "remove", "node2"); err == nil || !strings.Contains(err.Error(), "guest node2 may have NICs of pods: the daemon does not answer: stop the pods, or use --force") || h.read() != before {
		t.Errorf("enrolled guest: got %v and:\n%s", err, h.read())
	}
	h.mustRun("guest", "remove", "node2", "--force")
	h.mustRun("guest", "remove", "node1") // it never had NICs
	if !strings.Contains(h.read(), "guests: []") {
		t.Errorf("got:\n%s", h.read())
	}
}

// A daemon that does not answer may have given NICs to the guest.
func TestRemoveWithoutAnswer(t *testing.T) {
	h := newHost(t)
	before := h.read()
	if err := os.Mkdir(h.state, 0o700); err != nil {
		t.Fatal(err)
	}
	h.hangUp(status.Socket(h.state))
	if _, err := h.run("guest", "remove", "node1"); err == nil || !strings.Contains(err.Error(), "the daemon does not answer") || h.read() != before {
		t.Errorf("got %v and:\n%s", err, h.read())
	}
}

func TestGuestState(t *testing.T) {
	h := newHost(t)
	h.mustRun("guest", "add", "node2", "--qmp", "/q", "--output", filepath.Join(h.dir, "x.tar"))
	o := Options{State: h.state}
	for _, tt := range []struct {
		guest string
		err   error
		want  string
	}{
		{"node1", unix.ENOENT, "not enrolled"},
		{"node2", unix.ENOENT, "the daemon does not run"},
		{"node2", unix.ECONNREFUSED, "the daemon does not run"},
		{"node2", unix.EACCES, "not known: run unnest with sudo"},
		{"node2", io.EOF, "the daemon does not answer"},
		{"node2/guest.json", io.EOF, "the daemon does not answer"}, // below a file: whether it is enrolled is not known
		{"node2", nil, "not taken over yet"},
	} {
		if got := o.state(tt.guest, nil, tt.err); got != tt.want {
			t.Errorf("%s, %v: got %q, want %q", tt.guest, tt.err, got, tt.want)
		}
	}
}

// A guest that gets its credentials from the VMM is not enrolled, and its archive has none.
func TestGuestThroughVMM(t *testing.T) {
	h := newHost(t)
	out := filepath.Join(h.dir, "x.tar")
	add := []string{"guest", "add", "node2", "--output", out, "--credentials"}
	if _, err := h.run(append(add, "file", "--qmp", "/q")...); err == nil {
		t.Error("credentials from a file: there was no error")
	}
	h.mustRun("guest", "add", "node3", "--output", filepath.Join(h.dir, "y.tar"), "--credentials", "vmm", "--libvirt", "d3")
	h.mustRun("guest", "remove", "node3")
	h.mustRun(append(add, "vmm", "--qmp", "/run/q")...)
	archive, err := os.ReadFile(out)
	if err != nil || !strings.Contains(h.read(), "credentials: vmm") || bytes.Contains(archive, []byte("etc/unnest")) {
		t.Errorf("error %v, the archive has %d bytes, the file:\n%s", err, len(archive), h.read())
	}
	if record.Has(h.state, "node2") {
		t.Error("the guest is enrolled")
	}
	h.mustRun("guest", "remove", "node2")
	if strings.Contains(h.read(), "node2") {
		t.Errorf("got:\n%s", h.read())
	}
}

// On a terminal, remove asks; anything but yes changes nothing.
func TestConfirm(t *testing.T) {
	h := newHost(t)
	h.serve()
	h.mustRun("guest", "add", "node2", "--qmp", h.brokenQEMU(), "--output", filepath.Join(h.dir, "x.tar"))
	h.mustRun("guest", "add", "node3", "--qmp", "/nowhere/q", "--output", filepath.Join(h.dir, "y.tar"))
	h.mustRun("guest", "remove", "node3") // it does not run
	for _, c := range []struct {
		answer string
		ok     bool
	}{{"", false}, {"n\n", false}, {"yes\n", true}} {
		o := Options{Streams: terminal.Streams{In: strings.NewReader(c.answer), Out: io.Discard, Err: io.Discard, ErrWidth: 80}, Config: h.config, State: h.state}
		if err := o.confirm(t.Context(), "node2"); (err == nil) != c.ok {
			t.Errorf("answer %q: got %v", c.answer, err)
		}
	}

	// With --quiet the question is there, and an interrupt ends it.
	ctx, interrupt := context.WithCancelCause(t.Context())
	question, in := new(strings.Builder), newSilence(t)
	o := Options{Streams: terminal.Streams{In: in, ErrWidth: 80, Err: &terminal.Gate{Shut: true, Writer: terminal.Watch(question, nil)}}, Config: h.config, State: h.state}
	in.read = func() { interrupt(errors.New("interrupted")) }
	if err := o.confirm(ctx, "node2"); err == nil || err.Error() != "interrupted" || !strings.HasSuffix(question.String(), "Remove it and them? [y/N] ") {
		t.Errorf("interrupted: got %v, asked %q", err, question)
	}
}

// silence is a terminal at which nobody types.
type silence struct {
	read func()
	end  <-chan struct{}
}

func newSilence(t *testing.T) *silence { return &silence{end: t.Context().Done()} }

func (s *silence) Read([]byte) (int, error) {
	s.read()
	<-s.end
	return 0, io.EOF
}
