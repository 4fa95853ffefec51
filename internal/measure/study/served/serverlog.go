package served

import (
	"bytes"
	"slices"
	"strings"
	"sync"

	"unnest.io/unnest/internal/measure/machines/output"
)

// refusal begins the line in which a server's script says why the server cannot run.
const refusal = "unnest: "

// complaints are texts in the lines of a server's log that say what is wrong. A line with one
// of the first matters more.
var complaints = []string{refusal, "No space left on device", "OutOfMemoryError", " FATAL ", " ERROR "}

// serverLog watches the log of a server, and keeps the line that says best what is wrong.
type serverLog struct {
	output.Watch
	lines sync.Mutex
	part  []byte // of a line, its first maxLine bytes
	line  string
	rank  int // of the line, from 1; 0: there is none
}

// maxLine limits what is kept of a line, in bytes.
const maxLine = 300

func (l *serverLog) Write(p []byte) (int, error) {
	l.lines.Lock()
	for rest := p; len(rest) > 0; {
		line, after, whole := bytes.Cut(rest, []byte("\n"))
		l.part, rest = append(l.part, line[:min(len(line), maxLine-len(l.part))]...), after
		if whole {
			l.judge(string(bytes.TrimSpace(l.part)))
			l.part = l.part[:0]
		}
	}
	l.lines.Unlock()
	return l.Watch.Write(p)
}

// judge keeps the line if it says better what is wrong than the line that is kept.
func (l *serverLog) judge(line string) {
	i := slices.IndexFunc(complaints, func(text string) bool { return strings.Contains(line, text) })
	if i >= 0 && (l.rank == 0 || i+1 < l.rank) {
		l.line, l.rank = line, i+1
	}
}

// complained returns the line that says what is wrong; empty: there is none.
func (l *serverLog) complained() string {
	l.lines.Lock()
	defer l.lines.Unlock()
	return l.line
}
