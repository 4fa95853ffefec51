package experiment

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/suite"
	"unnest.io/unnest/internal/measure/workload"
)

var started = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// fakeSuites returns the cases of two invented suites.
func fakeSuites(name string) ([]suite.Case, error) {
	make := func(suiteName, caseName string, quick, paper time.Duration, tools ...string) suite.Case {
		return suite.Case{
			Suite: suiteName, Name: caseName, Title: strings.ToUpper(caseName), Package: "pack", Tools: tools,
			Metrics: []result.Metric{{Name: "throughput", Unit: "MB/s", Order: result.HIB}, {Name: "time", Unit: "s", Order: result.LIB}},
			Run:     func(suite.Profile, suite.Resources) string { return "true" },
			Parse:   func([]byte) ([]workload.Value, error) { return nil, nil },
			Wall: func(p suite.Profile) time.Duration {
				if p == suite.Paper {
					return paper
				}
				return quick
			},
		}
	}
	switch name {
	case "disk":
		return []suite.Case{
			make("disk", "disk-a", 2*time.Second, 2*time.Minute, "fio", "sh"),
			make("disk", "disk-b", 15*time.Second, 15*time.Second, "sqlite3"),
			make("disk", "disk-c", time.Second, time.Second),
		}, nil
	case "cpu":
		return []suite.Case{make("cpu", "cpu-a", time.Second, time.Hour, "7z")}, nil
	}
	return nil, fmt.Errorf("suite %q: unknown, want one of cpu, disk", name)
}

const local = `name: local
configurations:
  - {name: metal.local}
  - {name: vm.aufs, vcpus: 2}
cases:
  - {suite: disk}
`

func parseLocal(text string) (*Spec, error) { return parse("x.yaml", []byte(text), "", fakeSuites) }

