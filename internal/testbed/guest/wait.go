package guest

import (
	"context"
	"regexp"
	"strings"
	"time"
)

const (
	pollInterval = 20 * time.Millisecond // between looks at something that sends no event
	stopGrace    = 3 * time.Second       // for a process to end by itself before it is killed
)

// sleep waits for d or returns why ctx ended.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// lastLines returns the last n lines of s that are not blank, joined by " | ".
func lastLines(s string, n int) string {
	var lines []string
	for line := range strings.Lines(s) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines[max(0, len(lines)-n):], " | ")
}

// packageError is dpkg's first word on a package that it could not install, after
// the last of what the package's script has said.
var packageError = regexp.MustCompile(`(?m)^.*\n(?:dpkg: error .*)$`)

// complaint returns why a program has failed that ran dpkg: apt ends by quoting its
// own command line, so that the last lines do not say it. Of any other program it
// returns the last lines.
func complaint(s string) string {
	if found := packageError.FindString(s); found != "" {
		return lastLines(found, 2)
	}
	return lastLines(s, 3)
}
