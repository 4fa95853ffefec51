// Package result has the values of a run: its provenance (run.json of a run directory), its samples,
// and the format of their journal (samples.jsonl).
//
// Package rundir reads and writes run directories, the experiment engine fills them, reports and
// comparisons read them. The statistics of samples belong to package stats, their output to package
// report.
package result

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"
)

// Order is the direction in which a metric improves.
type Order string

// The two orders of a metric.
const (
	HIB Order = "HIB" // higher is better: throughput
	LIB Order = "LIB" // lower is better: latency, CPU time
)

// Validate returns an error unless o is HIB or LIB.
func (o Order) Validate() error {
	if o != HIB && o != LIB {
		return fmt.Errorf("order %q: want HIB (higher is better) or LIB (lower is better)", string(o))
	}
	return nil
}

// Sample is one measured value: one metric of one execution of one case in one
// configuration.
type Sample struct {
	Run           string            `json:"run"`           // run identifier
	Configuration string            `json:"configuration"` // configuration name, as in Run.Configurations
	Suite         string            `json:"suite"`         // "network"
	Case          string            `json:"case"`          // "udp_rr/1280": group and size
	Metric        string            `json:"metric"`        // "latency_mean"
	Unit          string            `json:"unit"`          // SI, "us", "Mbit/s", "us/op"
	Order         Order             `json:"order"`
	Value         float64           `json:"value"`          // always finite
	Block         int               `json:"block"`          // the pass over all configurations, from 0
	Repetition    int               `json:"repetition"`     // execution of this case in this configuration, from 0
	Boot          string            `json:"boot"`           // kernel boot ID of the measured guest
	Start         time.Time         `json:"start"`          // start of the execution
	Duration      float64           `json:"duration"`       // of the execution, in seconds
	Tags          map[string]string `json:"tags,omitempty"` // further properties to group samples by
	// Intervals are the values in consecutive intervals of the execution, see Metric.Interval.
	Intervals []float64 `json:"intervals,omitempty"`
	// Discarded is 0 in a result of the run. Else the machine was disturbed, so the execution was measured
	// again; Discarded counts such measurements of it from 1.
	Discarded int `json:"discarded,omitempty"`
	// Resumption is how often the run had been resumed before the sample was measured.
	Resumption int `json:"resumption,omitempty"`
}

// Tag adds tags to s. Those that s has stay, and its map is not changed, which samples may share.
func (s *Sample) Tag(tags map[string]string) {
	if len(tags) == 0 {
		return
	}
	all := maps.Clone(tags)
	maps.Copy(all, s.Tags)
	s.Tags = all
}

// Configuration describes one column of the run.
type Configuration struct {
	Name        string            `json:"name"`              // the paper's name: "NoCont"
	Stack       string            `json:"stack"`             // our notation: "vm/containerd"
	Options     map[string]string `json:"options,omitempty"` // "network": "nat"
	Description string            `json:"description,omitempty"`
}

// Case describes one row of the run.
type Case struct {
	Suite string `json:"suite"`
	Name  string `json:"name"`            // "udp_rr/1280", the key used in samples
	Group string `json:"group"`           // "udp_rr": cases of one group differ only in Size and share a chart
	Size  int    `json:"size,omitempty"`  // message size in bytes, 0 when the case has none
	Title string `json:"title,omitempty"` // "UDP ping-pong, 1280 B"
	// Intensity is the load of domains in percent of their full load, 0 when the case has none.
	Intensity int      `json:"intensity,omitempty"`
	Tool      string   `json:"tool"`    // "sockperf"
	Primary   string   `json:"primary"` // the metric of the case in tables
	Metrics   []Metric `json:"metrics"` // all metrics of the case
}

// Metric names a measured quantity of a case.
type Metric struct {
	Name  string `json:"name"` // "latency_mean"
	Unit  string `json:"unit"`
	Order Order  `json:"order"`

	// Distribution is set if the distribution of the values is a result, as for the
	// start-up times of Bacou et al. 2019, Fig. 8, and not only noise.
	Distribution bool `json:"distribution,omitempty"`

	// Interval is the length in seconds of the intervals into which an execution is divided, as for
	// the application stack of Lubomski et al., §3.5. 0: it is not.
	Interval float64 `json:"interval,omitempty"`
}

// State is the progress of a run.
type State string

// The states of a run.
const (
	Running     State = "running"     // in progress, or its writer was killed
	Complete    State = "complete"    // every planned execution has its samples
	Interrupted State = "interrupted" // stopped by a signal; can be resumed
	Failed      State = "failed"      // stopped by an error; can be resumed
)

