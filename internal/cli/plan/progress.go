package plan

import (
	"fmt"
	"io"
	"time"
)

// progress is the status line on a terminal. A nil progress prints nothing.
type progress struct {
	w     io.Writer
	width int
	last  time.Time
	shown bool
}

// newProgress returns the progress on a terminal with so many columns, nil for 0.
func newProgress(w io.Writer, width int) *progress {
	if width == 0 {
		return nil
	}
	return &progress{w: w, width: width}
}

func (p *progress) phase(text string) {
	if p != nil {
		p.show(text + " …")
	}
}

// users shows how many users are planned, at most ten times a second.
func (p *progress) users(done, all int) {
	if p != nil && time.Since(p.last) >= 100*time.Millisecond {
		p.show(fmt.Sprintf("planned %d of %d users …", done, max(done, all)))
	}
}

// show rewrites the line, cut to the width of the terminal.
func (p *progress) show(text string) {
	runes := []rune(text)
	if len(runes) >= p.width {
		runes = runes[:p.width-1]
	}
	p.last, p.shown = time.Now(), true
	_, _ = fmt.Fprintf(p.w, "\r\x1b[K%s", string(runes))
}

func (p *progress) clear() {
	if p != nil && p.shown {
		_, _ = io.WriteString(p.w, "\r\x1b[K")
		p.shown = false
	}
}
