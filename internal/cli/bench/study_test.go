package bench

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"unnest.io/unnest/experiments"
	"unnest.io/unnest/internal/measure/bench"
)

const small = `name: small
suite: network
configurations:
  - {name: NoCont, stack: vm}
  - {name: NAT, stack: vm/containerd, network: nat}
cases:
  - {name: udp_rr, workload: sockperf, protocol: udp, sizes: [64], duration: 1s}
`

// write creates a file in a new directory and returns its path.
func write(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// cpuMetrics is the number of CPU times that are measured along with a workload.
const cpuMetrics = 7

func TestLoad(t *testing.T) {
	path := write(t, "mine.yaml", small)
	t.Chdir(filepath.Dir(path))
	for _, name := range []string{path, "mine.yaml", "./mine.yaml"} {
		s, err := load(name, "")
		if err != nil || s.Name != "small" || s.Text != small || len(bench.Metrics(s)) != cpuMetrics {
			t.Errorf("%s: got %+v, %v", name, s, err)
		}
	}
	tests := []struct {
		name    string
		metrics int // besides the workloads'
	}{
		{"quickstart", cpuMetrics},
		{"harness", cpuMetrics + 1},
		{"boot", 0},
		{"startup", 0},
	}
	for _, tt := range tests {
		s, err := load(tt.name, "")
		if err != nil || s.Name != tt.name || len(bench.Metrics(s)) != tt.metrics {
			t.Errorf("%s: got %+v, %v; want %d metrics", tt.name, s, err, tt.metrics)
		}
	}
}

func TestLoadErrors(t *testing.T) {
	tests := []struct {
		name string
		file string // name of the experiment; with content: a file of it
		text string
		want []string
	}{
		{"unknown name", "quickstar", "", []string{`no study "quickstar"`, strings.Join(experiments.Studies(), ", "), "./quickstar.yaml"}},
		{"missing file", "./none.yaml", "", []string{"read experiment: ", "./none.yaml"}},
		{"directory", "./", "", []string{"read experiment: ", "is a directory"}},
		{"unknown key", "x.yaml", small + "repetition: 3\n", []string{"x.yaml:8: ", "repetition", "repetitions"}},
		{"wrong value", "x.yaml", strings.Replace(small, "sizes: [64]", "sizes: [1]", 1), []string{"x.yaml:7: ", "cases[0].sizes", "14"}},
		{"missing key", "x.yaml", strings.Replace(small, "suite: network\n", "", 1), []string{"x.yaml:", "suite"}},
		{"no YAML", "x.yaml", "name: [\n", []string{"x.yaml:", "YAML"}},
		{"empty", "x.yaml", "", []string{"x.yaml:1: ", "empty"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			name := tt.file
			if name == "x.yaml" {
				name = write(t, name, tt.text)
			}
			_, err := load(name, "")
			if err == nil {
				t.Fatal("got no error")
			}
			for _, w := range tt.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%q is not in: %v", w, err)
				}
			}
		})
	}
}

func TestDrawSeed(t *testing.T) {
	seen := map[uint64]bool{}
	for range 100 {
		seen[drawSeed()] = true
	}
	if seen[0] || len(seen) < 100 {
		t.Errorf("%d different seeds of 100, 0 among them: %v", len(seen), seen[0])
	}
}
