package localhost_test

import (
	"context"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"unnest.io/unnest/internal/check"
	"unnest.io/unnest/internal/check/localhost"
	"unnest.io/unnest/internal/check/localhost/agenttest"
	"unnest.io/unnest/internal/netdev/thread"
	"unnest.io/unnest/internal/testbed/place"
)

func TestMain(m *testing.M) { os.Exit(agenttest.Main(m)) }

// namespace is an unnamed network namespace with only a loopback. It ends with the test.
type namespace struct{ netns.NsHandle }

func newNamespace(t *testing.T) namespace {
	t.Helper()
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		t.Skip("needs root: set UNNEST_PRIVILEGED=1")
	}
	var made netns.NsHandle
	err := thread.Do(func() (err error) {
		if made, err = netns.New(); err == nil {
			err = setUpLoopback()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	n := namespace{made}
	t.Cleanup(func() { n.Close() })
	return n
}

// setUpLoopback gives lo the addresses that stand for the pod's own.
func setUpLoopback() error {
	lo := &netlink.Device{LinkAttrs: netlink.LinkAttrs{Name: "lo", Index: 1}}
	for _, address := range []string{"10.9.7.1/32", "fd00:9:7::1/128"} {
		a, err := netlink.ParseAddr(address)
		if err != nil {
			return err
		}
		if err := netlink.AddrAdd(lo, a); err != nil {
			return err
		}
	}
	return netlink.LinkSetUp(lo)
}

// inside calls do in the namespace. Sockets that do opens stay in the namespace.
func (n namespace) inside(t *testing.T, do func() error) {
	t.Helper()
	err := thread.Do(func() error {
		if err := netns.Set(n.NsHandle); err != nil {
			return err
		}
		return do()
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (n namespace) place() place.Local {
	return place.Local{NetNS: "/proc/" + strconv.Itoa(os.Getpid()) + "/fd/" + strconv.Itoa(int(n.NsHandle))}
}

// nft loads rules for incoming packets, one per line.
func (n namespace) nft(t *testing.T, rules ...string) {
	t.Helper()
	table := "table inet faults {\nchain in {\ntype filter hook input priority 0; policy accept;\n" + strings.Join(rules, "\n") + "\n}\n}\n"
	process, err := n.place().Start(t.Context(), place.Command{Args: []string{"nft", "-f", "-"}, Stdin: strings.NewReader(table)})
	if err == nil {
		err = process.Wait()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// fractions returns count fractions in the namespace. Their agents are this test program.
func (n namespace) fractions(t *testing.T, count int) []localhost.Fraction {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return n.fractionsOf(exe, count)
}

// fractionsOf is fractions with another program as agent.
func (n namespace) fractionsOf(exe string, count int) []localhost.Fraction {
	var fractions []localhost.Fraction
	for range count {
		fractions = append(fractions, localhost.Fraction{Place: n.place(), Args: []string{exe, "agent"}})
	}
	return fractions
}

// outcomesOf runs the cases and returns the outcomes.
func outcomesOf(t *testing.T, o localhost.Options) []localhost.Outcome {
	t.Helper()
	var all []localhost.Outcome
	err := localhost.Run(context.WithoutCancel(t.Context()), o, func(out localhost.Outcome) {
		t.Logf("%-9s %-70s %6dms %s", out.Verdict(), out.Case, out.Duration.Milliseconds(), check.OneLine(out.Err)+out.NotThere)
		all = append(all, out)
	})
	if err != nil {
		t.Error(err)
	}
	if len(all) == 0 {
		t.Error("no case ran")
	}
	return all
}
