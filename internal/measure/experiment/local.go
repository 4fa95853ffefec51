package experiment

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"unnest/internal/measure/result"
	"unnest/internal/measure/suite"
)

// ownOfWorkloads are the keys of a case that mean nothing to one of a suite.
var ownOfWorkloads = []string{"name", "title", "probe", "workload", "protocol", "sizes", "duration", "warmup", "options"}

// checkSuiteGroup adds the cases of a suite that g chooses.
func (f *file) checkSuiteGroup(g group) {
	for _, key := range ownOfWorkloads {
		if f.Has(g.path + "." + key) {
			f.Fail(g.path+"."+key, "a case of a suite brings its own: leave it out")
			return
		}
	}
	if f.Has(g.path+".only") && f.Has(g.path+".except") {
		f.Fail(g.path+".except", "give one of only and except")
		return
	}
	cases, err := f.suites(g.suite)
	if err != nil {
		f.Fail(g.path+".suite", "%v", err)
		return
	}
	if !f.checkChoice(g.path+".only", g.only, cases) || !f.checkChoice(g.path+".except", g.except, cases) {
		return
	}
	added := false
	for _, c := range cases {
		if g.only != nil && !slices.Contains(g.only, c.Name) || slices.Contains(g.except, c.Name) {
			continue
		}
		added = true
		f.addLocal(g, c)
	}
	if !added {
		f.Fail(g.path+".except", "no case of suite %s is left", g.suite)
	}
}

// checkChoice refuses names that the suite does not have, or twice.
func (f *file) checkChoice(path string, names []string, cases []suite.Case) bool {
	var known []string
	for _, c := range cases {
		known = append(known, c.Name)
	}
	for i, name := range names {
		at := fmt.Sprintf("%s[%d]", path, i)
		if !slices.Contains(known, name) {
			f.Fail(at, "suite %s has no case %q: there are %s", cases[0].Suite, name, strings.Join(known, ", "))
			return false
		}
		if slices.Contains(names[:i], name) {
			f.Fail(at, "%q stands there twice", name)
			return false
		}
	}
	return true
}

// addLocal adds a case of a suite. It may take six times as long as it should, and
// a minute at least, unless the file says otherwise.
func (f *file) addLocal(g group, l suite.Case) {
	c := Case{
		Case: result.Case{
			Suite: l.Suite, Name: l.Name, Group: l.Name, Title: l.Title, Tool: l.Package,
			Primary: l.Metrics[0].Name, Metrics: slices.Clone(l.Metrics),
		},
		Local: &l, Profile: f.spec.Profile, Wall: l.Wall(f.spec.Profile),
	}
	if len(l.Tools) > 0 {
		c.Tool = l.Tools[0]
	}
	c.Timeout = max(defaultTimeout, 6*c.Wall)
	for _, given := range []struct {
		path    string
		timeout time.Duration
	}{{"timeout", f.timeout}, {g.path + ".timeout", g.timeout}} {
		if f.Has(given.path) {
			c.Timeout = given.timeout
		}
	}
	if c.Timeout <= c.Wall {
		f.Fail(g.path+".timeout", "want more than the %s that %s takes with profile %s, got %q", c.Wall, c.Name, c.Profile, c.Timeout)
	}
	f.spec.Cases = append(f.spec.Cases, c)
}
