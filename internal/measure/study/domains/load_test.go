package domains

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"unnest.io/unnest/internal/measure/benchtest"
	"unnest.io/unnest/internal/measure/experiment"
	"unnest.io/unnest/internal/measure/machines"
	"unnest.io/unnest/internal/measure/machines/cgroup"
	"unnest.io/unnest/internal/measure/machines/machine"
	"unnest.io/unnest/internal/measure/stack"
	"unnest.io/unnest/internal/measure/study/client"
	"unnest.io/unnest/internal/measure/workload"
)

// Counting ends with the load, or when all clients have ended, and does not wait for a slow client's answers.
func TestCountDuring(t *testing.T) {
	for _, tt := range []struct {
		ends []time.Duration // of the clients
		want time.Duration
	}{
		{[]time.Duration{1400 * time.Millisecond, 11 * time.Second}, 1500 * time.Millisecond},
		{[]time.Duration{time.Second, time.Second}, time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			var clients []*client.Client
			for _, end := range tt.ends {
				c := &client.Client{Done: make(chan struct{})}
				time.AfterFunc(end, func() { close(c.Done) })
				clients = append(clients, c)
			}
			begin, counted := time.Now(), []time.Duration(nil)
			broken := errors.New("broken")
			values, err := countDuring(1500*time.Millisecond, clients, func() (map[string][]workload.Value, error) {
				counted = append(counted, time.Since(begin))
				return map[string][]workload.Value{"hvm1": nil}, broken
			})
			if len(values) != 1 || !errors.Is(err, broken) || !slices.Equal(counted, []time.Duration{tt.want}) || time.Since(begin) != slices.Max(tt.ends) {
				t.Errorf("%v: counted until %v, returned after %v with %v, %v", tt.ends, counted, time.Since(begin), values, err)
			}
		})
	}
}

// A load under which a domain answers nothing is a step without answers. Other errors are not: they end the search.
func TestClimb(t *testing.T) {
	collapsed, broken := errors.New("no answer"), errors.New("broken counter")
	answers := func(n int) loadStep {
		return loadStep{loads: []domainLoad{{report: workload.LoadReport{Served: float64(n), Seconds: 1}}}}
	}
	collapsesAbove := func(most int) func(int) (loadStep, error) {
		return func(rate int) (loadStep, error) {
			if rate > most {
				return loadStep{unanswered: collapsed}, nil
			}
			return answers(rate), nil
		}
	}
	for _, tt := range []struct {
		name  string
		by    int
		load  func(rate int) (loadStep, error)
		rates string // the last ones
		peak  float64
		limit string
		err   string
	}{
		{"collapses while the rate doubles", 0, collapsesAbove(66), "20 40 80 44 48 52 56 60 64 68 72", 64, "", ""},
		{"collapses by steps", 100, collapsesAbove(250), "100 200 300 400", 200, "", ""},
		{"collapses at first", 0, collapsesAbove(11), "20 5 10 20 11 12 13", 11, "", ""},
		{"always collapses", 0, collapsesAbove(0), "20 5 1", 0, "", "no answer"},
		{"collapses at the first step of the paper", 100, collapsesAbove(99), "100", 0, "", "no answer"},
		{"another error", 0, func(rate int) (loadStep, error) {
			if rate == 80 {
				return loadStep{}, broken
			}
			return answers(rate), nil
		}, "20 40 80", 0, "", "step 3, at 80 requests/s: broken counter"},
		{"exhausted", 0, func(rate int) (loadStep, error) {
			step := answers(rate)
			if rate == 40 {
				step.exhausted, step.limit = true, "no port"
			}
			return step, nil
		}, "20 40", 40, "no port", ""},
		{"does not start again", 0, func(rate int) (loadStep, error) {
			if rate == 80 {
				return loadStep{unanswered: collapsed, exhausted: true, limit: "gone"}, nil
			}
			return answers(rate), nil
		}, "20 40 80", 40, "gone", ""},
		{"does not start at first", 0, func(int) (loadStep, error) {
			return loadStep{unanswered: collapsed, exhausted: true}, nil
		}, "20", 0, "", "no answer"},
		{"never falls", 1, collapsesAbove(1000), "198 199 200", 200, "it ended after 200 steps, before the throughput fell", ""},
		{"never falls, doubling", 0, collapsesAbove(2_000_000), "327680 655360", 655360, "it ended after 16 steps, before the throughput fell", ""},
	} {
		rates := ""
		peak, err := climb(tt.by, func(rate int) (loadStep, error) {
			rates += fmt.Sprintf(" %d", rate)
			return tt.load(rate)
		})
		if !strings.HasSuffix(rates, " "+tt.rates) || fmt.Sprint(err) != cmp.Or(tt.err, "<nil>") {
			t.Errorf("%s: rates%s, %v; want %s, %s", tt.name, rates, err, tt.rates, tt.err)
		} else if err == nil && (peak.throughput() != tt.peak || peak.limit != tt.limit) {
			t.Errorf("%s: %v answers/s, limit %q; want %v, %q", tt.name, peak.throughput(), peak.limit, tt.peak, tt.limit)
		}
	}
}

