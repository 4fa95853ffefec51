package lab

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A directory next to the labs that is not of a lab is no lab, whatever it is called: neither a run nor "unnest clean"
// removes it or makes a file in it, and no command opens it.
func TestForeignDirectories(t *testing.T) {
	privileged(t)
	var foreign []string
	for _, name := range []string{"media", "locks", "systemd-private", "Upper.case", "vms"} {
		dir := filepath.Join(Root(), name)
		if err := errors.Join(os.MkdirAll(filepath.Join(dir, "guests"), 0o700), os.WriteFile(filepath.Join(dir, "file"), nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		foreign = append(foreign, dir)
	}
	// Other programs have files of this name, too.
	if err := os.WriteFile(filepath.Join(foreign[1], "lock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	list := func() (all []string) {
		all, err := filepath.Glob(Root() + "/*/*")
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	before := list()
	if names, err := List(); err != nil || len(names) > 0 {
		t.Errorf("labs: %v, %v; want none", names, err)
	}
	if l, err := Open("vms"); !errors.Is(err, ErrNoLab) {
		t.Errorf("opened %v, %v; want ErrNoLab", l, err)
	}
	if _, err := Create("vms"); err == nil || errors.Is(err, ErrExists) || !strings.Contains(err.Error(), "UNNEST_STATE") {
		t.Errorf("create: got %v, want that the directory is not of a lab", err)
	}
	if removed, err := Reap(t.Context()); err != nil || len(removed) > 0 {
		t.Errorf("removed %v, %v; want nothing", removed, err)
	}
	if removed, err := removeDead(t.Context(), foreign, false); err != nil || len(removed) > 0 { // as of a process that names it
		t.Errorf("removed %v, %v; want nothing", removed, err)
	}
	if after := list(); !slices.Equal(before, after) {
		t.Errorf("before: %v, after: %v", before, after)
	}
}

// RemoveGuest removes the directory of a guest and nothing above or beside it.
func TestRemoveGuest(t *testing.T) {
	l := &Lab{Name: "test-lab", Dir: filepath.Join(t.TempDir(), "state", "test-lab")}
	victim := filepath.Join(filepath.Dir(filepath.Dir(l.Dir)), "victim")
	if err := errors.Join(os.MkdirAll(l.GuestDir("node1"), 0o700), os.MkdirAll(l.GuestDir("node2"), 0o700), os.Mkdir(victim, 0o700)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", ".", "..", "../../..", "../../../victim", "node1/../node2"} {
		if err := l.RemoveGuest(name); err == nil || !strings.Contains(err.Error(), "guest name") {
			t.Errorf("%q: got %v, want an error on the name", name, err)
		}
	}
	if err := l.RemoveGuest("node2"); err != nil {
		t.Error(err)
	}
	if left, err := l.Guests(); err != nil || !slices.Equal(left, []string{"node1"}) {
		t.Errorf("guests are %v (%v), want node1", left, err)
	}
	if _, err := os.Stat(victim); err != nil {
		t.Error(err)
	}
}

// A removal that fails leaves the mark, so that the next one goes on.
func TestRemovalKeepsMark(t *testing.T) {
	privileged(t)
	l := newLab("test-half")
	busy := filepath.Join(l.Dir, "zz-busy")
	if err := errors.Join(l.makeDir(), os.Mkdir(busy, 0o700), unix.Mount("tmpfs", busy, "tmpfs", 0, "")); err != nil {
		t.Fatal(err)
	}
	if err := l.removeDir(); !errors.Is(err, unix.EBUSY) || l.check() != nil {
		t.Errorf("got %v and then %v", err, l.check())
	}
	if err := errors.Join(unix.Unmount(busy, 0), os.RemoveAll(l.Dir)); err != nil {
		t.Error(err)
	}
}

// A lab whose directory is gone is locked while it is removed, so that nobody makes it at the same time.
func TestGoneIsLocked(t *testing.T) {
	t.Setenv("UNNEST_STATE", t.TempDir())
	gone := filepath.Join(Root(), "test-gone")
	if l, err := openDead(gone, true); err != nil || l == nil {
		t.Errorf("dry run: got %v, %v", l, err)
	}
	if _, err := os.Stat(gone); err == nil {
		t.Error("a dry run has made the directory")
	}
	l, err := openDead(gone, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := newLab("test-gone").claim(); !errors.Is(err, ErrInUse) {
		t.Errorf("claim: got %v, want ErrInUse", err)
	}
	if err := l.removeDir(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(gone); err == nil {
		t.Error("the directory is left")
	}
}

// A lab that cannot be removed does not keep others from being removed.
func TestReapGoesOn(t *testing.T) {
	privileged(t)
	for _, name := range []string{"test-busy", "test-dead"} {
		l, err := Create(name)
		if err = errors.Join(err, l.lock.Close()); err != nil {
			t.Fatal(err)
		}
	}
	busy := filepath.Join(Root(), "test-busy", "busy")
	if err := errors.Join(os.Mkdir(busy, 0o700), unix.Mount("tmpfs", busy, "tmpfs", 0, "")); err != nil {
		t.Fatal(err)
	}
	if removed, err := Reap(t.Context()); !errors.Is(err, unix.EBUSY) || !slices.Equal(removed, []string{"test-dead"}) {
		t.Errorf("removed %v, %v; want test-dead and why test-busy stays", removed, err)
	}
	if err := unix.Unmount(busy, 0); err != nil {
		t.Fatal(err)
	}
	if removed, err := Reap(t.Context()); err != nil || !slices.Equal(removed, []string{"test-busy"}) {
		t.Errorf("removed %v, %v; want test-busy", removed, err)
	}
}
