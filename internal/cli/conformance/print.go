package conformance

import (
	"fmt"
	"strings"
	"time"

	"unnest/internal/check/cni"
	"unnest/internal/cli/console"
)

// line is an outcome as JSON.
type line struct {
	Check    string        `json:"check"`
	Version  string        `json:"version,omitempty"`
	Section  string        `json:"section"`
	Level    cni.Level     `json:"level"`
	Verdict  cni.Verdict   `json:"verdict"`
	Error    string        `json:"error,omitempty"`
	Reason   string        `json:"reason,omitempty"` // why it is not applicable
	Duration time.Duration `json:"duration_ns"`
}

// counts are how many outcomes had which verdict.
type counts struct {
	Pass          int `json:"pass"`
	Fail          int `json:"fail"`
	Unmet         int `json:"unmet"`
	NotApplicable int `json:"not_applicable"`
}

// printer prints outcomes as they come.
type printer struct {
	console.Printer
	json  bool
	count counts
}

func (p *printer) outcome(o cni.Outcome) {
	l := line{Check: o.Check, Version: o.Version, Section: o.Section, Level: o.Level,
		Verdict: o.Verdict(), Reason: o.NotApplicable, Duration: o.Duration}
	if o.Err != nil {
		l.Error = strings.ReplaceAll(o.Err.Error(), "\n", "; ")
	}
	switch l.Verdict {
	case cni.Pass:
		p.count.Pass++
	case cni.Fail:
		p.count.Fail++
	case cni.Unmet:
		p.count.Unmet++
	case cni.NotApplicable:
		p.count.NotApplicable++
	}
	if p.json {
		p.JSON(l)
		return
	}
	p.Printf("%-5s %-5s %-26s %6.2fs  %s\n", l.Verdict, l.Version, l.Check, l.Duration.Seconds(), remark(l))
}

// remark is what there is to say, or the section of the specification.
func remark(l line) string {
	switch {
	case l.Reason != "":
		return l.Reason
	case l.Error != "":
		return fmt.Sprintf("%s (%s)", l.Error, l.Section)
	}
	return l.Section
}

func (p *printer) summary() {
	if p.json {
		p.JSON(map[string]counts{"summary": p.count})
		return
	}
	p.Printf("%d passed, %d failed, %d recommendations unmet, %d not applicable\n",
		p.count.Pass, p.count.Fail, p.count.Unmet, p.count.NotApplicable)
}
