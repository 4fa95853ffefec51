package noise

import (
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"

	"unnest.io/unnest/internal/measure/cputime"
)

const ms = time.Millisecond

func TestParseStat(t *testing.T) {
	if n, err := ParseSwitches([]byte("cpu 1 2 3 4\nctxt 34404754\nbtime 1\n")); err != nil || n != 34404754 {
		t.Errorf("got %d, %v", n, err)
	}
	if _, err := ParseSwitches([]byte("cpu 1 2 3 4\n")); err == nil {
		t.Error("no ctxt: no error")
	}
}

// machine returns the processes of a machine. The experiment is process 100; 101 and 102
// descend from it. 5 is a thread of the kernel, 200 to 203 are others.
func machine() map[int]*Process {
	m := map[int]*Process{}
	for pid, parent := range map[int]int{1: 0, 2: 0, 5: 2, 50: 1, 100: 50, 101: 100, 102: 101, 200: 1, 201: 200, 202: 50, 203: 1} {
		m[pid] = &Process{PID: pid, Parent: parent, Started: uint64(pid), Name: "p" + strconv.Itoa(pid), Spent: time.Minute}
	}
	return m
}

// snapshot is a look at processes of a machine with busy processors.
func snapshot(at time.Duration, processes map[int]*Process) Snapshot {
	s := Snapshot{At: at, Host: cputime.Times{User: 2 * at}}
	for _, pid := range slices.Sorted(maps.Keys(processes)) {
		s.Processes = append(s.Processes, *processes[pid])
	}
	return s
}

func TestOthers(t *testing.T) {
	const second = time.Second
	for name, tc := range map[string]struct {
		change func(map[int]*Process) // in two seconds
		want   float64
		first  int // PID of the busiest
	}{
		"the experiment":               {func(m map[int]*Process) { m[100].Spent += second; m[101].Spent += second; m[102].Spent += second }, 0, 0},
		"its children that have ended": {func(m map[int]*Process) { delete(m, 102); m[101].Reaped += time.Minute + second }, 0, 0},
		"its orphan":                   {func(m map[int]*Process) { delete(m, 101); m[102].Parent = 1; m[102].Spent += second }, 0, 0},
		"its orphan has ended":         {func(m map[int]*Process) { delete(m, 102); m[1].Reaped += time.Minute + second }, 0, 0},
		"the kernel":                   {func(m map[int]*Process) { m[2].Spent += second; m[5].Spent += second }, 0, 0},
		"two others":                   {func(m map[int]*Process) { m[202].Spent += 200 * ms; m[200].Spent += 400 * ms }, 0.3, 200},
		"a new process":                {func(m map[int]*Process) { m[300] = &Process{PID: 300, Parent: 203, Spent: second} }, 0.5, 300},
		"init has to reap it":          {func(m map[int]*Process) { m[300] = &Process{PID: 300, Parent: 1, Spent: second, Ended: true} }, 0, 0},
		"its parent has to reap it":    {func(m map[int]*Process) { m[300] = &Process{PID: 300, Parent: 203, Spent: second, Ended: true} }, 0.5, 300},
		"a PID that is used again":     {func(m map[int]*Process) { m[201] = &Process{PID: 201, Parent: 203, Started: 9, Spent: second} }, 0.5, 201},
		"short processes":              {func(m map[int]*Process) { m[200].Reaped += second }, 0.5, 200},
		"the end of an old process":    {func(m map[int]*Process) { delete(m, 201); m[200].Reaped += time.Minute + 200*ms }, 0.1, 200},
		"the end of its parent, too":   {func(m map[int]*Process) { delete(m, 201); delete(m, 200); m[1].Reaped += 2 * time.Minute }, 0, 0},
		"more than the machine did":    {func(m map[int]*Process) { m[50].Reaped += time.Hour; m[100].Spent += 2 * second }, 1, 50},
	} {
		t.Run(name, func(t *testing.T) {
			after := machine()
			tc.change(after)
			r, err := snapshot(12*second, after).Since(snapshot(10*second, machine()), 100)
			if err != nil || math.Abs(r.Others-tc.want) > 1e-9 || (tc.first == 0) != (len(r.Busiest) == 0) {
				t.Fatalf("got %+v, %v; want %v", r, err, tc.want)
			}
			if tc.first != 0 && r.Busiest[0].PID != tc.first {
				t.Errorf("the busiest is %+v, want %d", r.Busiest[0], tc.first)
			}
		})
	}
}

