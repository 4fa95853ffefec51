package turns

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A tenant that has had less time has its turn at the next step of the other, and keeps it until it is done. A tenant's
// own turns do not pass each other.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var turns Turns
		var said []string
		work := func(tenant, name string, steps int) {
			turn := turns.Take(tenant)
			defer turn.Done()
			for i := range steps {
				if i > 0 {
					turn.Yield()
				}
				said = append(said, name)
				time.Sleep(time.Millisecond)
			}
		}
		work("busy", "", 10)
		var all sync.WaitGroup
		all.Go(func() { work("busy", "a", 4) })
		synctest.Wait()
		all.Go(func() { work("busy", "b", 2) })
		synctest.Wait()
		all.Go(func() { work("calm", "c", 3) })
		all.Wait()
		if got := strings.Join(said, ""); got != "acccaaabb" {
			t.Errorf("got steps in the order %s, want acccaaabb", got)
		}
	})
}

// What a tenant has had long ago does not count, and two that need as much have half of the time each.
func TestShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var turns Turns
		steps := map[string]int{}
		loop := func(tenant string, until time.Duration) {
			for begin := time.Now(); time.Since(begin) < until; {
				turn := turns.Take(tenant)
				time.Sleep(time.Millisecond)
				steps[tenant]++
				turn.Done()
			}
		}
		loop("busy", 10*time.Second)
		time.Sleep(10 * memory)
		clear(steps)
		var busy sync.WaitGroup
		for range 4 {
			busy.Go(func() { loop("busy", 10*time.Second) })
		}
		loop("other", 10*time.Second)
		busy.Wait()
		if a, b := steps["busy"], steps["other"]; max(a, b) > min(a, b)*11/10 {
			t.Errorf("%d and %d steps, want as many", a, b)
		}
		time.Sleep(time.Minute)
		if n := turns.used["busy"].now(time.Now()); n > time.Millisecond {
			t.Errorf("after a minute %v count, want none", n)
		}
	})
}

// A patient turn lets the steps of all others go first, also of its own tenant and of those that have had more time, but not
// for longer than its patience for each of its steps.
func TestPatient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var turns Turns
		var said []string
		steps := func(turn *Turn, name string, n int, each time.Duration) {
			defer turn.Done()
			for range n {
				turn.Yield()
				said = append(said, name)
				time.Sleep(each)
			}
		}
		steps(turns.Take("b"), "", 1, time.Second)
		patient := turns.Turn("a", true)
		if patient.Done() != 0 {
			t.Error("a turn that nobody has taken has a time")
		}
		var all sync.WaitGroup
		first := turns.Take("c")
		all.Go(func() { steps(patient, "p", 3, time.Millisecond) })
		synctest.Wait()
		all.Go(func() { steps(turns.Take("a"), "a", 2, time.Millisecond) })
		all.Go(func() { steps(turns.Take("b"), "b", 12, 10*time.Millisecond) })
		synctest.Wait()
		first.Done()
		all.Wait()
		if got := strings.Join(said, ""); got != "aabbbbbbbbbbpbbpp" {
			t.Errorf("got steps in the order %s, want aabbbbbbbbbbpbbpp", got)
		}
		if took := patient.Done(); took != 3*time.Millisecond {
			t.Errorf("the patient turn has taken %v, want 3ms", took)
		}
	})
}

// A tenant above its rate goes after one that has had more time, from its next turn on, until it is within its rate again.
func TestAbove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var turns Turns
		first := func() (first string) {
			turn := turns.Take("calm")
			time.Sleep(time.Second) // more than busy has
			var all sync.WaitGroup
			for _, tenant := range []string{"busy", "calm"} {
				all.Go(func() {
					defer turns.Take(tenant).Done()
					if first == "" {
						first = tenant
					}
				})
				synctest.Wait()
			}
			turn.Done()
			all.Wait()
			return first
		}
		if got := first(); got != "busy" {
			t.Errorf("within the rates %s is first, want busy", got)
		}
		turns.Above("busy", time.Minute)
		turns.Above("busy", time.Second) // does not end it
		time.Sleep(50 * time.Second)
		if got := first(); got != "calm" {
			t.Errorf("%s is first, want calm: busy is above its rate", got)
		}
		time.Sleep(10 * time.Second)
		if got := first(); got != "busy" {
			t.Errorf("after a minute %s is first, want busy", got)
		}
	})
}

// nil Turns have nobody wait.
func TestNil(t *testing.T) {
	var none *Turns
	a, b := none.Take("a"), none.Take("b")
	a.Yield()
	none.Turn("a", true).Yield()
	none.Above("a", time.Minute)
	b.Done()
	a.Done()
}
