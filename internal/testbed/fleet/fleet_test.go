package fleet

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"unnest.io/unnest/internal/testbed/guest"
	"unnest.io/unnest/internal/testbed/lab"
)

// newLab returns a lab that is a state directory only.
func newLab(t *testing.T) *lab.Lab {
	t.Helper()
	l := &lab.Lab{Name: "test", Dir: t.TempDir()}
	if err := os.Mkdir(filepath.Join(l.Dir, "guests"), 0o700); err != nil {
		t.Fatal(err)
	}
	return l
}

func openFleet(t *testing.T) *Fleet {
	t.Helper()
	f, err := Open(newLab(t))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// Opening a lab again gives the same keys. Only root can read them.
func TestOpenAgain(t *testing.T) {
	l := newLab(t)
	first, err := Open(l)
	if err != nil {
		t.Fatal(err)
	}
	second, err := Open(l)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first.key.PublicKey().Marshal(), second.key.PublicKey().Marshal()) {
		t.Error("the login key changed")
	}
	if !bytes.Equal(first.authority.CertificatePEM(), second.authority.CertificatePEM()) {
		t.Error("the authority changed")
	}
	info, err := os.Stat(filepath.Join(l.Dir, "ssh.key"))
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("login key: %v, mode %v; want 0600", err, info.Mode())
	}
}

func TestLoginKeyDamaged(t *testing.T) {
	for name, content := range map[string]string{"empty": "", "text": "no key\n", "cut short": "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNz\n"} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			path := filepath.Join(l.Dir, "ssh.key")
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			f, err := Open(l)
			if f != nil || err == nil || !strings.Contains(err.Error(), "read login key "+path) {
				t.Errorf("got %v, %v; want an error that names %s", f, err, path)
			}
			if left, err := os.ReadFile(path); err != nil || string(left) != content {
				t.Errorf("the damaged key was replaced: %q (%v)", left, err)
			}
		})
	}
}

func TestOpenWithoutState(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "gone")
	if f, err := Open(&lab.Lab{Name: "test", Dir: dir}); f != nil || err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("got %v, %v; want an error that names %s", f, err, dir)
	}
}

// writeStates makes the state directories of guests with these indices. Index 0 makes
// one without a state file.
func writeStates(t *testing.T, f *Fleet, indices ...int) {
	t.Helper()
	for n, index := range indices {
		dir := f.Lab.GuestDir(fmt.Sprintf("guest%d", n))
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if index == 0 {
			continue
		}
		if err := writeJSON(filepath.Join(dir, stateFile), nodeState{Index: index}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestFreeIndex(t *testing.T) {
	all := make([]int, maxGuests)
	for i := range all {
		all[i] = i + 1
	}
	tests := []struct {
		name  string
		taken []int
		want  int // 0: an error
	}{
		{"no guest", nil, 1},
		{"in order", []int{1, 2, 3}, 4},
		{"the first is gone", []int{2, 3}, 1},
		{"one in between is gone", []int{5, 1, 2, 4}, 3},
		{"a guest without a state file", []int{0, 1}, 2},
		{"the last", all[:maxGuests-1], maxGuests},
		{"full", all, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := openFleet(t)
			writeStates(t, f, tt.taken...)
			got, err := f.freeIndex()
			if got != tt.want || (err == nil) != (tt.want > 0) {
				t.Errorf("got %d, %v; want %d", got, err, tt.want)
			}
			if err != nil && !strings.Contains(err.Error(), "room for 200 guests") {
				t.Errorf("got %v; want how many there is room for", err)
			}
		})
	}
}

// An index that cannot be read is an error, because it could be any.
func TestFreeIndexDamagedState(t *testing.T) {
	f := openFleet(t)
	writeStates(t, f, 1)
	path := filepath.Join(f.Lab.GuestDir("guest0"), stateFile)
	if err := os.WriteFile(path, []byte(`{"index": `), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := f.freeIndex(); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("got %d, %v; want an error that names %s", got, err, path)
	}
}

// A failed launch leaves no guest.
func TestLaunchRefuses(t *testing.T) {
	f := openFleet(t)
	writeStates(t, f, 1)
	tests := []struct{ name, want string }{
		{"", "guest name"},
		{"../up", "guest name"},
		{"Upper", "guest name"},
		{"guest0", "the name belongs to a dead guest"},
		{"new", "network namespace"}, // the lab has none to plug it into
	}
	for _, tt := range tests {
		if n, err := f.Launch(t.Context(), Options{Name: tt.name}); n != nil || err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: got %v, %v; want %q", tt.name, n, err, tt.want)
		}
	}
	for _, tt := range []struct {
		names []string
		want  string
	}{
		{[]string{"one", "two", "one"}, "launch guest one: the name belongs to a dead guest"},
		{[]string{"one", "guest0"}, "the name belongs to a dead guest"},
		{[]string{"one", "two"}, "network namespace"},
	} {
		var options []Options
		for _, name := range tt.names {
			options = append(options, Options{Name: name})
		}
		err := f.LaunchAll(t.Context(), options, func(i int, n *Node) error { t.Errorf("guest %d has started: %v", i, n); return nil })
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: got %v; want %q", tt.names, err, tt.want)
		}
	}
	if names, err := f.Lab.Guests(); err != nil || strings.Join(names, " ") != "guest0" {
		t.Errorf("guests are %v (%v), want guest0 alone", names, err)
	}
}

