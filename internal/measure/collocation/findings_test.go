package collocation

import (
	"fmt"
	"math"
	"testing"

	"unnest.io/unnest/internal/measure/result"
)

// study is a run in which every domain answers 100 per percent of its load alone, times noise of the
// block. Next to each other two HVMs answer 60 % of that in all, HVM and PVM 90 %, unequally.
func study(blocks int) (result.Run, []result.Sample) {
	run := result.Run{ID: "run", Interleaved: true}
	type mix struct {
		name    string
		domains []string
		idle    map[string]bool
		share   func(domain string, intensity int) float64
	}
	all := func(x float64) func(string, int) float64 { return func(string, int) float64 { return x } }
	mixes := []mix{
		{"Host", []string{"host1"}, nil, all(2)},
		{"HVM", []string{"hvm1"}, nil, all(1)},
		{"PVM", []string{"pvm1"}, nil, all(1.5)},
		{"HVM-idle", []string{"hvm1", "hvm2"}, map[string]bool{"hvm2": true}, all(0.8)},
		{"HVM-HVM", []string{"hvm1", "hvm2"}, nil, func(_ string, intensity int) float64 {
			if intensity == 100 {
				return 0.45
			}
			return 0.6
		}},
		{"PVM-PVM", []string{"pvm1", "pvm2"}, nil, all(0.75)},
		{"HVM-PVM", []string{"hvm1", "pvm1"}, nil, func(domain string, _ int) float64 {
			return map[string]float64{"hvm1": 1, "pvm1": 1.2}[domain]
		}},
	}
	for _, intensity := range []int{80, 100} {
		run.Cases = append(run.Cases, result.Case{Name: fmt.Sprintf("web@%d/1024", intensity), Size: 1024, Intensity: intensity})
	}
	var samples []result.Sample
	for _, m := range mixes {
		run.Configurations = append(run.Configurations, result.Configuration{Name: m.name})
		for _, c := range run.Cases {
			for block := range blocks {
				sum := 0.0
				for _, d := range m.domains {
					s := result.Sample{Configuration: m.name, Case: c.Name, Block: block, Metric: Server,
						Tags: map[string]string{DomainTag: d, ActiveTag: fmt.Sprint(!m.idle[d])}}
					if m.idle[d] {
						s.Metric = Utilisation
					} else {
						s.Tags[SizeTag] = "1024"
						s.Value = 100 * float64(c.Intensity) * m.share(d, c.Intensity) * (1 + float64(block%3)/10) * (1 + float64((block+len(m.name))%2)/1000)
						sum += s.Value
					}
					samples = append(samples, s)
				}
				samples = append(samples, result.Sample{Configuration: m.name, Case: c.Name, Block: block, Metric: Aggregate, Value: sum})
			}
		}
	}
	return run, samples
}

