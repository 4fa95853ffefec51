package plan

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/spf13/cobra"

	"unnest/internal/cli/terminal"
	"unnest/internal/cli/usage"
	"unnest/internal/plan"
	"unnest/internal/trace"
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
	dir         string        // for what is generated
	rate        float64       // containers planned in a second, as far as is known
	text        strings.Builder
}

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
	cmd.Flags().IntVar(&b.repetitions, "repetitions", 5, "`TIMES` that reading, and the piece of the trace, are measured")
	cmd.Flags().DurationVar(&b.most, "most", 15*time.Minute, "leave a scale out that would take longer than this `TIME`")
	return cmd
}

func (b *benchmark) run(ctx context.Context) (err error) {
	if b.repetitions < 1 || b.containers < 1 || slices.ContainsFunc(b.scales, func(s int) bool { return s < 1 }) {
		return usage.Errorf("--repetitions, --containers and --scales: want numbers above 0")
	}
	if b.dir, err = os.MkdirTemp("", "unnest-plan-bench."); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
	b.printf("%d processors, %s, load %s\n", runtime.GOMAXPROCS(0), runtime.Version(), load())
	if b.google == "" {
		b.printf("\n%s IS NOT SET: NOTHING WAS MEASURED ON REAL DATA, only on generated users.\n", googleVariable)
	}
	steps := []func(context.Context) error{b.generated, b.scaled}
	if b.google != "" {
		steps = slices.Insert(steps, 0, b.cold)
	}
	for _, step := range append(steps, b.costs) {
		if err := b.flush(); err != nil {
			return err
		}
		if err := step(ctx); err != nil {
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
		var runs []process
		for range b.repetitions {
			run, err := b.command(ctx, "google2011:"+b.google, oversize)
			if err != nil {
				return err
			}
			runs = append(runs, run)
		}
		slices.SortFunc(runs, func(x, y process) int { return int(x.wall - y.wall) })
		run := runs[len(runs)/2]
		b.printf("  from a new process, --oversize %s, median of %d: %s\n", oversize, len(runs), run)
		if oversize == "drop" {
			b.verdict("the piece from cold", run, run.wall < coldMost, "%.1f s on %d processors", coldMost.Seconds(), promisedOnCPUs)
		}
	}
	return nil
}

// verdict says whether a promise was kept here, and if not, whether other programs had
// the processors.
func (b *benchmark) verdict(what string, run process, kept bool, promise string, args ...any) {
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
	run, err := b.command(ctx, "csv:"+file, "cut")
	if err != nil {
		return err
	}
	b.printf("  from a new process, --oversize cut: %s\n", run)
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
	err = trace.WriteCSV(f, func(yield func(plan.User) bool) {
		for u := range (trace.Synthetic{Seed: 1, Scale: most}).Users() {
			if n >= most || !yield(u) {
				return
			}
			n += containers(u)
		}
	})
	return n, errors.Join(err, f.Close())
}

// reading measures trace.Read beside a plain scan of the same files: decompress, and
// count the ends of lines. The two take turns.
func (b *benchmark) reading(ctx context.Context, format, path string) error {
	var scans, reads []time.Duration
	var rows int
	var bytes int64
	for range b.repetitions {
		begin := time.Now()
		n, err := scan(ctx, path)
		if err != nil {
			return err
		}
		scans = append(scans, time.Since(begin))
		begin = time.Now()
		_, report, err := trace.Read(ctx, format, []string{path}, trace.Options{})
		if err != nil {
			return err
		}
		reads = append(reads, time.Since(begin))
		rows, bytes = report.Rows, n
	}
	scanned, read := median(scans), median(reads)
	b.printf("  reading: %d rows, %.1f MB decompressed, medians of %d in turns: %.0f rows/s, %.0f MB/s; plain scan of the bytes %.0f MB/s, so reading takes %.1f times as long\n",
		rows, float64(bytes)/1e6, b.repetitions, float64(rows)/read.Seconds(), float64(bytes)/1e6/read.Seconds(),
		float64(bytes)/1e6/scanned.Seconds(), read.Seconds()/scanned.Seconds())
	return nil
}

func median(times []time.Duration) time.Duration {
	slices.Sort(times)
	return times[len(times)/2]
}

// scan counts the lines of all files below path, and returns their decompressed bytes.
func scan(ctx context.Context, path string) (n int64, err error) {
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return 0, err
	}
	err = filepath.WalkDir(path, func(file string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		bytes, err := scanFile(ctx, file)
		n += bytes
		return err
	})
	return n, err
}

func scanFile(ctx context.Context, file string) (n int64, err error) {
	f, err := os.Open(file)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	r := io.Reader(bufio.NewReaderSize(f, 1<<20))
	if strings.HasSuffix(file, ".gz") {
		if r, err = gzip.NewReader(r); err != nil {
			return 0, fmt.Errorf("%s: %w", file, err)
		}
	}
	buffer := make([]byte, 1<<20)
	lines := 0
	for ctx.Err() == nil {
		k, err := r.Read(buffer)
		n += int64(k)
		for _, c := range buffer[:k] {
			if c == '\n' {
				lines++
			}
		}
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, fmt.Errorf("%s: %w", file, err)
		}
	}
	return n, context.Cause(ctx)
}