// A VM that has ended while its full load is found is named.
func TestFindFullLoadOfDead(t *testing.T) {
	s, g := newStudy(t), fakeGroup(t, "hvm1")
	if err := os.RemoveAll(g.Counted()); err != nil {
		t.Fatal(err)
	}
	gone := make(chan struct{})
	close(gone)
	s.domains["hvm1"] = &guestDomain{name: "hvm1", kind: stack.HVM, group: g, machine: &machine.Machine{Gone: gone, Died: func() error { return errors.New("QEMU has ended") }}}
	err := s.findFullLoad(t.Context(), fullOf{stack.HVM, 1024}, s.Spec.Cases[0])
	if !errors.Is(err, experiment.ErrFatal) || !strings.Contains(err.Error(), "QEMU has ended") {
		t.Error(err)
	}
}

// A generator has as many threads as the generators have processors.
func TestClientCommand(t *testing.T) {
	s := newStudy(t)
	for generators, want := range map[string]string{"7": "1", "6,7": "2"} {
		s.generators = generators
		args := s.clientCommand(workload.Params{Duration: time.Second}, &guestDomain{machine: &machine.Machine{}}, 10)
		if i := slices.Index(args, "-threads"); i < 0 || args[i+1] != want {
			t.Errorf("processors %s: %v", generators, args)
		}
	}
}

// The server of an absent container is frozen.
func TestPauseContainer(t *testing.T) {
	g := fakeGroup(t, "con1")
	d := &guestDomain{name: "con1", kind: stack.CON, group: g, machine: &machine.Machine{}}
	frozen := func() string {
		content, err := os.ReadFile(filepath.Join(g.Counted(), "cgroup.freeze"))
		if err != nil {
			t.Fatal(err)
		}
		return string(content)
	}
	if err := d.pause(t.Context()); err != nil || !d.paused || frozen() != "1" {
		t.Errorf("paused: %v, %q, %v", d.paused, frozen(), err)
	}
	if err := d.whole().Resume(t.Context()); err != nil || frozen() != "0" {
		t.Errorf("resumed: %q, %v", frozen(), err)
	}
}

// The counter that takes no time to start is the last to start and the first to stop.
func TestChooseCounters(t *testing.T) {
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		t.Skip("needs root, to count with BPF: set UNNEST_PRIVILEGED=1")
	}
	counters := newStudy(t).chooseCounters()
	if reflect.ValueOf(counters[len(counters)-1]).Pointer() != reflect.ValueOf(countTimes).Pointer() {
		t.Errorf("the last of %d counters does not count times", len(counters))
	}
}

func newStudy(t *testing.T) *Study {
	return New(machines.New(benchtest.Parse(t, benchtest.Mixes), machines.Options{}))
}

// fakeGroup makes a group of version 2 in a directory.
func fakeGroup(t *testing.T, name string) *cgroup.Group {
	t.Helper()
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "cgroup.controllers"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	g, err := cgroup.New(root, "lab/"+name, "0")
	if err == nil {
		err = os.WriteFile(filepath.Join(g.Counted(), "cgroup.freeze"), nil, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	return g
}
