package experiment

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/stack"
	"unnest.io/unnest/internal/measure/suite"
	"unnest.io/unnest/internal/measure/workload"
)

// checkCases adds the cases of each group, and refuses duplicate names.
func (f *file) checkCases() {
	names := map[string]string{}
	add := func(path, name, owner string) {
		if at, twice := names[name]; twice && name != "" {
			f.Fail(path, "%q is already the name of %s", name, at)
		}
		names[name] = owner
	}
	for _, g := range f.groups {
		switch {
		case f.Has(g.path + ".suite"):
			before := len(f.spec.Cases)
			f.addSuite(g)
			for _, c := range f.spec.Cases[before:] {
				add(g.path, c.Name, "a case of "+g.path)
			}
			continue
		case f.Has(g.path + ".probe"):
			f.addProbe(g)
		default:
			f.addWorkload(g)
		}
		add(g.path+".name", g.name, g.path)
	}
}

// forbid refuses the first of the keys that the group has.
func (f *file) forbid(g group, why string, keys ...string) (ok bool) {
	for _, key := range keys {
		if f.Has(g.path + "." + key) {
			f.Fail(g.path+"."+key, "%s", why)
			return false
		}
	}
	return true
}

// add adds a case whose executions can end within its time limit.
func (f *file) add(g group, c Case) bool {
	if g.blocks > f.spec.Repetitions {
		f.Fail(g.path+".repetitions", "want at most the %d of the file, got %d", f.spec.Repetitions, g.blocks)
		return false
	}
	c.Blocks = g.blocks
	if c.Timeout <= c.Wall {
		what := "an execution takes"
		if c.Local != nil {
			what = fmt.Sprintf("%s takes with profile %s", c.Name, c.Profile)
		}
		f.Fail(g.path+".timeout", "want more than the %s that %s, got %q", c.Wall, what, c.Timeout)
		return false
	}
	f.spec.Cases = append(f.spec.Cases, c)
	return true
}

// addSuite adds the chosen cases of a suite. An execution may take six times its
// expected duration, and at least a minute, unless the file has another limit.
func (f *file) addSuite(g group) {
	if !f.forbid(g, "a case of a suite has its own: leave it out",
		"name", "title", "probe", "workload", "protocol", "sizes", "intensities", "duration", "warmup", "options") {
		return
	}
	if g.only != nil && !f.forbid(g, "give one of only and except", "except") {
		return
	}
	cases, err := f.suites(g.suite)
	if err != nil {
		f.Fail(g.path+".suite", "%v", err)
		return
	}
	var known []string
	for _, c := range cases {
		known = append(known, c.Name)
	}
	unknown := fmt.Sprintf("suite %s has no case", g.suite)
	if !f.checkNames(g.path+".only", g.only, known, unknown) || !f.checkNames(g.path+".except", g.except, known, unknown) {
		return
	}
	cases = slices.DeleteFunc(cases, func(c suite.Case) bool {
		return g.only != nil && !slices.Contains(g.only, c.Name) || slices.Contains(g.except, c.Name)
	})
	if len(cases) == 0 {
		f.Fail(g.path+".except", "no case of suite %s is left", g.suite)
	}
	for _, l := range cases {
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
		if f.Has("timeout") {
			c.Timeout = f.timeout
		}
		c.Timeout = cmp.Or(g.timeout, c.Timeout)
		f.add(g, c)
	}
}

func (f *file) addProbe(g group) {
	if !f.forbid(g, "a probe has no such key: leave it out",
		"workload", "protocol", "sizes", "intensities", "duration", "warmup", "options", "only", "except") || !f.Require(g.path, "name") {
		return
	}
	p, ok := probes[g.probe]
	if !ok {
		f.Fail(g.path+".probe", "unknown probe %q: want %s", g.probe, oneOfProbes())
		return
	}
	f.add(g, Case{
		Case: result.Case{
			Suite: f.spec.Suite, Name: g.name, Group: g.name, Title: cmp.Or(g.title, g.name), Tool: p.tool,
			Primary: p.metrics[0].Name, Metrics: slices.Clone(p.metrics),
		},
		Probe: g.probe, Wall: p.wall, Timeout: cmp.Or(g.timeout, f.timeout),
	})
}

