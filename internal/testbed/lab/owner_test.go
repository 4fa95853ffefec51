package lab

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Two state directories have a lab of the same name each. Both work, and closing one does
// not touch the other, nor its processes.
func TestStatesSideBySide(t *testing.T) {
	privileged(t)
	state, err := os.MkdirTemp("/tmp", "s") // the path of a lab is short
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(state)
	t.Setenv("UNNEST_STATE", filepath.Join(state, "a"))
	first, err := Create("test-same")
	if err != nil {
		t.Fatal(err)
	}
	// The path of the other directory ends with that of the first.
	t.Setenv("UNNEST_STATE", filepath.Join(state, "b", state, "a"))
	second, err := Create("test-same")
	if err != nil {
		t.Fatal(errors.Join(err, first.Close()))
	}
	defer func() {
		if err := second.Close(); err != nil {
			t.Error(err)
		}
		assertGone(t, second)
	}()
	if first.HostNS() == second.HostNS() || first.ClientNS() == second.ClientNS() {
		t.Errorf("both labs have the namespaces %s and %s", first.HostNS(), first.ClientNS())
	}
	var ended []chan error
	for _, l := range []*Lab{first, second} {
		orphan := exec.Command("sh", "-c", "sleep 61.75; true", "unix:"+filepath.Join(l.Dir, "socket"))
		orphan.Args[0] = "/usr/bin/qemu-system-x86_64"
		client := exec.Command("sleep", "61.875")
		for _, start := range []func() error{orphan.Start, func() error { return Do(l.ClientNS(), client.Start) }} {
			if err := start(); err != nil {
				t.Fatal(err)
			}
		}
		for _, c := range []*exec.Cmd{orphan, client} {
			done := make(chan error, 1)
			go func() { done <- c.Wait() }()
			ended = append(ended, done)
		}
	}
	assertNAT(t, first)
	assertNAT(t, second)
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	assertGone(t, first)
	for i, want := range []bool{true, true, false, false} {
		if !want {
			select {
			case err := <-ended[i]:
				t.Errorf("process %d of the second lab ended: %v", i-2, err)
			default:
			}
		} else if err := <-ended[i]; err == nil {
			t.Errorf("process %d of the first lab was not killed", i)
		}
	}
	assertNAT(t, second)
	for _, state := range []string{filepath.Dir(first.Dir), filepath.Dir(second.Dir)} {
		t.Setenv("UNNEST_STATE", t.TempDir())
		dead, err := Create("test-same")
		if err != nil {
			t.Fatal(err)
		}
		if err := dead.lock.Close(); err != nil { // as the kernel does when the owner is killed
			t.Fatal(err)
		}
		t.Setenv("UNNEST_STATE", state)
		if removed, err := Clean(t.Context(), false, "test-same"); err != nil || !slices.Equal(removed, []string{dead.Dir}) {
			t.Errorf("clean from %s removed %v, %v; want only the dead lab %s", state, removed, err, dead.Dir)
		}
		assertGone(t, dead)
		assertNAT(t, second)
	}
}

// Of several commands that create a lab at the same time, one gets it, also while others
// remove dead labs.
func TestCreateAtOnce(t *testing.T) {
	privileged(t)
	type outcome struct {
		lab *Lab
		err error
	}
	const attempts = 6
	outcomes := make(chan outcome, attempts)
	for i := range attempts {
		go func() {
			if i%2 > 0 {
				_, err := Reap(t.Context())
				outcomes <- outcome{nil, err}
				return
			}
			l, err := Create("test-race")
			if errors.Is(err, ErrInUse) {
				err = nil
			}
			outcomes <- outcome{l, err}
		}()
	}
	var made []*Lab
	for range attempts {
		o := <-outcomes
		if o.err != nil {
			t.Error(o.err)
		}
		if o.lab != nil {
			made = append(made, o.lab)
		}
	}
	if len(made) != 1 {
		t.Fatalf("%d labs of one name were made, want 1", len(made))
	}
	assertNAT(t, made[0])
	if err := made[0].Close(); err != nil {
		t.Error(err)
	}
	assertGone(t, made[0])
}

