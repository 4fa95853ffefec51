package trace

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// seed adds the lines of a file of testdata.
func seed(f *testing.F, path string) {
	f.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", path))
	if err != nil {
		f.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		f.Add(bytes.TrimSpace(line))
	}
}

// fuzzLine checks what holds of every table: no panic, no request below zero, the line left as it
// was, errors of one line. A table with a header has that of its testdata.
func fuzzLine(f *testing.F, format string, first []byte) {
	c := builtinColumns(format)
	o := Options{Period: At(600 * time.Second)}
	if err := o.complete(c); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		if bytes.ContainsAny(line, "\n") {
			return
		}
		before := bytes.Clone(line)
		p := c.parse(&o)
		var r record
		if first != nil {
			if _, err := p(first, &r); err != nil {
				t.Fatal(err)
			}
		}
		why, err := p(line, &r)
		if !bytes.Equal(before, line) {
			t.Errorf("the line %q became %q", before, line)
		}
		if err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("error of several lines: %q", err)
		}
		if err == nil && why == kept && (r.CPU < 0 || r.Memory < 0 || r.why >= reasons || r.instances < 0) {
			t.Errorf("%q requests %+v", line, r.request)
		}
	})
}

func FuzzGoogle2011(f *testing.F) {
	seed(f, "google2011/task_events/part-00000-of-00002.csv")
	fuzzLine(f, "google2011", nil)
}

func FuzzGoogle2019(f *testing.F) {
	seed(f, "google2019/instance_events-000000000000.json")
	seed(f, "google2019/instance_events-000000000001.json")
	fuzzLine(f, "google2019", nil)
}

func FuzzAlibaba2017(f *testing.F) {
	seed(f, "alibaba2017/batch_task.csv")
	seed(f, "alibaba2017/container_event.csv")
	fuzzLine(f, "alibaba2017", nil)
}

func FuzzAlibaba2018(f *testing.F) {
	seed(f, "alibaba2018/batch_task.csv")
	seed(f, "alibaba2018/container_meta.csv")
	fuzzLine(f, "alibaba2018", nil)
}

// fuzzTable fuzzes a table with the header of its testdata.
func fuzzTable(f *testing.F, format, path string) {
	seed(f, path)
	text, err := os.ReadFile(filepath.Join("testdata", path))
	if err != nil {
		f.Fatal(err)
	}
	head, _, _ := bytes.Cut(text, []byte{'\n'})
	fuzzLine(f, format, head)
}

func FuzzOpenB(f *testing.F) { fuzzTable(f, "openb", "openb/openb_pod_list_default.csv") }
func FuzzDLRM(f *testing.F)  { fuzzTable(f, "dlrm", "dlrm/disaggregated_DLRM_trace.csv") }
func FuzzAzure(f *testing.F) { fuzzTable(f, "azure", "azure/vms.csv") }
func FuzzCSV(f *testing.F)   { fuzzTable(f, "csv", "csv/pods.csv") }

// Files of columns end in columns or in errors, never in a panic. Columns can be used.
func FuzzColumns(f *testing.F) {
	for _, name := range builtinNames() {
		data, err := builtin.ReadFile("columns/" + name + ".yaml")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := ParseColumns("own.yaml", data)
		if err != nil {
			return
		}
		var o Options
		if err := o.complete(c); err != nil {
			t.Fatal(err)
		}
		p := c.parse(&o)
		var r record
		_, _ = p([]byte(`a,b,c,1,1`), &r)
		_, _ = p([]byte(`{"user":"u","pod":"p"}`), &r)
	})
}

func FuzzKubectl(f *testing.F) {
	text, err := os.ReadFile("testdata/kubectl/pods.json")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"items":[{"metadata":{"name":"p","namespace":"n"},"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"9E"}}}]}}]}`))
	o := Options{Period: At(600 * time.Second)}
	f.Fuzz(func(t *testing.T, text []byte) {
		dir := t.TempDir()
		path := filepath.Join(dir, "pods.json")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		users, report, err := Read(t.Context(), "kubectl", []string{path}, o)
		if err != nil {
			return
		}
		addsUp(t, report)
		for _, u := range users {
			for _, p := range u.Pods {
				if r := p.Request(); r.CPU < 0 || r.Memory < 0 || p.Overhead.CPU < 0 || p.Overhead.Memory < 0 {
					t.Errorf("pod %s requests %+v, of it %+v overhead", p.Name, r, p.Overhead)
				}
			}
		}
	})
}
