package place

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// ExitError is the error for a command that ended with a code other than 0.
type ExitError struct {
	Place  string
	Args   []string
	Code   int    // when killed by a signal -1 on this machine, 128 plus its number elsewhere
	Stderr string // its last lines
}

func (e *ExitError) Error() string {
	text := fmt.Sprintf("%s on %s: exit code %d", e.Args[0], e.Place, e.Code)
	if e.Code < 0 {
		text = fmt.Sprintf("%s on %s: killed", e.Args[0], e.Place)
	}
	if lines := complaint(e.Stderr, 3); len(lines) > 0 {
		text += ": " + strings.Join(lines, " | ")
	}
	return text
}

// Run runs a command in p and waits for its end.
func Run(ctx context.Context, p Place, args ...string) error {
	_, err := Output(ctx, p, args...)
	return err
}

// Output runs a command in p and returns its standard output. When ctx ends first, the
// error wraps its cause.
func Output(ctx context.Context, p Place, args ...string) ([]byte, error) {
	var out bytes.Buffer
	process, err := p.Start(ctx, Command{Args: args, Stdout: &out})
	if err != nil {
		return nil, err
	}
	err = process.Wait()
	if ctx.Err() != nil {
		return out.Bytes(), fmt.Errorf("%s on %s: %w", args[0], p, context.Cause(ctx))
	}
	return out.Bytes(), err
}

// What container engines print to standard error besides the cause of their failure.
var (
	escape   = regexp.MustCompile(`\x1b\[[0-9;?]*[A-Za-z]`)
	progress = regexp.MustCompile(`^(?:elapsed: .*|(\S+):\s+(?:resolving|resolved|waiting|downloading|done|exists|unpacking|committing|stopped)\b.*\|.*\|.*)$`)
	logLine  = regexp.MustCompile(`^time="?[^ "]*"? level=(\w+) msg=("(?:[^"\\]|\\.)*"|\S+)`)
	ofPull   = regexp.MustCompile(`^failed to resolve reference "([^"]+)": (.*)$`)
	passedOn = regexp.MustCompile(`^exec failed with exit code \d+$`)
)

// complaint returns the last lines of standard error that say why a command failed, at most n of
// them. A container engine that cannot pull an image prints its progress and each of its attempts:
// of that it keeps the image and the cause.
func complaint(stderr string, n int) []string {
	var kept []string
	image := ""
	for line := range strings.FieldsFuncSeq(escape.ReplaceAllString(stderr, ""), func(r rune) bool { return r == '\n' || r == '\r' }) {
		line = strings.TrimSpace(line)
		if m := progress.FindStringSubmatch(line); m != nil {
			if strings.Contains(m[1], "/") { // others are of layers
				image = m[1]
			}
			continue
		}
		if m := logLine.FindStringSubmatch(line); m != nil {
			line = fromLog(m[1], m[2], image)
		}
		if line != "" {
			kept = append(kept, line)
		}
	}
	return kept[max(0, len(kept)-n):]
}

// fromLog returns the text of a line of the engine's log, empty if it is not an error. image is
// the one that is being pulled; empty: none.
func fromLog(level, quoted, image string) string {
	text, err := strconv.Unquote(quoted)
	if err != nil {
		text = quoted
	}
	m := ofPull.FindStringSubmatch(text)
	switch {
	case level != "fatal" && level != "error" || passedOn.MatchString(text):
		return ""
	case m != nil:
		return "pull image " + m[1] + ": " + m[2]
	case image != "" && level == "fatal":
		return "pull image " + image + ": " + text
	}
	return text
}

// LastLines returns the last n lines of s that are not blank, joined by " | ".
func LastLines(s string, n int) string {
	var lines []string
	for line := range strings.Lines(s) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines[max(0, len(lines)-n):], " | ")
}
