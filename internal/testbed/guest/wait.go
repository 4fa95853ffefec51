package guest

import (
	"context"
	"regexp"
	"strings"
	"time"
)

const (
	pollInterval = 20 * time.Millisecond // for things that send no event
	stopGrace    = 3 * time.Second       // for a process to end before it is killed
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

// kernelFault matches the lines in which Linux says what the fault was that it panics after,
// and in which function. Registers and code follow.
var kernelFault = regexp.MustCompile(`(?m)^.*(?:BUG: |Oops: |general protection fault|kernel BUG at|RIP: ).*$`)

// endOf returns the last lines of a console, or the kernel's fault and the last line.
func endOf(console string) string {
	fault := kernelFault.FindAllString(console, 3)
	if fault == nil {
		return lastLines(console, 3)
	}
	return lastLines(strings.Join(append(fault, lastLines(console, 1)), "\n"), 4)
}

// packageError matches dpkg's error about a package that it could not install, and the
// last line of the package's script before it.
var packageError = regexp.MustCompile(`(?m)^.*\n(?:dpkg: error .*)$`)

// causeOf returns the cause of a failure from the output of a command. apt ends with a
// quote of its own command line, so the cause is dpkg's error; of other commands it is
// the last lines.
func causeOf(s string) string {
	if found := packageError.FindString(s); found != "" {
		return lastLines(found, 2)
	}
	return lastLines(s, 3)
}
