package experiment

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"unnest/internal/measure/result"
)

// Probe is a measurement that Go code makes: it has neither a workload with a client
// and a server nor the script of a suite.
type Probe string

// The probes.
const (
	Boot  Probe = "boot"  // a guest, from its launch to the first command in it
	Start Probe = "start" // a container, from the order to start it to its first message
	Add   Probe = "add"   // a CNI plugin alone, in an empty network namespace
)

// probes are the properties of the cases of each probe. The first metric stands for
// the case in tables.
var probes = map[Probe]struct {
	tool    string
	wall    time.Duration
	metrics []result.Metric
}{
	Boot:  {"qemu-system-x86_64", 10 * time.Second, seconds(false, "total", "firmware", "kernel", "userspace", "ssh")},
	Start: {"nerdctl", 6 * time.Second, seconds(true, "start", "add", "del")},
	Add:   {"cni", 2 * time.Second, seconds(true, "add", "del")},
}

func seconds(distribution bool, names ...string) (metrics []result.Metric) {
	for _, n := range names {
		metrics = append(metrics, result.Metric{Name: n, Unit: "s", Order: result.LIB, Distribution: distribution})
	}
	return metrics
}

// notOfProbes are the keys of a case that a probe does not have.
var notOfProbes = []string{"workload", "protocol", "sizes", "duration", "warmup", "options", "only", "except"}

// checkProbe adds the case of a probe.
func (f *file) checkProbe(g group) {
	for _, key := range notOfProbes {
		if f.Has(g.path + "." + key) {
			f.Fail(g.path+"."+key, "a probe has no such key: leave it out")
			return
		}
	}
	if !f.Require(g.path, "name") {
		return
	}
	p, ok := probes[g.probe]
	if !ok {
		f.Fail(g.path+".probe", "unknown probe %q: want %s", g.probe, oneOfProbes())
		return
	}
	c := Case{
		Case: result.Case{
			Suite: f.spec.Suite, Name: g.name, Group: g.name, Title: cmp.Or(g.title, g.name), Tool: p.tool,
			Primary: p.metrics[0].Name, Metrics: slices.Clone(p.metrics),
		},
		Probe: g.probe, Wall: p.wall, Timeout: cmp.Or(g.timeout, f.timeout),
	}
	if c.Timeout <= c.Wall {
		f.Fail(g.path+".timeout", "want more than the %s that an execution takes, got %q", c.Wall, c.Timeout)
	}
	f.spec.Cases = append(f.spec.Cases, c)
}

func oneOfProbes() string {
	var names []string
	for _, p := range slices.Sorted(maps.Keys(probes)) {
		names = append(names, fmt.Sprint(p))
	}
	return strings.Join(names, ", ")
}
