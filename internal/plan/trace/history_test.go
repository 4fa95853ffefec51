package trace

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"unnest.io/unnest/internal/plan/cluster"
)

// events2011 writes task events "second job task type user cpu" of fractions of 100
// vCPU and 100 GiB, and who has job 3.
func events2011(t *testing.T, lines string) []string {
	t.Helper()
	var tasks strings.Builder
	for line := range strings.Lines(lines) {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		if f[4] == "-" {
			f[4] = ""
		}
		fmt.Fprintf(&tasks, "%s000000,,%s,%s,9,%s,%s,2,0,%s,%s,0,0\n", f[0], f[1], f[2], f[3], f[4], f[5], f[5])
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"task_events": tasks.String(), "job_events": "0,,3,0,cyd,0,name,logical\n"} {
		if err := os.WriteFile(filepath.Join(dir, name+".csv"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return []string{dir}
}

const comings = `
0 1 0 1 ann .01
0 1 1 0 ann .02
5 1 1 1 ann .02
6 1 1 8 ann .03
7 1 0 2 ann .01
8 1 0 1 ann .05
9 1 0 4 ann .05
10 1 1 4 ann .03
12 2 0 1 bob .01
13 2 0 5 bob .01
13 2 0 4 bob .01
14 1 7 1 ann .01
15 3 0 1 - .01
16 4 0 1 - .01
17 5 0 1 ann 0
20 2 0 1 bob .02
`

// A job is there while any of its tasks runs, with all that ran and the most of each;
// what comes back is another stay. A request of nothing is no container.
func TestReadHistory(t *testing.T) {
	stay := func(name string, from, to int, containers ...cluster.Container) cluster.Stay {
		return cluster.Stay{Pod: cluster.Pod{Name: name, Containers: containers}, From: time.Duration(from) * time.Second, To: time.Duration(to) * time.Second}
	}
	c := func(name string, hundredths int64) cluster.Container {
		return cluster.Container{Name: name, Request: cluster.Resources{CPU: hundredths * cluster.VCPU, Memory: hundredths << 30}}
	}
	tests := []struct {
		name   string
		period *Period
		span   Period
		want   []cluster.History
		kept   int
	}{
		{"all", nil, Period{0, 20 * time.Second}, []cluster.History{
			{User: "ann", Stays: []cluster.Stay{stay("1", 0, 10, c("0", 5), c("1", 3)), stay("1#2", 14, 20, c("7", 1))}},
			{User: "bob", Stays: []cluster.Stay{stay("2", 12, 13, c("0", 1)), stay("2#2", 20, 20, c("0", 2))}},
			{User: "cyd", Stays: []cluster.Stay{stay("3", 15, 20, c("0", 1))}},
		}, 6},
		// Task 0 of job 1 has ended at the beginning, and so has not been there.
		{"a part", &Period{9 * time.Second, 15 * time.Second}, Period{9 * time.Second, 15 * time.Second}, []cluster.History{
			{User: "ann", Stays: []cluster.Stay{stay("1", 9, 10, c("1", 3)), stay("1#2", 14, 15, c("7", 1))}},
			{User: "bob", Stays: []cluster.Stay{stay("2", 12, 13, c("0", 1))}},
			{User: "cyd", Stays: []cluster.Stay{stay("3", 15, 15, c("0", 1))}},
		}, 4},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, span, report, err := ReadHistory(t.Context(), "google2011", events2011(t, comings),
				Options{Period: tt.period, Largest: cluster.Resources{CPU: 100 * cluster.VCPU, Memory: 100 << 30}})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("history (-want +got):\n%s", diff)
			}
			sum := report.Kept + report.Broken
			for _, e := range report.Excluded {
				sum += e.Rows
			}
			if span != tt.span || sum != report.Rows || report.Kept != tt.kept || report.Containers != tt.kept {
				t.Errorf("span %v, want %v; %d of %d rows accounted for, %d containers kept: %+v", span, tt.span, sum, report.Rows, tt.kept, report)
			}
		})
	}
}

func TestReadHistoryErrors(t *testing.T) {
	if _, _, _, err := ReadHistory(t.Context(), "csv", []string{"x"}, Options{}); err == nil || !strings.Contains(err.Error(), "want google2011 or columns with the key sorted: only events sorted by time can be replayed") {
		t.Errorf("csv: %v", err)
	}
	if _, _, _, err := ReadHistory(t.Context(), "google2011", events2011(t, comings), Options{MaxContainers: 3}); err == nil || !strings.Contains(err.Error(), "more than 3 containers") {
		t.Errorf("too many containers: %v", err)
	}
	if _, _, _, err := ReadHistory(t.Context(), "google2011", events2011(t, "5 1 0 1 a .1\n4 1 0 4 a .1"), Options{}); err == nil || !strings.Contains(err.Error(), "time goes back") {
		t.Errorf("time that goes back: %v", err)
	}
}

// What Read finds at the beginning of the real piece is there in its history.
func TestHistoryOfGoogle2011(t *testing.T) {
	dir := google2011(t)
	users, _, err := Read(t.Context(), "google2011", []string{dir}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	histories, _, report, err := ReadHistory(t.Context(), "google2011", []string{dir}, Options{Period: At(0)})
	if err != nil {
		t.Fatal(err)
	}
	var there []cluster.User
	for _, h := range histories {
		u := cluster.User{Name: h.User}
		for _, s := range h.Stays {
			u.Pods = append(u.Pods, s.Pod)
		}
		there = append(there, u)
	}
	if diff := cmp.Diff(users, there); diff != "" {
		t.Errorf("at time 0 the history differs from the reading:\n%.2000s", diff)
	}
	if report.Rows != 450146 {
		t.Errorf("read %d rows", report.Rows)
	}
}
