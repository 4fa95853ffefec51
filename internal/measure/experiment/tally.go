package experiment

import (
	"errors"

	"unnest.io/unnest/internal/measure/result"
)

// tally counts executions that were given up, and remembers how each pair of case and
// configuration went.
type tally struct {
	total   int // executions given up
	givenUp int // of these, executions that are supported
	inRow   int // supported executions given up since the last success
	broken  int // of these, executions of pairs that had worked before

	worked      map[result.Execution]bool  // pairs with samples
	failed      map[result.Execution]bool  // pairs given up the last time
	deaths      map[result.Execution]int   // attempts since the last that did not end with ErrDied
	since       map[result.Execution]bool  // supported pairs given up since the last success
	unsupported map[result.Execution]error // pairs that cannot work, and why
}

func newTally() tally {
	return tally{
		worked: map[result.Execution]bool{}, failed: map[result.Execution]bool{}, deaths: map[result.Execution]int{}, since: map[result.Execution]bool{},
		unsupported: map[result.Execution]error{},
	}
}

// pair identifies the case and the configuration of x, in any block.
func pair(x Execution) result.Execution {
	return result.Execution{Configuration: x.Configuration.Name, Case: x.Case.Name}
}

// succeeded counts an execution of the pair that has its samples.
func (t *tally) succeeded(p result.Execution) {
	t.inRow, t.broken = 0, 0
	clear(t.since)
	delete(t.failed, p)
	delete(t.deaths, p)
	t.worked[p] = true
}

// deathsOf counts an attempt at the pair that ended with err, nil if it succeeded. It returns the number
// of attempts in a row that ended with ErrDied.
func (t *tally) deathsOf(p result.Execution, err error) int {
	if !errors.Is(err, ErrDied) {
		delete(t.deaths, p)
		return 0
	}
	t.deaths[p]++
	return t.deaths[p]
}

// gaveUp counts an execution of the pair that was given up.
func (t *tally) gaveUp(p result.Execution, cause error) {
	t.total++
	if errors.Is(cause, ErrUnsupported) {
		t.unsupported[p] = cause
		delete(t.since, p)
		return
	}
	t.givenUp++
	t.inRow++
	t.failed[p], t.since[p] = true, true
	if t.worked[p] {
		t.broken++
	}
}

// hopeless reports whether nothing succeeds any more. Since the last success, three
// executions for each configuration were given up, and either as many of them had
// worked before, or every supported case failed in every configuration. So a case that
// never worked in a configuration does not stop the run while others work.
func (t *tally) hopeless(s *Spec) bool {
	few := 3 * len(s.Configurations)
	all := len(s.Cases)*len(s.Configurations) - len(t.unsupported)
	return t.inRow >= few && (t.broken >= few || len(t.since) >= all)
}
