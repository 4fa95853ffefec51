package workload

import (
	"fmt"
	"time"
)

// validate checks what every workload asks of p: a known protocol, a size from
// minSize to maxSize bytes, and times in whole seconds, as both tools read them
// with atoi. iperf3 takes a duration of "0.5" for 0, which means forever.
func (p Params) validate(tool string, minSize, maxSize int) error {
	if p.Protocol != UDP && p.Protocol != TCP {
		return fmt.Errorf("%s: protocol %q: want udp or tcp", tool, string(p.Protocol))
	}
	if p.Size < minSize || p.Size > maxSize {
		return fmt.Errorf("%s: size %d: want %d to %d bytes", tool, p.Size, minSize, maxSize)
	}
	if p.Duration < time.Second || p.Duration%time.Second != 0 || p.Duration > maxDuration {
		return fmt.Errorf("%s: duration %v: want whole seconds, 1s to %v", tool, p.Duration, maxDuration)
	}
	return nil
}

// maxDuration is the longest run that iperf3 takes (MAX_TIME, 86400 s).
const maxDuration = 24 * time.Hour

// seconds returns d in whole seconds.
func seconds(d time.Duration) int { return int(d / time.Second) }
