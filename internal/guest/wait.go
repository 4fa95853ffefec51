package guest

import (
	"context"
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
