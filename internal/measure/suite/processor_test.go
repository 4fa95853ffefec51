package suite

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"unnest.io/unnest/internal/measure/workload"
)

// Every case of cpu, multicore and java parses the recorded output of its tool. Timed cases
// share a parser, so only one of them has wanted values.
func TestParseOfCPUCases(t *testing.T) {
	throughput := func(v float64) []workload.Value { return []workload.Value{{Metric: "throughput", Value: v}} }
	want := map[string][]workload.Value{
		"cpu-7zip": {{Metric: "rating", Value: 2619}, {Metric: "compression", Value: 3631}, {Metric: "decompression", Value: 1608}},
		"cpu-gzip": {{Metric: "seconds", Value: 0.251}}, "java-sunflow": {{Metric: "seconds", Value: 1.155}},
		"cpu-rsa4096":       {{Metric: "signatures", Value: 179}, {Metric: "verifications", Value: 9825}},
		"multicore-rsa4096": {{Metric: "signatures", Value: 182}, {Metric: "verifications", Value: 12449}},
		"cpu-sha256":        throughput(389.88186), "cpu-aes256": throughput(387.72659),
		"cpu-john-bcrypt": throughput(259), "cpu-john-descrypt": throughput(786432), "cpu-john-md5crypt": throughput(2704),
		"cpu-x264": throughput(27.12), "multicore-x264": throughput(105.33),
		"cpu-gm-hwb": throughput(41.992 * 60), "cpu-gm-sharpen": throughput(20.428 * 60), "multicore-gm-hwb": throughput(140.467 * 60),
		"cpu-stockfish": throughput(1050447), "multicore-stockfish": throughput(1152639),
		"cpu-queens": throughput(1203.76), "multicore-queens": throughput(1441.13),
		"java-scimark-fft": throughput(1651.7434121758229),
	}
	for _, c := range slices.Concat(cpu(), multicore(), java()) {
		got, err := c.Parse(printed(t, c.Name))
		if err != nil {
			t.Errorf("%s: %v", c.Name, err)
			continue
		}
		checkValues(t, c, got)
		if values, ok := want[c.Name]; ok {
			if diff := cmp.Diff(values, got, cmpopts.EquateApprox(1e-12, 0)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.Name, diff)
			}
		}
		delete(want, c.Name)
	}
	if len(want) != 0 {
		t.Errorf("no such cases: %v", want)
	}
}

// printed returns the recorded output of a case.
func printed(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestParseOfCPUCasesRefuses(t *testing.T) {
	tests := []struct{ name, output, want string }{
		{"cpu-gzip", "", "read seconds: no output"},
		{"cpu-gzip", "gzip: text: No such file or directory\n", `read seconds: no such line, output ends with "gzip: text: No such file or directory"`},
		{"cpu-gzip", "seconds 0.000\n", `read seconds from "seconds 0.000": want a number over 0`},
		{"cpu-gzip", "seconds 1.000\nseconds 2.000\n", `read seconds: in two places: "seconds 1.000" and "seconds 2.000"`},
		{"cpu-7zip", "\nSystem ERROR:\nE_INVALIDARG : One or more arguments are invalid\n", `read rating: no such line, but "System ERROR:"`},
		{"cpu-rsa4096", "speed: Unknown algorithm rsa4096\n", `read signatures: no such line, output ends with "speed: Unknown algorithm rsa4096"`},
		{"cpu-john-bcrypt", "Unknown option: \"--test\"\n", `read throughput: no such line, output ends with "Unknown option: \"--test\""`},
		{"cpu-x264", "encoded 0 frames, nan fps, 0 kb/s\n", `read throughput: no such line, output ends with "encoded 0 frames, nan fps, 0 kb/s"`},
		{"java-sunflow", "seconds 1.000\n", `read seconds of an image that passed its check: no such line, output ends with "seconds 1.000"`},
	}
	for _, tt := range tests {
		c, err := lookup(tt.name)
		if err != nil {
			t.Fatal(err)
		}
		if values, err := c.Parse([]byte(tt.output)); err == nil || err.Error() != tt.want {
			t.Errorf("%s of %q: %v, %v, want the error %s", tt.name, tt.output, values, err, tt.want)
		}
	}
}

// john prints thousands when it is fast.
func TestJohnsThousands(t *testing.T) {
	output := strings.Replace(string(printed(t, "cpu-john-bcrypt")), "259 c/s real", "9445K c/s real", 1)
	got, err := readJohn("Raw")([]byte(output))
	if err != nil || len(got) != 1 || got[0].Value != 9445e3 {
		t.Errorf("got %v, %v, want 9445000", got, err)
	}
}

// A script that fails is not timed, and the output precedes the time.
func TestElapsedKeepsTheScriptsFailure(t *testing.T) {
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		t.Skip("UNNEST_PRIVILEGED=1 runs bash")
	}
	shell := func(text string) string {
		return script(func(Resources) int { return 1 }, timed(text))(Quick, machines[0])
	}
	out := string(bash(t, t.TempDir(), shell("echo first; echo seconds 9.999 >&2")))
	if first, last, _ := strings.Cut(out, "\n"); first != "first" || !strings.HasPrefix(last, "seconds 0.0") || strings.Contains(last, "9.999") {
		t.Errorf("timed script printed %q", out)
	}
	if _, err := execBash(t, t.TempDir(), shell("false\necho still here")); err == nil {
		t.Error("a script that fails ends well when it is timed")
	}
}
