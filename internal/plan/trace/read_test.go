package trace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/gzip"

	"unnest.io/unnest/internal/plan/cluster"
)

// show prints users: one line for each pod, CPU in vCPUs and memory in MiB.
func show(users []cluster.User) string {
	var b strings.Builder
	size := func(r cluster.Resources) string {
		return fmt.Sprintf("%.9g/%.8g", float64(r.CPU)/cluster.VCPU, float64(r.Memory)/(1<<20))
	}
	for _, u := range users {
		for _, p := range u.Pods {
			fmt.Fprintf(&b, "%s %s:", u.Name, p.Name)
			if p.Whole {
				b.WriteString(" whole")
			}
			if p.Overhead != (cluster.Resources{}) {
				b.WriteString(" +" + size(p.Overhead))
			}
			for _, c := range p.Containers {
				b.WriteString(" " + c.Name + "=" + size(c.Request))
			}
			b.WriteString("\n")
		}
	}
	return b.String()
}

// shortly is the report in short: what was excluded, and what was noted.
func shortly(r Report) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d rows, %d kept, %d broken", r.Rows, r.Kept, r.Broken)
	for _, c := range r.Excluded {
		fmt.Fprintf(&b, "; %d %s", c.Rows, c.Reason)
	}
	for _, c := range r.Notes {
		fmt.Fprintf(&b, " (%d %s)", c.Rows, c.Reason)
	}
	return b.String()
}

// addsUp checks what a Report promises.
func addsUp(t *testing.T, r Report) {
	t.Helper()
	sum := r.Kept + r.Broken
	for _, c := range r.Excluded {
		sum += c.Rows
	}
	if sum != r.Rows {
		t.Errorf("kept, broken and excluded are %d of %d rows: %s", sum, r.Rows, shortly(r))
	}
}

