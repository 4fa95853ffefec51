package loopback

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"testing"
	"time"

	"unnest.io/unnest/internal/check/localhost"
	"unnest.io/unnest/internal/check/localhost/agenttest"
	"unnest.io/unnest/internal/testbed/place"
)

func TestMain(m *testing.M) { os.Exit(agenttest.Main(m)) }

// The localhost cases that depend on many clients, equal ports, or the pod's own addresses, pass.
func TestLocalhostCases(t *testing.T) {
	w := routedWorld(t, 3)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	only := `^(tcp|udp)/.*/(many-short-|simultaneous-|thousands-|outgoing-|held-|two-clients-|clients-in-turn-|first-of-two-|client-on-a-fixed-|client-on-the-port-of-its-|server-moves-unnoticed-|burst-|answer-from-)|^own/`
	if all := os.Getenv("UNNEST_LOCALHOST_CASES"); all != "" { // by hand
		only = all
	}
	o := localhost.Options{Only: regexp.MustCompile(only), Patience: 10 * time.Second, Large: os.Getenv("UNNEST_LOCALHOST_LARGE") == "1"}
	for f := range w.joined.All() {
		o.Fractions = append(o.Fractions, localhost.Fraction{Place: place.Local{NetNS: fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), w.pods[f].Fd())}, Args: []string{exe, "agent"}})
	}
	ran := 0
	err = localhost.Run(context.WithoutCancel(t.Context()), o, func(out localhost.Outcome) {
		ran++
		t.Logf("%-9s %-70s %6dms %s", out.Verdict(), out.Case, out.Duration.Milliseconds(), fmt.Sprint(out.Err)+out.NotThere)
		if out.Verdict() != localhost.Pass {
			t.Errorf("%s: %s: %v", out.Case, out.Verdict(), out.Err)
		}
	})
	if err != nil || ran == 0 {
		t.Errorf("%d cases ran, %v", ran, err)
	}
}
