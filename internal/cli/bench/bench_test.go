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

	"unnest/experiments"
	"unnest/internal/cli/terminal"
	"unnest/internal/cli/usage"
	"unnest/internal/measure/experiment"
)

// execute runs the command with args and returns its output.
func execute(t *testing.T, runF func(context.Context, Options) error, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, errOut bytes.Buffer
	cmd := NewCmd(terminal.Streams{In: strings.NewReader(""), Out: &out, Err: &errOut}, runF)
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
		{[]string{"--cold=false", "boot"}, Options{Experiment: "boot", Restore: true}},
		{[]string{"--cold", "boot"}, Options{Experiment: "boot"}},
		{[]string{"--list"}, Options{List: true}},
		{[]string{"levels", "--dry-run", "--profile", "paper"}, Options{Experiment: "levels", DryRun: true, Profile: "paper"}},
		{[]string{"--resume", "runs/1", "--accel", "kvm"}, Options{Resume: "runs/1", Accel: "kvm"}},
	}
	for _, tt := range tests {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			var got Options
			_, _, err := execute(t, func(_ context.Context, o Options) error { got = o; return nil }, tt.args...)
			got.Streams = terminal.Streams{}
			if err != nil || got != tt.want {
				t.Errorf("got %+v, %v; want %+v", got, err, tt.want)
			}
		})
	}
}

func TestUsageErrors(t *testing.T) {
	const one = "give one of an experiment, --resume and --list"
	const planned = "--resume continues the run as it was planned: leave out --output, --repetitions, --profile and --dry-run"
	tests := []struct {
		args []string
		want string
	}{
		{nil, fmt.Sprintf("no experiment given: name one of %s, or a file", strings.Join(experiments.List(), ", "))},
		{[]string{"quickstart", "selftest"}, "2 experiments given: name one"},
		{[]string{"quickstart", "--list"}, one},
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
	_, _, err := execute(t, nil, "quickstart", "--dry-run", "--repetitions", "10001")
	if err == nil || !strings.Contains(err.Error(), "10001 repetitions: want 1 to 10000") {
		t.Errorf("got %v", err)
	}
}

func TestMisspeltExperiment(t *testing.T) {
	for name, want := range map[string]string{
		"quickstrat":   `no experiment "quickstrat": did you mean quickstart? there are `,
		"hostlo-qiuck": `no experiment "hostlo-qiuck": did you mean hostlo-quick? there are `,
		"bot":          `no experiment "bot": did you mean boot? there are `,
		"xyzzy":        `no experiment "xyzzy": there are `,
	} {
		_, _, err := execute(t, nil, name)
		var wrong *usage.Error
		if !errors.As(err, &wrong) || !strings.HasPrefix(err.Error(), want) || !strings.Contains(err.Error(), strings.Join(experiments.List(), ", ")) {
			t.Errorf("%s: got %v, want %s…", name, err, want)
		}
	}
}

// Listed experiments can be parsed and have a title.
func TestList(t *testing.T) {
	stdout, stderr, err := execute(t, nil, "--list")
	if err != nil || stderr != "" {
		t.Fatalf("got %v, stderr %q", err, stderr)
	}
	var listed []string
	for line := range strings.Lines(stdout) {
		name, title, _ := strings.Cut(strings.TrimSpace(line), " ")
		file, data, err := experiments.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		if s, err := experiment.Parse(file, data); err != nil || s.Name != name || strings.TrimSpace(title) != s.Title || s.Title == "" {
			t.Errorf("%q: %v", line, err)
		}
		listed = append(listed, name)
	}
	if !slices.Equal(listed, experiments.List()) || !slices.IsSorted(listed) || !slices.Contains(listed, "quickstart") {
		t.Errorf("listed %v, want all of %v in order", listed, experiments.List())
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
