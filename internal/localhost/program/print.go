package program

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"unnest/internal/localhost"
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
	out   io.Writer
	json  bool
	count counts
	err   error // the first of printing
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
		p.keep(printJSON(p.out, l))
		return
	}
	text := fmt.Sprintf("%-9s %-70s %6.2fs", l.Verdict, l.Case, l.Duration.Seconds())
	if why := o.OneLine(); why != "" {
		text += "  " + why
	}
	_, err := fmt.Fprintln(p.out, text)
	p.keep(err)
}

func (p *printer) summary() {
	if p.json {
		p.keep(printJSON(p.out, map[string]counts{"summary": p.count}))
		return
	}
	_, err := fmt.Fprintf(p.out, "%d passed, %d failed, %d not there\n", p.count.Pass, p.count.Fail, p.count.NotThere)
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