// process is one run of this command in a process of its own.
type process struct {
	wall, cpu time.Duration
	memory    int64 // bytes that were resident at most; not below what its parent had, as the kernel counts
	result    Result
}

func (p process) String() string {
	return fmt.Sprintf("%.2f s, %.2f s of CPU time (%.2f processors), at most %.0f MB, %.0f containers/s; best %.2f %% above the bound",
		p.wall.Seconds(), p.cpu.Seconds(), p.cpu.Seconds()/p.wall.Seconds(), float64(p.memory)/1e6, p.rate(), 100*p.result.Gap)
}

// rate returns the containers planned in a second.
func (p process) rate() float64 { return float64(p.result.Contain) / p.wall.Seconds() }

// command runs this program's plan of a trace.
func (b *benchmark) command(ctx context.Context, of, oversize string) (process, error) {
	file := filepath.Join(b.dir, "result.json")
	cmd := exec.CommandContext(ctx, "/proc/self/exe", "plan", "--trace", of, "--oversize", oversize, "--json", "-o", file)
	cmd.Args[0] = os.Args[0]
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	begin := time.Now()
	if out, err := cmd.CombinedOutput(); err != nil {
		if ctx.Err() != nil {
			return process{}, context.Cause(ctx)
		}
		return process{}, fmt.Errorf("plan --trace %s: %w: %s", of, err, strings.TrimSpace(string(out)))
	}
	p := process{wall: time.Since(begin), cpu: cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()}
	if usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		p.memory = usage.Maxrss << 10
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return process{}, err
	}
	return p, json.Unmarshal(data, &p.result)
}

// containersOfOne is about how many containers 507 generated users have.
const containersOfOne = 136_000

// scaled measures planning of more and more users. A scale that would take too long,
// as the runs before tell, is left out.
func (b *benchmark) scaled(ctx context.Context) error {
	b.printf("\nGenerated users, which are not kept, --oversize cut\n")
	for _, scale := range b.scales {
		forecast := time.Duration(float64(scale) * containersOfOne / b.rate * float64(time.Second))
		if forecast > b.most {
			b.printf("  %d×: left out, it would take about %s (see --most)\n", scale, forecast.Round(time.Second))
			continue
		}
		run, err := b.command(ctx, generated+":"+strconv.Itoa(scale), "cut")
		if err != nil {
			return err
		}
		b.printf("  %d×: %s, %s: %s\n", scale, plural(run.result.Users, "user"), plural(run.result.Contain, "container"), run)
		b.rate = run.rate()
		if err := b.flush(); err != nil {
			return err
		}
	}
	return nil
}

// costs sets the plans beside those of the cluster autoscaler.
func (b *benchmark) costs(ctx context.Context) error {
	file := filepath.Join(b.dir, "few.csv")
	n, err := writeGenerated(file, max(1, b.containers/8))
	if err != nil {
		return err
	}
	sources := []source{{"csv", []string{file}}}
	if b.google != "" {
		sources = append(sources, source{"google2011", []string{b.google}})
	}
	c, err := plan.Builtin("bacou")
	if err != nil {
		return err
	}
	b.printf("\nCosts beside first-fit decreasing on one model for each user, $/h; csv is %d generated containers\n", n)
	tw := tabwriter.NewWriter(&b.text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "  users\toversize\tffd\tkubernetes\thostlo\tbest\tbound\tffd took\tall plans took")
	for _, from := range sources {
		for _, oversize := range []plan.Oversize{plan.Drop, plan.Cut} {
			line, err := sideBySide(ctx, from, c, oversize)
			if err != nil {
				return err
			}
			fmt.Fprintln(tw, "  "+line)
		}
	}
	return tw.Flush()
}

// sideBySide plans users in all ways and by first-fit decreasing.
func sideBySide(ctx context.Context, from source, c plan.Catalogue, oversize plan.Oversize) (string, error) {
	s := setting{catalogue: c, plan: plan.Options{Oversize: oversize}, sources: []source{from}}
	crowd, err := s.read(ctx, nil)
	if err != nil {
		return "", err
	}
	begin := time.Now()
	var ffd dollars
	for u := range crowd.users {
		fit, _, err := plan.Fit(u, c, oversize)
		if err != nil {
			return "", err
		}
		ffd += firstFitDecreasing(fit, c)
	}
	took := time.Since(begin)
	begin = time.Now()
	all, err := s.each(ctx, crowd.users, crowd.count, nil)
	if err != nil {
		return "", err
	}
	users, _ := parts(all)
	r := newResult(users, Setup{}, nil, nil)
	return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s\t%s\t%.3f s\t%.3f s", from.format, oversize, ffd, r.Cost.Kubernetes, r.Cost.Hostlo,
		r.Cost.Best, r.Bound, took.Seconds(), time.Since(begin).Seconds()), nil
}
