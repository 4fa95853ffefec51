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

// fuzzLine checks what holds of every parser: no panic, no request below zero, the
// line left as it was, errors of one line.
func fuzzLine[T any](f *testing.F, newParse func() parse[T], first []byte, requestOf func(*T) request) {
	f.Fuzz(func(t *testing.T, line []byte) {
		if bytes.ContainsAny(line, "\n") {
			return
		}
		before := bytes.Clone(line)
		p := newParse()
		var record T
		if first != nil {
			if _, err := p(first, &record); err != nil {
				t.Fatal(err)
			}
		}
		why, err := p(line, &record)
		if !bytes.Equal(before, line) {
			t.Errorf("the line %q became %q", before, line)
		}
		if err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("error of several lines: %q", err)
		}
		if q := requestOf(&record); err == nil && why == kept && (q.CPU < 0 || q.Memory < 0 || q.why >= reasons) {
			t.Errorf("%q requests %+v", line, q)
		}
	})
}

func fuzzOptions(f *testing.F, format string) *Options {
	o := Options{Period: At(600 * time.Second)}
	if err := o.complete(format); err != nil {
		f.Fatal(err)
	}
	return &o
}

func FuzzGoogle2011(f *testing.F) {
	seed(f, "google2011/task_events/part-00000-of-00002.csv")
	o := fuzzOptions(f, "google2011")
	fuzzLine(f, func() parse[event2011] { return parseTask2011(o, o.Period.span(1000)) }, nil, func(e *event2011) request { return e.request })
}

func FuzzGoogle2019(f *testing.F) {
	seed(f, "google2019/instance_events-000000000000.json")
	seed(f, "google2019/instance_events-000000000001.json")
	o := fuzzOptions(f, "google2019")
	fuzzLine(f, func() parse[event2019] { return parseInstance2019(o, o.Period.span(1000)) }, nil, func(e *event2019) request { return e.request })
}

func FuzzAlibaba2017(f *testing.F) {
	seed(f, "alibaba2017/batch_task.csv")
	seed(f, "alibaba2017/container_event.csv")
	o := fuzzOptions(f, "alibaba2017")
	fuzzLine(f, func() parse[rowAlibaba] { return parseAlibaba2017(o, o.Period.span(1e9)) }, nil, func(r *rowAlibaba) request { return r.request })
}

func FuzzAlibaba2018(f *testing.F) {
	seed(f, "alibaba2018/batch_task.csv")
	seed(f, "alibaba2018/container_meta.csv")
	o := fuzzOptions(f, "alibaba2018")
	fuzzLine(f, func() parse[rowAlibaba] { return parseAlibaba2018(o, o.Period.span(1e9)) }, nil, func(r *rowAlibaba) request { return r.request })
}

// fuzzTable fuzzes a table with the header of its testdata.
func fuzzTable(f *testing.F, format, path string, newParse func(*Options) parse[rowTable]) {
	seed(f, path)
	text, err := os.ReadFile(filepath.Join("testdata", path))
	if err != nil {
		f.Fatal(err)
	}
	head, _, _ := bytes.Cut(text, []byte{'\n'})
	o := fuzzOptions(f, format)
	fuzzLine(f, func() parse[rowTable] { return newParse(o) }, head, func(r *rowTable) request { return r.request })
}

func FuzzOpenB(f *testing.F) { fuzzTable(f, "openb", "openb/openb_pod_list_default.csv", parseOpenB) }
func FuzzDLRM(f *testing.F)  { fuzzTable(f, "dlrm", "dlrm/disaggregated_DLRM_trace.csv", parseDLRM) }
func FuzzCSV(f *testing.F)   { fuzzTable(f, "csv", "csv/pods.csv", parseCSV) }

func FuzzKubectl(f *testing.F) {
	text, err := os.ReadFile("testdata/kubectl/pods.json")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"items":[{"metadata":{"name":"p","namespace":"n"},"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"9E"}}}]}}]}`))
	o := fuzzOptions(f, "kubectl")
	f.Fuzz(func(t *testing.T, text []byte) {
		dir := t.TempDir()
		path := filepath.Join(dir, "pods.json")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		users, report, err := Read(t.Context(), "kubectl", []string{path}, *o)
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
