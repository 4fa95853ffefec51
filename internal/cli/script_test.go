package cli

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/rundir"
)

var update = flag.Bool("update", false, "rewrite the expected output of the scripts")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"unnest": func() { os.Exit(Main()) },
		"user":   func() { os.Exit(userMain()) },
		waiter:   func() { os.Exit(waiterMain()) },
	})
}

// userMain is Main for an ordinary user.
func userMain() int {
	const nobody = 65534
	if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(nobody), syscall.Setuid(nobody)); os.Geteuid() == 0 {
		fmt.Fprintln(os.Stderr, "become an ordinary user:", err)
		return exitFailure
	}
	return Main()
}

// TestScripts runs the binary like users do, one script per subject.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata", UpdateScripts: *update,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"status": status},
		Setup: func(env *testscript.Env) error {
			return writeRun(env.Getenv("WORK") + "/run")
		},
	})
}

// status is the script command "status CODE BINARY ARGS…": the binary must exit with that
// code. Its outputs are in stdout and stderr.
func status(ts *testscript.TestScript, _ bool, args []string) {
	var exit *exec.ExitError
	err := ts.Exec(args[1], args[2:]...)
	if !errors.As(err, &exit) || strconv.Itoa(exit.ExitCode()) != args[0] {
		ts.Fatalf("%s: got %v, want exit code %s", args[1], err, args[0])
	}
}

// writeRun writes a small finished run to dir: NAT is slower than NoCont.
func writeRun(dir string) error {
	run := result.Run{
		ID: "r1", Experiment: "quick", Title: "A quick run", State: result.Complete,
		Started: time.Date(2026, 3, 14, 9, 26, 53, 0, time.UTC), Ended: time.Date(2026, 3, 14, 9, 40, 0, 0, time.UTC),
		Seed: 1, Repetitions: 6, Interleaved: true, Planned: 12, Accelerator: "tcg", Version: "devel", Baselines: []string{"NoCont"},
		Configurations: []result.Configuration{{Name: "NoCont", Stack: "vm"}, {Name: "NAT", Stack: "vm/containerd"}},
		Cases: []result.Case{{
			Suite: "network", Name: "udp_rr/1280", Group: "udp_rr", Size: 1280, Title: "UDP ping-pong, 1280 B",
			Tool: "sockperf", Primary: "latency_mean",
			Metrics: []result.Metric{{Name: "latency_mean", Unit: "us", Order: result.LIB}},
		}},
	}
	d, err := rundir.Create(dir, run)
	if err != nil {
		return err
	}
	for block := range 6 {
		for i, c := range run.Configurations {
			err := d.Append([]result.Sample{{
				Run: run.ID, Configuration: c.Name, Suite: "network", Case: "udp_rr/1280", Metric: "latency_mean",
				Unit: "us", Order: result.LIB, Value: 187 + 98*float64(i) + float64(block), Block: block, Repetition: block,
				Boot: "b", Start: run.Started.Add(time.Duration(2*block+i) * time.Minute), Duration: 5,
			}})
			if err != nil {
				return err
			}
		}
	}
	return d.Close()
}