// addWorkload adds a case for each size of the group, if its workload accepts the
// parameters.
func (f *file) addWorkload(g group) {
	if !f.forbid(g, "only cases of a suite can be chosen: add key suite", "only", "except") ||
		!f.Require(g.path, "name", "workload", "duration") {
		return
	}
	w, err := workload.Lookup(g.workload)
	if err != nil {
		f.Fail(g.path+".workload", "%v", err)
		return
	}
	x := workload.ExtraOf(w)
	for _, c := range f.spec.Configurations {
		if x.Bookworm && c.Release == stack.Trixie {
			f.Fail(g.path+".workload", "%s needs %s, which Debian 13 does not have: want release bookworm in configuration %s", g.workload, strings.Join(x.Packages, ", "), c.Name)
			return
		}
	}
	if !f.checkDomainCase(g) || !f.checkPeers(g, w) {
		return
	}
	if f.spec.Pairs != nil {
		f.addPairs(g, w)
		return
	}
	if g.percents != nil {
		f.addIntensities(g, w)
		return
	}
	f.addSizes(g, w)
}

func (f *file) addSizes(g group, w workload.Workload) {
	if g.sizes == nil {
		f.addSize(g.path, g, w, 0)
	}
	if len(g.sizes) > maxSizes {
		f.Fail(g.path+".sizes", "got %d: want at most %d", len(g.sizes), maxSizes)
		return
	}
	for i, size := range g.sizes {
		path := fmt.Sprintf("%s.sizes[%d]", g.path, i)
		if slices.Contains(g.sizes[:i], size) {
			f.Fail(path, "%d is listed twice", size)
		} else if !f.addSize(path, g, w, size) {
			return // the other sizes probably fail for the same reason
		}
	}
}

// addSize adds the case of one size; path is that of the size.
func (f *file) addSize(path string, g group, w workload.Workload, size int) bool {
	p := g.params
	p.Size = size
	if err := w.Validate(p); err != nil {
		f.Fail(g.culprit(path, err), "%v", err)
		return false
	}
	c := Case{
		Case: result.Case{
			Suite: f.spec.Suite, Name: g.name, Group: g.name, Size: size, Title: cmp.Or(g.title, g.name),
			Tool: g.workload, Primary: w.Primary(p), Metrics: w.Metrics(p),
		},
		Params: p, Wall: w.Wall(p), Lead: w.Lead(), Timeout: cmp.Or(g.timeout, f.timeout), Pair: g.pair,
	}
	if f.spec.OfDomains() {
		c.ofDomains()
	}
	if size > 0 {
		c.Name = fmt.Sprintf("%s/%d", c.Name, size)
		c.Title = fmt.Sprintf("%s, %d B", c.Title, size)
	}
	return f.add(g, c)
}

// culprit returns the path of the parameter that a workload's error names; size is the
// path of the size.
func (g group) culprit(size string, err error) string {
	_, complaint, _ := strings.Cut(err.Error(), ": ")
	switch param, _, _ := strings.Cut(strings.ReplaceAll(complaint, ":", " "), " "); param {
	case "size":
		return size
	case "protocol", "duration", "warmup":
		return g.path + "." + param
	case "intensities":
		return g.path + "." + param
	case "nodelay", "threads", "connections", "rate", "step", "clients":
		return g.path + ".options." + param
	case "options":
		return g.path + ".options"
	}
	return g.path
}

// Probe is a measurement made by Go code, without a workload or a script of a suite.
type Probe string

// The probes.
const (
	Boot      Probe = "boot"       // a guest, from its launch to the first command in it
	Ready     Probe = "ready"      // as Boot, with its container engine running
	ReadyFour Probe = "ready-four" // as Ready, of four guests that are launched together
	Start     Probe = "start"      // a container, from the order to start it to its first message
	Add       Probe = "add"        // a CNI plugin alone, in an empty network namespace
)

// probes are the properties of the cases of each probe. The first metric is that of the
// case in tables.
var probes = map[Probe]struct {
	tool    string
	wall    time.Duration
	metrics []result.Metric
}{
	Boot:      {"qemu-system-x86_64", 10 * time.Second, seconds(false, "total", "firmware", "kernel", "userspace", "ssh")},
	Ready:     {"qemu-system-x86_64", 15 * time.Second, seconds(false, "ready", "engine", "total", "firmware", "kernel", "userspace", "ssh")},
	ReadyFour: {"qemu-system-x86_64", 30 * time.Second, slices.Concat(seconds(false, "ready"), mebibytes("memory_rss", "memory_pss"))},
	Start:     {"nerdctl", 6 * time.Second, seconds(true, "start", "add", "del")},
	Add:       {"cni", 2 * time.Second, seconds(true, "add", "del")},
}

func seconds(distribution bool, names ...string) (metrics []result.Metric) {
	for _, n := range names {
		metrics = append(metrics, result.Metric{Name: n, Unit: "s", Order: result.LIB, Distribution: distribution})
	}
	return metrics
}

func mebibytes(names ...string) (metrics []result.Metric) {
	for _, n := range names {
		metrics = append(metrics, result.Metric{Name: n, Unit: "MiB", Order: result.LIB})
	}
	return metrics
}

func oneOfProbes() string {
	var names []string
	for p := range probes {
		names = append(names, string(p))
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}
