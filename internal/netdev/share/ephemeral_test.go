package share

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func none(ID) bool { return false }

// lists returns what is in a directory.
func lists(t *testing.T, dir string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

// open opens a volume for a guest.
func open(t *testing.T, dir string, id ID, guest string, ephemeral bool) error {
	t.Helper()
	by := Maker{Guest: guest, Admit: anyone.Admit, Ephemeral: ephemeral}
	checked := CheckVolume(dir, id, Digest{1}, by)
	v, err := OpenVolume(dir, id, Digest{1}, by)
	if err == nil {
		err = v.Close()
	}
	if !errors.Is(err, checked) {
		t.Errorf("check says %v, open %v", checked, err)
	}
	return err
}

// An ephemeral volume ends with its last guest, and nothing is left of it. Another one of the pod stays.
func TestEphemeral(t *testing.T) {
	dir := tenantDirectory(t)
	data, kept := ID{Volume, "web", "data"}, ID{Volume, "web", "kept"}
	for _, guest := range []string{"g1", "g2"} {
		if err := open(t, dir, data, guest, true); err != nil {
			t.Fatal(err)
		}
	}
	if err := open(t, dir, data, "g3", false); !errors.Is(err, ErrLifetime) {
		t.Errorf("a lasting volume of the name: %v", err)
	}
	if err := open(t, dir, kept, "g1", false); err != nil {
		t.Fatal(err)
	}
	if err := open(t, dir, kept, "g1", true); !errors.Is(err, ErrLifetime) {
		t.Errorf("an ephemeral volume of the name: %v", err)
	}
	if err := exec.Command("sh", "-c", "mkdir -p "+dir+"/web/data/a/b && ln -s "+dir+"/web/kept "+dir+"/web/data/a/link && touch "+dir+"/web/kept/file").Run(); err != nil {
		t.Fatal(err)
	}
	if ended, err := EndUnused(dir, "g1", func(id ID) bool { return id == data }); ended || err != nil {
		t.Errorf("g1 keeps it: ended %t, %v", ended, err)
	}
	if ended, err := EndUnused(dir, "g1", none); ended || err != nil {
		t.Errorf("g2 has it: ended %t, %v", ended, err)
	}
	if users, err := Users(dir); err != nil || !slices.Equal(users, []string{"g2"}) {
		t.Errorf("users %v, %v", users, err)
	}
	if all, err := Ephemeral(dir, "g2"); err != nil || !slices.Equal(all, []ID{data}) {
		t.Errorf("g2 has %v, %v", all, err)
	}
	if ended, err := EndUnused(dir, "g2", none); !ended || err != nil {
		t.Errorf("the last one: ended %t, %v", ended, err)
	}
	if err := RemoveEnded(dir); err != nil {
		t.Error(err)
	}
	if got := strings.Join(append(lists(t, dir), lists(t, dir+"/web")...), " "); got != ".makers web .key kept" {
		t.Errorf("left: %s", got)
	}
	if _, err := os.Stat(dir + "/web/kept/file"); err != nil {
		t.Errorf("the lasting volume: %v", err)
	}
}

// A guest can have the mark of an ephemeral volume that is not there any more: a lasting one of its name would end with the mark.
func TestEphemeralMark(t *testing.T) {
	dir, id := tenantDirectory(t), ID{Volume, "web", "data"}
	if err := open(t, dir, id, "g1", true); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(dir + "/web/data"); err != nil {
		t.Fatal(err)
	}
	if err := open(t, dir, id, "g2", false); !errors.Is(err, ErrLifetime) {
		t.Errorf("a lasting volume: %v", err)
	}
	if err := open(t, dir, id, "g2", true); err != nil {
		t.Errorf("an ephemeral volume: %v", err)
	}
}

// The umask of the daemon, which is 077 in its unit, does not close volumes.
func TestUmask(t *testing.T) {
	dir := tenantDirectory(t)
	defer unix.Umask(unix.Umask(0o077))
	if err := open(t, dir, ID{Volume, "web", "data"}, "g1", true); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(dir + "/web/data"); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

// After any step at which a daemon can be killed, the next one leaves nothing.
func TestEphemeralKilled(t *testing.T) {
	data := ID{Volume, "web", "data"}
	for name, step := range map[string]func(dir string) error{
		"before there is a volume":   func(dir string) error { return os.Remove(dir + "/web/data") },
		"after it has lost its name": func(dir string) error { return os.Rename(dir+"/web/data", dir+"/"+endedPrefix+"x") },
		"while files are removed": func(dir string) error {
			return errors.Join(os.WriteFile(dir+"/web/data/file", nil, 0o600), os.Rename(dir+"/web/data", dir+"/"+endedPrefix+"x"))
		},
		"before anything": func(string) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			dir := tenantDirectory(t)
			if err := errors.Join(open(t, dir, data, "g1", true), step(dir)); err != nil {
				t.Fatal(err)
			}
			_, err := EndUnused(dir, "g1", none)
			if err = errors.Join(err, RemoveEnded(dir)); err != nil {
				t.Error(err)
			}
			if got := lists(t, dir); len(got) > 0 {
				t.Errorf("left: %v", got)
			}
		})
	}
	if users, err := Users(t.TempDir() + "/missing"); users != nil || err != nil {
		t.Errorf("a directory that is missing: %v, %v", users, err)
	}
}

// A volume whose directories are deeper than a process has descriptors is removed.
func TestEphemeralDeep(t *testing.T) {
	dir := tenantDirectory(t)
	if err := open(t, dir, ID{Volume, "web", "data"}, "g1", true); err != nil {
		t.Fatal(err)
	}
	at, err := unix.Open(dir+"/web/data", unix.O_PATH, 0)
	for range 5000 {
		next := -1
		if err == nil {
			err = unix.Mkdirat(at, "a", 0o700)
		}
		if err == nil {
			next, err = unix.Openat(at, "a", unix.O_PATH, 0)
		}
		err = errors.Join(err, unix.Close(at))
		at = next
	}
	if err = errors.Join(err, unix.Close(at)); err != nil {
		t.Fatal(err)
	}
	if _, err := EndUnused(dir, "g1", none); err != nil {
		t.Error(err)
	}
	if err := RemoveEnded(dir); err != nil || len(lists(t, dir)) > 0 {
		t.Errorf("%v, left %v", err, lists(t, dir))
	}
}
