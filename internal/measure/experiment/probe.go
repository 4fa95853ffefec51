package experiment

import (
	"slices"
	"strings"
	"time"

	"unnest.io/unnest/internal/measure/result"
)

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
