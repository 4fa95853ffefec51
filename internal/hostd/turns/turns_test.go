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
			turn := turns.Take(tenant, "")
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
				turn := turns.Take(tenant, "")
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

// A commit lets the steps of all others go first, also of its own tenant and of those that have had more time, but not
// for longer than 100 ms for each of its steps.
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
		steps(turns.Take("b", ""), "", 1, time.Second)
		patient := turns.Commit("a")
		if patient.Done() != 0 {
			t.Error("a turn that nobody has taken has a time")
		}
		var all sync.WaitGroup
		first := turns.Take("c", "")
		all.Go(func() { steps(patient, "p", 3, time.Millisecond) })
		synctest.Wait()
		all.Go(func() { steps(turns.Take("a", ""), "a", 2, time.Millisecond) })
		all.Go(func() { steps(turns.Take("b", ""), "b", 12, 10*time.Millisecond) })
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

// A tenant whose guest is above its rate goes after one that has had more time, from its next turn on, until it is within its rate again.
func TestAbove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var turns Turns
		first := func() (first string) {
			turn := turns.Take("calm", "")
			time.Sleep(time.Second) // more than busy has
			var all sync.WaitGroup
			for _, tenant := range []string{"busy", "calm"} {
				all.Go(func() {
					defer turns.Take(tenant, tenant+"1").Done()
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
		turns.Above("busy1", time.Minute)
		turns.Above("busy1", time.Second) // does not end it
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

// Turns above the rate that have all waited for long do not go first in a row, and go before the commits of their tenant. Those
// of its guests that are within their rates wait for neither, and share with other tenants.
func TestAttackManyAbove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var turns Turns
		turns.Above("busy1", time.Minute)
		var said []string
		var all sync.WaitGroup
		steps := func(turn func() *Turn, name string, n int) {
			all.Go(func() {
				turn := turn()
				defer turn.Done()
				for i := range n {
					if i > 0 {
						turn.Yield()
					}
					said = append(said, name)
					time.Sleep(time.Millisecond)
				}
			})
			synctest.Wait()
		}
		of := func(tenant, guest string) func() *Turn { return func() *Turn { return turns.Take(tenant, guest) } }
		first := turns.Take("store", "")
		for range 4 {
			steps(of("busy", "busy1"), "a", 2)
		}
		steps(func() *Turn {
			turn := turns.Commit("busy")
			turn.Yield()
			return turn
		}, "p", 3)
		time.Sleep(time.Second)
		steps(of("busy", "busy2"), "b", 2)
		steps(of("calm", "calm1"), "c", 4)
		first.Done()
		all.Wait()
		if got := strings.Join(said, ""); got != "apccbcbcaaaaaaapp" {
			t.Errorf("got steps in the order %s, want apccbcbcaaaaaaapp", got)
		}
	})
}

// While others need all of the time, those above their rates have a step in 100 ms each, whatever their names.
func TestAboveHaveSome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var turns Turns
		steps := map[string]int{}
		var all sync.WaitGroup
		for _, tenant := range []string{"a", "calm", "z"} {
			if tenant != "calm" {
				turns.Above(tenant, time.Minute)
			}
			for range 16 {
				all.Go(func() {
					for begin := time.Now(); time.Since(begin) < 10*time.Second; {
						turn := turns.Take(tenant, tenant)
						time.Sleep(10 * time.Millisecond)
						steps[tenant]++
						turn.Done()
					}
				})
			}
		}
		all.Wait()
		for _, tenant := range []string{"a", "z"} {
			if n := steps[tenant]; n < 80 || n > 130 {
				t.Errorf("%s has had %d steps in 10 s, want about 100", tenant, n)
			}
		}
	})
}

// nil Turns have nobody wait.
func TestNil(t *testing.T) {
	var none *Turns
	a, b := none.Take("a", ""), none.Take("b", "")
	a.Yield()
	none.Commit("a").Yield()
	none.Above("a1", time.Minute)
	b.Done()
	a.Done()
}
