package suite

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/workload"
)

// lookup returns the case called name, or an error.
func lookup(name string) (Case, error) {
	for _, c := range All() {
		if c.Name == name {
			return c, nil
		}
	}
	return Case{}, fmt.Errorf("case %q: unknown", name)
}

const (
	mib = int64(1) << 20
	gib = int64(1) << 30
)

func cpu() []Case       { return casesOf("cpu", "processor") }
func multicore() []Case { return casesOf("multicore", "processor") }
func java() []Case      { return casesOf("java", "java") }
func disk() []Case      { return casesOf("disk", "disk") }
func memory() []Case    { return casesOf("memory", "memory") }
func sysbench() []Case  { return casesOf("sysbench", "sysbench") }

// machines are the smallest supported machine and a larger one.
var machines = []Resources{{VCPUs: 1, Memory: 512 * mib}, {VCPUs: 4, Memory: 4 * gib}}

func TestCasesAreComplete(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range All() {
		if seen[c.Name] {
			t.Errorf("%s: two cases have the name", c.Name)
		}
		seen[c.Name] = true
		if c.Suite == "" || c.Title == "" || c.Package == "" || len(c.Tools) == 0 || len(c.Metrics) == 0 || c.Run == nil || c.Parse == nil {
			t.Errorf("%s: a field is missing: %+v", c.Name, c)
			continue
		}
		names := map[string]bool{}
		for _, m := range c.Metrics {
			if err := m.Order.Validate(); err != nil || m.Name == "" || m.Unit == "" || names[m.Name] {
				t.Errorf("%s: metric %+v: %v", c.Name, m, err)
			}
			names[m.Name] = true
		}
		for _, f := range c.Files {
			sum, err := hex.DecodeString(f.SHA256)
			found := err == nil && len(sum) == sha256.Size && strings.Count(f.Maven, ":") == 2
			if built := f.Built != "" && f.Make != ""; built == found || !filepath.IsAbs(f.Path) {
				t.Errorf("%s: file %+v", c.Name, f)
			}
		}
		if quick, paper := c.Wall(Quick), c.Wall(Paper); quick <= 0 || quick > 2*time.Minute || paper < quick {
			t.Errorf("%s: takes %v quick and %v as in the paper", c.Name, quick, paper)
		}
	}
}

// The paper has 27 cases in pts/cpu, 19 in pts/multicore and 6 in pts/java. Tools that
// Debian does not have are left out, and SciMark's parts are cases.
func TestSuitesHaveTheirCases(t *testing.T) {
	for name, want := range map[string]int{"cpu": 25, "multicore": 15, "java": 8} {
		cases, err := Of(name)
		if err != nil || len(cases) != want {
			t.Errorf("suite %s has %d cases, %v: want %d", name, len(cases), err, want)
		}
	}
}

// A wrong format verb would only fail in the shell.
func TestScriptsAreWhole(t *testing.T) {
	for _, c := range All() {
		for script, text := range scripts(c) {
			if strings.Contains(text, "%!") || !strings.HasSuffix(text, "\n") {
				t.Errorf("%s of %s: a verb has no value, or no newline ends it:\n%s", script, c.Name, text)
			}
		}
	}
}

func TestScriptsParse(t *testing.T) {
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		t.Skip("UNNEST_PRIVILEGED=1 lets bash check every script")
	}
	for _, c := range All() {
		for script, text := range scripts(c) {
			cmd := exec.Command("bash", "-n")
			cmd.Stdin = strings.NewReader(text)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%s of %s: %v: %s\n%s", script, c.Name, err, out, text)
			}
		}
	}
}

// A case lists the interpreter of its scripts.
func TestPerlIsNamed(t *testing.T) {
	for _, c := range slices.Concat(cpu(), multicore(), java()) {
		used := c.Prepare != nil && strings.Contains(c.Prepare(Quick, machines[0]), "perl - ")
		if named := slices.Contains(c.Tools, "perl"); named != used {
			t.Errorf("%s: perl is used: %v, is among its tools: %v", c.Name, used, named)
		}
	}
}

// scripts returns every script of a case, by profile, machine and purpose.
func scripts(c Case) map[string]string {
	texts := map[string]string{}
	for _, p := range []Profile{Quick, Paper} {
		for i, r := range machines {
			at := string(p) + []string{" on a small machine", " on a large machine"}[i]
			if c.Prepare != nil {
				texts["preparation, "+at] = c.Prepare(p, r)
			}
			texts["run, "+at] = c.Run(p, r)
			if c.Server != nil {
				texts["server, "+at] = c.Server.Start(p, r)
			}
		}
	}
	return texts
}

// Every case of cpu and java except Sunflow runs on one thread on every machine, and every
// case of multicore depends on the number of processors.
func TestThreadsFollowTheSuite(t *testing.T) {
	for _, c := range slices.Concat(cpu(), multicore(), java()) {
		alike := c.Run(Quick, machines[0]) == c.Run(Quick, machines[1])
		if want := c.Suite != "multicore" && c.Name != "java-sunflow"; alike != want {
			t.Errorf("%s: same script on 1 and 4 processors: %v, want %v", c.Name, alike, want)
		}
	}
}

// bash runs a script that has to succeed, and returns its standard output.
func bash(t *testing.T, dir, script string) []byte {
	t.Helper()
	out, err := execBash(t, dir, script)
	if err != nil {
		t.Fatalf("%v\n%s", err, script)
	}
	return out
}

// execBash runs a script like a bench does, and returns its standard output, or an error
// with its output.
func execBash(t *testing.T, dir, script string) ([]byte, error) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "bash", "-e", "-u", "-o", "pipefail", "-c", script)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, append(os.Environ(), "LC_ALL=C"), &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%w\nstdout: %s\nstderr: %s", err, stdout.Bytes(), stderr.Bytes())
	}
	return stdout.Bytes(), nil
}

// checkValues wants a finite value over 0 for the first metric, and of the
// others, in their order, finite ones.
func checkValues(t *testing.T, c Case, values []workload.Value) {
	t.Helper()
	if len(values) == 0 || values[0].Metric != c.Metrics[0].Name || values[0].Value <= 0 {
		t.Errorf("%s: values %v: want %s over 0 first", c.Name, values, c.Metrics[0].Name)
	}
	next := 0
	for _, v := range values {
		i := slices.IndexFunc(c.Metrics[next:], func(m result.Metric) bool { return m.Name == v.Metric })
		if i < 0 || v.Value < 0 || math.IsInf(v.Value, 0) || math.IsNaN(v.Value) {
			t.Errorf("%s: value %+v is none of its metrics, out of their order, or no number", c.Name, v)
			continue
		}
		next += i + 1
	}
}
