// Limiter starts programs in a control group of package share, and prints what its limits
// do to them.
package main

import (
	"fmt"
	"log"
	"os"
	"os/exec"
	"time"

	"unnest.io/unnest/internal/netdev/share"
)

func main() {
	groups, err := share.OpenGroups()
	if err != nil {
		log.Fatal(err)
	}
	limits := share.Limits{Memory: 16 << 20, Tasks: 4}
	run := func(script string) error {
		cmd := exec.Command("sh", "-c", script)
		cmd.Stdout = os.Stderr
		if err := groups.Start(cmd, "node-test", limits); err != nil {
			log.Fatal(err)
		}
		return cmd.Wait()
	}
	report := func(what, limited string, err error) {
		if err == nil {
			limited = "not limited"
		}
		_, _ = fmt.Fprintf(os.Stdout, "%s: %s\n", what, limited)
	}
	if err := run("true"); err != nil {
		log.Fatal(err)
	}
	report("memory", "killed", run("exec dd if=/dev/zero of=/dev/null bs=64M count=1"))
	report("processes", "refused", run("for i in 1 2 3 4 5 6; do sleep 1 & done; wait"))
	for range 40 { // until the sleeps have ended
		if err := groups.RemoveEmpty(); err != nil {
			log.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}
