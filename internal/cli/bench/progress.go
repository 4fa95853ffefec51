package bench

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	"unnest.io/unnest/internal/measure/experiment"
)

// quiet is the least time between two lines of a log while executions succeed.
const quiet = 10 * time.Second

// progress prints how a run goes. On a terminal it rewrites one status line; in a log it
// writes a line now and then.
type progress struct {
	w     io.Writer
	width int // columns of the terminal, 0: not a terminal

	mu       sync.Mutex
	status   bool      // a status line is on the screen
	phase    string    // the current phase
	since    time.Time // start of phase
	begun    time.Time // start of the executions
	lastLine time.Time // time of the last line in a log
	again    int       // disturbed executions that were measured again
}

// newProgress returns a progress that writes to w: a terminal of width columns, or a log
// when width is 0.
func newProgress(w io.Writer, width int) *progress { return &progress{w: w, width: width} }

// Phase prints how long the previous phase took, and shows the new one.
func (t *progress) Phase(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.endPhase()
	t.phase, t.since = name, time.Now()
	if t.width > 0 {
		t.show(name + " …")
	} else {
		t.line(name + " …")
	}
}

// Report shows the event.
func (t *progress) Report(e experiment.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch e.Kind {
	case experiment.Begun:
		t.endPhase()
		t.begun, t.lastLine = time.Now(), time.Now()
		t.line(fmt.Sprintf("%d of %d executions to do, about %s", e.Planned-e.Done, e.Planned, short(e.Left)))
	case experiment.Started:
		if !t.status && t.width > 0 {
			t.show(fmt.Sprintf("[%d/%d] %s …  %s left", e.Done, e.Planned, label(e.Execution), short(e.Left)))
		}
	case experiment.Retried:
		t.line(fmt.Sprintf("%s: attempt %d: %v: trying again", label(e.Execution), e.Attempt, e.Err))
	case experiment.GivenUp:
		t.line(fmt.Sprintf("%s: given up after attempt %d: %v", label(e.Execution), e.Attempt, e.Err))
	case experiment.Done:
		t.done(e)
	case experiment.Disturbed:
		if t.again++; t.again == 1 {
			t.line(fmt.Sprintf("%s: %s: measuring again; further ones are counted at the end", label(e.Execution), e.Reading))
		}
	case experiment.TooNoisy:
		t.line("the machine is too noisy: more blocks would decide nothing; stop what disturbs it and measure anew, or go on with --noisy --resume")
	case experiment.Extended:
		t.extended(e)
	case experiment.Ended:
		t.endPhase()
		t.end(e)
	}
}

func (t *progress) note(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.line(text)
}

// extended names the least precise ratio of the added block.
func (t *progress) extended(e experiment.Event) {
	text, blocks := fmt.Sprintf("%d more executions", e.Planned-e.Done), 1
	if len(e.Precisions) > 0 {
		worst := slices.MaxFunc(e.Precisions, func(a, b experiment.Precision) int { return cmp.Compare(a.Half, b.Half) })
		text += ": " + precision(worst, e.Until)
		blocks = max(1, worst.Further)
	}
	t.line(fmt.Sprintf("%s, about %s left", text, short(time.Duration(blocks)*e.Left)))
}

// precision words how precisely a ratio is known: "udp_rr/1280 BrFusion/NAT 0.74 ± 0.09,
// goal ± 0.04".
func precision(p experiment.Precision, goal float64) string {
	name := p.Case + " " + p.Configuration
	if p.Baseline != "" {
		name += "/" + p.Baseline
	}
	if math.IsInf(p.Half, 1) {
		return fmt.Sprintf("%s has %d blocks", name, p.Blocks)
	}
	return fmt.Sprintf("%s %.2f ± %.2f, goal ± %.2f", name, p.Ratio, p.Ratio*p.Half, p.Ratio*goal)
}

func (t *progress) done(e experiment.Event) {
	text := fmt.Sprintf("[%d/%d] %s  %s  %s left", e.Done, e.Planned, label(e.Execution), quantity(e.Value, e.Unit), short(e.Left))
	if t.width > 0 {
		t.show(text)
	} else if time.Since(t.lastLine) >= quiet {
		t.line(text)
	}
}

func (t *progress) end(e experiment.Event) {
	if t.begun.IsZero() {
		return
	}
	text := fmt.Sprintf("%d of %d executions done in %s", e.Done-e.Failures, e.Planned, short(time.Since(t.begun)))
	if e.Failures > 0 {
		text += fmt.Sprintf(", %d given up", e.Failures)
	}
	if t.again > 0 {
		text += fmt.Sprintf(", %d measured again", t.again)
	}
	t.line(text)
}

// endPhase prints how long the phase took.
func (t *progress) endPhase() {
	if t.phase != "" {
		t.line(fmt.Sprintf("%s: %s", t.phase, short(time.Since(t.since))))
	}
	t.phase = ""
}

// show rewrites the status line, cut to the width of the terminal because a wrapped line
// cannot be rewritten.
func (t *progress) show(text string) {
	runes := []rune(text)
	if len(runes) >= t.width {
		runes = runes[:t.width-1]
	}
	t.status = true
	_, _ = fmt.Fprintf(t.w, "\r\x1b[K%s", string(runes))
}

func (t *progress) line(text string) {
	if t.status {
		_, _ = io.WriteString(t.w, "\r\x1b[K")
	}
	t.status = false
	t.lastLine = time.Now()
	_, _ = fmt.Fprintln(t.w, text)
}

// label names an execution: "NAT udp_rr 1280 B".
func label(e experiment.Execution) string {
	name := e.Configuration.Name + " " + e.Case.Group
	if e.Case.Size > 0 {
		name += " " + strconv.Itoa(e.Case.Size) + " B"
	}
	return name
}

// quantity prints three significant digits and the unit: "213 µs".
func quantity(value float64, unit string) string {
	digits := 0
	for limit := 100.0; digits < 3 && value != 0 && value < limit && value > -limit; limit /= 10 {
		digits++
	}
	if unit == "us" {
		unit = "µs"
	}
	return strconv.FormatFloat(value, 'f', digits, 64) + " " + unit
}

// short prints a rounded duration: 2m10s, 21.3s, 450ms.
func short(d time.Duration) string {
	switch {
	case d >= time.Minute:
		return d.Round(time.Second).String()
	case d >= time.Second:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Millisecond).String()
}
