// Package doctor finds out what this machine can do for nested virtualization
// and its networks: one check per capability, what was found, and the command
// that brings what is missing.
//
// A check judges what the probes tell and never touches the machine itself. How
// checks are printed belongs to the command; bringing what is missing is left to
// the user.
package doctor

import "context"

// State says how a check came out.
type State string

// The states of a check.
const (
	OK      State = "ok"
	Limited State = "limited" // works, slower or smaller than it could
	Missing State = "missing"
)

// Check is one capability of the machine.
type Check struct {
	Name     string `json:"name"`
	State    State  `json:"state"`
	Found    string `json:"found"`    // what is there, or why it is not
	Remedy   string `json:"remedy"`   // what to do about it; empty when there is nothing to do
	Required bool   `json:"required"` // the quick start cannot do without
}

// Examine runs every check, in a fixed order. Cancelling ctx ends the programs
// that a probe has started; what they were asked then counts as missing.
func Examine(ctx context.Context, p Probes) []Check {
	var checks []Check
	for _, examine := range []func(context.Context, Probes) []Check{
		machine, virtualization, kernel, programs, engines,
	} {
		checks = append(checks, examine(ctx, p)...)
	}
	return checks
}

// Unmet returns the names of the required checks that are missing.
func Unmet(checks []Check) []string {
	var names []string
	for _, c := range checks {
		if c.Required && c.State == Missing {
			names = append(names, c.Name)
		}
	}
	return names
}

// require marks checks as required.
func require(checks ...Check) []Check {
	for i := range checks {
		checks[i].Required = true
	}
	return checks
}

// works is the check of something that works unless err: name, what is found
// when it does, and what to do when it does not.
func works(name, found string, err error, remedy string) Check {
	if err != nil {
		return Check{Name: name, State: Missing, Found: err.Error(), Remedy: remedy}
	}
	return Check{Name: name, State: OK, Found: found}
}
