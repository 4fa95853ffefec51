package trace

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"unnest.io/unnest/internal/plan/cluster"
)

// seedFile adds a whole file.
func seedFile(f *testing.F, path string) {
	f.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(content)
}

// written writes the content into a file of its own.
func written(t *testing.T, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// What holds of every file, of the format that its content tells: no panic, a report that adds up,
// no request below zero.
func FuzzFile(f *testing.F) {
	for _, path := range []string{"azure/vms.csv", "csv/pods.csv", "openb/openb_pod_list_default.csv", "dlrm/disaggregated_DLRM_trace.csv", "kubectl/pods.json"} {
		seedFile(f, "testdata/"+path)
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		path := written(t, "trace", content)
		format, _, err := Guess(t.Context(), path, nil)
		if err != nil {
			return
		}
		users, report, err := Read(t.Context(), format, []string{path}, Options{})
		if err != nil {
			return
		}
		addsUp(t, report)
		for _, u := range users {
			for _, p := range u.Pods {
				if r := p.Request(); r.CPU < 0 || r.Memory < 0 {
					t.Errorf("pod %s requests %+v", p.Name, r)
				}
			}
		}
	})
}

func FuzzLinks(f *testing.F) {
	f.Add([]byte("user,pod,a,b,weight\nu,p,c,d,1.5\n\"u\",\"p\",c,e,0\n"))
	f.Add([]byte("weight,b,a,pod,user\n1e308,b,a,p,u\n"))
	users := []cluster.User{{Name: "u", Pods: []cluster.Pod{{Name: "p", Containers: []cluster.Container{{Name: "c"}, {Name: "d"}, {Name: "e"}}}}}}
	f.Fuzz(func(t *testing.T, content []byte) {
		l, err := ReadLinks(t.Context(), written(t, "links.csv", content))
		if err != nil {
			return
		}
		joined := []cluster.User{{Name: "u", Pods: slices.Clone(users[0].Pods)}}
		unused, err := l.Join(joined)
		if err != nil {
			return
		}
		if got := len(joined[0].Pods[0].Links); unused < 0 || got+unused != l.Rows {
			t.Errorf("%d links and %d unused of %d rows", got, unused, l.Rows)
		}
		for _, link := range joined[0].Pods[0].Links {
			if link.A == link.B || !(link.Weight >= 0) {
				t.Errorf("link %+v", link)
			}
		}
	})
}

func FuzzHistory(f *testing.F) {
	events, err := filepath.Glob("testdata/google2011/task_events/*")
	if err != nil || len(events) == 0 {
		f.Fatal(events, err)
	}
	for _, path := range events {
		seedFile(f, path)
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		histories, period, _, err := ReadHistory(t.Context(), "google2011", []string{written(t, "events.csv", content)}, Options{})
		if err != nil {
			return
		}
		for _, u := range histories {
			for _, s := range u.Stays {
				if r := s.Pod.Request(); s.From > s.To || s.From < period.From || s.To > period.To || r.CPU < 0 || r.Memory < 0 {
					t.Errorf("user %s, pod %s: from %v to %v of %v, requests %+v", u.User, s.Pod.Name, s.From, s.To, period, r)
				}
			}
		}
	})
}

// fuzzOwners checks that an event without error names a collection, and leaves the line as it was.
func fuzzOwners(f *testing.F, newParse func() parse[ownerRow]) {
	p := newParse()
	f.Fuzz(func(t *testing.T, line []byte) {
		before := string(line)
		var one, again ownerRow
		why, err := p(line, &one)
		whyAgain, errAgain := p(line, &again)
		if string(line) != before || why != whyAgain || (err == nil) != (errAgain == nil) || one != again {
			t.Errorf("%q: got %+v, %v, then %+v, %v", before, one, err, again, errAgain)
		}
	})
}

func FuzzOwners2011(f *testing.F) {
	seed(f, "google2011/job_events/part-00000-of-00001.csv")
	fuzzOwners(f, builtinColumns("google2011").parseOwners)
}

func FuzzOwners2019(f *testing.F) {
	seed(f, "google2019/collection_events-000000000000.json")
	fuzzOwners(f, builtinColumns("google2019").parseOwners)
}
