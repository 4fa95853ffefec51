package replay

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"unnest.io/unnest/internal/plan/catalogue"
	"unnest.io/unnest/internal/plan/cluster"
)

// A large costs 0.112 $/h for 2 vCPU, a 2xlarge 0.448.
func TestReplayByHand(t *testing.T) {
	const large, xxlarge = 112 * cluster.Dollar / 1000, 448 * cluster.Dollar / 1000
	a, b, pair := of("a", 7), of("b", 7), of("c", 1, 1)
	tests := []struct {
		name   string
		events []Event
		end    time.Duration
		opts   Options
		want   Timeline
	}{
		{"one pod for half an hour of one", []Event{{0, nil, []cluster.Pod{a}}, {30 * time.Minute, []string{"a"}, nil}}, time.Hour, Options{},
			Timeline{xxlarge / 2, 1, 0, []State{{0, 1, xxlarge}, {30 * time.Minute, 0, 0}}}},
		{"a minute at least", []Event{{0, nil, []cluster.Pod{a}}, {time.Second, []string{"a"}, nil}}, time.Hour, Options{},
			Timeline{xxlarge/60 + 1, 1, 0, []State{{0, 1, xxlarge}, {time.Second, 1, xxlarge}, {time.Minute, 0, 0}}}},
		{"empty VMs end with their minimum, not with an event", []Event{{0, nil, []cluster.Pod{a}}, {time.Second, nil, []cluster.Pod{b}}, {2 * time.Second, []string{"a", "b"}, nil}, {time.Hour, nil, []cluster.Pod{a}}}, time.Hour, Options{},
			Timeline{3*xxlarge/60 + 1, 3, 0, []State{{0, 1, xxlarge}, {time.Second, 2, 2 * xxlarge}, {2 * time.Second, 2, 2 * xxlarge}, {time.Minute, 1, xxlarge}, {61 * time.Second, 0, 0}, {time.Hour, 1, xxlarge}}}},
		{"what is paid serves another pod", []Event{{0, nil, []cluster.Pod{a}}, {time.Second, []string{"a"}, nil}, {time.Minute / 2, nil, []cluster.Pod{b}}}, time.Hour, Options{},
			Timeline{xxlarge, 1, 0, []State{{0, 1, xxlarge}, {time.Second, 1, xxlarge}, {time.Minute / 2, 1, xxlarge}}}},
		{"without splitting a third VM", []Event{{0, nil, []cluster.Pod{a, b}}, {time.Hour, nil, []cluster.Pod{pair}}}, 2 * time.Hour, Options{},
			Timeline{4*xxlarge + large, 3, 0, []State{{0, 2, 2 * xxlarge}, {time.Hour, 3, 2*xxlarge + large}}}},
		{"shared out among two", []Event{{0, nil, []cluster.Pod{a, b}}, {time.Hour, nil, []cluster.Pod{pair}}}, 2 * time.Hour, Options{Split: true},
			Timeline{4 * xxlarge, 2, 0, []State{{0, 2, 2 * xxlarge}, {time.Hour, 2, 2 * xxlarge}}}},
		// d (8) leaves, e (7) comes, c's VM could be emptied into what a and e leave.
		{"no migration without a budget", []Event{{0, nil, []cluster.Pod{a, of("d", 8), pair}}, {time.Hour, []string{"d"}, []cluster.Pod{of("e", 7)}}}, 2 * time.Hour, Options{Split: true},
			Timeline{4*xxlarge + 2*large, 4, 0, []State{{0, 3, 2*xxlarge + large}, {time.Hour, 3, 2*xxlarge + large}}}},
		{"two containers migrate", []Event{{0, nil, []cluster.Pod{a, of("d", 8), pair}}, {time.Hour, []string{"d"}, []cluster.Pod{of("e", 7)}}}, 2 * time.Hour, Options{Split: true, Migrations: 2},
			Timeline{4*xxlarge + large, 4, 2, []State{{0, 3, 2*xxlarge + large}, {time.Hour, 2, 2 * xxlarge}}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Run("u", tt.events, tt.end, mustBuiltin(t, "bacou"), tt.opts)
			if err != nil {
				t.Fatal(err)
			}
			got.Cost = (got.Cost + 50) / 100 * 100 // VMs are rounded by the second
			tt.want.Cost = (tt.want.Cost + 50) / 100 * 100
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("timeline differs (-want +got):\n%s", diff)
			}
		})
	}
}

