package main

import (
	"cmp"
	"encoding/xml"
	"regexp"
	"slices"
	"strings"
)

// suites are the parts of a JUnit file that are kept.
type suites struct {
	XMLName xml.Name   `xml:"testsuites"`
	Facts   []property `xml:"testsuite>properties>property"`
	Cases   []testcase `xml:"testsuite>testcase"`
}

// property is a fact about a run. Ours begin with "unnest.".
type property struct {
	Name  string `xml:"name,attr"`
	Value string `xml:"value,attr"`
}

type testcase struct {
	Name    string   `xml:"name,attr"`
	Status  string   `xml:"status,attr"`
	Seconds float64  `xml:"time,attr"`
	Failure *failure `xml:"failure"`
	Skipped *failure `xml:"skipped"`
}

// failure is the message of a test that has failed, or has skipped itself.
type failure struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"` // where e2e.test has the message of a failure
}

// The outcomes of a test, in the order of the page.
const (
	failed  = "failed"
	leftOut = "left out"
	passed  = "passed"
)

func (c testcase) outcome() string {
	switch {
	case c.Status == "passed":
		return passed
	case c.Status == "skipped", c.Status == "pending", c.Status == "interrupted", c.cutOff():
		return leftOut
	}
	return failed
}

// cutOff reports whether the time of the whole run was over.
func (c testcase) cutOff() bool {
	return c.Failure != nil && strings.Contains(c.Failure.Message, "suite timeout occurred")
}

// skipsItself reports whether the test has begun and found that it cannot run on this cluster.
func (c testcase) skipsItself() bool {
	return c.Skipped != nil && strings.HasPrefix(c.Skipped.Message, selfSkipped)
}

// selfSkipped is how Ginkgo begins the message of a test that skips itself.
const selfSkipped = "skipped - "

// title is the name of the test without the marks of Ginkgo.
func (c testcase) title() string { return strings.TrimSpace(strings.TrimPrefix(c.Name, "[It] ")) }

// scope are the tests that the page is about.
var scope = regexp.MustCompile(`^\[It\] (\[sig-network\] |\[sig-node\] Pods .*\[Conformance\])`)

func (c testcase) netpol() bool { return strings.HasPrefix(c.title(), "[sig-network] Netpol ") }

func (c testcase) conformance() bool { return strings.Contains(c.Name, "[Conformance]") }

func inScope(s suites) suites {
	s.Cases = slices.DeleteFunc(s.Cases, func(c testcase) bool { return !scope.MatchString(c.Name) })
	s.Facts = slices.DeleteFunc(s.Facts, func(p property) bool { return !strings.HasPrefix(p.Name, "unnest.") })
	for k, c := range s.Cases {
		if c.Failure != nil {
			s.Cases[k].Failure = &failure{Message: message(cmp.Or(c.Failure.Message, c.Failure.Text))}
		}
		s.Cases[k].Skipped = nil
		if c.skipsItself() {
			s.Cases[k].Skipped = &failure{Message: message(c.Skipped.Message)}
		}
	}
	return s
}

// message is at most 200 characters of the first two lines. The second has the object that the first is about.
func message(text string) string {
	lines := strings.SplitN(strings.TrimSpace(strings.TrimPrefix(text, "[FAILED]")), "\n", 3)
	line := strings.Join(lines[:min(2, len(lines))], " ")
	if runes := []rune(line); len(runes) > 200 {
		line = string(runes[:200]) + " …"
	}
	return line
}

// merge adds the results of a later run. A test that it has left out keeps its result.
func merge(all, more suites) suites {
	for _, c := range more.Cases {
		k := slices.IndexFunc(all.Cases, func(known testcase) bool { return known.Name == c.Name })
		switch {
		case k < 0:
			all.Cases = append(all.Cases, c)
		case c.outcome() != leftOut, all.Cases[k].outcome() == leftOut && (c.skipsItself() || c.Status != "skipped"):
			all.Cases[k] = c
		}
	}
	for _, p := range more.Facts {
		k := slices.IndexFunc(all.Facts, func(known property) bool { return known.Name == p.Name })
		if k < 0 {
			all.Facts = append(all.Facts, p)
		} else {
			all.Facts[k] = p
		}
	}
	slices.SortFunc(all.Cases, func(a, b testcase) int { return strings.Compare(a.Name, b.Name) })
	return all
}
