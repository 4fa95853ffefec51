package workload

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestApacheArguments(t *testing.T) {
	target := Endpoint{Address: "10.0.0.2", Port: 8081}
	got := join(DomainClient(Params{Duration: 3 * time.Second, Warmup: time.Second, Size: 4096}, target, 150, []string{"10.202.1.1", "10.202.1.2"}))
	if want := "/usr/local/bin/unnest-load apache -target 10.0.0.2:8081 -threads 1 -connections 100 -size 4096 -rate 150 -warmup 1s -duration 3s -wait -patience 10s -sources 10.202.1.1,10.202.1.2"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	// A server has the documents of the study and the asked ones, each once.
	server := DocumentServer([]int{1024, 123}, target)
	if !strings.Contains(join(server), " 1024 4096 10240 30720 51200 71680 102400 123 ") || !strings.Contains(join(server), "Listen 10.0.0.2:8081\n") {
		t.Errorf("server %q", server)
	}
	for version, want := range map[string]string{"Server version: Apache/2.4.66 (Debian)\nServer built: x": "2.4.66", "nginx": ""} {
		if got, err := newApache().ParseVersion([]byte(version)); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", version, got, err)
		}
	}
}

// A domain that answers too late to count has no throughput.
func TestParseDomainLoad(t *testing.T) {
	const report = `{"seconds":3,"planned":30,"elapsed":9,"served":%d,"latencies":{"all":{"count":10,"mean":5e6}}}`
	if r, err := ParseDomainLoad(fmt.Appendf(nil, report, 4)); err != nil || r.Served != 4 {
		t.Errorf("got %+v, %v", r, err)
	}
	if _, err := ParseDomainLoad(fmt.Appendf(nil, report, 0)); err == nil || err.Error() != "apache: all answers came after the measured 3 s" {
		t.Errorf("got %v", err)
	}
}

// The load of domains has no rate of its own, and other workloads have none of its options.
func TestDomainParams(t *testing.T) {
	p := Params{Duration: time.Second, Intensity: 50, Clients: 6, Step: 100}
	if err := newApache().Validate(p); err != nil {
		t.Error(err)
	}
	if err := newNginx().Validate(p); err == nil || !strings.Contains(err.Error(), "leave them out") {
		t.Errorf("nginx: %v", err)
	}
	p.Rate = 100
	if err := newApache().Validate(p); err == nil || !strings.Contains(err.Error(), "rate: leave it out") {
		t.Errorf("apache with a rate: %v", err)
	}
}

// Generators that share processors are at their limit together.
func TestLimit(t *testing.T) {
	fine := LoadReport{CPU: 0.5, Elapsed: 1, Processors: 1}
	for want, reports := range map[string][]LoadReport{
		"":                         {fine},
		"uses 100 % of its":        {fine, fine},
		"no more file descriptors": {fine, {Failures: map[string]float64{Descriptors: 1}}},
		"no more local ports":      {{Failures: map[string]float64{Ports: 2}}},
		"30 ms or more too late":   {{LateP99: 30_000}},
	} {
		if got := Limit(reports...); !strings.Contains(got, want) || (got == "") != (want == "") {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
