package result

import (
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	run := Run{ID: "r1", Configurations: []Configuration{{Name: "NAT"}}, Cases: []Case{{Suite: "network", Name: "udp_rr/1280", Metrics: []Metric{{Name: "metrica", Unit: "us", Order: LIB}}}}}
	for _, tt := range []struct {
		name   string
		change func(*Run, *Sample)
		want   string // empty: no error
	}{
		{"good", func(*Run, *Sample) {}, ""},
		{"no configuration", func(r *Run, _ *Sample) { r.Configurations = nil }, "run.json has cases and no configuration: name"},
		{"run", func(_ *Run, s *Sample) { s.Run = "r2" }, `run "r2": this is run "r1"`},
		{"configuration", func(_ *Run, s *Sample) { s.Configuration = "X" }, `configuration "X"`},
		{"case", func(_ *Run, s *Sample) { s.Case = "x" }, `case "x"`},
		{"suite", func(_ *Run, s *Sample) { s.Suite = "x" }, `suite "x": the case is of suite "network"`},
		{"metric", func(_ *Run, s *Sample) { s.Metric = "x" }, `metric "x"`},
		{"unit", func(_ *Run, s *Sample) { s.Unit = "ms" }, `metrica in "ms": the case has it in "us"`},
		{"order", func(_ *Run, s *Sample) { s.Order = HIB }, "metrica with order HIB: the case has it with LIB"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, s := run, execution("NAT", 0, 1)[0]
			tt.change(&r, &s)
			for _, j := range []Journal{{Samples: []Sample{s}}, {Discarded: []Sample{s}}, {Void: []Sample{s}}} {
				err := r.Check(j)
				if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
					t.Errorf("got %v, want %q", err, tt.want)
				}
			}
		})
	}
}
