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

// events are columns of events of one's own.
const events = `
time: s
sorted: true
tables:
  - {user: user, pod: pod, container: container, cpu: {column: cpu}, memory: {column: memory, unit: MiB}, time: at, event: {column: event, ends: [end]}}
`

// Pods are named within their user, and what returns gets a name that no other pod has. The
// period begins with the first event.
func TestOwnEvents(t *testing.T) {
	own := func(more string) *Columns {
		c, err := ParseColumns("own.yaml", []byte(strings.Replace(events, "time: at", more+"time: at", 1)))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	const head = "at,event,user,pod,container,cpu,memory\n"
	for _, tt := range []struct{ name, more, rows, want, report, history, err string }{
		{"users have pods of one name", "", "1700000000,start,a,w,c,1,1\n1700000005,start,b,w,c,2,2\n1700000009,end,a,w,c,,\n1700000010,start,a,x,c,1,1\n9223372036854775807,start,z,after,c,1,1\n",
			"a x: c=1/1\nb w: c=2/2\n", "5 rows, 2 kept, 0 broken; 1 end; 1 ended before the period, or started again; 1 outside the period",
			"a w 0s 9s, a x 10s 10s, b w 5s 10s, of 1.7e+09s", ""},
		{"a name like that of a pod that returned", "", "-5,start,a,w#2,c,1,1\n-4,start,a,w,c,1,1\n-3,end,a,w,c,,\n-2,start,a,w,c,1,1\n-1,end,a,w#2,c,,\n",
			"a w: c=1/1\n", "5 rows, 1 kept, 0 broken; 2 end; 2 ended before the period, or started again", "a w#2#1 0s 4s, a w 1s 2s, a w#2 3s 4s, of -5s", ""},
		{"no user", "", "0,start,a,w,c,1,1\n1,start,a,x,c,1,1\n2,end,,w,c,,\n", "", "", "", "line 4: the user has no name"},
		{"milliseconds", "", "0,start,a,w,c,1,1\n1700000000000,end,a,w,c,,\n", "", "", "", `at "1700000000000": is too large`},
		{"in another pod", "inside: [box], ", "0,start,a,w,c,1,1\n", "", "", "", "a pod of one column and no inside"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			paths := []string{write(t, map[string]string{"own.csv": head + tt.rows})}
			o := Options{Columns: own(tt.more), MaxBroken: -1, MaxBrokenShare: -1}
			histories, period, _, err := ReadHistory(t.Context(), "own", paths, o)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("error %v, want one with %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var got string
			for _, u := range histories {
				for _, s := range u.Stays {
					got += fmt.Sprintf("%s %s %v %v, ", u.User, s.Pod.Name, s.From-period.From, s.To-period.From)
				}
			}
			if got += fmt.Sprintf("of %gs", period.From.Seconds()); got != tt.history {
				t.Errorf("history\n%s, want\n%s", got, tt.history)
			}
			o.Period = At(period.To)
			users, report, err := Read(t.Context(), "own", paths, o)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want+tt.report, show(users)+shortly(report)); diff != "" {
				t.Errorf("read (-want +got):\n%s", diff)
			}
			addsUp(t, report)
		})
	}
}

func TestReadHistoryErrors(t *testing.T) {
	if _, _, _, err := ReadHistory(t.Context(), "csv", []string{"x"}, Options{}); err == nil || !strings.Contains(err.Error(), "want google2011 or columns with the key sorted, a pod of one column and no inside: only events sorted by time can be replayed") {
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