// Run is the provenance of samples: the experiment, the machines and the versions.
type Run struct {
	Schema         int               `json:"schema_version,omitempty"` // of run.json and the journal, see Schema
	ID             string            `json:"id"`
	Experiment     string            `json:"experiment"` // name of the experiment
	Title          string            `json:"title"`
	Description    string            `json:"description,omitempty"`
	File           string            `json:"file"`             // the experiment file, verbatim
	Chosen         []string          `json:"chosen,omitempty"` // the cases of File that were chosen, by name or group; none: all
	State          State             `json:"state"`
	Error          string            `json:"error,omitempty"` // why it failed
	Started        time.Time         `json:"started"`
	Ended          time.Time         `json:"ended,omitzero"`
	Seed           uint64            `json:"seed"`                  // of the order of executions
	Repetitions    int               `json:"repetitions"`           // planned per case and configuration
	Fixed          bool              `json:"fixed,omitempty"`       // the command line fixed the repetitions, so the experiment's until adds none
	Disturbed      int               `json:"disturbed,omitempty"`   // executions that were repeated because of what else the machine did
	Resumptions    int               `json:"resumptions,omitempty"` // how often the run was resumed after its first sample
	Start          string            `json:"start,omitempty"`       // how the command line wanted guests to start: "booted" or "restored"
	Interleaved    bool              `json:"interleaved"`           // false: configurations were measured in separate blocks of time
	Fresh          bool              `json:"fresh,omitempty"`       // each block had machines of its own
	Planned        int               `json:"planned"`               // executions planned
	Accelerator    string            `json:"accelerator"`           // "kvm", "tcg", "none" or ClusterNodes
	AccelReason    string            `json:"accelerator_reason,omitempty"`
	Host           Machine           `json:"host"`
	Guests         []Machine         `json:"guests,omitempty"`
	Image          string            `json:"image,omitempty"`    // digest of the guest image's recipe
	Tools          map[string]string `json:"tools,omitempty"`    // tool -> version
	Revision       string            `json:"revision,omitempty"` // git revision of unnest
	Version        string            `json:"version"`            // version of unnest
	Baselines      []string          `json:"baselines"`          // configurations that the others are compared with, the main one first
	Configurations []Configuration   `json:"configurations"`
	Cases          []Case            `json:"cases"`
	Notes          []string          `json:"notes,omitempty"`      // what casts doubt on the figures, such as other work on the machine
	Conditions     []string          `json:"conditions,omitempty"` // what held for all executions, such as who had which processor
	Failures       []Failure         `json:"failures,omitempty"`   // executions given up after their retries
}

// Schema is the version of the format of run directories. 0 in an old run means 1. Keys are added
// without a new version; it changes when one is removed or gets another meaning.
const Schema = 1

// Check returns an error if the run has cases and no configuration, or the journal a sample that
// cannot belong to it: of another run, of an unknown configuration or case, of another suite than its case, of a metric
// that its case does not have, or with another unit or order.
func (r Run) Check(j Journal) error {
	if len(r.Configurations) == 0 && len(r.Cases) > 0 {
		return errors.New("run.json has cases and no configuration: name a run that unnest bench has written")
	}
	cases := map[string]Case{}
	for _, c := range r.Cases {
		cases[c.Name] = c
	}
	for _, s := range j.All() {
		if err := r.owns(s, cases); err != nil {
			return fmt.Errorf("sample of %s: %w", s.Execution(), err)
		}
	}
	return nil
}

// owns checks one sample, by the cases of the run.
func (r Run) owns(s Sample, cases map[string]Case) error {
	c, ok := cases[s.Case]
	known := c.Metrics
	i := slices.IndexFunc(known, func(m Metric) bool { return m.Name == s.Metric })
	switch {
	case s.Run != r.ID:
		return fmt.Errorf("run %q: this is run %q", s.Run, r.ID)
	case !r.Has(s.Configuration):
		return fmt.Errorf("configuration %q: the run has none of that name", s.Configuration)
	case !ok:
		return fmt.Errorf("case %q: the run has none of that name", s.Case)
	case s.Suite != c.Suite:
		return fmt.Errorf("suite %q: the case is of suite %q", s.Suite, c.Suite)
	case i < 0:
		return fmt.Errorf("metric %q: the case has none of that name", s.Metric)
	case s.Unit != known[i].Unit:
		return fmt.Errorf("%s in %q: the case has it in %q", s.Metric, s.Unit, known[i].Unit)
	case s.Order != known[i].Order:
		return fmt.Errorf("%s with order %s: the case has it with %s", s.Metric, s.Order, known[i].Order)
	}
	return nil
}

// ClusterNodes is the accelerator of runs in pods of an existing cluster: nobody knows what is
// below its nodes, which are the guests of the run.
const ClusterNodes = "cluster"

// Machine is one host or guest of a run.
type Machine struct {
	Name   string `json:"name"`
	Kernel string `json:"kernel"`
	CPU    string `json:"cpu"`
	VCPUs  int    `json:"vcpus"`
	Memory int64  `json:"memory"` // bytes
	Arch   string `json:"arch"`
	// Start is how a guest of ours began: Booted or Restored. Empty: unknown, or no guest.
	Start string `json:"start,omitempty"`
	// HaltPoll is for how many nanoseconds KVM at most polls before it gives up the processor of
	// a guest that has nothing to do: the parameter halt_poll_ns of its module. Empty: unknown, or
	// the machine has no KVM.
	HaltPoll string `json:"halt_poll_ns,omitempty"`
	// RandomAddresses is the kernel's setting randomize_va_space: 0 if all processes of a program have
	// the same addresses, as in emulated guests of ours. Empty: unknown.
	RandomAddresses string `json:"randomize_va_space,omitempty"`
}

// The ways in which guests begin.
const (
	Booted   = "booted"
	Restored = "restored from a snapshot"
)

// Failure is one execution without samples.
type Failure struct {
	Configuration string `json:"configuration"`
	Case          string `json:"case"`
	Block         int    `json:"block"`
	Attempts      int    `json:"attempts"`
	Error         string `json:"error"`
}

// Has reports whether the run has a configuration of that name.
func (r Run) Has(configuration string) bool {
	return slices.ContainsFunc(r.Configurations, func(c Configuration) bool { return c.Name == configuration })
}

// VCPUs returns the number of vCPUs that the options of c name, 0 when it is not known.
func (c Configuration) VCPUs() int {
	n, err := strconv.Atoi(c.Options["vcpus"])
	if err != nil || n < 1 {
		return 0
	}
	return n
}
