package check

import (
	"errors"
	"fmt"
	"testing"
)

func TestRunReturnsTheErrorOfTheFirstFailedStep(t *testing.T) {
	cause := errors.New("no route")
	reached := false
	for _, c := range []struct {
		name  string
		steps func()
		want  string
	}{
		{"all pass", func() { Must(nil); reached = Get(true, nil) }, ""},
		{"must", func() { Must(cause); reached = false }, "no route"},
		{"get", func() { _ = Get(1, cause); reached = false }, "no route"},
		{"failf", func() { Failf("pod %d: %w", 1, cause) }, "pod 1: no route"},
		{"within", func() { Within("after DEL", func() { Must(cause) }) }, "after DEL: no route"},
		{"within passes", func() { Within("after DEL", func() {}) }, ""},
		{"each", func() {
			Each(3, func(i int) {
				if i != 1 {
					Failf("pod %d: %w", i, cause)
				}
			})
		}, "pod 0: no route\npod 2: no route"},
	} {
		err := Run(c.steps)
		if fmt.Sprint(err) != c.want && (err != nil || c.want != "") {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
		if c.want != "" && !errors.Is(err, cause) {
			t.Errorf("%s: %v does not wrap the cause", c.name, err)
		}
	}
	if !reached {
		t.Error("a step ran after one that failed, or none ran")
	}
}

func TestEnd(t *testing.T) {
	skipped := Run(func() { Within("first", func() { Skip("there is no IPAM plugin") }) })
	left := errors.New("left a link")
	if reason, err := End(skipped, nil); reason != "there is no IPAM plugin" || err != nil {
		t.Errorf("skipped: got %q, %v", reason, err)
	}
	if reason, err := End(skipped, left); reason != "" || !errors.Is(err, left) {
		t.Errorf("skipped, but left something: got %q, %v", reason, err)
	}
	if reason, err := End(nil, nil); reason != "" || err != nil {
		t.Errorf("passed: got %q, %v", reason, err)
	}
}

// A bug in a case is not an outcome of the case.
func TestRunPassesOtherPanicsOn(t *testing.T) {
	defer func() {
		if r := recover(); r != "bug" {
			t.Errorf("recovered %v, want the panic of the case", r)
		}
	}()
	_ = Run(func() { panic("bug") })
}

func TestOneLine(t *testing.T) {
	if got := OneLine(errors.Join(errors.New("a"), errors.New("b"))); got != "a; b" {
		t.Errorf("got %q", got)
	}
	if got := OneLine(nil); got != "" {
		t.Errorf("got %q for no error", got)
	}
}
