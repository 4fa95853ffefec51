package clientserver

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"unnest.io/unnest/internal/measure/benchtest"
	"unnest.io/unnest/internal/measure/cputime"
	"unnest.io/unnest/internal/measure/machines/machine"
	"unnest.io/unnest/internal/measure/study/server"
	"unnest.io/unnest/internal/measure/workload"
	"unnest.io/unnest/internal/testbed/place"
)

func TestPerOperation(t *testing.T) {
	before := cpuTimes{host: cputime.Times{User: time.Minute, Guest: time.Second}, guests: []cputime.Times{{System: time.Minute}}}
	after := cpuTimes{
		host:   cputime.Times{User: time.Minute + 3*time.Second, System: 2 * time.Second, Guest: 2 * time.Second, Idle: time.Hour},
		guests: []cputime.Times{{System: time.Minute + 4*time.Second, SoftIRQ: time.Second}},
	}
	got, err := perOperation(before, after, 1e6)
	want := []workload.Value{
		{Metric: "host_usr", Value: 2}, {Metric: "host_sys", Value: 2}, {Metric: "host_soft", Value: 0}, {Metric: "host_guest", Value: 1},
		{Metric: "guest_usr", Value: 0}, {Metric: "guest_sys", Value: 4}, {Metric: "guest_soft", Value: 1},
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
	var names []string
	for _, m := range cputime.Metrics() {
		names = append(names, m.Name)
	}
	for i, v := range got {
		if i >= len(names) || v.Metric != names[i] {
			t.Errorf("value %d is of %s, which is not metric %d of %v", i, v.Metric, i, names)
		}
	}
}

// logged is this host, and logs the start of meters.
type logged struct {
	place.Local
	log string
}

func (l logged) Start(ctx context.Context, c place.Command) (place.Process, error) {
	if slices.Contains(c.Args, machine.ProcessMeter) {
		if err := os.WriteFile(l.log, []byte("meter\n"), 0o600); err != nil {
			return nil, err
		}
	}
	return l.Local.Start(ctx, c)
}

// The first reading of CPU times is over before a client starts, which may load the server before it
// is told to begin.
func TestMetersStartBeforeClients(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	b := generatorBench(t, `echo client >>"`+log+`"; echo prepared >&2; read -r line; echo '{"error":"no load"}'; exit 1`)
	one, served := b.Instances["NAT"], newServer("echo Server listening on 5001; exec sleep 61.75")
	served.Key = server.Key(cache)
	one.Place, one.Servers, one.Machines = logged{log: log}, []*server.Server{served}, machine.List{&machine.Machine{}}
	if err := one.StartServers(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err := b.Execute(t.Context(), benchtest.Execution("NAT", cache, 0))
	if err := one.Leave(); err != nil {
		t.Error(err)
	}
	if err == nil || !strings.Contains(err.Error(), "no load") {
		t.Errorf("got %v", err)
	}
	if content, err := os.ReadFile(log); err != nil || string(content) != "meter\nclient\n" {
		t.Errorf("started %q, %v", content, err)
	}
}

// The figures of the guests of a split pod are added.
func TestPerOperationSumsGuests(t *testing.T) {
	client, server := cputime.Times{User: time.Hour}, cputime.Times{SoftIRQ: time.Minute}
	before := cpuTimes{guests: []cputime.Times{client, server}}
	client.User += 2 * time.Second
	client.System += time.Second
	server.System += 3 * time.Second
	server.SoftIRQ += 5 * time.Second
	got, err := perOperation(before, cpuTimes{guests: []cputime.Times{client, server}}, 1e6)
	want := []workload.Value{
		{Metric: "host_usr"}, {Metric: "host_sys"}, {Metric: "host_soft"}, {Metric: "host_guest"},
		{Metric: "guest_usr", Value: 2}, {Metric: "guest_sys", Value: 4}, {Metric: "guest_soft", Value: 5},
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
}

// A configuration on the host has no guest figures.
func TestPerOperationWithoutGuest(t *testing.T) {
	got, err := perOperation(cpuTimes{}, cpuTimes{host: cputime.Times{User: 3 * time.Second}}, 1e6)
	want := []workload.Value{{Metric: "host_usr", Value: 3}, {Metric: "host_sys"}, {Metric: "host_soft"}, {Metric: "host_guest"}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
	if times, err := (machine.List{&machine.Machine{}}).GuestTimes(t.Context()); times != nil || err != nil {
		t.Errorf("a guest's times on this host: %v, %v", times, err)
	}
}

// Counters that decrease belong to another boot. They are refused, and so are 0
// operations.
func TestPerOperationRefuses(t *testing.T) {
	late, early := cputime.Times{User: 2 * time.Second}, cputime.Times{User: time.Second}
	tests := []struct {
		name          string
		before, after cpuTimes
		operations    float64
		want          string
	}{
		{"host backwards", cpuTimes{host: late}, cpuTimes{host: early}, 1, "host's CPU time"},
		{"guest rebooted", cpuTimes{guests: []cputime.Times{early, late}}, cpuTimes{guests: []cputime.Times{late, early}}, 1, "guest's CPU time"},
		{"nothing done", cpuTimes{}, cpuTimes{}, 0, "0 operations"},
		{"no number", cpuTimes{}, cpuTimes{}, math.NaN(), "NaN operations"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := perOperation(tt.before, tt.after, tt.operations)
			if got != nil || err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, %v; want %q", got, err, tt.want)
			}
		})
	}
}
