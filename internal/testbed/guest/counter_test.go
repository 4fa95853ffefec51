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
	start, first := time.Now(), cpuid.CPU.RTCounter()
	time.Sleep(500 * time.Millisecond)
	passed, ticks := time.Since(start), cpuid.CPU.RTCounter()-first
	if want := float64(ticks) / passed.Seconds() / 1000; float64(khz) < 0.95*want || float64(khz) > 1.05*want {
		t.Errorf("got %d kHz, want about %.0f", khz, want)
	}
}
