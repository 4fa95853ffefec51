package main

import (
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
}

type failure struct {
	Message string `xml:"message,attr"`
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

// title is the name of the test without the marks of Ginkgo.
func (c testcase) title() string { return strings.TrimPrefix(c.Name, "[It] ") }

// scope are the tests that the page is about.
var scope = regexp.MustCompile(`^\[It\] (\[sig-network\] .*\[Conformance\]|\[sig-node\] Pods .*\[Conformance\]|\[sig-network\] Netpol )`)

func (c testcase) netpol() bool { return strings.HasPrefix(c.title(), "[sig-network] Netpol ") }

func inScope(s suites) suites {
	s.Cases = slices.DeleteFunc(s.Cases, func(c testcase) bool { return !scope.MatchString(c.Name) })
	s.Facts = slices.DeleteFunc(s.Facts, func(p property) bool { return !strings.HasPrefix(p.Name, "unnest.") })
	for k, c := range s.Cases {
		if c.Failure != nil {
			s.Cases[k].Failure = &failure{firstLine(c.Failure.Message)}
		}
	}
	return s
}

// firstLine is at most 200 characters of the first line.
func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
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
		case c.outcome() != leftOut:
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
