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

// googleVariable names the directory with part 0 of the Google trace of 2011.
const googleVariable = "UNNEST_GOOGLE2011"

// The targets on two processors: part 0 of the Google trace, and a million containers, each
// with all plans and bounds in a new process.
const (
	pieceTarget   = 3 * time.Second
	million       = 1_000_000
	millionTarget = 60 * time.Second
	millionMemory = 2 << 30
	targetCPUs    = 2
)

type benchmark struct {
	streams     terminal.Streams
	google      string // a directory; empty: none
	scales      []int
	containers  int // of the generated file
	repetitions int
	most        time.Duration // for one scale
	only        []string      // parts; empty: all
	dir         string        // for generated files
	rate        float64       // containers planned in a second; 0: not measured yet
	text        strings.Builder
}

// benchParts are the parts of the benchmark, in their order.
var benchParts = []struct {
	name string
	run  func(*benchmark, context.Context) error
}{{benchPiece, (*benchmark).piece}, {"file", (*benchmark).file}, {"scales", (*benchmark).scaled}, {"owner", (*benchmark).owner}, {"equal", (*benchmark).equal}, {"costs", (*benchmark).costs}}

// benchPiece is the part that needs the Google trace.
const benchPiece = "piece"

// repeatFor is the time after which a command is not repeated.
const repeatFor = time.Minute

func newBenchCmd(streams terminal.Streams) *cobra.Command {
	b := &benchmark{streams: streams}
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure how fast traces are read and planned, and how good the plans are",
		Long: `Measure how fast this program reads traces, compared with a plain scan of the same
bytes; how fast and with how much memory it plans users; how far its plans are
above the bound; and what first-fit packing, as in the cluster autoscaler, costs.
Each timed command runs in a new process.

Set ` + googleVariable + ` to a directory with part 0 of clusterdata-2011-2 in
task_events and job_events. Without it, only generated users are measured.`,
		Args: usage.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error { return b.run(cmd.Context()) },
	}
	cmd.Flags().StringVar(&b.google, "google2011", os.Getenv(googleVariable), "`DIR` with part 0 of the Google trace (default: $"+googleVariable+")")
	cmd.Flags().IntSliceVar(&b.scales, "scales", []int{10, 100, 1000}, "plan 507 generated users times each of `SCALES`")
	cmd.Flags().IntVar(&b.containers, "containers", million, "generate a file of `CONTAINERS`")
	cmd.Flags().IntVar(&b.repetitions, "repetitions", 5, "measure reading, and commands that take less than a minute, this many `TIMES`")
	cmd.Flags().DurationVar(&b.most, "most", 15*time.Minute, "skip a scale that would take longer than `TIME`")
	cmd.Flags().StringSliceVar(&b.only, "only", nil, "measure only these `PARTS`: "+strings.Join(partNames(), ", "))
	return cmd
}

func partNames() (names []string) {
	for _, part := range benchParts {
		names = append(names, part.name)
	}
	return names
}

func (b *benchmark) run(ctx context.Context) (err error) {
	if b.repetitions < 1 || b.containers < 1 || slices.ContainsFunc(b.scales, func(s int) bool { return s < 1 }) {
		return usage.Errorf("--repetitions, --containers and --scales: want numbers above 0")
	}
	for _, part := range b.only {
		if !slices.Contains(partNames(), part) {
			return usage.Errorf("--only %s: want one of %s", part, strings.Join(partNames(), ", "))
		}
	}
	// A closed reader of the output must not end the process before it removes the
	// directory.
	gone := make(chan os.Signal, 1)
	signal.Notify(gone, syscall.SIGPIPE)
	defer signal.Stop(gone)
	if b.dir, err = os.MkdirTemp("", "unnest-plan-bench."); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
	b.printf("%d processors, %s, load %s\n", runtime.GOMAXPROCS(0), runtime.Version(), load())
	if b.google == "" {
		b.printf("\n%s IS NOT SET: NO REAL DATA IS MEASURED, only generated users.\n", googleVariable)
	}
	for _, part := range benchParts {
		if len(b.only) > 0 && !slices.Contains(b.only, part.name) || part.name == benchPiece && b.google == "" {
			continue
		}
		if err := b.flush(); err != nil {
			return err
		}
		if err := part.run(b, ctx); err != nil {
			return fmt.Errorf("bench: %w", err)
		}
	}
	return b.flush()
}

func (b *benchmark) printf(format string, args ...any) { fmt.Fprintf(&b.text, format, args...) }

// flush prints the results so far, because the next part may take minutes.
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

// piece measures reading, and the whole command, on part 0 of the Google trace.
func (b *benchmark) piece(ctx context.Context) error {
	b.printf("\nPart 0 of the Google trace of 2011\n")
	// The command reads job_events only for tasks without a user.
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
			b.verdict("part 0 from a new process", run, run.wall < pieceTarget, "%.1f s on %d processors", pieceTarget.Seconds(), targetCPUs)
		}
	}
	return nil
}

// verdict says whether a run met its target, and if not, how busy the machine was.
func (b *benchmark) verdict(what string, run runs, met bool, target string, args ...any) {
	word := "met"
	if !met {
		word = fmt.Sprintf("MISSED; it used %.2f processors, at a load of %s", run.cpu.Seconds()/run.wall.Seconds(), load())
	}
	b.printf("  target: %s in under %s: %s\n", what, fmt.Sprintf(target, args...), word)
}

// file measures reading and planning on a generated file of a million containers.
func (b *benchmark) file(ctx context.Context) error {
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
	if n >= million {
		b.verdict("a million containers", run, run.wall < millionTarget && run.memory < millionMemory,
			"%.0f s and %d GiB on %d processors", millionTarget.Seconds(), millionMemory>>30, targetCPUs)
	}
	return nil
}

// writeGenerated writes whole generated users with at least most containers, and returns the
// number of containers.
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

// containersOfOne is about how many containers of 507 generated users are planned.
var containersOfOne = map[string]float64{"drop": 13_000, "cut": 136_000}

// defaultRate is the rate to expect before any is measured.
const defaultRate = 10_000

// scaled measures planning of more and more users, and how time and memory grow. It skips a
// scale that would take too long at the rate of the run before.
func (b *benchmark) scaled(ctx context.Context) error {
	for _, oversize := range []string{"drop", "cut"} {
		b.printf("\nGenerated users, --oversize %s\n", oversize)
		rate := max(b.rate, defaultRate)
		var before runs
		for _, scale := range b.scales {
			forecast := time.Duration(float64(scale) * containersOfOne[oversize] / rate * float64(time.Second))
			if forecast > b.most {
				b.printf("  %d×: skipped, it would take about %s (see --most)\n", scale, forecast.Round(time.Second))
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

// growth says how time and memory grow between two runs, as powers of the number of
// containers.
func growth(before, now runs) string {
	more := math.Log(float64(now.result.Containers) / float64(before.result.Containers))
	if before.wall == 0 || !(more > 0) || math.IsInf(more, 0) {
		return ""
	}
	power := func(a, b float64) float64 { return math.Log(b/a) / more }
	return fmt.Sprintf("; since the scale before CPU time grew as containers^%.2f, memory as containers^%.2f",
		power(before.cpu.Seconds(), now.cpu.Seconds()), power(float64(before.memory), float64(now.memory)))
}
