package plan

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"unnest/internal/cli/terminal"
	"unnest/internal/cli/usage"
	"unnest/internal/plan/cluster"
	"unnest/internal/plan/summary"
	"unnest/internal/plan/trace"
)

// googleVariable names the directory with the piece of the Google trace of 2011.
const googleVariable = "UNNEST_GOOGLE2011"

// What is promised on two processors: the piece of the Google trace from a new
// process, and a million containers with all plans and bounds.
const (
	coldMost       = 3 * time.Second
	millionMost    = 60 * time.Second
	millionMemory  = 2 << 30
	millionOf      = 1_000_000
	promisedOnCPUs = 2
)

// benchmark measures the command itself.
type benchmark struct {
	streams     terminal.Streams
	google      string // a directory; empty: none
	scales      []int
	containers  int // of the file that is generated
	repetitions int
	most        time.Duration // for one scale
	only        []string      // parts; empty: all
	dir         string        // for what is generated
	rate        float64       // containers planned in a second, as far as is known
	text        strings.Builder
}

// The parts of the benchmark, in their order.
const (
	benchPiece  = "piece"
	benchFile   = "file"
	benchScales = "scales"
	benchCosts  = "costs"
)

// patience is after how long a command is not repeated any more.
const patience = time.Minute

// newBenchCmd returns "unnest plan bench".
func newBenchCmd(streams terminal.Streams) *cobra.Command {
	b := &benchmark{streams: streams}
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure how fast traces are read and planned, and how good the plans are",
		Long: `Measure how fast traces are read, beside a plain scan of the same bytes; how fast
users are planned, and with how much memory; how far plans are above the bound;
and what packing costs as the cluster autoscaler does it. Programs that are timed
are new processes of this one.

` + googleVariable + ` names a directory with part 0 of clusterdata-2011-2 in
task_events and job_events. Without it everything is measured on generated users
only.`,
		Args: usage.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error { return b.run(cmd.Context()) },
	}
	cmd.Flags().StringVar(&b.google, "google2011", os.Getenv(googleVariable), "`DIR` of the piece of the Google trace (default: $"+googleVariable+")")
	cmd.Flags().IntSliceVar(&b.scales, "scales", []int{10, 100, 1000}, "`SCALES` of 507 generated users")
	cmd.Flags().IntVar(&b.containers, "containers", millionOf, "`CONTAINERS` in the file that is generated")
	cmd.Flags().IntVar(&b.repetitions, "repetitions", 5, "`TIMES` that reading, and commands that take less than a minute, are measured")
	cmd.Flags().DurationVar(&b.most, "most", 15*time.Minute, "leave a scale out that would take longer than this `TIME`")
	cmd.Flags().StringSliceVar(&b.only, "only", nil, "measure these `PARTS` only, of "+strings.Join([]string{benchPiece, benchFile, benchScales, benchCosts}, ", "))
	return cmd
}

func (b *benchmark) run(ctx context.Context) (err error) {
	if b.repetitions < 1 || b.containers < 1 || slices.ContainsFunc(b.scales, func(s int) bool { return s < 1 }) {
		return usage.Errorf("--repetitions, --containers and --scales: want numbers above 0")
	}
	for _, part := range b.only {
		if !slices.Contains([]string{benchPiece, benchFile, benchScales, benchCosts}, part) {
			return usage.Errorf("--only %s: unknown part: want %s, %s, %s or %s", part, benchPiece, benchFile, benchScales, benchCosts)
		}
	}
	// While there is a directory to remove, writing to a reader that has gone is an
	// error, and does not end the process.
	gone := make(chan os.Signal, 1)
	signal.Notify(gone, syscall.SIGPIPE)
	defer signal.Stop(gone)
	if b.dir, err = os.MkdirTemp("", "unnest-plan-bench."); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
	b.printf("%d processors, %s, load %s\n", runtime.GOMAXPROCS(0), runtime.Version(), load())
	if b.google == "" {
		b.printf("\n%s IS NOT SET: NOTHING WAS MEASURED ON REAL DATA, only on generated users.\n", googleVariable)
	}
	steps := []struct {
		name string
		do   func(context.Context) error
	}{{benchPiece, b.cold}, {benchFile, b.generated}, {benchScales, b.scaled}, {benchCosts, b.costs}}
	for _, step := range steps {
		if len(b.only) > 0 && !slices.Contains(b.only, step.name) || step.name == benchPiece && b.google == "" {
			continue
		}
		if err := b.flush(); err != nil {
			return err
		}
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("bench: %w", err)
		}
	}
	return b.flush()
}

func (b *benchmark) printf(format string, args ...any) { fmt.Fprintf(&b.text, format, args...) }