func TestFind(t *testing.T) {
	f := Find(study(6))
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 0.01*want {
			t.Errorf("%s: %.3f, want %.3f", what, got, want)
		}
	}
	if len(f.Alone) != 4 || len(f.Idle) != 2 || len(f.Pairs) != 6 || len(f.Peaks) != 7 {
		t.Fatalf("%d alone, %d idle, %d pairs, %d peaks", len(f.Alone), len(f.Idle), len(f.Pairs), len(f.Peaks))
	}
	near("HVM over host", f.Alone[0].Effect.Ratio(), 0.5)
	near("idle", f.Idle[0].Effect.Ratio(), 0.8)
	if f.Idle[0].Reference != "HVM" || f.Idle[0].Configuration != "HVM-idle" || f.Idle[0].Effect.N != 6 {
		t.Errorf("idle: %+v", f.Idle[0])
	}
	pairs := map[string]Pair{}
	for _, p := range f.Pairs {
		pairs[fmt.Sprint(p.Configuration, "@", p.Intensity)] = p
	}
	hvms, mixed := pairs["HVM-HVM@80"], pairs["HVM-PVM@100"]
	near("HVM-HVM of sum", hvms.OfSum.Effect.Ratio(), 0.6)
	near("HVM-HVM of single", hvms.OfSingle.Effect.Ratio(), 1.2)
	near("Jain of HVM-HVM", hvms.Jain.Mean, 1)
	if !hvms.Identical || mixed.Identical || hvms.Deviation.Mean != 0 || len(hvms.OfSame) != 0 {
		t.Errorf("HVM-HVM: %+v", hvms)
	}
	near("HVM-PVM of sum", mixed.OfSum.Effect.Ratio(), 2.2/2.5)
	near("HVM-PVM of single", mixed.OfSingle.Effect.Ratio(), 2.2/1.5)
	near("HVM-PVM deviation of shares", mixed.Deviation.Mean, 0.2)
	if len(mixed.OfSame) != 2 || mixed.OfSum.Reference != "HVM+PVM" || mixed.Jain.N != 6 || !mixed.Deviation.Interval.Defined() {
		t.Errorf("HVM-PVM: %+v", mixed)
	}
	if mixed.Least == nil || hvms.Least == nil || mixed.Least.Domain != "pvm1" || mixed.Least.N != 6 || !mixed.Least.Interval.Defined() {
		t.Fatalf("least of HVM-PVM and HVM-HVM: %+v, %+v", mixed.Least, hvms.Least)
	}
	near("least of HVM-PVM", mixed.Least.Mean, 0.8)
	near("least of HVM-HVM", hvms.Least.Mean, 0.6)
	near("HVM-PVM over HVM-HVM", mixed.OfSame[0].Effect.Ratio(), 2.2/0.9)
	for _, p := range f.Peaks {
		want := 100
		if p.Configuration == "HVM-HVM" {
			want = 80
		}
		if p.Intensity != want || p.Blocks.Mean != float64(want) || p.Blocks.N != 6 {
			t.Errorf("peak of %s: %+v", p.Configuration, p)
		}
	}
}

// Without the singles there is no sum, and without shares no fairness of different domains.
func TestFindWithoutSingles(t *testing.T) {
	run, samples := study(2)
	var pairs []result.Sample
	for _, s := range samples {
		if len(s.Configuration) > len("HVM") && s.Configuration != "Host" {
			pairs = append(pairs, s)
		}
	}
	f := Find(run, pairs)
	for _, p := range f.Pairs {
		if p.OfSum != nil || p.OfSingle != nil || p.Least != nil || (p.Jain.N > 0) != p.Identical {
			t.Errorf("%s: %+v", p.Configuration, p)
		}
	}
	if len(f.Alone)+len(f.Idle) > 0 || len(f.Pairs) != 6 {
		t.Errorf("%+v", f)
	}
	if f := Find(run, nil); len(f.Pairs)+len(f.Peaks) > 0 {
		t.Errorf("no samples: %+v", f)
	}
}

// The interval of a share does not go below 0, nor that of an index above 1, where blocks scatter.
func TestIntervalsWithinBounds(t *testing.T) {
	run, samples := study(3)
	for i, s := range samples {
		if s.Configuration == "HVM-PVM" && s.Tags[DomainTag] == "hvm1" && s.Block > 0 {
			samples[i].Value /= 1000
		}
	}
	for _, p := range Find(run, samples).Pairs {
		if p.Configuration != "HVM-PVM" {
			continue
		}
		kept, jain, deviation := p.Least.Interval, p.Jain.Interval, p.Deviation.Interval
		if kept.Low != 0 || kept.High <= p.Least.Mean || jain.Low != 0.5 || jain.High != 1 || deviation.Low != 0 || deviation.High != 1 {
			t.Errorf("keeps %+v, Jain's index %+v, deviation %+v", kept, jain, deviation)
		}
	}
	if one := spread([]float64{2}).within(0, 1); one.Interval.Defined() || one.Interval.High != 0 {
		t.Errorf("one block: %+v", one)
	}
}
