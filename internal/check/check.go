// Package check holds what the checkers share. A case is written as a list of steps, as a
// test is: a step that fails ends the case, and Run returns the reason. Steps fail by
// Must, Get, Failf or Skip, on the goroutine of the case or in Each.
package check

import (
	"errors"
	"fmt"
	"strings"
	"sync"
)

// stop is what a failing step panics with. Run recovers it.
type stop struct{ err error }

// Run runs a case and returns the error of the step that ended it; nil: all steps passed.
func Run(steps func()) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case stop:
			err = r.err
		default:
			panic(r)
		}
	}()
	steps()
	return nil
}

// Must ends the case if err is not nil.
func Must(err error) {
	if err != nil {
		panic(stop{err})
	}
}

// Get returns v, or ends the case if err is not nil.
func Get[T any](v T, err error) T {
	Must(err)
	return v
}

// Failf ends the case with a message that fmt.Errorf formats.
func Failf(format string, a ...any) { Must(fmt.Errorf(format, a...)) }

// Skipped is the error of a case that does not apply here. Its text is the reason.
type Skipped string

func (s Skipped) Error() string { return string(s) }

// Skip ends the case, because it does not apply here.
func Skip(reason string) { Must(Skipped(reason)) }

// End returns how a case ended whose steps and clean-up returned these errors: the reason
// why it was skipped, or what is wrong. A case that does not clean up was not skipped.
func End(steps, cleanUp error) (skipped string, err error) {
	if s := Skipped(""); errors.As(steps, &s) && cleanUp == nil {
		return string(s), nil
	}
	return "", errors.Join(steps, cleanUp)
}

// Within runs steps. The error of a step that fails begins with what.
func Within(what string, steps func()) {
	if err := Run(steps); err != nil {
		Must(fmt.Errorf("%s: %w", what, err))
	}
}

// Each runs do for 0 to n-1 at the same time, waits for all of them, and ends the case
// with their errors if any failed.
func Each(n int, do func(i int)) {
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { errs[i] = Run(func() { do(i) }) })
	}
	all.Wait()
	Must(errors.Join(errs...))
}

// OneLine returns the text of an error in one line; "" for nil.
func OneLine(err error) string {
	if err == nil {
		return ""
	}
	return strings.ReplaceAll(err.Error(), "\n", "; ")
}
