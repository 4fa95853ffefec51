package doctor

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"unnest.io/unnest/docs/schemas"
	"unnest.io/unnest/internal/cli/terminal"
	"unnest.io/unnest/internal/measure/noise"
	"unnest.io/unnest/internal/measure/stats"
)

func TestNoiseReport(t *testing.T) {
	var first, second []stats.Observation
	for block := range 20 {
		first = append(first, stats.Observation{Block: block, Value: 1 + 0.01*float64(block%2)})
		second = append(second, stats.Observation{Block: block, Value: 1})
	}
	s, err := newScatter("Computing", first, second)
	if err != nil {
		t.Fatal(err)
	}
	if s.Blocks != 20 || s.Deviation < 0.004 || s.Deviation > 0.006 || !(s.Detectable[6] > s.Detectable[15]) || s.Detectable[6] < s.Deviation {
		t.Errorf("got %+v", s)
	}
	r := noiseReport{
		Machine: noise.Reading{Others: 0.6, MHz: 2400, Busiest: []noise.Share{{PID: 7, Name: "spin", Share: 0.5}, {PID: 8, Name: "other", Share: 0.1}}},
		Works:   []scatter{s},
	}
	for _, want := range []string{
		"Other processes used 0.60 processors: spin (process 7) 0.50, other (process 8) 0.10.\n", "2400 MHz",
		"Computing: the same work, done twice in each of 20 blocks, differed by 0.5 %", "A run with 6 blocks finds differences of",
		"too busy to measure on: other processes used 0.60 processors, most of it spin (process 7).\n",
	} {
		if !strings.Contains(r.String(), want) {
			t.Errorf("%q is not in:\n%s", want, r)
		}
	}
	r.Machine.Others = 0.1
	if strings.Contains(r.String(), "too busy") {
		t.Errorf("a quiet machine is called busy:\n%s", r)
	}
	if _, err := newScatter("Computing", nil, nil); err == nil {
		t.Error("nothing measured: no error")
	}
}

func TestMeasureNoise(t *testing.T) {
	var out, errOut bytes.Buffer
	streams := terminal.Streams{Out: &out, Err: &errOut}
	if err := measureNoise(t.Context(), streams, 3*time.Second, true); err != nil { // a busy machine does less
		out.Reset()
		if err := measureNoise(t.Context(), streams, 30*time.Second, true); err != nil {
			t.Fatal(err)
		}
	}
	var r noiseReport
	o := schemas.Output{Name: "doctor-noise", Title: "unnest doctor --noise --json", Value: r}
	if err := o.Test("../../..", *update, out.Bytes()); err != nil {
		t.Error(err)
	}
	if err := json.Unmarshal(out.Bytes(), &r); err != nil || len(r.Works) != 2 || r.Machine.Elapsed < 3*time.Second {
		t.Fatalf("%+v, %v", r, err)
	}
	for _, w := range r.Works {
		if w.Blocks < 2 || !(w.Deviation > 0) {
			t.Errorf("%+v", w)
		}
	}
}
