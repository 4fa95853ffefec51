// Package experiment parses experiment files, schedules their executions in randomized,
// interleaved blocks, and runs them on a bench, with time limits, retries and a journal
// from which an interrupted run is resumed.
//
// Booting guests and starting containers belong to the bench, tools and their output to
// package workload, the meaning of samples to package stats.
package experiment

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"unnest.io/unnest/internal/measure/collocation"
	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/stack"
	"unnest.io/unnest/internal/measure/stats"
	"unnest.io/unnest/internal/measure/suite"
	"unnest.io/unnest/internal/measure/workload"
	"unnest.io/unnest/internal/yamldoc"
)

// Spec is a valid experiment: the cases that compare configurations, and how often they
// run. Parse returns it.
type Spec struct {
	Text           string // the file, verbatim
	Name           string
	Title          string
	Description    string
	Suite          string        // of the cases with a workload or a probe, else empty
	Profile        suite.Profile // of the cases of suites
	Baselines      []string      // configurations that the others are compared with, the main one first
	Guest          Guest
	Release        stack.Release // of Debian in each VM, unless its configuration has another one; empty: the default
	Engine         stack.Layer   // of the containers in VMs, in place of containerd; empty: containerd
	Overcommit     Overcommit    // empty: Full
	Configurations []stack.Configuration
	Cases          []Case
	Chosen         []string // what Choose was given
	Pairs          []Pair   // of nodes of a cluster, each with all cases
	Repetitions    int      // blocks
	Until          float64  // add blocks while half of the interval of a ratio is above this fraction of it, 0: never
	Limit          int      // with Until: of all blocks
	Fixed          bool     // by Repeat: Until adds none
	Fresh          bool     // each block has machines of its own
	Noisy          bool     // by the command line: disturbed executions are not repeated
	Warmup         int      // executions of each group of cases in each configuration, before the first block
	Retries        int      // attempts after the first
	Seed           uint64   // of the schedule, 0: random
}

// Guest is the size of each VM, unless its configuration or Overcommit changes it.
type Guest struct {
	VCPUs  int
	Memory int64 // bytes
}

// Case is one row of the result: a workload with its parameters, a case of a suite, or a
// probe.
type Case struct {
	result.Case
	Params  workload.Params
	Probe   Probe         // empty: a workload or a case of a suite
	Local   *suite.Case   // runs in the configuration itself; nil: a workload or a probe
	Profile suite.Profile // of Local
	Wall    time.Duration // expected duration of the client
	Lead    time.Duration // part of Wall in which the client idles before its load
	Timeout time.Duration // limit of one execution
	Blocks  int           // the case is in the first so many blocks only, and Until adds none; 0: in all
	Pair    Pair          // of nodes, in a cluster
}

// Workload returns the workload of a case that has one. It panics if there is none of its name, which
// Parse refuses.
func (c Case) Workload() workload.Workload {
	w, err := workload.Lookup(c.Tool)
	if err != nil {
		panic(err)
	}
	return w
}

// Warnings returns the reasons why the results will be weak.
func (s *Spec) Warnings() []string {
	var warnings []string
	if s.Repetitions < stats.MinRepetitions {
		warnings = append(warnings, fmt.Sprintf(
			"%d repetitions can hardly distinguish configurations: use at least %d", s.Repetitions, stats.MinRepetitions))
	}
	if len(s.Configurations) == 1 {
		warnings = append(warnings, "the only configuration is compared with nothing")
	}
	return warnings
}

// Choose leaves out the cases that are not chosen. A choice is the name of a case, or of its group, that
// is, without the size. A choice without a case is an error.
func (s *Spec) Choose(choices []string) error {
	for _, choice := range choices {
		if !slices.ContainsFunc(s.Cases, func(c Case) bool { return c.chosen(choice) }) {
			var names []string
			for _, c := range s.Cases {
				names = append(names, c.Name, c.Group)
			}
			slices.Sort(names)
			return fmt.Errorf("experiment %s: no case %q: %s", s.Name, choice, yamldoc.Suggest(choice, slices.Compact(names)))
		}
	}
	s.Cases = slices.DeleteFunc(s.Cases, func(c Case) bool { return !slices.ContainsFunc(choices, c.chosen) })
	s.Chosen = choices
	return nil
}

