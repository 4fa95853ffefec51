//go:build chaos

package e2e

import (
	_ "embed"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"unnest.io/unnest/internal/measure/machines/machine"
	"unnest.io/unnest/internal/testbed/guest"
	"unnest.io/unnest/internal/testbed/image"
)

// chaosFound says what earlier runs have found.
//
//go:embed testdata/chaos-found.md
var chaosFound string

// report writes the summary.
func (c *chaos) report(took time.Duration) {
	c.t.Helper()
	c.t.Logf("%d operations and %d faults in %v, %d failures", c.total("op:"), c.total("fault:"), took.Round(time.Second), len(c.failures))
	if c.total("op:") < 10 || c.total("fault:") < 3 || c.total("verified: no answer") == 0 {
		c.t.Errorf("too little has happened: %v", c.done)
	}
	text := c.page(took)
	c.t.Log(text)
	if *chaosReport != "" {
		c.check(os.WriteFile(filepath.Clean(*chaosReport), []byte(text), 0o644))
	}
}

// page is the summary in Markdown.
func (c *chaos) page(took time.Duration) string {
	c.t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "# Chaos\n\n"+
		"**Result.** %d attach and detach operations, %d faults and %d audits in %v: **%s**.\n\n"+
		"For readers of [security.md](../security.md) who want to know whether pods keep their networks when everything\n"+
		"around them fails at random. `make chaos` wrote this page about its last run.\n\n",
		c.total("op:"), c.total("fault:"), c.done["audit"], took.Round(time.Second), plural(len(c.failures), "failure"))
	if took < time.Hour {
		fmt.Fprintf(&b, "By default a run takes an hour; this one was made shorter (`CHAOS_TIME`).\n\n")
	}
	for _, f := range c.failures {
		fmt.Fprintf(&b, "- %s\n", strings.ReplaceAll(f, "\n", " "))
	}
	fmt.Fprintf(&b, `## What ran

Three guests of two tenants. In each, three workers attach and detach: one adds pods by the CNI plugin, uses and
deletes them, of which a fifth lose their DEL, and two attach VLANs by the daemon's API. Two of the guests also share a pod's localhost (Hostlo)
and a volume. Meanwhile one fault after the other happens, each kind at least once. A fault lasts a few
seconds, or until the guest has booted again. An operation that a fault interrupts is repeated for up to %v; it
fails the run if it does not succeed by then, unless its guest was lost.

Every %v and at the end, an audit lets the running operations finish and then compares what the daemon
reports, the links of the host and the pods. Nothing may have leaked, and no pod may lack its network. In each
guest a pod sends from a forged address and to the other tenant, and must get no answer. A pod whose TAP was
deleted has to be reported by CHECK. At the end all pods are deleted, and nothing may be left.

| | |
|---|---|
`, inWords(chaosPatience), inWords(auditInterval))
	for _, f := range c.facts() {
		fmt.Fprintf(&b, "| %s | %s |\n", f[0], f[1])
	}
	for _, section := range [][3]string{
		{"Operations", "operation", "op: "}, {"Faults", "fault", "fault: "}, {"Checks", "check", "verified: "},
	} {
		fmt.Fprintf(&b, "\n## %s\n\n| %s | number |\n|---|---|\n", section[0], section[1])
		for _, what := range slices.Sorted(maps.Keys(c.done)) {
			if name, ok := strings.CutPrefix(what, section[2]); ok {
				fmt.Fprintf(&b, "| %s | %d |\n", name, c.done[what])
			}
		}
	}
	return b.String() + "\n" + chaosFound
}

// facts are what one has to know to judge the run, and to repeat it.
func (c *chaos) facts() [][2]string {
	c.t.Helper()
	host, err := machine.DescribeHost(c.t.Context())
	c.check(err)
	accel, err := guest.ChooseAccel("")
	c.check(err)
	revision, err := exec.Command("git", "describe", "--always", "--dirty", "--abbrev=12").Output()
	c.check(err)
	qemu, err := exec.Command(guest.QEMU(image.AMD64), "--version").Output()
	c.check(err)
	version, _, _ := strings.Cut(string(qemu), "\n")
	g := c.guests[0]
	return [][2]string{
		{"date", time.Now().UTC().Format(time.DateOnly)},
		{"commit", strings.TrimSpace(string(revision))},
		{"seed", fmt.Sprintf("%d: `CHAOS_SEED=%[1]d` begins the same faults again", c.seed)},
		{"machine", fmt.Sprintf("%s, %s, %d MiB of memory, Linux %s", host.CPU, plural(host.VCPUs, "processor"), host.Memory>>20, host.Kernel)},
		{"guests", fmt.Sprintf("1 processor and %d MiB of memory each, Linux %s", g.options.Memory>>20, strings.TrimSpace(g.node.run("uname -r")))},
		{"accelerator", fmt.Sprintf("%s: %s; %s", accel.Accel, accel.Reason, version)},
		{"longest repetition of an operation until it succeeded", c.waited.Round(100 * time.Millisecond).String()},
		{"longest time until the daemon's rules were back after a flush", c.slowest.Round(time.Millisecond).String()},
	}
}

// inWords is a duration of whole minutes.
func inWords(d time.Duration) string { return plural(int(d.Minutes()), "minute") }

func plural(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}
