package experiment

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"unnest.io/unnest/internal/measure/stack"
)

// Limits of an experiment file. They catch typing errors.
const (
	maxFile           = 32 << 10 // bytes
	maxRepetitions    = 10000
	maxConfigurations = 64
	maxSizes          = 256
	maxExecutions     = 1 << 20
)

// check reports contradictions between keys, and sets missing keys to their defaults.
func (f *file) check() {
	if f.Failed() {
		return // errors that follow from another error only confuse
	}
	if !f.Require("", "name", "configurations", "cases") || !f.checkSuite() {
		return
	}
	f.checkConfigurations()
	if !f.leaveOut() {
		return
	}
	f.checkBaselines()
	f.checkPairs()
	f.checkCases()
	f.checkUntil()
	s := &f.spec
	s.Title = cmp.Or(s.Title, s.Name)
	if n := s.Repetitions * len(s.Cases) * len(s.Configurations); n > maxExecutions {
		f.Fail("repetitions", "%d executions: want at most %d", n, maxExecutions)
	}
}

// checkSuite requires a suite for cases that are not of a suite, and allows a profile
// only for those that are.
func (f *file) checkSuite() bool {
	ofSuite := func(g group) bool { return f.Has(g.path + ".suite") }
	some := slices.ContainsFunc(f.groups, ofSuite)
	others := slices.ContainsFunc(f.groups, func(g group) bool { return !ofSuite(g) })
	if others && !f.Require("", "suite") {
		return false
	}
	if !others && f.Has("suite") {
		f.Fail("suite", "all cases have a suite already: leave it out")
	}
	if !some && f.Has("profile") {
		f.Fail("profile", "no case is of a suite: leave it out")
	}
	if !some && f.profile != "" {
		f.Fail("cases", "none is of a suite: no profile %q can be chosen", f.profile)
	}
	f.spec.Profile = cmp.Or(f.profile, f.spec.Profile)
	if !some {
		f.spec.Profile = ""
	}
	return !f.Failed()
}

func (f *file) checkUntil() {
	s := &f.spec
	switch {
	case f.Has("limit") && !f.Has("until"):
		f.Fail("limit", "key until is missing: add it, such as 3%%, or leave out limit")
	case f.Has("until") && !f.Has("limit"):
		f.Fail("until", "key limit is missing: add the maximum number of repetitions")
	case f.Has("until") && s.Limit < s.Repetitions:
		f.Fail("limit", "want at least the %d repetitions, got %d", s.Repetitions, s.Limit)
	case f.Has("until") && s.Limit*len(s.Cases)*len(s.Configurations) > maxExecutions:
		f.Fail("limit", "%d repetitions: want at most %d executions", s.Limit, maxExecutions)
	}
}

func (f *file) checkConfigurations() {
	seen := map[string]bool{}
	f.applyEngine()
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
			f.Fail(path, "key stack is missing, or key domains")
			continue
		}
		if c.Release == "" && c.Level() > 0 {
			c.Release = f.spec.Release
			f.spec.Configurations[i].Release = c.Release
		}
		if err := c.Validate(); err != nil {
			f.Fail(path, "%v", err)
			continue
		}
		f.checkConfiguration(path, c)
	}
	f.checkDomains()
	if n := len(f.spec.Configurations); n > maxConfigurations {
		f.Fail("configurations", "got %d: want at most %d", n, maxConfigurations)
	}
}

// applyEngine has the engine of the experiment run the containers in VMs, in place of containerd.
func (f *file) applyEngine() {
	if f.spec.Engine == "" {
		return
	}
	some := false
	for i, c := range f.spec.Configurations {
		if c.Stack.String() == "vm/containerd" && len(c.Domains) == 0 {
			f.spec.Configurations[i].Stack, some = stack.Stack{stack.VM, f.spec.Engine}, true
		}
	}
	if !some {
		f.Fail("engine", "no configuration has stack vm/containerd, as NAT and BrFusion: add one, or leave the key out")
	}
}

// checkConfiguration checks a valid configuration against the rest of the experiment.
func (f *file) checkConfiguration(path string, c stack.Configuration) {
	const network = "network" // the suite whose cases reach a container from outside
	_, container := c.Stack.Engine()
	if container && c.Domains == nil && c.Network == "" && c.Drive != stack.Local && f.spec.Suite == network {
		f.Fail(path, "key network is missing: want host, nat or brfusion")
	}
	if _, err := f.spec.Resources(c); err != nil {
		f.Fail(path, "%v", err)
	}
	for _, g := range f.groups {
		if (c.Drive == stack.Remote || c.Drive == stack.Pod) && g.suite != "" && !f.served(g.suite) {
			f.Fail(path, "drive %s needs a client, and the cases of suite %s have none: use another configuration, or leave out the suite", c.Drive, g.suite)
			return
		}
	}
}

// served reports whether the cases of a suite load a server.
func (f *file) served(suite string) bool {
	cases, err := f.suites(suite)
	return err == nil && len(cases) > 0 && cases[0].Server != nil
}

func (f *file) checkBaselines() {
	s := &f.spec
	var names []string
	for _, c := range s.Configurations {
		names = append(names, c.Name)
	}
	if s.Baselines == nil {
		s.Baselines = names[:1]
	}
	f.checkNames("baselines", s.Baselines, names, "no configuration is named")
}

// checkNames refuses names that are not known or listed twice.
func (f *file) checkNames(path string, names, known []string, unknown string) (ok bool) {
	ok = true
	for i, name := range names {
		at := fmt.Sprintf("%s[%d]", path, i)
		if !slices.Contains(known, name) {
			f.Fail(at, "%s %q: there are %s", unknown, name, strings.Join(known, ", "))
			ok = false
		}
		if slices.Contains(names[:i], name) {
			f.Fail(at, "%q is listed twice", name)
			ok = false
		}
	}
	return ok
}
