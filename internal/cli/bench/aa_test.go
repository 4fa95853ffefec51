package bench

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"unnest.io/unnest/internal/measure/result"
)

// aaRun is a run of two configurations with the names and options, n blocks of two
// cases; b is larger by shift.
func aaRun(a, b result.Configuration, n int, shift float64) (result.Run, []result.Sample) {
	run := result.Run{Seed: 1, Configurations: []result.Configuration{a, b}}
	r := rand.New(rand.NewPCG(1, 2))
	var samples []result.Sample
	for i := range 2 {
		c := result.Case{Name: fmt.Sprint("case", i), Primary: "m"}
		run.Cases = append(run.Cases, c)
		for block := range n {
			for j, configuration := range run.Configurations {
				s := result.Sample{Case: c.Name, Configuration: configuration.Name, Metric: "m", Block: block,
					Value: 100 + r.NormFloat64() + float64(j)*shift}
				other := s
				other.Metric, other.Value = "other", float64(1000*j)
				samples = append(samples, s, other)
			}
		}
	}
	return run, samples
}

func TestAA(t *testing.T) {
	nat := map[string]string{"network": "nat"}
	for _, tt := range []struct {
		name   string
		a, b   result.Configuration
		blocks int
		shift  float64
		want   []string // nil: nothing is printed
	}{
		{"equal", result.Configuration{Name: "X-a", Stack: "vm"}, result.Configuration{Name: "X-b", Stack: "vm"}, 24, 0,
			[]string{"A/A: X-a against X-b", "in 6 blocks of its own", "case0  0 of 4 (0 %)", "  all    0 of 8 (0 %)  a perfect tool finds 0 to 2"}},
		{"measured differently", result.Configuration{Name: "X-a", Stack: "vm"}, result.Configuration{Name: "X-b", Stack: "vm"}, 24, 50,
			[]string{"case0  4 of 4 (100 %)", "all    8 of 8 (100 %)"}},
		{"too few blocks", result.Configuration{Name: "X-a", Stack: "vm"}, result.Configuration{Name: "X-b", Stack: "vm"}, 3, 0,
			[]string{"too few samples: 3 blocks have both, want at least 6", "all    –"}},
		{"other stacks", result.Configuration{Name: "X-a", Stack: "vm"}, result.Configuration{Name: "X-b", Stack: "metal"}, 24, 0, nil},
		{"other options", result.Configuration{Name: "X-a", Stack: "vm", Options: nat}, result.Configuration{Name: "X-b", Stack: "vm"}, 24, 0, nil},
		{"other names", result.Configuration{Name: "by-hand", Stack: "vm"}, result.Configuration{Name: "unnest", Stack: "vm"}, 24, 0, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			run, samples := aaRun(tt.a, tt.b, tt.blocks, tt.shift)
			var out bytes.Buffer
			if err := aa(&out, run, samples); err != nil {
				t.Fatal(err)
			}
			if tt.want == nil && out.Len() > 0 {
				t.Errorf("it prints\n%s", &out)
			}
			for _, w := range tt.want {
				if !strings.Contains(out.String(), w) {
					t.Errorf("%q is not in:\n%s", w, &out)
				}
			}
		})
	}
}

// A table that cannot be written is an error.
func TestAABrokenPipe(t *testing.T) {
	run, samples := aaRun(result.Configuration{Name: "X-a"}, result.Configuration{Name: "X-b"}, 8, 0)
	broken := errors.New("broken pipe")
	if err := aa(writer(func([]byte) (int, error) { return 0, broken }), run, samples); !errors.Is(err, broken) {
		t.Errorf("got %v, want %v", err, broken)
	}
}
