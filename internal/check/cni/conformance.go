// Package cni asks a CNI plugin, or a chain of them, whether it does
// what the CNI specification says, and whether it holds when many pods come and
// go. It knows a plugin by its network configuration only: it runs the plugin as
// a container runtime does and looks at the network namespaces and at packets.
//
// Nothing of any particular plugin belongs here, nor how results are printed.
package cni

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"
)

// Spec is the document whose sections the outcomes name.
const Spec = "https://github.com/containernetworking/cni/blob/main/SPEC.md"

// Versions are the versions of the specification that are checked, oldest first.
var Versions = []string{"0.3.1", "0.4.0", "1.0.0", "1.1.0"}

// Level is how much the specification asks for a behaviour.
type Level string

// Must is what the specification demands and the reference plugins do. Should is
// what it recommends, or what a runtime hopes for and the specification does not
// mention: reference plugins lack some of it.
const (
	Must   Level = "must"
	Should Level = "should"
)

// Outcome is what one check has found at one version of the specification.
type Outcome struct {
	Check   string
	Version string // "" when the check has no version
	Section string // of Spec
	Level   Level
	// Err says what is wrong; nil when nothing is, or when the check does not apply.
	Err error
	// NotApplicable is why the check could not be made; "" when it was.
	NotApplicable string
	Duration      time.Duration
}

// Verdict is an outcome in one word.
type Verdict string

// The verdicts. Unmet is the failure of a check that is a Should.
const (
	Pass          Verdict = "pass"
	Fail          Verdict = "fail"
	Unmet         Verdict = "unmet"
	NotApplicable Verdict = "n/a"
)

// Verdict returns the outcome in one word.
func (o Outcome) Verdict() Verdict {
	switch {
	case o.NotApplicable != "":
		return NotApplicable
	case o.Err == nil:
		return Pass
	case o.Level == Should:
		return Unmet
	}
	return Fail
}

// Network is the network under test and the means to run its plugins.
type Network struct {
	// List is a network configuration list in JSON. The network has to be the
	// suite's own: garbage collection takes everybody else's attachments away.
	List []byte
	// Path are the directories of the plugins, as in CNI_PATH.
	Path []string
	// Timeout bounds one run of a plugin; 0: 2 minutes.
	Timeout time.Duration
}

// Options are what Run needs to know.
type Options struct {
	Network
	// Peers have to be reached from every pod. Without any, the gateways in the
	// results are pinged.
	Peers []Peer
	// Versions are those to check; none: all that every plugin of the list and
	// its IPAM plugin speak.
	Versions []string
	// Only restricts the checks to those whose names match; nil: all.
	Only *regexp.Regexp
	// Parallel is the number of pods added at once; 0: 8.
	Parallel int
	// Kills is how often an ADD, and how often a DEL, is killed; 0: 5.
	Kills int
	// Capacity is the number of pods that the network can hold at once; 0: not
	// known, the checks that need to use it up do not apply.
	Capacity int
	// SpareLinks is how many links more than at the start may be in the runtime's
	// network namespace when all pods are gone, because the plugin keeps them for
	// pods to come.
	SpareLinks int
	// CNITool is the path of the program cnitool; "": its check does not apply.
	CNITool string
}

func (o *Options) setDefaults() {
	if o.Parallel == 0 {
		o.Parallel = 8
	}
	if o.Capacity > 0 {
		o.Parallel = min(o.Parallel, o.Capacity)
	}
	if o.Kills == 0 {
		o.Kills = 5
	}
}

// check is one question. Its function returns a notApplicable, or what is wrong.
type check struct {
	name    string
	section string
	level   Level
	since   string // the version of the specification that brought what is asked; "": all
	run     func(*trial) error
}

// notApplicable is the reason why a check cannot be made.
type notApplicable string

func (n notApplicable) Error() string { return string(n) }

// Checks returns the names of all checks, in their order.
func Checks() []string {
	var names []string
	for _, c := range allChecks() {
		names = append(names, c.name)
	}
	return names
}

