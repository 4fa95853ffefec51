// Package experiment turns an experiment file into a plan of executions, and
// drives a bench through it: in randomised, interleaved blocks, with time
// limits, retries and a journal from which an interrupted run goes on.
//
// How guests boot and containers start belongs to the bench, the tools and
// their output to package workload, what samples mean to package stats.
package experiment

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"unnest/internal/measure/result"
	"unnest/internal/measure/stack"
	"unnest/internal/measure/suite"
	"unnest/internal/measure/workload"
)

// Spec is an experiment: configurations to compare by cases, each so many
// times. It comes from Parse and is valid.
type Spec struct {
	Text           string // the file, verbatim
	Name           string
	Title          string
	Description    string
	Suite          string        // of the cases that have a workload, empty when there are none
	Profile        suite.Profile // of the cases that come from a suite
	Baselines      []string      // configurations that the others are divided by, first is the main one
	Guest          Guest
	Overcommit     Overcommit // empty: Full
	Configurations []stack.Configuration
	Cases          []Case
	Repetitions    int     // blocks
	Until          float64 // blocks are added while an interval is wider than this fraction of its mean, 0: never
	Limit          int     // with Until: of all blocks
	Warmup         int     // executions of each group of cases in each configuration, before the first block
	Retries        int     // attempts after the first
	Seed           uint64  // of the order, 0: to be drawn
}

// Guest is the size of each VM, unless its configuration or Overcommit say
// otherwise.
type Guest struct {
	VCPUs  int
	Memory int64 // bytes
}

// Case is one row of the result: a workload with its parameters, or a case that a
// suite has made.
type Case struct {
	result.Case
	Params  workload.Params
	Probe   Probe         // empty: the case has a workload or comes from a suite
	Local   *suite.Case   // runs in the configuration itself; nil: a workload, with Params
	Profile suite.Profile // of Local
	Wall    time.Duration // what the client takes when all goes well
	Lead    time.Duration // how much of that it idles before it loads anything
	Timeout time.Duration // limit of one execution
}

// minRepetitions is the least number of repetitions that are worth testing: a
// rank test of 3 against 3 never goes below p = 0.10, and a correction for
// several comparisons needs more.
const minRepetitions = 6

// Warnings says what is allowed but makes the results weak.
func (s *Spec) Warnings() []string {
	var warnings []string
	if s.Repetitions < minRepetitions {
		warnings = append(warnings, fmt.Sprintf(
			"%d repetitions can hardly tell configurations apart: use at least %d", s.Repetitions, minRepetitions))
	}
	if len(s.Configurations) == 1 {
		warnings = append(warnings, "one configuration alone is compared with nothing")
	}
	return warnings
}

// Repeat sets the number of repetitions. It fails when a run cannot have so many.
func (s *Spec) Repeat(n int) error {
	if n < 1 || n > maxRepetitions {
		return fmt.Errorf("experiment %s: %d repetitions: want 1 to %d", s.Name, n, maxRepetitions)
	}
	if executions := n * len(s.Cases) * len(s.Configurations); executions > maxExecutions {
		return fmt.Errorf("experiment %s: %d repetitions are %d executions: want at most %d", s.Name, n, executions, maxExecutions)
	}
	s.Repetitions = n
	return nil
}

// AddMetrics adds to every case what a bench measures beside the workload, such
// as CPU time. Call it before NewRun.
func (s *Spec) AddMetrics(metrics ...result.Metric) {
	for i := range s.Cases {
		s.Cases[i].Metrics = slices.Concat(s.Cases[i].Metrics, metrics)
	}
}

// NewRun returns what the experiment knows of a run of it. The caller adds
// where it runs and with what, and creates the run directory with it.
func (s *Spec) NewRun(id string, seed uint64, started time.Time) result.Run {
	run := result.Run{
		ID:          id,
		Experiment:  s.Name,
		Title:       s.Title,
		Description: s.Description,
		File:        s.Text,
		State:       result.Running,
		Started:     started.UTC(),
		Seed:        seed,
		Repetitions: s.Repetitions,
		Interleaved: true,
		Planned:     s.Repetitions * len(s.Cases) * len(s.Configurations),
		Baselines:   s.Baselines,
	}
	for _, c := range s.Configurations {
		run.Configurations = append(run.Configurations, result.Configuration{
			Name: c.Name, Stack: c.Stack.String(), Options: s.options(c), Description: c.Describe(),
		})
	}
	for _, c := range s.Cases {
		run.Cases = append(run.Cases, c.Case)
	}
	return run
}

// The options of a configuration in a run that are not its own, but follow from
// the experiment.
const (
	vcpusOption   = "vcpus"   // of the machine that a case runs in, see Spec.Resources
	memoryOption  = "memory"  // likewise
	profileOption = "profile" // when a case comes from a suite
)

// options returns what a run notes of a configuration's options.
func (s *Spec) options(c stack.Configuration) map[string]string {
	options := c.Options()
	if r, err := s.Resources(c); err == nil && r.VCPUs > 0 && r.Memory > 0 {
		options[vcpusOption], options[memoryOption] = strconv.Itoa(r.VCPUs), stack.FormatBytes(r.Memory)
	}
	if s.local() {
		options[profileOption] = string(s.Profile)
	}
	return options
}

// local reports whether a case comes from a suite.
func (s *Spec) local() bool {
	return slices.ContainsFunc(s.Cases, func(c Case) bool { return c.Local != nil })
}

// profileOf returns the profile that a run was planned with, empty when none of
// its cases has one.
func profileOf(run result.Run) suite.Profile {
	if len(run.Configurations) == 0 {
		return ""
	}
	return suite.Profile(run.Configurations[0].Options[profileOption])
}

// FromRun returns the experiment that run was made of, so that it can be
// resumed: the file in it, with the repetitions, profile and metrics that were
// planned. dir names the run in errors.
func FromRun(dir string, run result.Run) (*Spec, error) { return fromRun(dir, run, suite.Of) }

func fromRun(dir string, run result.Run, suites suites) (*Spec, error) {
	s, err := parse(dir+": experiment file", []byte(run.File), profileOf(run), suites)
	if err != nil {
		return nil, fmt.Errorf("read the experiment of the run: %w", err)
	}
	s.Repetitions = run.Repetitions
	for i, c := range s.Cases {
		j := slices.IndexFunc(run.Cases, func(r result.Case) bool { return r.Name == c.Name })
		if j < 0 {
			return nil, fmt.Errorf("read the experiment of the run: %s lists no case %s of its experiment file", dir, c.Name)
		}
		s.Cases[i].Metrics = run.Cases[j].Metrics
	}
	return s, nil
}
