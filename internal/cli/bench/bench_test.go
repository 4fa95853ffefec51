package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"unnest.io/unnest/experiments"
	"unnest.io/unnest/internal/cli/terminal"
	"unnest.io/unnest/internal/cli/usage"
	"unnest.io/unnest/internal/measure/stack"
)

// execute runs the command with args and returns its output.
func execute(t *testing.T, run func(context.Context, Options) error, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, errOut bytes.Buffer
	cmd := NewCmd(terminal.Streams{In: strings.NewReader(""), Out: &out, Err: &errOut}, run)
	cmd.SetArgs(args)
	cmd.SetOut(io.Discard)
	cmd.SetErr(io.Discard)
	err = cmd.ExecuteContext(t.Context())
	return out.String(), errOut.String(), err
}

func TestOptions(t *testing.T) {
	tests := []struct {
		args []string
		want Options
	}{
		{[]string{"quickstart"}, Options{Experiment: "quickstart"}},
		{[]string{"./mine.yaml", "-o", "results/mine", "--repetitions", "12", "--accel", "tcg"},
			Options{Experiment: "./mine.yaml", Dir: "results/mine", Repetitions: 12, Accel: "tcg"}},
		{[]string{"--output", "x", "boot"}, Options{Experiment: "boot", Dir: "x"}},
		{[]string{"--cold=false", "boot"}, Options{Experiment: "boot", Start: stack.Restored}},
		{[]string{"--cold", "quickstart"}, Options{Experiment: "quickstart", Start: stack.Booted}},
		{[]string{"--cold", "boot"}, Options{Experiment: "boot", Start: stack.Booted}},
		{[]string{"--list"}, Options{List: true}},
		{[]string{"multilevel", "--list"}, Options{Experiment: "multilevel", List: true}},
		{[]string{"multilevel", "--suite", "cpu", "--suite", "java", "--case", "a/1"},
			Options{Experiment: "multilevel", Suites: []string{"cpu", "java"}, Cases: []string{"a/1"}}},
		{[]string{"levels", "--dry-run", "--profile", "paper"}, Options{Experiment: "levels", DryRun: true, Profile: "paper"}},
		{[]string{"--resume", "runs/1", "--accel", "kvm"}, Options{Resume: "runs/1", Accel: "kvm"}},
	}
	for _, tt := range tests {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			var got Options
			_, _, err := execute(t, func(_ context.Context, o Options) error { got = o; return nil }, tt.args...)
			got.Streams = terminal.Streams{}
			if diff := cmp.Diff(tt.want, got); err != nil || diff != "" {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestUsageErrors(t *testing.T) {
	const one = "--resume names the run: leave out the experiment and --list"
	const list = "--list shows all suites and cases, and runs nothing: leave out --output, --suite, --case and --dry-run"
	const planned = "--resume continues the run as it was planned: leave out --output, --repetitions, --profile, --suite, --case and --dry-run"
	tests := []struct {
		args []string
		want string
	}{
		{nil, fmt.Sprintf("no experiment given: name one of %s, or a file", strings.Join(experiments.Studies(), ", "))},
		{[]string{"quickstart", "selftest"}, "2 experiments given: name one"},
		{[]string{"quickstart", "--list", "--case", "x"}, list},
		{[]string{"quickstart", "--list", "-o", "x"}, list},
		{[]string{"--list", "--dry-run"}, list},
		{[]string{"--resume", "runs/1", "--suite", "x"}, planned},
		{[]string{"--resume", "runs/1", "--case", "x"}, planned},
		{[]string{"quickstart", "--resume", "runs/1"}, one},
		{[]string{"--list", "--resume", "runs/1"}, one},
		{[]string{"--resume", "runs/1", "-o", "x"}, planned},
		{[]string{"--resume", "runs/1", "--repetitions", "3"}, planned},
		{[]string{"--resume", "runs/1", "--profile", "paper"}, planned},
		{[]string{"--resume", "runs/1", "--dry-run"}, planned},
		{[]string{""}, `experiment "": want a name or the path of a file`},
		{[]string{"--resume", ""}, "--resume is empty: want a directory"},
		{[]string{"quickstart", "--resume", ""}, "--resume is empty: want a directory"},
		{[]string{"quickstart", "-o", ""}, "--output is empty: want a directory"},
	}
	for _, tt := range tests {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			stdout, _, err := execute(t, func(context.Context, Options) error { t.Error("it ran"); return nil }, tt.args...)
			var wrong *usage.Error
			if !errors.As(err, &wrong) || err.Error() != tt.want || stdout != "" {
				t.Errorf("got %v, stdout %q; want %q", err, stdout, tt.want)
			}
		})
	}
}

// A flag with a wrong value is refused before anything runs.
func TestFlagErrors(t *testing.T) {
	for _, tt := range []struct{ flag, value, want string }{
		{"--accel", "xen", "want one of auto, kvm, tcg"},
		{"--accel", "", "want one of auto, kvm, tcg"},
		{"--profile", "slow", "want one of quick, paper"},
		{"--profile", "", "want one of quick, paper"},
		{"--repetitions", "0", "want a whole number of at least 1"},
		{"--repetitions", "-1", "want a whole number of at least 1"},
		{"--repetitions", "1.5", "want a whole number of at least 1"},
		{"--repetitions", "99999999999999999999", "want a whole number of at least 1"},
		{"--repetitions", "", "want a whole number of at least 1"},
	} {
		_, _, err := execute(t, func(context.Context, Options) error { t.Errorf("%s %q: it ran", tt.flag, tt.value); return nil },
			"quickstart", tt.flag+"="+tt.value)
		if err == nil || !strings.Contains(err.Error(), tt.flag) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s %q: got %v, want %q", tt.flag, tt.value, err, tt.want)
		}
	}
}

