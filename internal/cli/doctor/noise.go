package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strings"
	"time"

	"unnest.io/unnest/internal/cli/terminal"
	"unnest.io/unnest/internal/measure/noise"
	"unnest.io/unnest/internal/measure/noise/procfs"
	"unnest.io/unnest/internal/measure/stats"
)

// noiseReport is what the machine does to measurements.
type noiseReport struct {
	Machine noise.Reading `json:"machine"`
	Works   []scatter     `json:"works"`
}

// scatter is how much the time of a fixed piece of work varies.
type scatter struct {
	Work       string          `json:"work"`
	Blocks     int             `json:"blocks"`     // in each, the work was done twice
	Deviation  float64         `json:"deviation"`  // standard deviation of the logarithm of the ratio of the two
	Detectable map[int]float64 `json:"detectable"` // difference found in 80 % of runs, by their number of blocks
}

// blocksOfRuns are the numbers of blocks in the report: the fewest with a verdict, and the
// limit of the quickstart.
var blocksOfRuns = []int{stats.MinRepetitions, 15}

// measureNoise does fixed pieces of work for d, and prints what differences this machine
// can show.
func measureNoise(ctx context.Context, streams terminal.Streams, d time.Duration, asJSON bool) error {
	fmt.Fprintf(streams.Err, "measuring for %s …\n", d)
	works, err := newWorks()
	if err != nil {
		return fmt.Errorf("measure noise: %w", err)
	}
	before, err := procfs.Read()
	if err != nil {
		return err
	}
	if err := repeat(ctx, works, d); err != nil {
		return err
	}
	after, err := procfs.Read()
	if err != nil {
		return err
	}
	var r noiseReport
	if r.Machine, err = after.Since(before, os.Getpid()); err != nil {
		return err
	}
	for _, w := range works {
		s, err := newScatter(w.name, w.first, w.second)
		if err != nil {
			return fmt.Errorf("measure noise: %s: %w", w.name, err)
		}
		r.Works = append(r.Works, s)
	}
	if asJSON {
		enc := json.NewEncoder(streams.Out)
		enc.SetIndent("", "  ")
		return enc.Encode(r)
	}
	_, err = fmt.Fprint(streams.Out, r)
	return err
}

// newScatter compares the times of the same work, done twice in each block.
func newScatter(work string, first, second []stats.Observation) (scatter, error) {
	e, err := stats.Compare(first, second, true)
	if err != nil {
		return scatter{}, err
	}
	s := scatter{Work: work, Blocks: e.N, Deviation: e.StdErr * math.Sqrt(float64(e.N)), Detectable: map[int]float64{}}
	for _, n := range blocksOfRuns {
		of := stats.Effect{StdErr: s.Deviation / math.Sqrt(float64(n)), DF: float64(n - 1), N: n, Paired: true}
		s.Detectable[n] = of.Detectable(stats.DefaultAlpha, stats.DefaultPower)
	}
	return s, nil
}

// String says what the report means.
func (r noiseReport) String() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	m := r.Machine
	busiest := ""
	for i, p := range m.Busiest {
		busiest += fmt.Sprintf("%s %s (process %d) %.2f", map[bool]string{true: ":", false: ","}[i == 0], p.Name, p.PID, p.Share)
	}
	line("Other processes used %.2f processors%s.", m.Others, busiest)
	line("The hypervisor of this machine took %.2f processors. There were %.0f context switches per second.", m.Steal, m.Switches)
	if m.Stalled > 0 {
		line("A task waited for a processor %.0f %% of the time.", 100*m.Stalled)
	}
	if m.MHz > 0 {
		line("The processors ran at %.0f MHz.", m.MHz)
	}
	for _, w := range r.Works {
		line("\n%s: the same work, done twice in each of %d blocks, differed by %.1f %% (standard deviation).", w.Work, w.Blocks, 100*w.Deviation)
		for _, n := range blocksOfRuns {
			line("  A run with %d blocks finds differences of %.1f %% in 80 %% of cases.", n, 100*w.Detectable[n])
		}
	}
	line("\nThis is the best case: guests and the restart of servers add to the noise.")
	if m.Disturbed() {
		line("This machine is too busy to measure on: %s.", m)
	}
	return b.String()
}
