package guest

import (
	"testing"
	"time"

	"github.com/klauspost/cpuid/v2"
)

// The frequency holds over a longer time, also on a busy machine.
func TestCounterKHz(t *testing.T) {
	khz := counterKHz()
	if khz == 0 {
		if cpuid.CPU.RTCounter() != 0 {
			t.Fatal("no frequency of a counter that counts")
		}
		return
	}
	for try := 1; ; try++ { // another process may run between the two clocks
		start, first := time.Now(), cpuid.CPU.RTCounter()
		time.Sleep(500 * time.Millisecond)
		passed, ticks := time.Since(start), cpuid.CPU.RTCounter()-first
		want := float64(ticks) / passed.Seconds() / 1000
		if float64(khz) > 0.95*want && float64(khz) < 1.05*want {
			return
		}
		if try == 10 {
			t.Fatalf("got %d kHz, want about %.0f", khz, want)
		}
	}
}
