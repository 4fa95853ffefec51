// Package localhost checks whether a set of fractions behaves as one loopback: whether
// what a program does on 127.0.0.1 and ::1 in one fraction has the effect that it would
// have if all fractions were one network namespace. It knows a fraction only by the
// command that starts an agent in it.
//
// How fractions are connected does not belong here, nor the printing of outcomes, nor any
// measurement of speed except the limit for immediate events.
package localhost

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	"unnest.io/unnest/internal/check"
	"unnest.io/unnest/internal/testbed/place"
)

// Fraction is a place and the command that starts an agent (see package agent) there.
type Fraction struct {
	Place place.Place
	Args  []string
}

// Options configure Run.
type Options struct {
	Fractions []Fraction // at least 2
	// Only selects cases by name, Skip excludes cases by name; nil: all, none.
	Only, Skip *regexp.Regexp
	// Patience is the time limit of immediate events, such as a refusal; 0: 1 s. Other
	// events may take ten times as long.
	Patience time.Duration
	// FirstPort is the first port on which servers listen. Each case uses new ports.
	// 0: 20000.
	FirstPort int
	// Large runs the cases of load in full size: tens of thousands of connections and
	// datagrams, which take minutes in emulated guests.
	Large bool
}

// lastPort is below the ephemeral ports, which start at 32768 by default.
const lastPort = 32767

func (o *Options) setDefaults() error {
	o.Patience, o.FirstPort = cmp.Or(o.Patience, time.Second), cmp.Or(o.FirstPort, 20000)
	switch {
	case len(o.Fractions) < 2:
		return fmt.Errorf("want at least 2 fractions, got %d", len(o.Fractions))
	case o.Patience < 0:
		return fmt.Errorf("patience %v: want a positive time", o.Patience)
	case o.FirstPort < 1 || o.FirstPort > lastPort-1000:
		return fmt.Errorf("first port %d: want 1 to %d", o.FirstPort, lastPort-1000)
	}
	return nil
}

// testCase is one assertion. Its function is written with the steps of package check.
type testCase struct {
	name string // the assertion
	// alone says that the case passes in fractions without a connection, too.
	alone    bool
	families []family
	run      func(*trial)
}

// groups are all cases, by the group that begins their names.
var groups = []struct {
	name  string
	cases []testCase
}{
	{"ping", pingCases}, {"tcp", tcpCases}, {"udp", udpCases}, {"address", addressCases},
	{"own", ownCases}, {"bind", bindCases}, {"programs", programCases},
}

type family struct {
	name, tcp, udp string
	loopback, any  string // addresses
	largest        int    // bytes of the largest datagram that loopback does not fragment
}

var (
	ipv4 = family{"ipv4", "tcp4", "udp4", "127.0.0.1", "0.0.0.0", 65507}
	// The largest IPv6 packet is loopback's MTU, 64 KiB, of which 48 bytes are headers.
	ipv6     = family{"ipv6", "tcp6", "udp6", "::1", "::", 65488}
	both     = []family{ipv4, ipv6}
	onlyIPv4 = []family{ipv4}
	onlyIPv6 = []family{ipv6}
)

// Outcome is the result of one case.
type Outcome struct {
	Case string // "GROUP/FAMILY/NAME"
	// Err says how the fractions differ from one loopback; nil when they do not, or when
	// the case could not run.
	Err error
	// NotThere names the tool or the address that a fraction lacks for this case; "" when
	// the case ran.
	NotThere string
	Duration time.Duration
	// Alone says that the case passes in fractions without a connection, too.
	Alone bool
}

// Verdict is an outcome in one word.
type Verdict string

// The verdicts.
const (
	Pass     Verdict = "pass"
	Fail     Verdict = "FAIL"
	NotThere Verdict = "not there"
)

// Verdict returns the outcome in one word.
func (o Outcome) Verdict() Verdict {
	switch {
	case o.NotThere != "":
		return NotThere
	case o.Err != nil:
		return Fail
	}
	return Pass
}

// eachCase calls do for every case in every family, in order, until it returns an error.
func eachCase(do func(name string, c testCase, f family) error) error {
	for _, g := range groups {
		for _, c := range g.cases {
			for _, f := range c.families {
				if err := do(g.name+"/"+f.name+"/"+c.name, c, f); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// Names returns the names of all cases, in the order in which they run.
func Names() (names []string) {
	_ = eachCase(func(name string, _ testCase, _ family) error { names = append(names, name); return nil })
	return names
}

// Run runs all cases and reports each outcome as soon as it is known. It removes all that
// it creates, also when ctx ends; it then returns the cause. Other errors say why no case
// could run, or that a fraction was lost; differences from one loopback are in the
// outcomes.
func Run(ctx context.Context, o Options, report func(Outcome)) error {
	if err := o.setDefaults(); err != nil {
		return err
	}
	fractions, err := startAll(ctx, o)
	if err != nil {
		return err
	}
	ports := &ports{next: o.FirstPort}
	err = eachCase(func(name string, c testCase, f family) error {
		if o.Only != nil && !o.Only.MatchString(name) || o.Skip != nil && o.Skip.MatchString(name) {
			return nil
		}
		out := Outcome{Case: name, Alone: c.alone}
		start := time.Now()
		t := &trial{ctx: ctx, family: f, fractions: fractions, patience: o.Patience, ports: ports, large: o.Large}
		err := check.Run(func() { c.run(t) })
		out.NotThere, out.Err = check.End(err, t.stopAll())
		out.Duration = time.Since(start)
		if ctx.Err() != nil { // the outcome is not that of the fractions
			return context.Cause(ctx)
		}
		report(out)
		return lost(fractions)
	})
	return errors.Join(err, check.Run(func() { each(fractions, func(f *fraction) { check.Must(f.end()) }) }))
}
