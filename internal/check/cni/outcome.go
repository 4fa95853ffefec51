package cni

import "time"

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
