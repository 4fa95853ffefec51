package program

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"unnest/internal/conformance"
)

// line is an outcome as JSON.
type line struct {
	Check    string              `json:"check"`
	Version  string              `json:"version,omitempty"`
	Section  string              `json:"section"`
	Level    conformance.Level   `json:"level"`
	Verdict  conformance.Verdict `json:"verdict"`
	Error    string              `json:"error,omitempty"`
	Reason   string              `json:"reason,omitempty"` // why it is not applicable
	Duration time.Duration       `json:"duration_ns"`
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
	out   io.Writer
	json  bool
	count counts
	err   error // the first of printing
}

func (p *printer) outcome(o conformance.Outcome) {
	l := line{Check: o.Check, Version: o.Version, Section: o.Section, Level: o.Level,
		Verdict: o.Verdict(), Reason: o.NotApplicable, Duration: o.Duration}
	if o.Err != nil {
		l.Error = strings.ReplaceAll(o.Err.Error(), "\n", "; ")
	}
	switch l.Verdict {
	case conformance.Pass:
		p.count.Pass++
	case conformance.Fail:
		p.count.Fail++
	case conformance.Unmet:
		p.count.Unmet++
	case conformance.NotApplicable:
		p.count.NotApplicable++
	}
	if p.json {
		p.keep(printJSON(p.out, l))
		return
	}
	_, err := fmt.Fprintf(p.out, "%-5s %-5s %-26s %6.2fs  %s\n", l.Verdict, l.Version, l.Check, l.Duration.Seconds(), remark(l))
	p.keep(err)
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
		p.keep(printJSON(p.out, map[string]counts{"summary": p.count}))
		return
	}
	_, err := fmt.Fprintf(p.out, "%d passed, %d failed, %d recommendations unmet, %d not applicable\n",
		p.count.Pass, p.count.Fail, p.count.Unmet, p.count.NotApplicable)
	p.keep(err)
}

func (p *printer) keep(err error) {
	if p.err == nil {
		p.err = err
	}
}

func printJSON(w io.Writer, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s\n", text)
	return err
}
