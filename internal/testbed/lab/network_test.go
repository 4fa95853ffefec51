package lab

import (
	"os"
	"os/exec"
	"testing"
)

// freshRun is a script in a mount namespace with an empty /run, as after a boot.
const freshRun = `mount --make-rprivate / && mount -t tmpfs run /run && exec "$@"`

// A name can be removed also after iproute2 has made its first one.
func TestNamesBesideIPRoute(t *testing.T) {
	privileged(t)
	if os.Getenv("UNNEST_FRESH_RUN") == "" {
		c := exec.Command("unshare", "--mount", "sh", "-c", freshRun, "sh", os.Args[0], "-test.run=^TestNamesBesideIPRoute$")
		c.Env = append(os.Environ(), "UNNEST_FRESH_RUN=1")
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return
	}
	if err := newNS("ours"); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("ip", "netns", "add", "theirs").CombinedOutput(); err != nil {
		t.Fatalf("ip netns add: %v: %s", err, out)
	}
	if err := deleteNS("ours"); err != nil {
		t.Error(err)
	}
	if out, err := exec.Command("ip", "netns", "del", "theirs").CombinedOutput(); err != nil {
		t.Errorf("ip netns del: %v: %s", err, out)
	}
	names, err := os.ReadDir(nsDir)
	if err != nil || len(names) > 0 {
		t.Errorf("%s has %v, %v; want nothing", nsDir, names, err)
	}
}