func allChecks() []check {
	return slices.Concat(addChecks, failureChecks, delChecks, checkChecks, parallelChecks, crashChecks,
		statusChecks, gcChecks, capacityChecks, chainChecks)
}

// Run makes all checks at all versions and tells each outcome as soon as it is
// known. It runs plugins in the network namespace of this process and needs root.
// What it makes it removes, also when ctx ends, which is the error then. Other
// errors say why nothing could be checked; what a plugin does wrong is in the
// outcomes.
func Run(ctx context.Context, o Options, tell func(Outcome)) error {
	o.setDefaults()
	n, err := open(o.Network)
	if err != nil {
		return err
	}
	defer n.close()
	versions, err := selectVersions(ctx, n, o.Versions, tell)
	if err != nil {
		return err
	}
	ground := &ground{spare: o.SpareLinks}
	for _, v := range versions {
		at, err := n.at(v)
		if err != nil {
			return err
		}
		if err := warmUp(ctx, at, &o, ground); ctx.Err() != nil {
			return context.Cause(ctx)
		} else if err != nil {
			tell(Outcome{Check: "warm-up", Version: v, Section: "ADD, DEL", Level: Must, Err: err})
			continue
		}
		for _, c := range allChecks() {
			if o.Only != nil && !o.Only.MatchString(c.name) {
				continue
			}
			out := perform(ctx, c, at, &o, ground)
			if ctx.Err() != nil { // what failed did so for that
				return context.Cause(ctx)
			}
			tell(out)
		}
	}
	return nil
}

// selectVersions returns the versions to check: those wanted, or those spoken.
func selectVersions(ctx context.Context, n *network, wanted []string, tell func(Outcome)) ([]string, error) {
	begin := time.Now()
	outcome := Outcome{Check: "version", Section: "VERSION", Level: Must}
	spoken, err := n.versions(ctx)
	outcome.Err, outcome.Duration = err, time.Since(begin)
	tell(outcome)
	if err != nil {
		return nil, fmt.Errorf("ask the plugins for their versions: %w", err)
	}
	if len(wanted) > 0 {
		return wanted, nil
	}
	var selected []string
	for _, v := range Versions {
		if who, lacking := spoken.lacks(v); lacking {
			tell(Outcome{Check: "version", Version: v, Section: "VERSION", Level: Must,
				NotApplicable: who + " does not report " + v})
			continue
		}
		selected = append(selected, v)
	}
	if len(selected) == 0 {
		return nil, fmt.Errorf("the plugins have none of the versions %v in common", Versions)
	}
	return selected, nil
}

// warmUp adds and deletes one pod, so that what a plugin makes once and keeps, a
// bridge for one, is there, and remembers the links of the runtime's namespace.
func warmUp(ctx context.Context, at *network, o *Options, g *ground) error {
	t := newTrial(ctx, at, o, g)
	_, _, err := t.up(eth0)
	if err = errors.Join(err, t.removePods()); err != nil {
		return err
	}
	return g.settle()
}

// perform makes one check and cleans up after it. What is left behind is a fault
// of the plugin's as well.
func perform(ctx context.Context, c check, at *network, o *Options, g *ground) Outcome {
	out := Outcome{Check: c.name, Version: at.version, Section: c.section, Level: c.level}
	if c.since != "" && older(at.version, c.since) {
		out.NotApplicable = "the specification has it since " + c.since
		return out
	}
	begin := time.Now()
	t := newTrial(ctx, at, o, g)
	err := c.run(t)
	cleaned := errors.Join(t.removePods(), g.leak())
	if cleaned != nil {
		cleaned = fmt.Errorf("clean up: %w", cleaned)
	}
	out.Duration = time.Since(begin)
	if na := notApplicable(""); errors.As(err, &na) && cleaned == nil {
		out.NotApplicable = string(na)
		return out
	}
	out.Err = errors.Join(err, cleaned)
	return out
}

// older compares two versions of Versions.
func older(a, b string) bool {
	return slices.Index(Versions, a) < slices.Index(Versions, b)
}
