// Package localhost asks any set of fractions, wherever they are, whether together
// they behave as one loopback: whether what a program does on 127.0.0.1 and ::1 in
// one of them has the effect that it would have if all of them were one network
// namespace. It knows a fraction by a command only, which starts an agent in it.
//
// Nothing of how fractions are connected belongs here, nor how outcomes are
// printed, nor how fast anything is beyond "at once".
package localhost

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"unnest/internal/testbed/place"
)

// Fraction is where an agent (see package agent) is started, and by which command.
type Fraction struct {
	Place place.Place
	Args  []string
}

// Options are what Run needs to know.
type Options struct {
	Fractions []Fraction // at least 2
	// Only restricts the cases to those whose names match, Skip leaves out those
	// whose names match; nil: all, none.
	Only, Skip *regexp.Regexp
	// Patience is how long what happens at once may take; 0: 1 s. Whatever else has
	// to happen is given up after ten times that.
	Patience time.Duration
	// FirstPort is the first of the ports that servers listen on; each case takes new
	// ones. 0: 20000.
	FirstPort int
}

// lastPort is below all ephemeral ports, which start at 32768 unless told otherwise.
const lastPort = 32767

func (o *Options) setDefaults() error {
	if o.Patience == 0 {
		o.Patience = time.Second
	}
	if o.FirstPort == 0 {
		o.FirstPort = 20000
	}
	switch {
	case len(o.Fractions) < 2:
		return fmt.Errorf("%d fractions: at least 2 are needed to ask whether they are one", len(o.Fractions))
	case o.Patience < 0:
		return fmt.Errorf("a patience of %v: want a positive one", o.Patience)
	case o.FirstPort < 1 || o.FirstPort > lastPort-1000:
		return fmt.Errorf("first port %d: want 1 to %d", o.FirstPort, lastPort-1000)
	}
	return nil
}

// Case is one thing that is asserted.
type Case struct {
	// Group is tcp, udp, address, ping, bind (whose cases are about conflicts between
	// binds of several fractions) or programs.
	Group string
	// Name is what is asserted.
	Name string
	// Alone says that the case holds in fractions that have no connection as well.
	Alone bool

	families []family
	run      func(*trial) error
}

// family is a family of addresses.
type family struct {
	name, tcp, udp string
	loopback, any  string // addresses
	largest        int    // the largest datagram's bytes that loopback carries in one packet
}

var (
	ipv4 = family{"ipv4", "tcp4", "udp4", "127.0.0.1", "0.0.0.0", 65507}
	// Of IPv6, the largest has the size of loopback's MTU, 64 KiB, with 48 bytes of headers.
	ipv6     = family{"ipv6", "tcp6", "udp6", "::1", "::", 65488}
	both     = []family{ipv4, ipv6}
	onlyIPv4 = []family{ipv4}
	onlyIPv6 = []family{ipv6}
)

// Outcome is what one case has found.
type Outcome struct {
	Case string // "GROUP/FAMILY/NAME"
	// Err says what is not as on one loopback; nil when nothing is, or when the case
	// could not be tried.
	Err error
	// NotThere says which program a fraction lacks; "" when the case was tried.
	NotThere string
	Duration time.Duration
	Alone    bool // of the Case
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

// notThere is the reason why a case cannot be tried.
type notThere string

func (n notThere) Error() string { return string(n) }

// trialOf is a case with a family.
type trialOf struct {
	Case
	family family
}

func (c trialOf) String() string { return c.Group + "/" + c.family.name + "/" + c.Name }

// allCases are those of all groups, in their order.
func allCases() []trialOf {
	var all []trialOf
	for _, group := range [][]Case{pingCases, tcpCases, udpCases, addressCases, bindCases, programCases} {
		for _, c := range group {
			for _, f := range c.families {
				all = append(all, trialOf{c, f})
			}
		}
	}
	return all
}

// Names returns the names of all cases, in their order.
func Names() []string {
	var names []string
	for _, c := range allCases() {
		names = append(names, c.String())
	}
	return names
}

// Run tries all cases and tells each outcome as soon as it is known. What it makes
// it removes, also when ctx ends, which is the error then. Other errors say why
// nothing could be tried, or that a fraction was lost; what is not as on one
// loopback is in the outcomes.
func Run(ctx context.Context, o Options, tell func(Outcome)) error {
	if err := o.setDefaults(); err != nil {
		return err
	}
	fractions, err := begin(ctx, o)
	if err != nil {
		return err
	}
	err = tryAll(ctx, o, fractions, tell)
	return errors.Join(err, end(fractions))
}

func tryAll(ctx context.Context, o Options, fractions []*fraction, tell func(Outcome)) error {
	ports := &ports{next: o.FirstPort}
	for _, c := range allCases() {
		if o.Only != nil && !o.Only.MatchString(c.String()) || o.Skip != nil && o.Skip.MatchString(c.String()) {
			continue
		}
		out := try(ctx, c, o.Patience, fractions, ports)
		if ctx.Err() != nil { // what failed did so for that
			return context.Cause(ctx)
		}
		tell(out)
		if err := lost(fractions); err != nil {
			return err
		}
	}
	return nil
}

// try tries one case and stops what it has started.
func try(ctx context.Context, c trialOf, patience time.Duration, fractions []*fraction, ports *ports) Outcome {
	out := Outcome{Case: c.String(), Alone: c.Alone}
	start := time.Now()
	t := &trial{ctx: ctx, family: c.family, fractions: fractions, patience: patience, ports: ports}
	err := c.run(t)
	stopped := t.stopAll()
	out.Duration = time.Since(start)
	if why := notThere(""); errors.As(err, &why) && stopped == nil {
		out.NotThere = string(why)
		return out
	}
	out.Err = errors.Join(err, stopped)
	return out
}

// OneLine words an outcome's error.
func (o Outcome) OneLine() string {
	if o.Err == nil {
		return o.NotThere
	}
	return strings.ReplaceAll(o.Err.Error(), "\n", "; ")
}
