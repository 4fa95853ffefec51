package trace

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// jobs is columns of a trace of a user's own, in JSON lines.
const jobs = `
file: json
time: ms
tables:
  - user: {column: owner.team, empty: unknown}
    pod: [project, job]
    container: job
    instances: n
    cpu: {column: request.cpu, unit: quantity}
    memory: {column: request.mb, unit: MiB}
    gpus: gpus
    starts: {column: started}
    ends: {column: ended, empty: after}
`

func TestOwnColumns(t *testing.T) {
	c, err := ParseColumns("somewhere/jobs.yaml", []byte(jobs))
	if err != nil || c.Name() != "jobs" {
		t.Fatal(c, err)
	}
	dir := write(t, map[string]string{"trace.json": `{"owner":{"team":"ann \"a\""},"project":"x","job":1,"n":2,"request":{"cpu":"500m","mb":64},"gpus":1,"started":0,"ended":1500}
{"project":"x","job":2,"n":1,"request":{"cpu":2,"mb":64.5},"started":1000}
{"owner":{"team":"bob"},"project":"y","job":"b","n":"1","request":{"cpu":null,"mb":1},"started":1500,"ended":null}
{"owner":{"team":"bob"},"project":"y","job":"c","n":1,"request":{"cpu":1,"mb":1}}
`})
	for _, tt := range []struct {
		period *Period
		want   string
		report string
	}{
		{nil, "ann \"a\" x/1: 1/0=0.5/64 1/1=0.5/64\nbob y/b: b=0/1\n", "4 rows, 2 kept, 1 broken; 1 owner unknown (1 requests no CPU) (1 requests GPUs, which are not planned)"},
		{At(1500 * time.Millisecond), "bob y/b: b=0/1\n", "4 rows, 1 kept, 1 broken; 1 owner unknown; 1 outside the period (1 requests no CPU)"},
	} {
		users, rep, err := Read(t.Context(), "jobs", []string{dir}, Options{Columns: c, Period: tt.period, MaxBroken: 1})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tt.want, show(users)); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(tt.report, shortly(rep)); diff != "" {
			t.Error(diff)
		}
		addsUp(t, rep)
	}
	for column, want := range map[string]string{"column: request.cpu": "The column request.cpus is empty in all rows: correct it in jobs if it has another name.", "gpus: gpu": "", "column: ended": "", "tables:\n  - user": ""} {
		if c, err = ParseColumns("jobs.yaml", []byte(strings.NewReplacer("tables:\n  - user", "tables:\n  - waiting: {column: state, is: [queued]}\n    user", column, column+"s").Replace(jobs))); err != nil {
			t.Fatal(err)
		}
		_, rep, err := Read(t.Context(), "jobs", []string{dir}, Options{Columns: c, MaxBroken: 1, Period: At(0)})
		if err != nil || strings.Join(rep.Remarks, " ") != want {
			t.Errorf("without %s: %v, remarks %q, want %q", column, err, rep.Remarks, want)
		}
	}
	for format, files := range map[string]map[string]string{
		"jobs":       {"trace.json": ""},
		"google2019": {"instance_events.json": `{"time":"0","type":"3","collection_id":"1","instance_index":"0","resource_request":{"cpus":0.1}}`, "collection_events.json": `{"collection_id":"1","user":"ann"}`},
	} {
		o := Options{Period: At(0)}
		if format == "jobs" {
			o.Columns = c
		}
		if _, rep, err := Read(t.Context(), format, []string{write(t, files)}, o); (err != nil) != (format == "jobs") || len(rep.Remarks) > 0 || rep.Rows != len(files)-1 {
			t.Errorf("%s: %v, %+v", format, err, rep)
		}
	}
	if _, _, err := Read(t.Context(), "other", []string{dir}, Options{Columns: c}); err == nil || !strings.Contains(err.Error(), `unknown trace format "other"`) {
		t.Errorf("another name: error %v", err)
	}
}

