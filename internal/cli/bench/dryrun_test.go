package bench

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"unnest.io/unnest/internal/measure/experiment"
	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/rundir"
)

// dry runs the command in a new directory that prepare fills.
func dry(t *testing.T, text string, prepare func(), args ...string) string {
	t.Helper()
	t.Chdir(t.TempDir())
	if err := os.WriteFile("x.yaml", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if prepare != nil {
		prepare()
	}
	before := content(t, ".")
	stdout, stderr, err := execute(t, Run, append([]string{"x.yaml", "--dry-run", "--accel", "tcg"}, args...)...)
	if err != nil || stderr != "" {
		t.Fatalf("got %v, stderr %q", err, stderr)
	}
	if after := content(t, "."); len(after) != len(before) {
		t.Errorf("it leaves %v", after)
	}
	return stdout
}

// The list is the first block of the seed's schedule, with the duration of each execution.
func TestDryRun(t *testing.T) {
	got := dry(t, small+"seed: 7\nrepetitions: 8\n", nil)
	spec, err := experiment.Parse("x.yaml", []byte(small+"repetitions: 8\n"))
	if err != nil {
		t.Fatal(err)
	}
	schedule := experiment.Schedule(spec, 7)
	for _, want := range []string{
		"small: 2 executions to warm up, then 8 blocks × 1 cases × 2 configurations = 16 executions\n",
		"accelerator tcg (asked for); seed 7\n",
		"Block 1 of 8; the others have the same executions in different orders.\n",
		"It is learned for 0 of 16 executions, from 0 runs in runs.\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in:\n%s", want, got)
		}
	}
	lines := regexp.MustCompile(`(?m)^ +(\d+)  (\S*) +(\S+) +(\S+s)  estimate$`).FindAllStringSubmatch(got, -1)
	if len(lines) != 2 {
		t.Fatalf("%d executions listed, want 2:\n%s", len(lines), got)
	}
	for i, l := range lines {
		if l[3] != schedule[i].Configuration.Name || (l[2] != "") != (i == 0) {
			t.Errorf("line %d: %q, want %s", i+1, l[0], schedule[i])
		}
	}
}

// A case in some blocks only is neither counted in the others nor in the further ones.
func TestDryRunOfSeldomCase(t *testing.T) {
	const seldom = "  - {name: tcp, workload: iperf3, protocol: tcp, sizes: [1024], duration: 100s, timeout: 300s, repetitions: 2}\n"
	got := dry(t, small+seldom+"repetitions: 6\nuntil: 5%\nlimit: 7\n", nil)
	for _, want := range []string{
		"4 executions to warm up, then 6 blocks × 2 cases × 2 configurations, case tcp/1024 in 2 blocks only = 16 executions\n",
		"1 more blocks follow for cases of which a ratio is not known to ± 5 %: 3s more at most.\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in:\n%s", want, got)
		}
	}
}

// Durations are learned from earlier runs with the same accelerator, and the list shows
// from how many executions.
func TestDryRunLearns(t *testing.T) {
	prepare := func() {
		createRun(t, filepath.Join("runs", "1"), small, result.Complete, 12)
		createRun(t, filepath.Join("runs", "2"), small, result.Complete, 3)
		createRun(t, filepath.Join("runs", "kvm"), small, result.Complete, 12)
		createRun(t, filepath.Join("runs", "broken"), "name: [\n", result.Complete, 2)
		for path, accel := range map[string]string{"1": "tcg", "2": "tcg", "kvm": "kvm", "broken": "tcg"} {
			dir, err := rundir.Open(filepath.Join("runs", path))
			if err != nil {
				t.Fatal(err)
			}
			if err := dir.Update(func(r *result.Run) { r.Accelerator = accel }); err != nil {
				t.Fatal(err)
			}
			dir.Close()
		}
		if err := os.Mkdir(filepath.Join("runs", "no run"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	got := dry(t, small+"seed: 7\nuntil: 3%\nlimit: 10\n", prepare)
	// All durations are 1 s: 12 executions and 2 to warm up. Before each of 6 blocks, and
	// before the warm-up, the servers of two configurations restart.
	for _, want := range []string{
		"1s  learned from 7 executions\n", "1s  learned from 8 executions\n",
		"Expected duration: 18s without booting guests. It is learned for 12 of 12 executions, from 2 runs in runs.\n",
		"Up to 4 more blocks follow for cases of which a ratio is not known to ± 3 %: 10s more at most.\n",
		"Ignored 1 unreadable runs in runs.\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in:\n%s", want, got)
		}
	}
}

func TestDryRunRepetitionsAndSeed(t *testing.T) {
	got := dry(t, small, nil, "--repetitions", "3")
	for _, want := range []string{"3 blocks × 1 cases", "random: a run has another one", "warning: 3 repetitions can hardly distinguish"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in:\n%s", want, got)
		}
	}
}

// The profile of the command line determines the size of the cases of suites.
func TestDryRunProfile(t *testing.T) {
	t.Chdir(t.TempDir())
	total := map[string]time.Duration{}
	for _, profile := range []string{"quick", "paper"} {
		stdout, _, err := execute(t, Run, "levels", "--dry-run", "--profile", profile)
		if err != nil || !strings.Contains(stdout, "6 blocks × 5 cases × 3 configurations = 90 executions\n") {
			t.Fatalf("%v:\n%s", err, stdout)
		}
		found := regexp.MustCompile(`Expected duration: (\S+) without`).FindStringSubmatch(stdout)
		if found == nil {
			t.Fatalf("no time in:\n%s", stdout)
		}
		if total[profile], err = time.ParseDuration(found[1]); err != nil {
			t.Fatal(err)
		}
	}
	if total["paper"] < 2*total["quick"] {
		t.Errorf("it takes %v", total)
	}
}

func TestDryRunRefuses(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"none", "--dry-run"}, `no study "none"`},
		{[]string{"boot", "--dry-run", "--profile", "paper"}, `no profile "paper" can be chosen`},
		{[]string{"selftest", "--dry-run", "--profile", "paper"}, `no profile "paper" can be chosen`},
		{[]string{"selftest", "--dry-run", "--profile", "slow"}, "want one of quick, paper"},
	} {
		stdout, _, err := execute(t, Run, tt.args...)
		if err == nil || !strings.Contains(err.Error(), tt.want) || stdout != "" {
			t.Errorf("%v: got %v, stdout %q; want %q", tt.args, err, stdout, tt.want)
		}
	}
}
