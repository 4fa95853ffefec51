package guest

import (
	"context"
	"regexp"
	"strings"
	"time"

	"unnest.io/unnest/internal/testbed/place"
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

// kernelFault matches the lines in which Linux says what the fault was that it panics after,
// and in which function. Registers and code follow.
var kernelFault = regexp.MustCompile(`(?m)^.*(?:BUG: |Oops: |general protection fault|kernel BUG at|RIP: ).*$`)

// endOf returns the last lines of a console, or the kernel's fault and the last line.
func endOf(console string) string {
	fault := kernelFault.FindAllString(console, 3)
	if fault == nil {
		return place.LastLines(console, 3)
	}
	return place.LastLines(strings.Join(append(fault, place.LastLines(console, 1)), "\n"), 4)
}