// A few ticks in a short execution are not half of it.
func TestShort(t *testing.T) {
	for spent, want := range map[time.Duration]bool{40 * ms: false, 60 * ms: true} {
		after := machine()
		after[200].Spent += spent
		r, err := snapshot(10*time.Second+80*ms, after).Since(snapshot(10*time.Second, machine()), 100)
		if err != nil || r.Disturbed() != want {
			t.Errorf("%v in 80 ms: got %+v, %v; want disturbed %v", spent, r, err, want)
		}
	}
}

// In a PID namespace the other processes are not listed, but the processors' times are
// those of the machine.
func TestBlind(t *testing.T) {
	a, b := snapshot(10*time.Second, machine()), snapshot(12*time.Second, machine())
	for i := range b.Processes {
		if b.Processes[i].PID == 101 {
			b.Processes[i].Spent += time.Second
		}
	}
	b.Host.SoftIRQ += 400 * ms
	b.Blind = true
	if r, err := b.Since(a, 100); err != nil || math.Abs(r.Others-1.5) > 1e-9 {
		t.Errorf("got %+v, %v; want 1.5", r, err)
	}
}

func TestSince(t *testing.T) {
	a, b := snapshot(10*time.Second, machine()), snapshot(12*time.Second, machine())
	a.Host.Steal, b.Host.Steal = time.Second, time.Second+500*ms
	a.Switches, b.Switches, b.Stalled, b.MHz = 1000, 3000, 100*ms, 2400
	r, err := b.Since(a, 100)
	if want := (Reading{Elapsed: 2 * time.Second, Steal: 0.25, Stalled: 0.05, Switches: 1000, MHz: 2400}); err != nil || !reflect.DeepEqual(r, want) {
		t.Errorf("got %+v, %v, want %+v", r, err, want)
	}
	if _, err := a.Since(b, 100); err == nil {
		t.Error("the wrong order: no error")
	}
	b.Host.User = 0
	if _, err := b.Since(a, 100); err == nil {
		t.Error("another boot: no error")
	}
}

func TestDisturbed(t *testing.T) {
	for _, tc := range []struct {
		r    Reading
		want bool
		text string
	}{
		{Reading{Others: 0.2}, false, "other processes used 0.20 processors"},
		{Reading{Others: 0.3, Busiest: []Share{{7, "x", 0.2}, {8, "y", 0.1}}}, true, "other processes used 0.30 processors, most of it x (process 7)"},
		{Reading{Steal: 0.09}, false, "other processes used 0.00 processors"},
		{Reading{Steal: 0.2}, true, "the hypervisor of this machine took 0.20 processors"},
	} {
		if got := tc.r.Disturbed(); got != tc.want || tc.r.String() != tc.text {
			t.Errorf("%+v: disturbed %v: %q", tc.r, got, tc.r)
		}
	}
}

// What neighbours always take is usual.
func TestUnusual(t *testing.T) {
	always := make([]Reading, 8)
	for i := range always {
		always[i].Steal = 0.1 + 0.05*float64(i) // median 0.3
	}
	for _, tc := range []struct {
		r       Reading
		earlier []Reading
		want    bool
	}{
		{Reading{Steal: 0.2}, nil, true},
		{Reading{Steal: 0.2}, always[:7], true},
		{Reading{Steal: 0.2}, always, false},
		{Reading{Steal: 0.59}, always, false},
		{Reading{Steal: 0.61}, always, true},
		{Reading{Steal: 0.2, Others: 0.3}, always, true},
		{Reading{Steal: 0.11}, make([]Reading, 8), true},
		{Reading{Steal: 0.09}, make([]Reading, 8), false},
	} {
		if got := tc.r.Unusual(tc.earlier); got != tc.want {
			t.Errorf("%+v after %d: unusual %v", tc.r, len(tc.earlier), got)
		}
	}
}

func TestTags(t *testing.T) {
	for _, r := range []Reading{
		{Elapsed: 1, Others: 0.3, Steal: 0.01, Stalled: 0.5, Switches: 1200, MHz: 2400, Busiest: []Share{{Name: "x"}}},
		{Elapsed: 1, Others: 0.01},
	} {
		got, ok := OfTags(r.Tags())
		got.Elapsed = 1
		if !ok || !reflect.DeepEqual(got, r) {
			t.Errorf("got %+v, %v of the tags %v, want %+v", got, ok, r.Tags(), r)
		}
	}
	if _, ok := OfTags((Reading{}).Tags()); ok {
		t.Error("a reading of nothing has tags")
	}
}
