package vm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"unnest.io/unnest/internal/cli/terminal"
	"unnest.io/unnest/internal/cli/usage"
	"unnest.io/unnest/internal/testbed/fleet"
	"unnest.io/unnest/internal/testbed/guest"
	"unnest.io/unnest/internal/testbed/lab"
)

// execute runs "unnest vm" with args and returns its output.
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

// newState gives the test a state directory of its own, without a lab.
func newState(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("UNNEST_STATE", dir)
	return filepath.Join(dir, labName)
}

// newDead makes the lab with guests that have ended: their PID is that of this process,
// which is not QEMU.
func newDead(t *testing.T, names ...string) (dir string) {
	t.Helper()
	dir = newState(t)
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "unnest-lab"), nil, 0o600), os.WriteFile(filepath.Join(dir, "persistent"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	for i, name := range names {
		note, err := json.Marshal(map[string]any{"index": i + 1, "pid": os.Getpid(), "accelerator": "tcg", "address": "10.200.0.2:22"})
		if err != nil {
			t.Fatal(err)
		}
		state := filepath.Join(dir, "guests", name)
		if err := errors.Join(os.MkdirAll(state, 0o700), os.WriteFile(filepath.Join(state, "node.json"), note, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestUpOptions(t *testing.T) {
	good := upOptions{names: []string{"node1"}, vcpus: 1, memory: 1 << 30, slots: 8}
	tests := []struct {
		name   string
		change func(*upOptions)
		want   string // empty: no error
	}{
		{"defaults", func(*upOptions) {}, ""},
		{"least", func(o *upOptions) { o.vcpus, o.memory, o.slots = 1, 256<<20, 0 }, ""},
		{"most", func(o *upOptions) { o.vcpus, o.slots, o.shares = 255, guest.MaxSlots, guest.MaxShares }, ""},
		{"a name twice", func(o *upOptions) { o.names = []string{"one", "two", "one"} }, "NAME one is there twice: name each guest once"},
		{"a name that is none", func(o *upOptions) { o.names = []string{"one", "bad name!"} }, `guest name "bad name!": want 1 to 63 of a-z, 0-9 and, inside, '-'`},
		{"no processor", func(o *upOptions) { o.vcpus = 0 }, "--vcpus 0: want 1 to 255"},
		{"too many processors", func(o *upOptions) { o.vcpus = 256 }, "--vcpus 256: want 1 to 255"},
		{"little memory", func(o *upOptions) { o.memory = 255 << 20 }, "--memory 255MiB: want at least 256MiB"},
		{"negative pool", func(o *upOptions) { o.pool = -1 }, "--pool -1: want 0 or more"},
		{"polling", func(o *upOptions) { o.poll = 50 * time.Microsecond }, ""},
		{"polling too long", func(o *upOptions) { o.poll = 11 * time.Millisecond }, "--vhost-poll 11ms: want whole microseconds from 0 to 10ms"},
		{"half a microsecond", func(o *upOptions) { o.poll = 500 }, "--vhost-poll 500ns: want whole microseconds from 0 to 10ms"},
		{"negative slots", func(o *upOptions) { o.slots = -1 }, "--slots -1: want 0 to 128"},
		{"too many slots", func(o *upOptions) { o.slots = guest.MaxSlots + 1 }, "--slots 129: want 0 to 128"},
		{"negative shares", func(o *upOptions) { o.shares = -1 }, "--shares -1: want 0 to 8"},
		{"too many shares", func(o *upOptions) { o.shares = guest.MaxShares + 1 }, "--shares 9: want 0 to 8"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := good
			tt.change(&o)
			err := o.check()
			var wrong *usage.Error
			if tt.want == "" && err != nil || tt.want != "" && (!errors.As(err, &wrong) || err.Error() != tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

// Wrong usage is refused before anything is made.
func TestWrongUsage(t *testing.T) {
	tests := []struct {
		args []string
		want string
	}{
		{[]string{"up"}, "missing argument NAME"},
		{[]string{"up", "node1", "--vcpus", "0"}, "--vcpus 0"},
		{[]string{"up", "node1", "--accel", "xen"}, "want one of auto, kvm, tcg"},
		{[]string{"up", "node1", "--memory", "1GB"}, `want whole MiB such as 512MiB or 2GiB, got "1GB"`},
		{[]string{"up", "node1", "--memory", "1024"}, `want whole MiB such as 512MiB or 2GiB, got "1024"`},
		{[]string{"up", "node1", "--memory", "128Mi"}, "--memory 128MiB: want at least 256MiB"},
		{[]string{"ls", "node1"}, `unexpected argument "node1"`},
		{[]string{"ssh"}, "missing argument NAME"},
		{[]string{"down"}, "name the guests to stop, or give --all"},
		{[]string{"down", "node1", "--all"}, "name the guests to stop, or give --all"},
		{[]string{"down", ""}, `guest name "": want 1 to 63`},
		{[]string{"down", "node1", "../../victim"}, `guest name "../../victim": want 1 to 63`},
	}
	for _, tt := range tests {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			dir := newState(t)
			stdout, _, err := execute(t, tt.args...)
			if err == nil || !strings.Contains(err.Error(), tt.want) || stdout != "" {
				t.Errorf("got %v, stdout %q; want %q", err, stdout, tt.want)
			}
			if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("a lab was made (%v)", err)
			}
		})
	}
}

// Without a running guest, commands make nothing and say that no guest runs.
func TestWithoutLab(t *testing.T) {
	tests := []struct {
		args   []string
		stderr string
		err    string // empty: none
	}{
		{[]string{"ls"}, "no guest runs; start one by `unnest vm up NAME`\n", ""},
		{[]string{"ssh", "node1"}, "", "no guest runs: start one by `unnest vm up node1`"},
		{[]string{"ssh", "node1", "ls", "-l", "--all"}, "", "no guest runs: start one by `unnest vm up node1`"},
		{[]string{"load", "image.tar"}, "", "no guest runs: start one by `unnest vm up NAME`"},
		{[]string{"repair"}, "", "no guest runs: start one by `unnest vm up NAME`"},
		{[]string{"down", "--all"}, "", ""},
		{[]string{"down", "node1"}, "", "stop guests: no such guest: node1: no guest runs"},
	}
	for _, tt := range tests {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			dir := newState(t)
			stdout, stderr, err := execute(t, tt.args...)
			if stdout != "" || stderr != tt.stderr || (err == nil) != (tt.err == "") || err != nil && err.Error() != tt.err {
				t.Errorf("got stdout %q, stderr %q, %v; want %q, %q", stdout, stderr, err, tt.stderr, tt.err)
			}
			if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("a lab was made (%v)", err)
			}
		})
	}
}

// A guest that has ended is listed as dead, cannot be entered, and can be removed. The
// lab stays while it has another guest.
func TestDeadGuests(t *testing.T) {
	dir := newDead(t, "node1", "node2")
	stdout, stderr, err := execute(t, "ls")
	if want := "warning: the host daemon of the guests: it does not run: containers get no NICs until `unnest vm repair`\n"; stderr != want {
		t.Errorf("ls: stderr %q, want %q", stderr, want)
	}
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	if err != nil || len(lines) != 3 || strings.Join(strings.Fields(lines[1]), " ") != "node1 dead" || strings.Join(strings.Fields(lines[2]), " ") != "node2 dead" {
		t.Errorf("ls: got %v\n%s", err, stdout)
	}
	if _, _, err := execute(t, "ssh", "node1"); !errors.Is(err, guest.ErrDied) || !strings.Contains(err.Error(), ": remove it by `unnest vm down node1`") {
		t.Errorf("ssh: got %v, want ErrDied and the fix", err)
	}
	for _, args := range [][]string{{"ssh", "node3"}, {"down", "node3"}} {
		if _, _, err := execute(t, args...); !errors.Is(err, fleet.ErrNoGuest) || !strings.Contains(err.Error(), "node3") {
			t.Errorf("%v: got %v, want ErrNoGuest", args, err)
		}
	}
	if _, _, err := execute(t, "ssh", "../guests/node1"); !errors.Is(err, fleet.ErrNoGuest) || !strings.Contains(err.Error(), "guest name") {
		t.Errorf("ssh: got %v, want ErrNoGuest", err)
	}
	_, stderr, err = execute(t, "down", "node1")
	if err != nil || stderr != "node1 is down\n" {
		t.Errorf("down: got %v, stderr %q", err, stderr)
	}
	left, err := os.ReadDir(filepath.Join(dir, "guests"))
	if err != nil || len(left) != 1 || left[0].Name() != "node2" {
		t.Errorf("guests are %v (%v), want node2 alone", left, err)
	}
	l, err := lab.Open(labName) // nobody holds it any more
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Release(); err != nil {
		t.Error(err)
	}
}

// A command that was killed while a guest started leaves a directory without the
// guest's state. "vm down --all" removes it with the lab, and "vm ls" shows it as dead.
func TestDownAllAfterKill(t *testing.T) {
	dir := newDead(t, "node1")
	half := filepath.Join(dir, "guests", "node2")
	if err := os.Mkdir(half, 0o700); err != nil {
		t.Fatal(err)
	}
	qemu := exec.Command("sh", "-c", "sleep 60.5; true", filepath.Join(half, "qmp")) // its guest was never recorded
	qemu.Args[0] = "qemu-system-x86_64"
	if err := qemu.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- qemu.Wait() }()
	if stdout, _, err := execute(t, "ls"); err != nil || !strings.Contains(stdout, "node2  dead") {
		t.Errorf("ls: got %v\n%s", err, stdout)
	}
	if _, stderr, err := execute(t, "down", "--all"); err != nil || stderr != "node1 is down\nnode2 is down\n" {
		t.Errorf("down: got %v, stderr %q", err, stderr)
	}
	if err := <-ended; err == nil {
		t.Error("the process of the guest was not killed")
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the lab is left (%v)", err)
	}
}

// While one unnest works with the lab, another cannot stop its guests.
func TestDownWhileInUse(t *testing.T) {
	newDead(t, "node1", "node2")
	l, err := lab.Open(labName)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := l.Release(); err != nil {
			t.Error(err)
		}
	}()
	if _, _, err := execute(t, "down", "node1"); !errors.Is(err, lab.ErrInUse) || !strings.Contains(err.Error(), "wait for it to end") {
		t.Errorf("got %v, want ErrInUse", err)
	}
	if stdout, _, err := execute(t, "ls"); err != nil || !strings.Contains(stdout, "node1") {
		t.Errorf("ls: got %q, %v; looking is allowed", stdout, err)
	}
}

// While another unnest starts a guest, nothing says that the guest is dead or is to be removed.
func TestWhileStarting(t *testing.T) {
	dir := newDead(t, "node1")
	if err := os.Mkdir(filepath.Join(dir, "guests", "node2"), 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := lab.Open(labName)
	if err != nil {
		t.Fatal(err)
	}
	if stdout, _, err := execute(t, "ls"); err != nil || !strings.Contains(stdout, "node1  dead") || !strings.Contains(stdout, "node2  starting") {
		t.Errorf("ls: got %v\n%s", err, stdout)
	}
	if _, _, err := execute(t, "ssh", "node2"); err == nil || err.Error() != "guest is being started: node2" {
		t.Errorf("ssh: got %v", err)
	}
	if err := l.Release(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := execute(t, "ssh", "node2"); !errors.Is(err, guest.ErrDied) {
		t.Errorf("ssh after its end: got %v, want ErrDied", err)
	}
}

// Flags after the guest's name belong to the command.
func TestSSHLeavesFlags(t *testing.T) {
	newState(t)
	cmd := newSSHCmd(terminal.Streams{Out: io.Discard, Err: io.Discard})
	if err := cmd.ParseFlags([]string{"node1", "ls", "--all", "-h"}); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(cmd.Flags().Args(), " "); got != "node1 ls --all -h" {
		t.Errorf("got %q", got)
	}
}

// A machine that lacks programs is refused before anything is made, with one command to install them.
func TestUpChecksTheMachine(t *testing.T) {
	dir := newState(t)
	t.Setenv("PATH", t.TempDir())
	t.Setenv("UNNEST_CACHE", filepath.Join(t.TempDir(), "cache"))
	_, stderr, err := execute(t, "up", "node1", "--accel", "tcg")
	if err == nil || stderr != "" || !strings.Contains(err.Error(), "apt-get install ") || !strings.Contains(err.Error(), " qemu-system-x86") {
		t.Errorf("got %v, stderr %q", err, stderr)
	}
	for _, path := range []string{dir, os.Getenv("UNNEST_CACHE")} {
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s was made (%v)", path, err)
		}
	}
}

// A second "vm up" waits for the first, says so once, and stops waiting at Ctrl-C.
func TestUpWaits(t *testing.T) {
	newDead(t, "node1")
	held, err := lab.Open(labName)
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	streams, tries := terminal.Streams{Err: &stderr}, 0
	open := func() (*fleet.Fleet, error) {
		if tries++; tries == 3 {
			if err := held.Release(); err != nil {
				t.Error(err)
			}
		}
		l, err := lab.Open(labName)
		return &fleet.Fleet{Lab: l}, err
	}
	f, err := await(t.Context(), streams, open)
	if err != nil || stderr.String() != "waiting for another unnest that works with the guests\n" {
		t.Fatalf("got %v, stderr %q", err, stderr.String())
	}
	stopped, stop := context.WithCancelCause(t.Context())
	stop(errors.New("interrupted"))
	if _, err := await(stopped, streams, open); err == nil || err.Error() != "interrupted" {
		t.Errorf("stopped: got %v", err)
	}
	if err := f.Lab.Release(); err != nil {
		t.Error(err)
	}
}

// A lab whose network is gone cannot be repaired: the error says how to remove it.
func TestRepairAfterReboot(t *testing.T) {
	newDead(t, "node1")
	if _, _, err := execute(t, "repair"); err == nil || !strings.Contains(err.Error(), "remove what is left by `unnest vm down --all`") {
		t.Errorf("got %v", err)
	}
}

// A start after one that was killed removes what that left, and does not keep it for later commands.
func TestEnterAfterKill(t *testing.T) {
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		t.Skip("needs root and network namespaces: set UNNEST_PRIVILEGED=1")
	}
	dir := newDead(t, "node1")
	if err := os.Remove(filepath.Join(dir, "persistent")); err != nil {
		t.Fatal(err)
	}
	if _, err := enter(t.Context(), func(string) {}, "/bin/false"); err == nil || !strings.Contains(err.Error(), "start host daemon: ") {
		t.Errorf("got %v, want that the daemon of a new lab does not start", err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the lab is left (%v)", err)
	}
}
