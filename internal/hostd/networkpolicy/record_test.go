package networkpolicy

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// On a disk that is full before a tenant has its first record, its policies are in force, and the next daemon closes the pods.
func TestAttackFullDiskAtFirst(t *testing.T) {
	b := &bench{T: t, dir: t.TempDir(), kernel: &kernel{}, write: errors.New("no space left on device")}
	b.start()
	b.mustCommit("shop", podWith("web/a", "p1", 1, 5))
	b.want("full disk", map[string]int{"p1": 5, "p2": -1})
	b.start()
	b.want("started on a full disk", map[string]int{"p1": 0, "p2": 0, "q1": -1})
	b.write = nil
	b.mustCommit("shop", podWith("web/a", "p1", 1, 5))
	b.start()
	b.want("with space", map[string]int{"p1": 5, "p2": -1})
}

// Without space for the directory the daemon starts, and no policy takes effect that is not kept.
func TestNoDirectory(t *testing.T) {
	b := &bench{T: t, dir: filepath.Join(t.TempDir(), "hostd"), kernel: &kernel{}}
	if err := os.WriteFile(b.dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b.start()
	if _, err := b.commit("shop", podWith("web/a", "p1", 1, 5)); err == nil {
		t.Error("policies are in force that are not kept")
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

// A record that cannot be written has one error, which does not grow with the pods: it is in the log and in the status.
func TestAttackErrorOfRecord(t *testing.T) {
	pods := map[string]podRules{spokenPod: {}}
	for i := range 1000 {
		pods[fmt.Sprint("web/", i)] = podRules{UID: fmt.Sprint("uid-", i)}
	}
	if err := recordOf(pods)(failing{}); err == nil || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %.200v, want an error of one line", err)
	}
}
