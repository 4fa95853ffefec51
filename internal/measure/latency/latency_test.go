package latency

import (
	"math"
	"strings"
	"testing"

	"unnest.io/unnest/internal/measure/result"
)

// run is a run of two configurations and cases, with samples in six blocks: the case a takes twice
// as long through Hostlo, b eight times.
func run(configurations ...string) (r result.Run, samples []result.Sample) {
	for _, name := range configurations {
		r.Configurations = append(r.Configurations, result.Configuration{Name: name})
	}
	for _, name := range []string{"a", "b", "c"} {
		r.Cases = append(r.Cases, result.Case{Name: name})
	}
	for block := range 6 {
		for kase, factor := range map[string]float64{"a": 2, "b": 8} {
			for _, name := range configurations {
				s := result.Sample{Configuration: name, Case: kase, Metric: metric, Unit: "us", Block: block, Value: 10 + float64(block)/10}
				if name == Hostlo {
					s.Value *= factor
				}
				samples = append(samples, s)
			}
		}
	}
	return r, samples
}

func TestCompare(t *testing.T) {
	r, samples := run(SameNode, Hostlo, "NAT")
	ratio, cases, err := Compare("dir", r, samples, "")
	if err != nil || math.Abs(ratio-4) > 1e-9 || len(cases) != 2 {
		t.Fatalf("ratio %v, %+v, %v; want 4 of two cases", ratio, cases, err)
	}
	if c := cases[1]; c.Name != "b" || c.Unit != "us" || c.Blocks != 6 || math.Abs(c.Ratio-8) > 1e-9 || math.Abs(c.Hostlo-8*c.SameNode) > 1e-9 || c.Low > c.Ratio || c.High < c.Ratio {
		t.Errorf("case %+v", c)
	}
	if ratio, cases, err = Compare("dir", r, samples, "a"); err != nil || math.Abs(ratio-2) > 1e-9 || len(cases) != 1 {
		t.Errorf("only a: ratio %v, %+v, %v", ratio, cases, err)
	}
	mixed := append(samples, result.Sample{Configuration: Hostlo, Case: "a", Metric: metric, Unit: "ms", Value: 1})
	one, alone := run(SameNode)
	for _, tt := range []struct {
		run     result.Run
		samples []result.Sample
		only    string
		want    string
	}{
		{r, samples, "x", `run dir: has no case "x": want one of a, b, c`},
		{r, samples, "c", "has no latency_mean of both SameNode and Hostlo in the case c"},
		{r, nil, "", "in any case: measure a case such as udp_rr in both"},
		{r, mixed, "", "case a: latency_mean is in several units"},
		{one, alone, "", "has no configuration Hostlo, only SameNode: name a run that compares SameNode and Hostlo"},
	} {
		if _, _, err := Compare("dir", tt.run, tt.samples, tt.only); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("error %v, want %q", err, tt.want)
		}
	}
}