func TestRead(t *testing.T) {
	second := func(s int) *Period { return At(time.Duration(s) * time.Second) }
	for _, c := range []struct {
		name, format, path string
		options            Options
		want, report       string
	}{
		{"at the beginning", "google2011", "google2011", Options{}, `
ann= 100: 0=12/24576 1=12/24576
bob= 200: 0=1.49952/0
cyd= 300: 0=24/196608
`, "11 rows, 4 kept, 0 broken; 1 requests neither CPU nor memory; 1 negative request; 1 request is not a number; 1 owner unknown; 1 event that neither starts, ends nor updates; 2 outside the period (1 requests no memory)"},
		{"what ended is gone, what was updated is larger", "google2011", "google2011", Options{Period: second(600)}, `
ann= 100: 0=24/49152
bob= 200: 0=1.49952/0
cyd= 300: 0=24/196608
`, "11 rows, 3 kept, 0 broken; 1 requests neither CPU nor memory; 1 negative request; 1 request is not a number; 1 owner unknown; 1 event that neither starts, ends nor updates; 1 end; 1 update of a request; 1 ended before the period, or started again (1 requests no memory)"},
		{"what started again is back, what came and went is not", "google2011", "google2011", Options{Period: second(900)}, `
ann= 100: 0=24/49152 1=12/24576
bob= 200: 0=1.49952/0
cyd= 300: 0=24/196608
`, "15 rows, 4 kept, 0 broken; 1 requests neither CPU nor memory; 1 negative request; 1 request is not a number; 1 owner unknown; 2 event that neither starts, ends nor updates; 2 end; 1 update of a request; 2 ended before the period, or started again (1 requests no memory)"},
		{"a period has what ran in it", "google2011", "google2011", Options{Period: &Period{650 * time.Second, 850 * time.Second}, Largest: cluster.Resources{CPU: 64 * cluster.VCPU, Memory: 64 << 30}}, `
ann= 100: 0=16/8192 1=8/4096
bob= 200: 0=0.99968/0
cyd= 300: 0=16/32768
eve= 400: 0=32/32768
`, "15 rows, 5 kept, 0 broken; 1 requests neither CPU nor memory; 1 negative request; 1 request is not a number; 1 owner unknown; 2 event that neither starts, ends nor updates; 1 outside the period; 1 end; 1 update of a request; 1 ended before the period, or started again (1 requests no memory)"},
		{"alloc instances are pods", "google2019", "google2019", Options{}, `
ann 10/0: 20/0=12/98304 21/4=6/49152
cyd 30/2: 2=24/98304
`, "9 rows, 3 kept, 0 broken; 1 requests neither CPU nor memory; 1 event that neither starts, ends nor updates; 3 outside the period; 1 alloc instance, whose tasks count"},
		{"files in no order of time", "google2019", "google2019", Options{Period: second(1001)}, `
ann 10/0: 20/0=12/98304 21/4=6/49152
dan 32/0: 0=48/98304
`, "9 rows, 3 kept, 0 broken; 1 requests neither CPU nor memory; 1 event that neither starts, ends nor updates; 1 end; 1 update of a request; 1 ended before the period, or started again; 1 alloc instance, whose tasks count"},
		{"all that was asked for", "alibaba2017", "alibaba2017", Options{}, `
batch 12702: 79304/0=1/3072 79304/1=1/3072 79305=0.5/6144
batch 12703: 79306=0.5/6144
online 1: 1=4/24576
online 2: 2=8/49152
`, "6 rows, 5 kept, 0 broken; 1 end"},
		{"an instant", "alibaba2017", "alibaba2017", Options{Period: second(60000)}, `
batch 12702: 79305=0.5/6144
online 1: 1=4/24576
`, "6 rows, 2 kept, 0 broken; 1 end; 1 ended before the period, or started again; 2 outside the period"},
		{"applications are users", "alibaba2018", "alibaba2018", Options{}, `
app_50 c_1: c_1=4/6144
app_50 c_2: c_2=8/12288
batch j_1: M1=1/1966.08 R2_1/0=0.5/983.04 R2_1/1=0.5/983.04
batch j_2: task_Nzg3ODAw=1/1966.08
`, "10 rows, 5 kept, 0 broken; 1 requests neither CPU nor memory; 2 request marked as invalid; 1 end; 1 ended before the period, or started again"},
		{"an instant", "alibaba2018", "alibaba2018", Options{Period: second(395394)}, `
app_50 c_1: c_1=4/6144
batch j_1: R2_1/0=0.5/983.04 R2_1/1=0.5/983.04
`, "10 rows, 2 kept, 0 broken; 1 requests neither CPU nor memory; 1 request marked as invalid; 1 end; 2 ended before the period, or started again; 3 outside the period"},
		{"pods of one container", "openb", "openb", Options{}, `
openb openb-pod-0000: openb-pod-0000=12/16384
openb openb-pod-0001: openb-pod-0001=6/12288
openb openb-pod-0061: openb-pod-0061=11.908/47104
`, "3 rows, 3 kept, 0 broken (3 requests GPUs, which are not planned)"},
		{"an instant", "openb", "openb", Options{Period: second(10001300)}, `
openb openb-pod-0000: openb-pod-0000=12/16384
openb openb-pod-0001: openb-pod-0001=6/12288
`, "3 rows, 2 kept, 0 broken; 1 outside the period (2 requests GPUs, which are not planned)"},
		{"pods of one container", "dlrm", "dlrm", Options{}, `
app_0 instance_0: instance_0=12/122880
app_0 instance_89: instance_89=48/245760
app_130 instance_135: instance_135=64/327680
`, "3 rows, 3 kept, 0 broken (1 requests GPUs, which are not planned)"},
		{"an instant", "dlrm", "dlrm", Options{Period: second(1000)}, `
app_0 instance_0: instance_0=12/122880
`, "3 rows, 1 kept, 0 broken; 2 outside the period (1 requests GPUs, which are not planned)"},
		{"quotes and suffixes", "csv", "csv", Options{}, `
ann web: nginx=0.5/1024 log,ger=0.25/488.28125
bob a "b": main=2/1024
`, "5 rows, 3 kept, 0 broken; 1 requests neither CPU nor memory; 1 request larger than any machine"},
		{"namespaces", "kubectl", "kubectl", Options{}, `
kube-system hostport: whole ingress=0.1/32
shop plain: web=0.5/256 log=0.1/64
shop init: +1/0 app=1/128
shop sidecar: whole +0.55/120 mesh=0.2/100 late=0.3/10 app=0.4/200
shop waits: job=1/1024
shop best-effort: x=0/0
shop half: x=0.1/0 y=0/0
shop podlevel: +1/0 x=1/1024 y=1/1024
`, "14 rows, 8 kept, 1 broken; 1 pod of a DaemonSet, which counts on every VM; 1 negative request; 2 request larger than any machine; 1 finished (1 requests no CPU) (2 requests no memory) (1 requests neither CPU nor memory, and takes the place of a pod)"},
		{"labels", "kubectl", "kubectl", Options{OwnerLabel: "team"}, `
red shop/plain: web=0.5/256 log=0.1/64
red shop/init: +1/0 app=1/128
red shop/sidecar: whole +0.55/120 mesh=0.2/100 late=0.3/10 app=0.4/200
red shop/waits: job=1/1024
red shop/best-effort: x=0/0
red shop/half: x=0.1/0 y=0/0
red shop/podlevel: +1/0 x=1/1024 y=1/1024
`, "14 rows, 7 kept, 1 broken; 1 pod of a DaemonSet, which counts on every VM; 4 owner unknown; 1 finished (1 requests no CPU) (2 requests no memory) (1 requests neither CPU nor memory, and takes the place of a pod)"},
	} {
		t.Run(c.format+" "+c.name, func(t *testing.T) {
			users, report, err := Read(t.Context(), c.format, []string{filepath.Join("testdata", c.path)}, c.options)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(strings.TrimLeft(c.want, "\n"), show(users)); diff != "" {
				t.Error("users, - want, + got:\n", diff)
			}
			want := strings.Split(c.report, "; ")
			got := strings.Split(shortly(report), "; ")
			if diff := cmp.Diff(sortedTail(want), sortedTail(got)); diff != "" {
				t.Error("report, - want, + got:\n", diff)
			}
			addsUp(t, report)
		})
	}
}