func mustParseLocal(t *testing.T, text string) *Spec {
	t.Helper()
	s, err := parseLocal(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// summary lists the properties of each case that the file determines.
func summary(s *Spec) (lines []string) {
	for _, c := range s.Cases {
		where := "workload"
		if c.Local != nil {
			where = string(c.Profile) + " " + c.Local.Name
		}
		lines = append(lines, fmt.Sprintf("%s %s %s %s %v %v %s", c.Suite, c.Name, c.Tool, c.Primary, c.Wall, c.Timeout, where))
	}
	return lines
}

func TestCasesOfSuites(t *testing.T) {
	for _, test := range []struct {
		name, cases string
		want        []string
	}{
		{"all", `  - {suite: disk}`, []string{
			"disk disk-a fio throughput 2s 1m0s quick disk-a",
			"disk disk-b sqlite3 throughput 15s 1m30s quick disk-b",
			"disk disk-c pack throughput 1s 1m0s quick disk-c",
		}},
		{"only", `  - {suite: disk, only: [disk-c, disk-a], timeout: 7s}`, []string{
			"disk disk-a fio throughput 2s 7s quick disk-a",
			"disk disk-c pack throughput 1s 7s quick disk-c",
		}},
		{"except", "  - {suite: disk, except: [disk-b]}\n  - {suite: cpu}\ntimeout: 5s", []string{
			"disk disk-a fio throughput 2s 5s quick disk-a",
			"disk disk-c pack throughput 1s 5s quick disk-c",
			"cpu cpu-a 7z throughput 1s 5s quick cpu-a",
		}},
		{"a suite in parts", "  - {suite: disk, only: [disk-c]}\n  - {suite: disk, only: [disk-b]}\nprofile: paper", []string{
			"disk disk-c pack throughput 1s 1m0s paper disk-c",
			"disk disk-b sqlite3 throughput 15s 1m30s paper disk-b",
		}},
		{"with a workload", "  - {suite: cpu}\n  - {name: tcp, workload: iperf3, protocol: tcp, sizes: [64], duration: 1s}\nsuite: network\nprofile: paper", []string{
			"cpu cpu-a 7z throughput 1h0m0s 6h0m0s paper cpu-a",
			"network tcp/64 iperf3 throughput 1s 1m0s workload",
		}},
	} {
		s := mustParseLocal(t, strings.Replace(local, "  - {suite: disk}", test.cases, 1))
		got := summary(s)
		if test.name == "with a workload" {
			got[1] = strings.Replace(got[1], s.Cases[1].Wall.String(), "1s", 1) // the workload's own
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
	s := mustParseLocal(t, local)
	if s.Suite != "" || s.Profile != suite.Quick || s.Cases[0].Group != "disk-a" || s.Cases[0].Title != "DISK-A" || len(s.Cases[0].Metrics) != 2 {
		t.Errorf("suite %q, profile %q, first case %+v", s.Suite, s.Profile, s.Cases[0].Case)
	}
}

func TestCasesOfSuitesRefuse(t *testing.T) {
	for _, test := range []struct{ old, new, want string }{
		{"suite: disk", "suite: disc", `x.yaml:6: cases[0].suite: suite "disc": unknown, want one of cpu, disk`},
		{"suite: disk", "suite: disk, only: [disk-x]", `x.yaml:6: cases[0].only[0]: suite disk has no case "disk-x": there are disk-a, disk-b, disk-c`},
		{"suite: disk", "suite: disk, except: [disk-a, disk-a]", `x.yaml:6: cases[0].except[1]: "disk-a" is listed twice`},
		{"suite: disk", "suite: disk, only: []", `x.yaml:6: cases[0].only: the list is empty`},
		{"suite: disk", "suite: disk, only: [disk-a], except: [disk-b]", `x.yaml:6: cases[0].except: give one of only and except`},
		{"suite: disk", "suite: cpu, except: [cpu-a]", `x.yaml:6: cases[0].except: no case of suite cpu is left`},
		{"suite: disk", "suite: disk, sizes: [64]", `x.yaml:6: cases[0].sizes: a case of a suite has its own: leave it out`},
		{"suite: disk", "suite: disk, protocol: udp", `x.yaml:6: cases[0].protocol: a case of a suite has its own`},
		{"suite: disk", "suite: disk, duration: 1s", `x.yaml:6: cases[0].duration: a case of a suite has its own`},
		{"suite: disk", "suite: disk, workload: iperf3", `x.yaml:6: cases[0].workload: a case of a suite has its own`},
		{"suite: disk", "suite: disk, timeout: 2s", `x.yaml:6: cases[0].timeout: want more than the 2s that disk-a takes with profile quick, got "2s"`},
		{"  - {suite: disk}", "  - {suite: disk}\n  - {suite: disk, only: [disk-b]}", `x.yaml:7: cases[1]: "disk-b" is already the name of a case of cases[0]`},
		{"name: local", "name: local\nsuite: disk", `x.yaml:2: suite: all cases have a suite already: leave it out`},
		{"metal.local", "vm.remote", `x.yaml:3: configurations[0]: drive remote needs a client, and the cases of suite disk have none`},
		{"metal.local", "SameNode", `x.yaml:3: configurations[0]: drive pod needs a client, and the cases of suite disk have none`},
	} {
		text := strings.Replace(local, test.old, test.new, 1)
		_, err := parseLocal(text)
		if text == local || err == nil || !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("%q:\n got %v\nwant %s", test.new, err, test.want)
		}
	}
}

func TestProfileWins(t *testing.T) {
	s, err := parse("x.yaml", []byte(local+"profile: quick\n"), suite.Paper, fakeSuites)
	if err != nil || s.Profile != suite.Paper || s.Cases[0].Wall != 2*time.Minute || s.Cases[0].Timeout != 12*time.Minute {
		t.Fatalf("%+v, %v", s, err)
	}
	if _, err := ParseProfile("x.yaml", []byte(small), suite.Paper); err == nil || !strings.Contains(err.Error(), `no profile "paper" can be chosen`) {
		t.Errorf("a profile of nothing: %v", err)
	}
	if s := mustParse(t, small); s.Profile != "" {
		t.Errorf("profile %q without a suite", s.Profile)
	}
	// A resumed run keeps its profile.
	run := s.NewRun("r", 1, started)
	if got := run.Configurations[0].Options["profile"]; got != "paper" {
		t.Errorf("the run has profile %q", got)
	}
	again, err := fromRun("r", run, fakeSuites)
	if err != nil || again.Profile != suite.Paper || again.Cases[0].Wall != 2*time.Minute {
		t.Errorf("read again: %+v, %v", again, err)
	}
}

// A named configuration accepts further keys.
func TestNamedConfigurationWithSize(t *testing.T) {
	s := mustParseLocal(t, local)
	if got := s.Configurations[1].String(); got != "vm.aufs=vm/containerd:storage=overlay,drive=local,vcpus=2" {
		t.Errorf("got %s", got)
	}
	s = mustParseLocal(t, strings.Replace(local, "{name: metal.local}", "{name: esxi, stack: ssh/containerd, storage: volume, host: 'ssh://me@h:2222', identity: /k}", 1))
	if got := s.Configurations[0].String(); got != "esxi=ssh/containerd:storage=volume,host=ssh://me@h:2222,identity=/k" {
		t.Errorf("got %s", got)
	}
}
