package conformance

import (
	"fmt"
	"time"

	"unnest.io/unnest/internal/check"
	"unnest.io/unnest/internal/check/cni"
	"unnest.io/unnest/internal/cli/console"
)

// Line is an outcome as JSON.
type Line struct {
	Check    string        `json:"check"`
	Version  string        `json:"version,omitempty"`
	Section  string        `json:"section"`
	Level    cni.Level     `json:"level"`
	Verdict  cni.Verdict   `json:"verdict"`
	Error    string        `json:"error,omitempty"`
	Reason   string        `json:"reason,omitempty"` // why it is not applicable
	Duration time.Duration `json:"duration_ns"`
}

// counts are the numbers of outcomes by verdict.
type counts struct {
	Pass          int `json:"pass"`
	Fail          int `json:"fail"`
	Unmet         int `json:"unmet"`
	NotApplicable int `json:"not_applicable"`
}

// printer prints and counts outcomes.
type printer struct {
	console.Printer
	count map[cni.Verdict]int
}

func (p *printer) outcome(o cni.Outcome) {
	l := Line{Check: o.Check, Version: o.Version, Section: o.Section, Level: o.Level,
		Verdict: o.Verdict(), Error: check.OneLine(o.Err), Reason: o.NotApplicable, Duration: o.Duration}
	p.count[l.Verdict]++
	p.Line(l, "%-5s %-5s %-26s %6.2fs  %s", l.Verdict, l.Version, l.Check, l.Duration.Seconds(), remark(l))
}

// remark is the reason, the error, or the section of the specification.
func remark(l Line) string {
	switch {
	case l.Reason != "":
		return l.Reason
	case l.Error != "":
		return fmt.Sprintf("%s (%s)", l.Error, l.Section)
	}
	return l.Section
}

func (p *printer) summary() {
	c := counts{p.count[cni.Pass], p.count[cni.Fail], p.count[cni.Unmet], p.count[cni.NotApplicable]}
	p.Line(map[string]counts{"summary": c}, "%d passed, %d failed, %d recommendations unmet, %d not applicable",
		c.Pass, c.Fail, c.Unmet, c.NotApplicable)
}