// The limit of repetitions is that of an experiment file.
func TestTooManyRepetitions(t *testing.T) {
	_, _, err := execute(t, Run, "quickstart", "--dry-run", "--repetitions", "10001")
	if err == nil || !strings.Contains(err.Error(), "10001 repetitions: want 1 to 10000") {
		t.Errorf("got %v", err)
	}
}

func TestMisspeltExperiment(t *testing.T) {
	for name, want := range map[string]string{
		"quickstrat": `no study "quickstrat": did you mean quickstart? there are `,
		"hotslo":     `no study "hotslo": did you mean hostlo? there are `,
		"bot":        `no study "bot": did you mean boot? there are `,
		"xyzzy":      `no study "xyzzy": there are `,
	} {
		_, _, err := execute(t, Run, name)
		var wrong *usage.Error
		if !errors.As(err, &wrong) || !strings.HasPrefix(err.Error(), want) || !strings.Contains(err.Error(), strings.Join(experiments.Studies(), ", ")) {
			t.Errorf("%s: got %v, want %s…", name, err, want)
		}
	}
}

// Names of earlier versions are answered by the command that replaces them.
func TestReplacedNames(t *testing.T) {
	for name, want := range map[string]string{
		"multilevel-disk": "no study \"multilevel-disk\" any more: run unnest bench multilevel --suite disk",
		"hostlo-quick":    "no study \"hostlo-quick\" any more: run unnest bench hostlo --suite quick",
		"latency":         "no study \"latency\" any more: run unnest bench brfusion --suite latency",
	} {
		_, _, err := execute(t, Run, name, "--dry-run")
		var wrong *usage.Error
		if !errors.As(err, &wrong) || err.Error() != want {
			t.Errorf("%s: got %v, want %s", name, err, want)
		}
	}
}

// What is not in a study is refused before anything runs.
func TestSuitesAndCasesAreChecked(t *testing.T) {
	mine := write(t, "mine.yaml", small)
	for _, tt := range []struct{ arguments, want string }{
		{"multilevel", "name one of its suites by --suite"},
		{"hostlo --suite slow", "no suite \"slow\": want one of connections, quick, docker"},
		{"quickstart --case udp", "no case \"udp\": want one of tcp_stream, tcp_stream/1280, "},
		{mine + " --suite quick", "only studies of unnest have suites"},
	} {
		_, _, err := execute(t, Run, append(strings.Fields(tt.arguments), "--dry-run")...)
		var wrong *usage.Error
		if !errors.As(err, &wrong) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %s", tt.arguments, err, tt.want)
		}
	}
}

// All studies are listed with their suites.
func TestList(t *testing.T) {
	stdout, stderr, err := execute(t, Run, "--list")
	if err != nil || stderr != "" {
		t.Fatalf("got %v, stderr %q", err, stderr)
	}
	var listed []string
	for line := range strings.Lines(stdout) {
		name, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		if strings.HasPrefix(strings.TrimSpace(rest), "[") || strings.TrimSpace(rest) == "" || !strings.Contains(rest, strings.Join(experiments.Suites(name), ", ")) {
			t.Errorf("%q has no title, or not the suites %v", line, experiments.Suites(name))
		}
		listed = append(listed, name)
	}
	if !slices.Equal(listed, experiments.Studies()) || !slices.IsSorted(listed) || !slices.Contains(listed, "quickstart") {
		t.Errorf("listed %v, want all of %v in order", listed, experiments.Studies())
	}
}

func TestListStudy(t *testing.T) {
	stdout, _, err := execute(t, Run, "--list", "hostlo")
	for _, want := range []string{"hostlo: The containers", "hostlo --suite quick: The containers", "hostlo --suite connections: Short", "\n  --case udp_rr, tcp_stream\n", "\n  --case one, eight\n"} {
		if err != nil || !strings.Contains(stdout, want) {
			t.Errorf("%v, no %q in:\n%s", err, want, stdout)
		}
	}
	if _, _, err := execute(t, Run, "--list", "hostlo-quick"); err == nil || !strings.Contains(err.Error(), "hostlo --suite quick") {
		t.Errorf("a replaced name: %v", err)
	}
	if stdout, _, err := execute(t, Run, "--list", write(t, "mine.yaml", small)); err != nil || !strings.Contains(stdout, "--case udp_rr\n") {
		t.Errorf("a file: %v, %q", err, stdout)
	}
}

// A list that cannot be written is an error.
func TestListBrokenPipe(t *testing.T) {
	broken := errors.New("broken pipe")
	if err := list(writer(func([]byte) (int, error) { return 0, broken })); !errors.Is(err, broken) {
		t.Errorf("got %v, want %v", err, broken)
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }
