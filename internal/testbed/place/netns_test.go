package place

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// The first thread of a process never enters a namespace: it would stay there.
func TestInNetNSThread(t *testing.T) {
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		t.Skip("enters a network namespace: set UNNEST_PRIVILEGED=1")
	}
	for range 2000 {
		err := InNetNS("/proc/self/ns/net", func() error {
			if unix.Gettid() == unix.Getpid() {
				t.Error("it runs on the first thread")
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if t.Failed() {
			return
		}
	}
}