func (c Case) chosen(choice string) bool { return choice == c.Name || choice == c.Group }

// Repeat sets the number of repetitions of every case, to which Until adds none. It fails
// when a run cannot have so many.
func (s *Spec) Repeat(n int) error {
	if n < 1 || n > maxRepetitions {
		return fmt.Errorf("experiment %s: %d repetitions: want 1 to %d", s.Name, n, maxRepetitions)
	}
	if executions := n * len(s.Cases) * len(s.Configurations); executions > maxExecutions {
		return fmt.Errorf("experiment %s: %d repetitions are %d executions: want at most %d", s.Name, n, executions, maxExecutions)
	}
	s.Repetitions = n
	s.fix()
	return nil
}

// fix gives every case all blocks, and no more.
func (s *Spec) fix() {
	s.Until, s.Fixed = 0, true
	for i := range s.Cases {
		s.Cases[i].Blocks = 0
	}
}

// AddMetrics adds to every case the metrics that the bench measures itself, such as CPU
// time. Call it before NewRun.
func (s *Spec) AddMetrics(metrics ...result.Metric) {
	for i := range s.Cases {
		s.Cases[i].Metrics = slices.Concat(s.Cases[i].Metrics, metrics)
	}
}

// NewRun returns a run of the experiment. The caller adds the machine and the versions
// of the tools, and creates the run directory with it.
func (s *Spec) NewRun(id string, seed uint64, started time.Time) result.Run {
	run := result.Run{
		ID: id, Experiment: s.Name, Title: s.Title, Description: s.Description, File: s.Text,
		State: result.Running, Started: started.UTC(), Seed: seed,
		Repetitions: s.Repetitions, Fixed: s.Fixed, Interleaved: true, Fresh: s.Fresh, Planned: len(Schedule(s, seed)),
		Baselines: s.Baselines, Chosen: s.Chosen,
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

// options returns the options of c in a run: its own, the size of the machine of its
// cases (see Resources), and the profile if a case is of a suite.
func (s *Spec) options(c stack.Configuration) map[string]string {
	options := c.Options()
	if c.Stack.Pod() {
		return options // the nodes are the cluster's
	}
	if r, err := s.Resources(c); err == nil && r.VCPUs > 0 && r.Memory > 0 {
		options["vcpus"], options["memory"] = strconv.Itoa(r.VCPUs), stack.FormatBytes(r.Memory)
	}
	if slices.ContainsFunc(s.Cases, func(c Case) bool { return c.Local != nil }) {
		options[profileOption] = string(s.Profile)
	}
	return options
}

const profileOption = "profile"

// FromRun returns the experiment of a run, to resume it: the file in run, with the
// repetitions, profile and metrics of the run. dir identifies the run in errors.
func FromRun(dir string, run result.Run) (*Spec, error) { return fromRun(dir, run, suite.Of) }

func fromRun(dir string, run result.Run, suites suites) (*Spec, error) {
	var profile suite.Profile
	if len(run.Configurations) > 0 {
		profile = suite.Profile(run.Configurations[0].Options[profileOption])
	}
	s, err := parse(dir+": experiment file", []byte(run.File), profile, suites)
	if err != nil {
		return nil, fmt.Errorf("read the experiment of the run: %w", err)
	}
	if len(run.Chosen) > 0 {
		if err := s.Choose(run.Chosen); err != nil {
			return nil, fmt.Errorf("read the experiment of the run: %w", err)
		}
	}
	s.Repetitions = run.Repetitions
	if run.Fixed {
		s.fix()
	}
	for i, c := range s.Cases {
		j := slices.IndexFunc(run.Cases, func(r result.Case) bool { return r.Name == c.Name })
		if j < 0 {
			return nil, fmt.Errorf("read the experiment of the run: %s has no case %s, which its experiment file has", dir, c.Name)
		}
		unsent := func(m result.Metric) bool { return m.Name == collocation.Unsent }
		if slices.ContainsFunc(c.Metrics, unsent) && !slices.ContainsFunc(run.Cases[j].Metrics, unsent) {
			return nil, fmt.Errorf("read the experiment of the run: %s was begun by an earlier version, which counted failed requests otherwise: measure it again", dir)
		}
		s.Cases[i].Metrics = run.Cases[j].Metrics
	}
	return s, nil
}
