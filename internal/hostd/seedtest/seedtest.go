// Package seedtest runs a simulation in a test with many seeds, for as long as the caller of the
// test wants, and replays the seed that fails. The simulation has virtual time and draws
// everything from its seed.
package seedtest

import (
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"time"
)

// Each simulates the seeds 0 to count-1, and with -short a seventh of them. The environment has
// other seeds simulated: SOAK_SEED that one alone, and SOAK_TIME as many random ones as fit into
// that duration. Up to GOMAXPROCS simulations run at once. Each one returns the operations that it
// has made, whose number and rate Each logs. After a failure no further seed begins.
func Each(t *testing.T, count int, simulate func(t *testing.T, seed uint64) (operations int)) {
	t.Helper()
	if text := os.Getenv("SOAK_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("SOAK_SEED %q: want a number, such as 17", text)
		}
		t.Logf("seed %d: %d operations", seed, simulate(t, seed))
		return
	}
	if testing.Short() {
		count = max(1, count/7)
	}
	first, end := uint64(0), time.Time{}
	if text := os.Getenv("SOAK_TIME"); text != "" {
		limit, err := time.ParseDuration(text)
		if err != nil {
			t.Fatalf("SOAK_TIME %q: want a duration, such as 10m", text)
		}
		first, end = rand.Uint64N(1<<48), time.Now().Add(limit)
	}
	var next, operations atomic.Int64
	begin := time.Now()
	t.Run("seeds", func(all *testing.T) {
		for worker := range runtime.GOMAXPROCS(0) {
			all.Run(strconv.Itoa(worker), func(t *testing.T) {
				t.Parallel()
				for !all.Failed() {
					i := next.Add(1) - 1
					if end.IsZero() && i >= int64(count) || !end.IsZero() && time.Now().After(end) {
						return
					}
					operations.Add(int64(one(t, first+uint64(i), simulate)))
				}
			})
		}
	})
	rate := float64(operations.Load()) / time.Since(begin).Seconds()
	t.Logf("%d operations, %.0f a second", operations.Load(), rate)
}

// one simulates a seed, and logs it if that fails.
func one(t *testing.T, seed uint64, simulate func(t *testing.T, seed uint64) (operations int)) int {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("SOAK_SEED=%d replays this", seed)
		}
	}()
	return simulate(t, seed)
}