// A time can be empty in several ways. A row of no containers is none.
func TestNoTime(t *testing.T) {
	c, err := ParseColumns("own.yaml", []byte("time: s\ntables: [{user: user, pod: pod, container: container, cpu: {column: cpu}, memory: {column: memory}, instances: n, starts: {column: s, empty: before}, ends: {column: e, empty: after}}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	dir := write(t, map[string]string{"own.csv": "user,pod,container,cpu,memory,n,s,e\nu,p,a,1,0,1,,\nu,p,b,1,0,1,NULL,Null\nu,p,c,1,0,1, , \nu,p,d,1,0,1,0,0\nu,q,e,1,0,0,,\n"})
	users, rep, err := Read(t.Context(), "own", []string{dir}, Options{Columns: c, Period: At(5 * time.Second)})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff("u p: a=1/0 b=1/0 c=1/0\n5 rows, 3 kept, 0 broken; 1 requests neither CPU nor memory; 1 outside the period (3 requests no memory)", show(users)+shortly(rep)); diff != "" {
		t.Error(diff)
	}
	addsUp(t, rep)
}

// Limits of reading are columns of the trace, too.
func TestColumnsLimit(t *testing.T) {
	own := "tables: [{user: user, pod: pod, container: container, cpu: {column: cpu}, memory: {column: memory}}]\n"
	dir := write(t, map[string]string{"broken.csv": csvHead + strings.Repeat("u,p,c,1,1\n", 300) + strings.Repeat("u,p,c,one,1\n", 150), "many.csv": csvHead + strings.Repeat("u,p,c,1,1\n", 11)})
	for _, tt := range []struct{ more, file, want string }{
		{"", "broken.csv", "150 of the first 450 lines are broken"},
		{"broken_lines: 149\n", "broken.csv", "150 of the first 450 lines are broken"},
		{"broken_lines: 150\n", "broken.csv", ""},
		{"containers: 10\n", "many.csv", "more than 10 containers"},
		{"containers: 11\n", "many.csv", ""},
	} {
		c, err := ParseColumns("own.yaml", []byte(own+tt.more))
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = Read(t.Context(), "own", []string{filepath.Join(dir, tt.file)}, Options{Columns: c})
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: error %v, want %q", tt.more, err, tt.want)
		}
	}
}

func TestColumnsErrors(t *testing.T) {
	table := "tables:\n  - {user: u, pod: p, container: c, cpu: {column: cpu}, memory: {column: m}"
	for _, tt := range []struct{ text, want string }{
		{"time: s\n", "own.yaml:1: key tables is missing"},
		{"tables: []\n", "own.yaml:1: tables: the list is empty"},
		{"tables: [{user: u}]\n", "own.yaml:1: tables[0]: key pod is missing"},
		{table + "}\ntiem: s\n", "own.yaml:3: tiem: unknown key: did you mean time?"},
		{table + ", starts: {column: s}}\n", `column "s" is a time: say its unit with the key time`},
		{table + ", event: {column: e, ends: 1}}\n", "want time and event together"},
		{table + ", columns: [u, p, c, cpu]}\n", `column "m" is not one of columns`},
		{table + "}\n  - {user: u, pod: p, container: c, cpu: {column: cpu}, memory: {column: m}}\n", "want columns in each of several tables"},
		{"file: json\n" + strings.Replace(table, "{column: m}", "{column: cpu.m}", 1) + "}\n", "a column of JSON is a value and has others in it: u, p, c, cpu, cpu.m"},
		{table + "}\nsorted: true\n", "only events are sorted by time"},
		{strings.Replace(table, "{column: cpu}", "{column: cpu, unit: GiB}", 1) + "}\n", "tables[0].cpu.unit: want one of hundredths, largest, quantity, thousandths, vcpu, got \"GiB\""},
		{strings.Replace(table, "pod: p", "pod: [p, q]", 1) + "}\n", "pod and container are named by more than two columns"},
		{strings.Replace(table, "user: u", "user: {is: u, column: v}", 1) + "}\n", "want either column or is"},
		{strings.Replace(table, "user: u, ", "", 1) + "}\n", "key user is missing"},
	} {
		if _, err := ParseColumns("own.yaml", []byte(tt.text)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s\nerror %v, want %q", tt.text, err, tt.want)
		}
	}
}

// The format of a file shows in its content, on standard input too, which can still be read.
func TestGuess(t *testing.T) {
	for path, want := range map[string]string{
		"testdata/kubectl/pods.json": "kubectl", "testdata/csv/pods.csv": "csv", "testdata/openb": "openb", "testdata/dlrm/*.csv": "dlrm", "testdata/azure/vms.csv": "azure",
		"testdata/spark": "csv",
	} {
		if got, _, err := Guess(t.Context(), path, nil); got != want || err != nil {
			t.Errorf("%s: %q, %v; want %s", path, got, err, want)
		}
	}
	for _, path := range []string{"testdata/google2011/task_events", "testdata/google2019/instance_events-000000000000.json", "testdata/alibaba2018/batch_task.csv"} {
		if got, _, err := Guess(t.Context(), path, nil); err == nil || !strings.Contains(err.Error(), "name the format, such as csv:"+path) {
			t.Errorf("%s: %q, %v; want an error", path, got, err)
		}
	}
	table := read(t, "testdata/csv/pods.csv")
	want, _, err := Read(t.Context(), "csv", []string{"testdata/csv/pods.csv"}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{table, zip(t, table, 0)} {
		format, rest, err := Guess(t.Context(), "-", strings.NewReader(text))
		if err != nil || format != "csv" {
			t.Fatal(format, err)
		}
		got, _, err := Read(t.Context(), format, []string{"-"}, Options{Stdin: rest})
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%v (-file +standard input):\n%s", err, diff)
		}
	}
	if _, _, err := Guess(t.Context(), "nowhere.csv", nil); err == nil || !os.IsNotExist(err) && !strings.Contains(err.Error(), "no such file") {
		t.Errorf("no file: %v", err)
	}
}
