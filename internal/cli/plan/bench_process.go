package plan

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"unnest/internal/plan/summary"
)

// process is one run of this command in a process of its own.
type process struct {
	wall, cpu time.Duration
	memory    int64 // largest resident set in bytes; the kernel counts at least that of the parent
	result    summary.Plan
}

func (p process) rate() float64 { return float64(p.result.Containers) / p.wall.Seconds() }

// runs is several runs of one command: the run of the (lower) median time, and the range of
// times.
type runs struct {
	process
	count     int
	low, high time.Duration
}

func (r runs) String() string {
	times := fmt.Sprintf("%.2f s", r.wall.Seconds())
	if r.count > 1 {
		times = fmt.Sprintf("median of %d: %.2f s (%.2f to %.2f s)", r.count, r.wall.Seconds(), r.low.Seconds(), r.high.Seconds())
	}
	return fmt.Sprintf("%s, %.2f s of CPU time (%.2f processors), at most %.0f MB, %.0f containers/s; best %.2f %% above the bound",
		times, r.cpu.Seconds(), r.cpu.Seconds()/r.wall.Seconds(), float64(r.memory)/1e6, r.rate(), 100*r.result.Gap)
}

// repeated runs a command as often as the benchmark says, but not again after repeatFor.
func (b *benchmark) repeated(ctx context.Context, of, oversize string, more ...string) (runs, error) {
	var all []process
	begin := time.Now()
	for len(all) < b.repetitions && (len(all) == 0 || time.Since(begin) < repeatFor) {
		run, err := b.command(ctx, of, oversize, more...)
		if err != nil {
			return runs{}, err
		}
		all = append(all, run)
	}
	slices.SortFunc(all, func(x, y process) int { return cmp.Compare(x.wall, y.wall) })
	return runs{all[(len(all)-1)/2], len(all), all[0].wall, all[len(all)-1].wall}, nil
}

func (b *benchmark) command(ctx context.Context, of, oversize string, more ...string) (process, error) {
	file := filepath.Join(b.dir, "result.json")
	args := append([]string{"plan", "--trace", of, "--oversize", oversize, "--json", "-o", file}, more...)
	cmd := exec.CommandContext(ctx, "/proc/self/exe", args...)
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
	err = json.Unmarshal(data, &p.result)
	p.result.PerUser = nil // which may be many
	return p, err
}
