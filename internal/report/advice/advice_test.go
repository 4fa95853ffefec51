package advice

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/stats"
	"unnest.io/unnest/internal/report/provenance"
	"unnest.io/unnest/internal/report/render"
)

// twoNetworks is a run in which BrFusion has the latency of NAT times ratio.
func twoNetworks(blocks int, ratio float64) provenance.Source {
	r := rand.New(rand.NewPCG(5, 6))
	run := result.Run{
		ID: "r1", Experiment: "quick", Title: "Two networks", State: result.Complete, Interleaved: true, Repetitions: blocks, Accelerator: "kvm",
		Configurations: []result.Configuration{
			{Name: "NAT", Stack: "vm/containerd", Options: map[string]string{"network": "nat"}},
			{Name: "BrFusion", Stack: "vm/containerd", Options: map[string]string{"network": "brfusion"}},
		},
		Cases: []result.Case{{Suite: "network", Name: "udp_rr/64", Primary: "latency_mean", Metrics: []result.Metric{{Name: "latency_mean", Unit: "us", Order: result.LIB}}}},
	}
	var samples []result.Sample
	for block := range blocks {
		for i, c := range run.Configurations {
			samples = append(samples, result.Sample{Configuration: c.Name, Suite: "network", Case: "udp_rr/64", Metric: "latency_mean", Unit: "us", Order: result.LIB,
				Value: 100 * math.Pow(ratio, float64(i)) * math.Exp(0.01*r.NormFloat64()), Block: block})
		}
	}
	return provenance.Source{Dir: "runs/r1", Run: run, Samples: samples}
}

func TestAdviseInWords(t *testing.T) {
	for _, tt := range []struct {
		blocks  int
		ratio   float64
		verdict stats.Verdict
		answer  string
		how     int // rows of the table of commands
	}{
		{8, 0.75, stats.Better, "Give each pod a NIC of its own (BrFusion): network latency with BrFusion is 0.7", 1},
		{8, 1.5, stats.Worse, "Keep bridge and NAT in the VM: network latency with BrFusion is 1.5", 0},
		{12, 1, stats.Equal, "Give each pod a NIC of its own (BrFusion), or not: it makes no difference: network latency with BrFusion is ", 0},
		{5, 0.75, stats.TooFew, "This run carries no advice. The last table says what to measure.", 0},
	} {
		doc := Build(twoNetworks(tt.blocks, tt.ratio), nil)
		data := doc.Data.(advised)
		if len(data.Choices) != 1 || data.Choices[0].Verdict != tt.verdict || (data.Choices[0].Advice == "") != (tt.verdict == stats.TooFew) {
			t.Errorf("%v: choices %+v, want %s", tt.ratio, data.Choices, tt.verdict)
		}
		if !strings.HasPrefix(doc.Answer, tt.answer) {
			t.Errorf("%v: %q, want %q", tt.ratio, doc.Answer, tt.answer)
		}
		if got := len(commandTable(data).Rows); got != tt.how {
			t.Errorf("%v: %d commands, want %d", tt.ratio, got, tt.how)
		}
		for _, f := range render.Formats[:5] { // the others print samples
			var out strings.Builder
			if err := f.Print(&out, doc); err != nil {
				t.Errorf("%v: %v", tt.ratio, err)
			}
			if f.Name == "json" && !json.Valid([]byte(out.String())) {
				t.Errorf("not JSON: %s", out.String())
			}
		}
	}
}

// Where a change helps one case and harms another, and their mean decides nothing, no advice on the mean hides that.
func TestAdviseByCase(t *testing.T) {
	in := twoNetworks(12, 0.7)
	second := in.Run.Cases[0]
	second.Name, second.Title = "udp_rr/1024", "1024 B"
	in.Run.Cases = append(in.Run.Cases, second)
	for _, s := range in.Samples[:len(in.Samples):len(in.Samples)] {
		s.Case = second.Name
		if s.Configuration == "BrFusion" {
			s.Value /= 0.7 * 0.7
		}
		in.Samples = append(in.Samples, s)
	}
	doc := Build(in, nil)
	c := doc.Data.(advised).Choices[0]
	if c.Verdict != stats.Equal || c.Advice != "" || !strings.HasPrefix(doc.Answer, "Decide by your case: network latency with BrFusion over that with NAT is from 0.70× for ") ||
		!strings.Contains(doc.Answer, ", to 1.4") || !strings.Contains(doc.Answer, "(2 cases, 12 blocks)") {
		t.Errorf("%q, choice %+v", doc.Answer, c)
	}
}

// The chart shows gains: above 1 is better also where a lower value is.
func TestAdviseChartShowsGains(t *testing.T) {
	doc := Build(twoNetworks(8, 0.75), nil)
	if len(doc.Groups) != 2 || len(doc.Groups[0].Charts) != 1 {
		t.Fatalf("groups %+v, want a chart of the choices", doc.Groups)
	}
	s := doc.Groups[0].Charts[0].Series[0]
	if math.Abs(float64(s.Values[0])-1/0.75) > 0.03 || s.Low[0] > s.Values[0] || s.High[0] < s.Values[0] || s.Low[0] < 1 {
		t.Errorf("gain %v [%v, %v], want about 1.33", s.Values[0], s.Low[0], s.High[0])
	}
}
