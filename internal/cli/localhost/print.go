package localhost

import (
	"time"

	"unnest.io/unnest/internal/check"
	"unnest.io/unnest/internal/check/localhost"
	"unnest.io/unnest/internal/cli/console"
)

// Line is an outcome as JSON.
type Line struct {
	Case     string            `json:"case"`
	Verdict  localhost.Verdict `json:"verdict"`
	Error    string            `json:"error,omitempty"`
	NotThere string            `json:"not_there,omitempty"` // which tool, and where
	Duration time.Duration     `json:"duration_ns"`
}

// counts are the numbers of outcomes by verdict.
type counts struct {
	Pass     int `json:"pass"`
	Fail     int `json:"fail"`
	NotThere int `json:"not_there"`
}

// printer prints and counts outcomes.
type printer struct {
	console.Printer
	count map[localhost.Verdict]int
}

func (p *printer) outcome(o localhost.Outcome) {
	l := Line{Case: o.Case, Verdict: o.Verdict(), Error: check.OneLine(o.Err), NotThere: o.NotThere, Duration: o.Duration}
	p.count[l.Verdict]++
	remark := l.Error + l.NotThere
	if remark != "" {
		remark = "  " + remark
	}
	p.Line(l, "%-9s %-70s %6.2fs%s", l.Verdict, l.Case, l.Duration.Seconds(), remark)
}

func (p *printer) summary() {
	c := counts{p.count[localhost.Pass], p.count[localhost.Fail], p.count[localhost.NotThere]}
	p.Line(map[string]counts{"summary": c}, "%d passed, %d failed, %d not there", c.Pass, c.Fail, c.NotThere)
}
