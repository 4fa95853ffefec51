package experiment

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"unnest/internal/measure/result"
	"unnest/internal/measure/stack"
	"unnest/internal/measure/workload"
)

// Limits of what a file can ask for; they catch slips, not ambitions.
const (
	maxFile           = 32 << 10 // bytes
	maxRepetitions    = 10000
	maxConfigurations = 64
	maxSizes          = 256
	maxExecutions     = 1 << 20
)

// check finds what is wrong between keys, and fills what was left out.
func (f *file) check() {
	if f.Failed() {
		return // what follows from a mistake only confuses
	}
	if !f.Require("", "name", "configurations", "cases") || !f.checkSuite() {
		return
	}
	f.checkConfigurations()
	f.checkBaselines()
	f.checkGroups()
	f.checkUntil()
	s := &f.spec
	if s.Title == "" {
		s.Title = s.Name
	}
	if n := s.Repetitions * len(s.Cases) * len(s.Configurations); n > maxExecutions {
		f.Fail("repetitions", "%d executions are more than the %d that a run can have", n, maxExecutions)
	}
}

// checkSuite wants a suite for the cases that bring none, and a profile only for
// those that come from a suite.
func (f *file) checkSuite() bool {
	withWorkload := slices.ContainsFunc(f.groups, func(g group) bool { return !f.Has(g.path + ".suite") })
	fromSuite := slices.ContainsFunc(f.groups, func(g group) bool { return f.Has(g.path + ".suite") })
	if withWorkload && !f.Require("", "suite") {
		return false
	}
	if !withWorkload && f.Has("suite") {
		f.Fail("suite", "it names the suite of cases that have a workload, and there are none: leave it out")
	}
	if !fromSuite && f.Has("profile") {
		f.Fail("profile", "it sizes the cases of suites, and there are none: leave it out")
	}
	if !fromSuite && f.profile != "" {
		f.Fail("cases", "none comes from a suite: no profile %q can be chosen", f.profile)
	}
	f.spec.Profile = cmp.Or(f.profile, f.spec.Profile)
	if !fromSuite {
		f.spec.Profile = ""
	}
	return !f.Failed()
}

// checkGroups makes the cases, and refuses names that are taken.
func (f *file) checkGroups() {
	names := map[string]string{}
	taken := func(path, name, by string) {
		if at, twice := names[name]; twice && name != "" {
			f.Fail(path, "%q is already the name of %s", name, at)
		}
		names[name] = by
	}
	for _, g := range f.groups {
		if !f.Has(g.path + ".suite") {
			taken(g.path+".name", g.name, g.path)
			if f.Has(g.path + ".probe") {
				f.checkProbe(g)
			} else {
				f.checkGroup(g)
			}
			continue
		}
		before := len(f.spec.Cases)
		f.checkSuiteGroup(g)
		for _, c := range f.spec.Cases[before:] {
			taken(g.path, c.Name, "a case of "+g.path)
		}
	}
}

func (f *file) checkUntil() {
	s := &f.spec
	switch {
	case f.Has("limit") && !f.Has("until"):
		f.Fail("limit", "it ends what until begins: say until, such as 3%%, or leave it out")
	case f.Has("until") && !f.Has("limit"):
		f.Fail("until", "key limit is missing: say how many repetitions there may be at most")
	case f.Has("until") && s.Limit < s.Repetitions:
		f.Fail("limit", "want at least the %d repetitions, got %d", s.Repetitions, s.Limit)
	case f.Has("until") && s.Limit*len(s.Cases)*len(s.Configurations) > maxExecutions:
		f.Fail("limit", "%d repetitions are more executions than the %d that a run can have", s.Limit, maxExecutions)
	}
}

func (f *file) checkConfigurations() {
	seen := map[string]bool{}
	for i, c := range f.spec.Configurations {
		path := fmt.Sprintf("configurations[%d]", i)
		if !f.Require(path, "name") {
			continue
		}
		if seen[c.Name] {
			f.Fail(path+".name", "%q is the name of an earlier configuration", c.Name)
		}
		seen[c.Name] = true
		if len(c.Stack) == 0 {
			f.Fail(path, "key stack is missing")
			continue
		}
		if err := c.Validate(); err != nil {
			f.Fail(path, "%v", err)
			continue
		}
		f.checkConfiguration(path, c)
	}
	if n := len(f.spec.Configurations); n > maxConfigurations {
		f.Fail("configurations", "%d are more than the %d that a run can have", n, maxConfigurations)
	}
}