// Moments of 30 years do not overflow.
func TestRates(t *testing.T) {
	const year = 365 * 24 * time.Hour
	l := Timeline{States: []State{{0, 1, 1}, {10 * year, 1, 2}, {30 * year, 1, 3}}}
	rates := l.Rates(61, 30*year)
	if diff := cmp.Diff([]int64{1, 1, 2, 2, 3}, []int64{rates[0], rates[19], rates[20], rates[59], rates[60]}); diff != "" {
		t.Errorf("rates (-want +got):\n%s", diff)
	}
}

// A pod that leaves as it comes is there for an instant, except at the end.
func TestEvents(t *testing.T) {
	a, b := of("a", 1), of("b", 1)
	h := cluster.History{Stays: []cluster.Stay{{Pod: a, From: 5, To: 5}, {Pod: b, From: 9, To: 9}}}
	got, left, err := Events(h, 2, 9, mustBuiltin(t, "bacou"), "")
	if err != nil || left != 0 {
		t.Fatal(left, err)
	}
	if diff := cmp.Diff([]Event{{At: 3, Arrive: []cluster.Pod{a}}, {At: 4, Depart: []string{"a"}}}, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// Parts of a pod that is cut have names that no other pod has.
func TestNamesOfParts(t *testing.T) {
	h := cluster.History{Stays: []cluster.Stay{{Pod: of("p", 90, 90), To: 5}, {Pod: of("p/0", 1), To: 5}, {Pod: of("p/0'", 1), To: 7}}}
	events, left, err := Events(h, 0, 9, mustBuiltin(t, "bacou"), "cut")
	if err != nil || left != 0 {
		t.Fatal(left, err)
	}
	if diff := cmp.Diff([]string{"p/0''", "p/1", "p/0"}, events[1].Depart); diff != "" {
		t.Errorf("pods that leave (-want +got):\n%s", diff)
	}
	if _, err := Run("u", events, 9, mustBuiltin(t, "bacou"), Options{}); err != nil {
		t.Error(err)
	}
}

func TestReplayRefuses(t *testing.T) {
	a := of("a", 1)
	for _, tt := range []struct {
		events []Event
		opts   Options
		want   string
	}{
		{[]Event{{0, []string{"a"}, nil}}, Options{}, "pod a departs: it is not present"},
		{[]Event{{0, nil, []cluster.Pod{a, a}}}, Options{}, "pod a arrives: one of that name is present"},
		{[]Event{{2, nil, nil}, {1, nil, nil}}, Options{}, "event 1 of user u is at 1ns"},
		{[]Event{{2 * time.Hour, nil, nil}}, Options{}, "none after 1h0m0s"},
		{[]Event{{0, nil, []cluster.Pod{of("x", 97)}}}, Options{}, "pod x needs 97 vCPU"},
		{nil, Options{Migrations: -1}, "migrations -1"},
	} {
		if _, err := Run("u", tt.events, time.Hour, mustBuiltin(t, "bacou"), tt.opts); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v: error %v, want one with %q", tt.events, err, tt.want)
		}
	}
}

// of returns a pod of containers with so many vCPUs, and four times the GiB.
func of(name string, vcpus ...int64) cluster.Pod {
	p := cluster.Pod{Name: name}
	for k, n := range vcpus {
		p.Containers = append(p.Containers, cluster.Container{Name: fmt.Sprint("c", k), Request: cluster.Resources{CPU: n * cluster.VCPU, Memory: n << 32}})
	}
	return p
}

func mustBuiltin(t testing.TB, names ...string) cluster.Catalogue {
	t.Helper()
	c, err := catalogue.Builtin(names...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