// A Create that fails because a name is taken leaves what has the name, and removes what
// it has made.
func TestCreateTaken(t *testing.T) {
	for _, client := range []bool{false, true} {
		privileged(t)
		l := newLab("test-taken")
		name := l.hostNS()
		if client {
			name = l.clientNS()
		}
		if err := newNS(name); err != nil {
			t.Fatal(err)
		}
		process := exec.Command("sleep", "62")
		if err := Do(nsPath(name), process.Start); err != nil {
			t.Fatal(err)
		}
		if _, err := Create("test-taken"); !errors.Is(err, os.ErrExist) || !strings.Contains(err.Error(), "unnest clean") {
			t.Errorf("%s: got %v, want that it exists, with a fix", name, err)
		}
		if err := process.Process.Kill(); err != nil || process.Wait().Error() != "signal: killed" {
			t.Errorf("%s: its process was ended: %v", name, err)
		}
		left, err := filepath.Glob(nsPath("unnest-test-taken*"))
		if err != nil || !slices.Equal(left, []string{nsPath(name)}) {
			t.Errorf("left: %v, %v; want %s", left, err, name)
		}
		if _, err := os.Stat(l.Dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the state directory is left: %v", err)
		}
		if err := deleteNS(name); err != nil {
			t.Error(err)
		}
	}
}

// Create does not take over a persistent lab, for which no process holds the lock.
func TestCreatePersistent(t *testing.T) {
	privileged(t)
	kept, err := Create("test-kept")
	if err != nil {
		t.Fatal(err)
	}
	if err := kept.Release(); err != nil {
		t.Fatal(err)
	}
	if _, err := Create("test-kept"); !errors.Is(err, ErrExists) {
		t.Errorf("got %v, want ErrExists", err)
	}
	l, err := Open("test-kept")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{l.HostNS(), l.ClientNS(), l.persistentMark()} {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	assertGone(t, l)
}

// A lab removes a namespace that another version made for it under another name, and
// leaves one of its own name that is marked as another's.
func TestCloseByMark(t *testing.T) {
	privileged(t)
	l, err := Create("test-mark")
	if err != nil {
		t.Fatal(err)
	}
	other := &Lab{Name: l.Name, Dir: filepath.Join(t.TempDir(), l.Name)}
	if err := errors.Join(newNS("unnest-test-mark-old"), Do(nsPath("unnest-test-mark-old"), l.markNS), Do(l.ClientNS(), other.markNS)); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	left, err := filepath.Glob(nsPath("unnest-test-mark*"))
	if err != nil || !slices.Equal(left, []string{l.ClientNS()}) {
		t.Errorf("left: %v, %v; want %s", left, err, l.ClientNS())
	}
	if err := deleteNS(l.clientNS()); err != nil {
		t.Error(err)
	}
}

// Labs in the default directory have readable names. Elsewhere the names depend on the
// directory, but not on how it is written.
func TestID(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	id := func(state string) string {
		t.Helper()
		t.Setenv("UNNEST_STATE", state)
		return newLab("vms").ID()
	}
	for _, state := range []string{"", "/run/unnest", "/run/../run/unnest/"} {
		if got := id(state); got != "vms" {
			t.Errorf("%q: got %q, want vms", state, got)
		}
	}
	want := id(dir)
	if !strings.HasPrefix(want, "vms.") {
		t.Errorf("got %q, want the directory's hash in it", want)
	}
	for _, state := range []string{".", link, dir + "/", link + "/../link"} {
		if got := id(state); got != want {
			t.Errorf("%q: got %q, want %q", state, got, want)
		}
	}
	if missing := id(link + "/a/b"); missing != id(dir+"/a/b") || missing == want {
		t.Errorf("a directory that does not exist has %q", missing)
	}
	if id(other) == want {
		t.Error("two directories have the same names")
	}
}

// A lab whose owner was killed is not opened: it may be half made. Clean removes it.
func TestOpenDead(t *testing.T) {
	privileged(t)
	dead, err := Create("test-dead")
	if err != nil {
		t.Fatal(err)
	}
	if err := dead.lock.Close(); err != nil { // as the kernel does when the owner is killed
		t.Fatal(err)
	}
	if l, err := Open("test-dead"); !errors.Is(err, ErrNoLab) {
		t.Errorf("got %v, %v; want ErrNoLab", l, err)
	}
	if removed, err := Clean(t.Context(), false, "test-dead"); err != nil || !slices.Equal(removed, []string{dead.Dir}) {
		t.Errorf("removed %v, %v", removed, err)
	}
	assertGone(t, dead)
}