// checkConfiguration finds what a valid configuration lacks for the experiment.
func (f *file) checkConfiguration(path string, c stack.Configuration) {
	_, container := c.Stack.Engine()
	if container && c.Network == "" && c.Drive != stack.Local && f.spec.Suite == networkSuite {
		f.Fail(path, "key network is missing: want host, nat or brfusion")
	}
	if _, err := f.spec.Resources(c); err != nil {
		f.Fail(path, "%v", err)
	}
	for _, g := range f.groups {
		if (c.Drive == stack.Remote || c.Drive == stack.Pod) && g.suite != "" {
			f.Fail(path, "drive %s needs a client, and the cases of suite %s have none: use another configuration, or leave out the suite", c.Drive, g.suite)
			return
		}
	}
}

// networkSuite is the suite whose cases reach a container from outside.
const networkSuite = "network"

func (f *file) checkBaselines() {
	s := &f.spec
	var names []string
	for _, c := range s.Configurations {
		names = append(names, c.Name)
	}
	if s.Baselines == nil {
		s.Baselines = names[:1]
	}
	seen := map[string]bool{}
	for i, b := range s.Baselines {
		path := fmt.Sprintf("baselines[%d]", i)
		if !slices.Contains(names, b) {
			f.Fail(path, "no configuration is named %q: there are %s", b, strings.Join(names, ", "))
		}
		if seen[b] {
			f.Fail(path, "%q stands there twice", b)
		}
		seen[b] = true
	}
}

// checkGroup asks the workload whether it can run the group, and spreads the
// group over its sizes.
func (f *file) checkGroup(g group) {
	for _, key := range []string{"only", "except"} {
		if f.Has(g.path + "." + key) {
			f.Fail(g.path+"."+key, "it chooses among the cases of a suite: say which by suite")
			return
		}
	}
	if !f.Require(g.path, "name", "workload", "duration") {
		return
	}
	w, err := workload.Lookup(g.workload)
	if err != nil {
		f.Fail(g.path+".workload", "%v", err)
		return
	}
	g.title = cmp.Or(g.title, g.name)
	g.timeout = cmp.Or(g.timeout, f.timeout)
	if g.sizes == nil {
		f.checkCase(g.path, g, w, 0)
		return
	}
	if len(g.sizes) > maxSizes {
		f.Fail(g.path+".sizes", "%d are more than the %d that a case can have", len(g.sizes), maxSizes)
		return
	}
	for i, size := range g.sizes {
		path := fmt.Sprintf("%s.sizes[%d]", g.path, i)
		if slices.Contains(g.sizes[:i], size) {
			f.Fail(path, "%d stands there twice", size)
			continue
		}
		if !f.checkCase(path, g, w, size) {
			return // the other sizes mostly fail for the same reason
		}
	}
}

// checkCase adds the case of g with this size when its workload takes it.
func (f *file) checkCase(path string, g group, w workload.Workload, size int) bool {
	c := Case{Params: g.params, Timeout: g.timeout}
	c.Params.Size = size
	if err := w.Validate(c.Params); err != nil {
		f.Fail(g.culprit(path, err), "%v", err)
		return false
	}
	c.Lead = w.Lead()
	if c.Wall = w.Wall(c.Params); c.Timeout <= c.Wall {
		f.Fail(g.path+".timeout", "want more than the %s that an execution takes, got %q", c.Wall, c.Timeout)
		return false
	}
	c.Case = result.Case{
		Suite: f.spec.Suite, Name: g.name, Group: g.name, Size: size, Title: g.title,
		Tool: g.workload, Primary: w.Primary(c.Params), Metrics: w.Metrics(c.Params),
	}
	if size > 0 {
		c.Name = fmt.Sprintf("%s/%d", g.name, size)
		c.Title = fmt.Sprintf("%s, %d B", g.title, size)
	}
	f.spec.Cases = append(f.spec.Cases, c)
	return true
}

// culprit returns the path of the param that a workload's error names; size is
// the path of the size.
func (g group) culprit(size string, err error) string {
	paths := map[string]string{
		"size":     size,
		"protocol": g.path + ".protocol",
		"duration": g.path + ".duration",
		"warmup":   g.path + ".warmup",
		"nodelay":  g.path + ".options.nodelay",
	}
	_, complaint, _ := strings.Cut(err.Error(), ": ")
	param, _, _ := strings.Cut(strings.ReplaceAll(complaint, ":", " "), " ")
	return cmp.Or(paths[param], g.path)
}
