package localhost

import (
	"fmt"
	"time"

	"unnest/internal/check/localhost"
	"unnest/internal/cli/console"
)

// line is an outcome as JSON.
type line struct {
	Case     string            `json:"case"`
	Verdict  localhost.Verdict `json:"verdict"`
	Error    string            `json:"error,omitempty"`
	NotThere string            `json:"not_there,omitempty"` // which program, and where
	Duration time.Duration     `json:"duration_ns"`
}

// counts are how many outcomes had which verdict.
type counts struct {
	Pass     int `json:"pass"`
	Fail     int `json:"fail"`
	NotThere int `json:"not_there"`
}

// printer prints outcomes as they come.
type printer struct {
	console.Printer
	json  bool
	count counts
}

func (p *printer) outcome(o localhost.Outcome) {
	l := line{Case: o.Case, Verdict: o.Verdict(), NotThere: o.NotThere, Duration: o.Duration}
	switch l.Verdict {
	case localhost.Pass:
		p.count.Pass++
	case localhost.Fail:
		p.count.Fail++
		l.Error = o.OneLine()
	case localhost.NotThere:
		p.count.NotThere++
	}
	if p.json {
		p.JSON(l)
		return
	}
	text := fmt.Sprintf("%-9s %-70s %6.2fs", l.Verdict, l.Case, l.Duration.Seconds())
	if why := o.OneLine(); why != "" {
		text += "  " + why
	}
	p.Printf("%s\n", text)
}

func (p *printer) summary() {
	if p.json {
		p.JSON(map[string]counts{"summary": p.count})
		return
	}
	p.Printf("%d passed, %d failed, %d not there\n", p.count.Pass, p.count.Fail, p.count.NotThere)
}
