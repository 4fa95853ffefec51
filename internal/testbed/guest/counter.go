package guest

import (
	"sync"
	"time"

	"github.com/klauspost/cpuid/v2"
)

// counterKHz returns the frequency of this processor's time stamp counter in kHz, 0 if it has
// none. Under TCG, it is also the counter of guests.
var counterKHz = sync.OnceValue(func() int64 {
	start := time.Now()
	read := func() (at time.Duration, ticks uint64) {
		shortest := time.Hour
		for range 100 { // an interruption between the clock and the counter would count as time
			before := time.Since(start)
			now := cpuid.CPU.RTCounter()
			if took := time.Since(start) - before; took < shortest {
				at, ticks, shortest = before+took/2, now, took
			}
		}
		return at, ticks
	}
	at, ticks := read()
	time.Sleep(20 * time.Millisecond)
	later, more := read()
	return int64(float64(more-ticks) / (later - at).Seconds() / 1000)
})
