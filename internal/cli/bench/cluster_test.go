package bench

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"unnest.io/unnest/internal/cli/document"
	"unnest.io/unnest/internal/cli/terminal"
	"unnest.io/unnest/internal/cli/usage"
	"unnest.io/unnest/internal/measure/experiment"
	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/workload"
)

// cluster runs "unnest bench cluster" and returns its options.
func cluster(t *testing.T, args ...string) (got clusterOptions, err error) {
	t.Helper()
	cmd := newClusterCmd(terminal.Streams{}, func(_ context.Context, o clusterOptions) error { got = o; return nil })
	cmd.SetArgs(args)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err = cmd.ExecuteContext(t.Context())
	return got, err
}

func TestClusterOptions(t *testing.T) {
	defaults := clusterOptions{Image: workload.PeerImage, Wait: 5 * time.Minute}
	with := func(change func(*clusterOptions)) clusterOptions { o := defaults; change(&o); return o }
	for _, tt := range []struct {
		args string
		want clusterOptions
	}{
		{"", defaults},
		{"./mine.yaml --context c --kubeconfig f --namespace n --repetitions 2", with(func(o *clusterOptions) {
			o.File, o.Context, o.Kubeconfig, o.Namespace, o.Repetitions = "./mine.yaml", "c", "f", "n", 2
		})},
		{"--nodes a,b --pairs all --leave-out node,service -o d", with(func(o *clusterOptions) {
			o.Nodes, o.Pairs, o.LeaveOut, o.Dir = "a,b", "all", "node,service", "d"
		})},
		{"--resume d --image i", with(func(o *clusterOptions) { o.Resume, o.Image = "d", "i" })},
	} {
		if got, err := cluster(t, strings.Fields(tt.args)...); err != nil || got != tt.want {
			t.Errorf("%s: got %+v, %v", tt.args, got, err)
		}
	}
	for args, want := range map[string]string{
		"a b":                    "2 experiment files given: name one",
		"--resume d --pairs all": "--resume continues the run as it was planned: leave out FILE, --output, --repetitions, --nodes, --pairs and --leave-out",
		"--nodes a --pairs a:a":  "give one of --nodes and a list of --pairs",
		"--image=":               "--image is empty: want the name of an image",
	} {
		var wrong *usage.Error
		if _, err := cluster(t, strings.Fields(args)...); !errors.As(err, &wrong) || err.Error() != want {
			t.Errorf("%s: got %v, want %s", args, err, want)
		}
	}
}

// The plan of a run is part of its file: a resumed run has the same nodes and configurations.
func TestWithPlan(t *testing.T) {
	text, err := clusterOptions{}.experiment()
	if err != nil {
		t.Fatal(err)
	}
	s, err := experiment.Parse("cluster.yaml", text)
	if err != nil {
		t.Fatal(err)
	}
	out := withoutBrFusion(s, nil)
	if !slices.Equal(out, []string{"brfusion"}) || withoutBrFusion(s, out) != nil {
		t.Errorf("without BrFusion, %q are left out", out)
	}
	pairs := []experiment.Pair{{Client: "n1", Server: "n1"}, {Client: "n1", Server: "n2.example"}}
	planned, err := experiment.Parse("planned", withPlan(text, s, pairs, out))
	if err != nil || !slices.Equal(planned.Pairs, pairs) || len(planned.Configurations) != 3 || len(planned.Cases) != 2*len(s.Cases) {
		t.Errorf("got %+v, %v", planned, err)
	}
	again, err := experiment.FromRun("r", planned.NewRun("r", 1, time.Time{}))
	if err != nil || !slices.Equal(again.Pairs, pairs) {
		t.Errorf("resumed: %+v, %v", again, err)
	}
}

// A run in a cluster and another are not continued by each other's command.
func TestResumeOfCluster(t *testing.T) {
	text, err := clusterOptions{}.experiment()
	if err != nil {
		t.Fatal(err)
	}
	s, err := experiment.Parse("cluster.yaml", text)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "run")
	createRunOf(t, path, s, result.Interrupted, 2)
	if err := resume(t.Context(), Options{Resume: path, Streams: discarded()}); err == nil || !strings.Contains(err.Error(), "run it by `unnest bench cluster`") {
		t.Errorf("unnest bench --resume: got %v", err)
	}
	other := filepath.Join(t.TempDir(), "run")
	createRun(t, other, small, result.Interrupted, 2)
	if err := runCluster(t.Context(), clusterOptions{Resume: other, Streams: discarded()}); err == nil || !strings.Contains(err.Error(), "continue it with `unnest bench --resume "+other) {
		t.Errorf("unnest bench cluster --resume: got %v", err)
	}
	file := write(t, "x.yaml", small)
	if err := runCluster(t.Context(), clusterOptions{File: file}); err == nil || !strings.Contains(err.Error(), "no configuration has stack kubernetes") {
		t.Errorf("another experiment: got %v", err)
	}
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	t.Chdir(t.TempDir())
	if err := runCluster(t.Context(), clusterOptions{}); err == nil || !strings.HasPrefix(err.Error(), "find a cluster: no kubeconfig") {
		t.Errorf("no kubeconfig: got %v", err)
	}
	if _, err := os.Stat(document.RunsDir); err == nil {
		t.Error("it made a run directory")
	}
}

func discarded() terminal.Streams {
	return terminal.Streams{Out: &strings.Builder{}, Err: &strings.Builder{}}
}