// sortedTail takes the order out of what follows the first part, with the notes last.
func sortedTail(parts []string) map[string]bool {
	set := map[string]bool{}
	for _, part := range parts {
		for i, p := range strings.Split(part, " (") {
			set[fmt.Sprint(i > 0, strings.TrimSuffix(p, ")"))] = true
		}
	}
	return set
}

// write puts files into a directory of the test, and returns it.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// zip compresses text, of which it leaves out so many bytes at the end.
func zip(t *testing.T, text string, without int) string {
	t.Helper()
	var b strings.Builder
	w := gzip.NewWriter(&b)
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()[:b.Len()-without]
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

const csvHead = "user,pod,container,cpu,memory\n"

func TestReadRefuses(t *testing.T) {
	tasks := read(t, "testdata/google2011/task_events/part-00000-of-00002.csv")
	batch := strings.Repeat(read(t, "testdata/alibaba2018/batch_task.csv"), 2)
	pods := read(t, "testdata/kubectl/pods.json")
	dir := write(t, map[string]string{
		"cut/task_events/part.csv.gz":        zip(t, strings.Repeat(tasks, 1)+strings.Repeat("600000000,,1,1,1,0,u,0,0,0.1,0.1,0,0\n", 1000), 20),
		"cut/job_events/part.csv.gz":         zip(t, "x", 0),
		"damaged.csv.gz":                     "\x1f\x8bnot really gzip",
		"nojobs/task_events/part.csv":        tasks,
		"other/task_events/batch.csv":        batch,
		"batch_task.csv":                     batch,
		"back/task_events/part.csv":          "600,,1,1,1,1,u,0,0,0.1,0.1,0,0\n500,,1,2,1,1,u,0,0,0.1,0.1,0,0\n",
		"back/job_events/part.csv":           "",
		"back2/task_events/part-0.csv":       "600,,1,1,1,1,u,0,0,0.1,0.1,0,0\n",
		"back2/task_events/part-1.csv":       "500,,1,2,1,1,u,0,0,0.1,0.1,0,0\n",
		"back2/job_events/part.csv":          "",
		"nocollections/instance_events.json": read(t, "testdata/google2019/instance_events-000000000000.json"),
		"empty/.hidden":                      "",
		"head.csv":                           "user,pod,cpu,memory\n",
		"broken.csv":                         csvHead + strings.Repeat("u,p,c,1,1\n", 300) + strings.Repeat("u,p,c,one,1\n", 150),
		"many.csv":                           csvHead + strings.Repeat("u,p,c,1,1\n", 11),
		"pods.json":                          pods[:len(pods)/2],
		"nodes.json":                         `{"kind":"List","items":[{"kind":"Node","metadata":{"name":"n"}}]}`,
		"nolist.json":                        `{"kind":"List"}`,
		"text.json":                          "NAME READY\n",
		"table.zip":                          "PK\x03\x04....",
		"table.tar":                          strings.Repeat("x", 257) + "ustar" + strings.Repeat("x", 300),
		"packing.sqlite":                     "SQLite format 3\x00",
		"pods.parquet":                       "PAR1",
		"memory.csv":                         csvHead + "u,p,c,1,4GG\n",
		"memories.csv":                       csvHead + strings.Repeat("u,p,c,1,4GG\n", 3) + "u,p,c,1,1\n",
		"rows.csv":                           csvHead,
		"nopods.json":                        `{"kind":"List","items":[]}`,
		"finished.json":                      `{"items":[{"metadata":{"name":"p","namespace":"n"},"spec":{"containers":[{"name":"c"}]},"status":{"phase":"Failed"}}]}`,
		"late.csv/batch_task.csv":            "M1,1,j_1,1,Terminated,100,200,100,0.5\n",
		"long.csv":                           csvHead + strings.Repeat("x", maxLine+2*chunkSize),
	})
	for _, c := range []struct {
		format, path string
		options      Options
		want         string
	}{
		{"google2012", "x", Options{}, `unknown trace format "google2012": choose one of alibaba2017,`},
		{"google2011", "cut", Options{Period: At(time.Hour)}, "part.csv.gz: the compressed data ends early: the file is incomplete"},
		{"google2011", "cut", Options{}, "part.csv.gz: the compressed data ends early: the file is incomplete"},
		{"csv", "damaged.csv.gz", Options{}, "the file is damaged; fetch it again"},
		{"google2011", "nojobs", Options{}, "nojobs/job_events: the table job_events is missing: put it next to task_events"},
		{"google2011", "nojobs/task_events/*.csv", Options{}, "the table job_events is missing"},
		{"google2011", "nojobs/task_events", Options{}, "the table job_events is missing"},
		{"google2011", "other/task_events", Options{}, "batch.csv line 1: has 9 columns: want 13, as a google2011 task event has: name the format that the file has"},
		{"google2011", "batch_task.csv", Options{}, "batch_task.csv line 1: has 9 columns: want 13, as a google2011 task event has"},
		{"google2011", "back", Options{Period: At(time.Hour)}, "part.csv line 2: time goes back from 600 to 500 µs"},
		{"google2011", "back2", Options{Period: At(time.Hour)}, "part-1.csv: time goes back from 600 to 500 µs"},
		{"google2011", "empty", Options{}, "empty: has none of the tables task_events, job_events"},
		{"google2019", "nocollections", Options{}, "the table collection_events is missing"},
		{"google2019", "batch_task.csv", Options{}, "batch_task.csv line 1: not a google2019 instance event"},
		{"alibaba2017", "batch_task.csv", Options{}, "has 9 columns: want 8, as an alibaba2017"},
		{"alibaba2018", "many.csv", Options{}, "has 5 columns: want 9 for an alibaba2018"},
		{"openb", "batch_task.csv", Options{}, "lacks the column name: the first line must name"},
		{"dlrm", "many.csv", Options{}, "lacks the column app_name: the first line must name app_name,instance_sn,"},
		{"csv", "head.csv", Options{}, `head.csv line 1: the header "user,pod,cpu,memory" lacks the column container`},
		{"csv", "nothing-*.csv", Options{}, `nothing-*.csv": check the directory`},
		{"csv", "nothing.csv", Options{}, "no such file or directory: name a file, a directory or a glob"},
		{"csv", "empty", Options{}, "empty: the directory has no files"},
		{"csv", "table.zip", Options{}, "is a zip archive: unzip it first"},
		{"csv", "table.tar", Options{}, "is a tar archive: unpack it first"},
		{"csv", "broken.csv", Options{}, `150 of the first 450 lines are broken, the first: `},
		{"csv", "many.csv", Options{MaxContainers: 10}, "more than 10 containers"},
		{"csv", "many.csv", Options{Period: &Period{2, 1}}, "it ends before it begins"},
		{"csv", "many.csv", Options{Largest: cluster.Resources{CPU: 1}}, "both must be above zero"},
		{"csv", "long.csv", Options{}, "a line is longer than 16 MiB"},
		{"csv", "memory.csv", Options{}, `memory.csv line 2: memory "4GG": want bytes or 4Gi, 512Mi`},
		{"csv", "memories.csv", Options{}, `memories.csv line 2: memory "4GG": want bytes or 4Gi, 512Mi (3 of the first 4 rows are broken)`},
		{"csv", "rows.csv", Options{}, "rows.csv: has no rows: name the files of a trace in the format csv"},
		{"kubectl", "nopods.json", Options{}, "nopods.json: the list of pods is empty: make it with kubectl get pods -A -o json"},
		{"kubectl", "finished.json", Options{}, "finished.json: no pod is left of 1 rows (1 finished): choose another period or another file"},
		{"alibaba2018", "late.csv", Options{Period: At(time.Second)}, "late.csv: no pod is left of 1 rows (1 outside the period)"},
		{"kubectl", "pods.json", Options{}, "items: the file is incomplete; make it again"},
		{"kubectl", "nodes.json", Options{}, "nodes.json: has 1 objects and no pod: make it with kubectl get pods -A -o json"},
		{"kubectl", "nolist.json", Options{}, "has no list of pods"},
		{"kubectl", "text.json", Options{}, "not JSON at byte 1"},
		{"csv", "pods.parquet", Options{}, "pods.parquet: is a Parquet file: write a CSV file of it with DuckDB, as docs/plan.md shows, first"},
		{"azure", "packing.sqlite", Options{}, "packing.sqlite: is an SQLite database: write a CSV file of it with sqlite3, as docs/plan.md shows, first"},
		{"azure", "many.csv", Options{}, "lacks the column tenantId"},
		{"azure", "damaged.csv.gz", Options{}, "the file is damaged; fetch it again"},
	} {
		t.Run(c.format+" "+c.path, func(t *testing.T) {
			path := filepath.Join(dir, c.path)
			_, _, err := Read(t.Context(), c.format, []string{path}, c.options)
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %v\nwant one line with %q", err, c.want)
			}
			if err != nil && c.path != "x" && reflect.ValueOf(c.options).IsZero() && strings.Count(err.Error(), dir) == 0 {
				t.Errorf("error %v does not name the file", err)
			}
		})
	}
}

