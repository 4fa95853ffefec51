package share

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

var errTooMany = errors.New("too many volumes")

// atMost returns a guest that may make so many volumes.
func atMost(limit int, guest string) Maker {
	return Maker{Guest: guest, Admit: func(made int) error {
		if made >= limit {
			return errTooMany
		}
		return nil
	}}
}

// The volumes that a guest has made count until they are removed, in whatever pod they are
// and whoever uses them.
func TestMakers(t *testing.T) {
	dir := tenantDirectory(t)
	open := func(by Maker, pod, name string) error {
		id := ID{Volume, pod, name}
		checked := CheckVolume(dir, id, Digest{1}, by)
		v, err := OpenVolume(dir, id, Digest{1}, by)
		if err == nil {
			err = v.Close()
		}
		if !errors.Is(err, checked) {
			t.Errorf("%s/%s: check says %v, open %v", pod, name, checked, err)
		}
		return err
	}
	one, two := atMost(2, "g1"), atMost(2, "g2")
	if err := errors.Join(open(one, "web", "a"), open(one, "db", "a"), open(one, "web", "a")); err != nil {
		t.Fatal(err)
	}
	for _, pod := range []string{"web", "other"} {
		if err := open(one, pod, "b"); !errors.Is(err, errTooMany) {
			t.Errorf("a third volume, of pod %s: got %v", pod, err)
		}
	}
	if left, err := filepath.Glob(dir + "/other*"); err != nil || len(left) > 0 {
		t.Errorf("a refused volume leaves %q, %v", left, err)
	}
	// Another guest makes its own, and uses those that exist.
	if err := errors.Join(open(two, "web", "b"), open(two, "web", "a"), open(two, "db", "a"), open(one, "web", "b")); err != nil {
		t.Error(err)
	}
	// The operator removes a volume.
	if err := os.RemoveAll(dir + "/db"); err != nil {
		t.Fatal(err)
	}
	if err := open(one, "cache", "a"); err != nil {
		t.Errorf("after one was removed: %v", err)
	}
	if _, err := os.Stat(dir + "/.makers/g1/volume.a.db"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the removed volume is still recorded: %v", err)
	}
	if err := open(one, "cache", "b"); !errors.Is(err, errTooMany) {
		t.Errorf("again a third volume: got %v", err)
	}
	// The records are gone; the volumes of before do not count.
	if err := errors.Join(os.RemoveAll(dir+"/.makers"), open(one, "cache", "b"), open(one, "web", "a")); err != nil {
		t.Error(err)
	}
}