// Guests that start together have different indices, in their order.
func TestReserve(t *testing.T) {
	f := openFleet(t)
	writeStates(t, f, 2)
	for i, name := range []string{"one", "two"} {
		if got, err := f.reserve(name); err != nil || got != []int{1, 3}[i] {
			t.Errorf("%s: got %d, %v; want %d", name, got, err, []int{1, 3}[i])
		}
	}
	if _, err := f.Find("one"); !errors.Is(err, guest.ErrDied) || !strings.Contains(err.Error(), "its start was interrupted") {
		t.Errorf("got %v; want that its start was interrupted", err)
	}
	if err := f.Lab.RemoveGuest("one"); err != nil {
		t.Error(err)
	}
	if got, err := f.reserve("three"); err != nil || got != 1 {
		t.Errorf("three: got %d, %v; want the index of the guest that was removed", got, err)
	}
}

func TestRemove(t *testing.T) {
	f := openFleet(t)
	writeStates(t, f, 1, 2)
	if err := errors.Join(f.Lab.RemoveGuest("guest0"), f.Lab.RemoveGuest("guest0")); err != nil {
		t.Errorf("remove, twice: %v", err)
	}
	if got, err := f.freeIndex(); err != nil || got != 1 {
		t.Errorf("free is %d (%v), want the index of the guest that was removed", got, err)
	}
}

// A name that is taken is refused with what has the name, and how to free it.
func TestNameTaken(t *testing.T) {
	f := openFleet(t)
	writeStates(t, f, 0, 1) // guest0's start was interrupted; guest1 has ended
	for name, want := range map[string]string{
		"guest0": "launch guest guest0: the name belongs to a dead guest: remove it by `unnest vm down guest0`",
		"guest1": "launch guest guest1: the name belongs to a dead guest: remove it by `unnest vm down guest1`",
	} {
		if _, err := f.Launch(t.Context(), Options{Name: name}); err == nil || err.Error() != want {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	cmd := exec.Command("sh", "-c", "read line", f.Lab.GuestDir("guest1")+"/qmp") // stands for its QEMU
	stdin, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stdin.Close(); _ = cmd.Wait() }()
	if err := writeJSON(filepath.Join(f.Lab.GuestDir("guest1"), stateFile), nodeState{Index: 1, PID: cmd.Process.Pid}); err != nil {
		t.Fatal(err)
	}
	want := "launch guest guest1: a running guest has the name: choose another, or stop that guest by `unnest vm down guest1`"
	if _, err := f.Launch(t.Context(), Options{Name: "guest1"}); err == nil || err.Error() != want {
		t.Errorf("got %v, want %q", err, want)
	}
}

// Of two commands that make a key at the same time, both have the key of the first.
func TestReadOrCreateAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	got, err := readOrCreate(path, func() ([]byte, error) {
		return []byte("second"), os.WriteFile(path, []byte("first"), 0o600)
	})
	if kept, readErr := os.ReadFile(path); err != nil || readErr != nil || string(got) != "first" || string(kept) != "first" {
		t.Errorf("got %q, %v; the file has %q, %v", got, err, kept, readErr)
	}
}