// What is broken is counted and shown with its line, as long as it is little.
func TestBrokenLines(t *testing.T) {
	text := csvHead + "u,p,c,1,1\nu,p,c,1\n\nu,p,c,1x,1\r\n,p,c,1,1\nu,p,d,99999999999999999999,1\n" + strings.Repeat("u,p,c,1,1\n", 8)
	dir := write(t, map[string]string{"a.csv": text, "b.csv.gz": zip(t, text, 0)})
	users, report, err := Read(t.Context(), "csv", []string{filepath.Join(dir, "*.csv*")}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	addsUp(t, report)
	if report.Rows != 26 || report.Broken != 8 || len(users[0].Pods[0].Containers) != 18 || report.Files != 2 {
		t.Errorf("%s of %d files", shortly(report), report.Files)
	}
	var got []string
	for _, b := range report.Examples[:4] {
		got = append(got, strings.TrimPrefix(b.String(), dir))
	}
	want := []string{
		"/a.csv line 3: has 4 columns: want 5, as the header has",
		`/a.csv line 5: cpu "1x": want vCPUs, such as 2 or 500m`,
		"/a.csv line 6: the user has no name",
		`/a.csv line 7: cpu "99999999999999999999": is too large`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if _, _, err := Read(t.Context(), "csv", []string{dir}, Options{MaxBroken: -1, MaxBrokenShare: -1}); err == nil {
		t.Error("a broken line was let through, where none may be")
	}
}

// Standard input is a stream like a file, compressed or not; formats of several tables are
// not read from it.
func TestReadStdin(t *testing.T) {
	pods := read(t, "testdata/kubectl/pods.json")
	table := read(t, "testdata/csv/pods.csv")
	for _, c := range []struct{ format, path, text string }{
		{"kubectl", "testdata/kubectl/pods.json", pods},
		{"csv", "testdata/csv/pods.csv", table},
		{"csv", "testdata/csv/pods.csv", zip(t, table, 0)},
	} {
		want, _, err := Read(t.Context(), c.format, []string{c.path}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		got, report, err := Read(t.Context(), c.format, []string{"-"}, Options{Stdin: strings.NewReader(c.text)})
		if diff := cmp.Diff(want, got); err != nil || diff != "" || report.Files != 1 {
			t.Errorf("%s: %v, %d files, - file, + standard input:\n%s", c.format, err, report.Files, diff)
		}
	}
	for _, c := range []struct{ format, text, want string }{
		{"csv", csvHead + "u,p,c,1,4GG\n", `standard input line 2: memory "4GG": want`},
		{"kubectl", `{"items":[]}`, "standard input: the list of pods is empty"},
		{"google2011", "", "read google2011 from standard input: this format is not a single stream: name its files; formats that can be streamed are alibaba2017,"},
		{"google2019", "", "this format is not a single stream"},
	} {
		_, _, err := Read(t.Context(), c.format, []string{"-"}, Options{Stdin: strings.NewReader(c.text)})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.format, err, c.want)
		}
	}
}

// Later files are not read when they begin after the period.
func TestUnreadFiles(t *testing.T) {
	for _, path := range []string{"testdata/google2011", "testdata/google2011/task_events", "testdata/google2011/task_events/part-*"} {
		_, report, err := Read(t.Context(), "google2011", []string{path}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		want := []string{"testdata/google2011/task_events/part-00001-of-00002.csv"}
		if diff := cmp.Diff(want, report.Unread); diff != "" || report.Files != 1 || report.Users != 3 {
			t.Errorf("%s: %d files read, %d users; unread:\n%s", path, report.Files, report.Users, diff)
		}
	}
}

// Directories list part-10 before part-2.
func TestUnreadFilesInNoOrder(t *testing.T) {
	event := func(at, job string) string { return at + ",," + job + ",0,1,1,u,0,0,0.1,0.1,0,0\n" }
	for _, tt := range []struct{ last, unread, err string }{
		{"3000000", "part-10.csv part-2.csv", ""},
		{"1000000", "", "/part-2.csv: has rows in the period, but "},
		{"9223372036854775807", "part-10.csv part-2.csv", ""}, // after the trace
		{"damaged", "part-10.csv part-2.csv", ""},
	} {
		dir := write(t, map[string]string{"task_events/part-1.csv": event("0", "1") + event("9223372036854775807", "2"), "task_events/part-10.csv": event("4000000", "3"), "task_events/part-2.csv": event(tt.last, "4"), "job_events/part.csv": ""})
		if tt.last == "damaged" {
			if err := os.WriteFile(filepath.Join(dir, "task_events/part-2.csv"), []byte{0x1f, 0x8b, 8, 0}, 0o600); err != nil { // of gzip
				t.Fatal(err)
			}
		}
		users, report, err := Read(t.Context(), "google2011", []string{dir}, Options{Period: At(2 * time.Second)})
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) || !strings.Contains(err.Error(), "/part-10.csv, named before it, begins after the period: name files in the order of time") {
				t.Errorf("%s: error %v, want one with %q", tt.last, err, tt.err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		var unread []string
		for _, path := range report.Unread {
			unread = append(unread, filepath.Base(path))
		}
		if got := strings.Join(unread, " "); got != tt.unread || show(users) != "u 1: 0=9.6/39321.6\n" || report.excluded[Outside] != 1 {
			t.Errorf("%s: unread %s, want %s; %s%s", tt.last, got, tt.unread, show(users), shortly(report))
		}
	}
}

// The result does not depend on how many files are read at once, nor on where lines
// fall in what is read at once.
func TestManyFiles(t *testing.T) {
	files := map[string]string{}
	var all strings.Builder
	all.WriteString(csvHead)
	for i := range 12 {
		text := csvHead
		for j := range 4000 {
			line := fmt.Sprintf("user%d,pod%d,c%d-%d,%d.%d,%dMi\n", j%7, j%41, i, j, j%13, i+1, j+1)
			text += line
			all.WriteString(line)
		}
		files[fmt.Sprintf("f%02d.csv", i)] = text
	}
	dir, one := write(t, files), write(t, map[string]string{"all.csv.gz": zip(t, all.String(), 0)})
	want, report, err := Read(t.Context(), "csv", []string{one}, Options{})
	if err != nil || report.Kept != 48000 {
		t.Fatal(shortly(report), err)
	}
	for _, workers := range []int{1, 2, 5} {
		got, _, err := Read(t.Context(), "csv", []string{dir}, Options{Workers: workers})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(show(want), show(got)); diff != "" {
			t.Errorf("%d workers: %s", workers, diff)
		}
	}
}

func TestCancel(t *testing.T) {
	dir := write(t, map[string]string{"a.csv": csvHead + strings.Repeat("u,p,c,1,1\n", 200_000)})
	for _, c := range []struct{ format, path string }{
		{"csv", dir}, {"kubectl", "testdata/kubectl"}, {"google2011", "testdata/google2011"},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, _, err := Read(ctx, c.format, []string{c.path}, Options{}); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: error %v, want canceled", c.format, err)
		}
	}
}

// An interrupt ends the wait for standard input.
func TestCancelStdin(t *testing.T) {
	for _, format := range []string{"csv", "kubectl"} {
		stdin, _ := io.Pipe()
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(20*time.Millisecond, cancel)
		if _, _, err := Read(ctx, format, []string{"-"}, Options{Stdin: stdin}); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: error %v, want canceled", format, err)
		}
	}
}

// A trace without anything in the period names its times. Names of files keep their dashes.
func TestTimesOutsideThePeriod(t *testing.T) {
	jobs := read(t, "testdata/google2011/job_events/part-00000-of-00001.csv")
	event := func(at string) string { return at + ",2,100,0,11,0,ann=,3,9,0.125,0.0625,0.0003,0\n" }
	dir := write(t, map[string]string{"task_events/part-00001-of-00500.csv": event("600000000") + event("900000000"), "job_events/part.csv": jobs})
	_, _, err := Read(t.Context(), "google2011", []string{dir + "/task_events/part-00001-of-00500.csv"}, Options{})
	if err == nil || !strings.Contains(err.Error(), "/part-00001-of-00500.csv: all rows come after the period: the times that were read are from 10m0s to 10m0s: name one with --at, such as --at 10m0s") {
		t.Errorf("error %v", err)
	}
}
