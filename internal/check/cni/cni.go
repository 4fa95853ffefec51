// Package cni checks whether a CNI plugin, or a chain of plugins, does what the CNI
// specification says, and whether it works when many pods come and go. It knows a plugin
// only by its network configuration: it runs the plugin as a container runtime does, and
// inspects network namespaces and packets.
//
// Nothing about a particular plugin belongs here, nor the printing of results.
// Source: the CNI specification, see Spec.
package cni

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"unnest.io/unnest/internal/check"
)

// Spec is the document whose sections the outcomes name.
const Spec = "https://github.com/containernetworking/cni/blob/main/SPEC.md"

// Versions are the versions of the specification that are checked, oldest first.
var Versions = []string{"0.3.1", "0.4.0", "1.0.0", "1.1.0"}

// older compares two versions of Versions.
func older(a, b string) bool {
	return slices.Index(Versions, a) < slices.Index(Versions, b)
}

// Network is the network under test and what is needed to run its plugins.
type Network struct {
	// List is a network configuration list in JSON. Nothing else may use the network:
	// garbage collection removes all other attachments.
	List []byte
	// Path lists the directories of the plugins, as in CNI_PATH.
	Path []string
	// Timeout bounds one plugin call; 0: 2 minutes.
	Timeout time.Duration
	// Wait bounds the time until a pod reaches its peers, and until the kernel has
	// removed the links of a pod; 0: 1 minute.
	Wait time.Duration
	// Peers must be reachable from every pod. If there are none, the gateways in the
	// results are pinged.
	Peers []Peer
}

// Options configure Run.
type Options struct {
	Network
	// Versions are the versions to check; none: all that every plugin of the list and
	// its IPAM plugin support.
	Versions []string
	// Only selects the checks by name; nil: all.
	Only *regexp.Regexp
	// Parallel is the number of pods added at the same time; 0: 8.
	Parallel int
	// Kills is the number of times that an ADD, and a DEL, is killed; 0: 5.
	Kills int
	// Capacity is the number of pods that the network can hold; 0: unknown, and the
	// checks that exhaust the network do not apply.
	Capacity int
	// SpareLinks is the number of additional links that a plugin may leave in the
	// runtime's network namespace for later pods.
	SpareLinks int
	// CNITool is the path of the cnitool binary; "": its check does not apply.
	CNITool string
}

func (o *Options) setDefaults() {
	o.Parallel = cmp.Or(o.Parallel, 8)
	if o.Capacity > 0 {
		o.Parallel = min(o.Parallel, o.Capacity)
	}
	o.Kills = cmp.Or(o.Kills, 5)
}

// testCase is one check. Its function is written with the steps of package check.
type testCase struct {
	name    string
	section string
	level   Level
	since   string // the first version of the specification with this feature; "": all
	run     func(*trial)
}

func allCases() []testCase {
	return slices.Concat(addCases, failureCases, delCases, checkCases, parallelCases, crashCases,
		statusCases, gcCases, capacityCases, chainCases)
}

// Checks returns the names of all checks, in the order in which they run.
func Checks() []string {
	var names []string
	for _, c := range allCases() {
		names = append(names, c.name)
	}
	return names
}

// Run makes all checks at all versions and reports each outcome as soon as it is known.
// It runs plugins in the network namespace of this process and needs root. It removes
// all that it creates, also when ctx ends; it then returns the cause. Other errors say
// why nothing could be checked; faults of a plugin are in the outcomes.
func Run(ctx context.Context, o Options, report func(Outcome)) error {
	o.setDefaults()
	n, err := open(o.Network)
	if err != nil {
		return err
	}
	defer n.close()
	versions, err := selectVersions(ctx, n, o.Versions, report)
	if err != nil {
		return err
	}
	host := &hostLinks{spare: o.SpareLinks, wait: n.wait}
	for _, v := range versions {
		at, err := n.at(v)
		if err != nil {
			return err
		}
		if err := warmUp(ctx, at, &o, host); ctx.Err() != nil {
			return context.Cause(ctx)
		} else if err != nil {
			report(Outcome{Check: "warm-up", Version: v, Section: "ADD, DEL", Level: Must, Err: err})
			continue
		}
		for _, c := range allCases() {
			if o.Only != nil && !o.Only.MatchString(c.name) {
				continue
			}
			out := perform(ctx, c, at, &o, host)
			if ctx.Err() != nil { // the outcome is not the plugin's
				return context.Cause(ctx)
			}
			report(out)
		}
	}
	return nil
}

// selectVersions returns the wanted versions, or else those that all plugins support.
func selectVersions(ctx context.Context, n *network, wanted []string, report func(Outcome)) ([]string, error) {
	begin := time.Now()
	outcome := Outcome{Check: "version", Section: "VERSION", Level: Must}
	supported, err := n.versions(ctx)
	outcome.Err, outcome.Duration = err, time.Since(begin)
	report(outcome)
	if err != nil || len(wanted) > 0 {
		return wanted, err
	}
	var selected []string
	for _, v := range Versions {
		if plugin := supported.lacks(v); plugin != "" {
			report(Outcome{Check: "version", Version: v, Section: "VERSION", Level: Must,
				NotApplicable: plugin + " does not report " + v})
			continue
		}
		selected = append(selected, v)
	}
	if len(selected) == 0 {
		return nil, errNoVersion
	}
	return selected, nil
}

// warmUp adds and deletes one pod, so that links that a plugin creates once and keeps,
// such as a bridge, exist. Then it records the links of the runtime's namespace.
func warmUp(ctx context.Context, at *network, o *Options, host *hostLinks) error {
	t := newTrial(ctx, at, o, host)
	err := check.Run(func() { t.up(eth0) })
	if err = errors.Join(err, t.removePods()); err != nil {
		return err
	}
	return host.record()
}

// perform makes one check and cleans up after it. Leftovers are a fault of the plugin.
func perform(ctx context.Context, c testCase, at *network, o *Options, host *hostLinks) Outcome {
	out := Outcome{Check: c.name, Version: at.version, Section: c.section, Level: c.level}
	if c.since != "" && older(at.version, c.since) {
		out.NotApplicable = "new in version " + c.since
		return out
	}
	begin := time.Now()
	t := newTrial(ctx, at, o, host)
	err := check.Run(func() { c.run(t) })
	cleanUp := errors.Join(t.removePods(), host.leak())
	if cleanUp != nil {
		cleanUp = fmt.Errorf("clean up: %w", cleanUp)
	}
	out.Duration = time.Since(begin)
	out.NotApplicable, out.Err = check.End(err, cleanUp)
	return out
}

// Level says how strongly the specification asks for a behaviour.
type Level string

// Must is what the specification demands and the reference plugins do. Should is
// what it recommends, or what runtimes rely on although the specification does not
// mention it; some reference plugins do not do it.
const (
	Must   Level = "must"
	Should Level = "should"
)

// Outcome is the result of one check at one version of the specification.
type Outcome struct {
	Check   string
	Version string // "" when the check has no version
	Section string // of Spec
	Level   Level
	// Err says what is wrong; nil when the check passed or does not apply.
	Err error
	// NotApplicable says why the check does not apply; "" when it does.
	NotApplicable string
	Duration      time.Duration
}

// Verdict is an outcome in one word.
type Verdict string

// The verdicts. Unmet is the failure of a check of level Should.
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
