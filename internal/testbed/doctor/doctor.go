// Package doctor checks what this machine can do for nested virtualization and its
// networks, and says how to fix what is missing: one check per capability.
//
// A check judges the answers of probes and changes nothing on the machine. Commands
// print the checks; users make the fixes.
package doctor

import (
	"context"
	"slices"
)

// State is the outcome of a check.
type State string

// The states of a check.
const (
	OK      State = "ok"
	Limited State = "limited" // works, but slower or smaller than possible
	Missing State = "missing"
)

// Check is one capability of the machine.
type Check struct {
	Name     string `json:"name"`
	State    State  `json:"state"`
	Found    string `json:"found"`    // what there is, or why it is missing
	Remedy   string `json:"remedy"`   // how to fix it; empty: nothing to fix
	Required bool   `json:"required"` // the quick start needs it
}

// Examine runs all checks, in a fixed order. When ctx ends, running probes are stopped
// and what they ask for counts as missing.
func Examine(ctx context.Context, p Probes) []Check {
	checks := slices.Concat(machine(p), virtualization(ctx, p), kernel(p))
	for _, t := range tools {
		checks = append(checks, t.check(ctx, p))
	}
	return slices.Concat(checks, keys(ctx, p), []Check{volumeServer(p)})
}

// Unmet returns the names of the required checks that are missing.
func Unmet(checks []Check) (names []string) {
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

// works returns a check that is OK unless err is set.
func works(name, found string, err error, remedy string) Check {
	if err != nil {
		return Check{Name: name, State: Missing, Found: err.Error(), Remedy: remedy}
	}
	return Check{Name: name, State: OK, Found: found}
}