// flush prints what has been found, because the next step may take minutes.
func (b *benchmark) flush() error {
	_, err := io.WriteString(b.streams.Out, b.text.String())
	b.text.Reset()
	return err
}

// load returns the load of the machine in the last minute, or "unknown".
func load() string {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	first, _, _ := strings.Cut(string(data), " ")
	return first
}

// cold measures reading, and the whole command, on the piece of the trace.
func (b *benchmark) cold(ctx context.Context) error {
	b.printf("\nPiece of the Google trace of 2011\n")
	// The other table is read only for tasks that name no user.
	if err := b.reading(ctx, "google2011", filepath.Join(b.google, "task_events")); err != nil {
		return err
	}
	for _, oversize := range []string{"drop", "cut"} {
		run, err := b.repeated(ctx, "google2011:"+b.google, oversize)
		if err != nil {
			return err
		}
		b.printf("  from a new process, --oversize %s, %s\n", oversize, run)
		if oversize == "drop" {
			b.verdict("the piece from cold", run, run.wall < coldMost, "%.1f s on %d processors", coldMost.Seconds(), promisedOnCPUs)
		}
	}
	return nil
}

// verdict says whether a promise was kept here, and if not, whether other programs had
// the processors.
func (b *benchmark) verdict(what string, run runs, kept bool, promise string, args ...any) {
	word := "kept"
	if !kept {
		word = fmt.Sprintf("NOT KEPT; %.2f processors were used, at a load of %s", run.cpu.Seconds()/run.wall.Seconds(), load())
	}
	b.printf("  promise: %s in under %s: %s\n", what, fmt.Sprintf(promise, args...), word)
}

// generated measures reading and planning on a file of a million containers.
func (b *benchmark) generated(ctx context.Context) error {
	file := filepath.Join(b.dir, "generated.csv")
	n, err := writeGenerated(file, b.containers)
	if err != nil {
		return err
	}
	b.printf("\nGenerated file of %d containers\n", n)
	if err := b.reading(ctx, "csv", file); err != nil {
		return err
	}
	run, err := b.repeated(ctx, "csv:"+file, "cut")
	if err != nil {
		return err
	}
	b.printf("  from a new process, --oversize cut, %s\n", run)
	b.rate = run.rate()
	if n >= millionOf {
		b.verdict("a million containers", run, run.wall < millionMost && run.memory < millionMemory,
			"%.0f s and %d GiB on %d processors", millionMost.Seconds(), millionMemory>>30, promisedOnCPUs)
	}
	return nil
}

// writeGenerated writes whole generated users until there are so many containers, and
// returns how many there are.
func writeGenerated(file string, most int) (n int, err error) {
	f, err := os.Create(file)
	if err != nil {
		return 0, err
	}
	err = trace.WriteCSV(f, func(yield func(cluster.User) bool) {
		for u := range (trace.Synthetic{Seed: 1, Scale: most}).Users() {
			if n >= most || !yield(u) {
				return
			}
			n += summary.Containers(u)
		}
	})
	return n, errors.Join(err, f.Close())
}

// About how many containers 507 generated users have that are planned.
var containersOfOne = map[string]float64{"drop": 13_000, "cut": 136_000}

// leastRate is the rate that is expected before anything was measured.
const leastRate = 10_000

// scaled measures planning of more and more users, and how that grows. A scale that
// would take too long, as the run before tells, is left out.
func (b *benchmark) scaled(ctx context.Context) error {
	for _, oversize := range []string{"drop", "cut"} {
		b.printf("\nGenerated users, which are not kept, --oversize %s\n", oversize)
		rate := max(b.rate, leastRate)
		var before runs
		for _, scale := range b.scales {
			forecast := time.Duration(float64(scale) * containersOfOne[oversize] / rate * float64(time.Second))
			if forecast > b.most {
				b.printf("  %d×: left out, it would take about %s (see --most)\n", scale, forecast.Round(time.Second))
				continue
			}
			run, err := b.repeated(ctx, generated+":"+strconv.Itoa(scale), oversize)
			if err != nil {
				return err
			}
			b.printf("  %d×: %d users, %d containers: %s%s\n", scale, run.result.Users, run.result.Containers, run, growth(before, run))
			before, rate = run, run.rate()
			if err := b.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

// growth words how time and memory grow with the containers between two runs: as which
// power of their number.
func growth(before, now runs) string {
	more := math.Log(float64(now.result.Containers) / float64(before.result.Containers))
	if before.wall == 0 || !(more > 0) || math.IsInf(more, 0) {
		return ""
	}
	power := func(a, b float64) float64 { return math.Log(b/a) / more }
	return fmt.Sprintf("; since the scale before CPU time grew as containers^%.2f, memory as containers^%.2f",
		power(before.cpu.Seconds(), now.cpu.Seconds()), power(float64(before.memory), float64(now.memory)))
}
