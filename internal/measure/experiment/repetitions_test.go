package experiment

import (
	"slices"
	"strings"
	"testing"
	"time"

	"unnest.io/unnest/internal/measure/result"
)

// seldom has a case that is in the first two of six blocks.
const seldom = `name: x
suite: s
configurations: [{name: A, stack: vm}, {name: B, stack: vm}]
cases:
  - {name: often, workload: nginx, duration: 1s, options: {rate: 10}}
  - {name: seldom, workload: nginx, duration: 1s, options: {rate: 10}, repetitions: 2}
repetitions: 6
until: 5%
limit: 9
warmup: 0
`

// seldomBlocks returns the blocks of case seldom in a schedule.
func seldomBlocks(schedule []Execution) (blocks []int) {
	for _, x := range schedule {
		if x.Case.Name == "seldom" {
			blocks = append(blocks, x.Block)
		}
	}
	return blocks
}

// A case with repetitions of its own is in the first blocks only, however imprecise it is. The
// user's --repetitions hold for it, also after a resume.
func TestRepetitionsOfACase(t *testing.T) {
	s, err := Parse("x.yaml", []byte(seldom))
	if err != nil {
		t.Fatal(err)
	}
	schedule := Schedule(s, 1)
	if got := seldomBlocks(schedule); !slices.Equal(got, []int{0, 0, 1, 1}) || len(schedule) != 6*2+4 {
		t.Errorf("%d executions, seldom in blocks %v", len(schedule), got)
	}
	run := s.NewRun("r", 1, time.Time{})
	if run.Planned != len(schedule) {
		t.Errorf("%d executions are planned, want %d", run.Planned, len(schedule))
	}
	var samples []result.Sample
	for i, x := range schedule {
		samples = append(samples, result.Sample{Configuration: x.Configuration.Name, Case: x.Case.Name, Metric: x.Case.Primary, Block: x.Block, Value: float64(100 + 90*(i%2))})
	}
	added, _ := extension(s, 1, samples, 6)
	if len(added) != 2 || len(seldomBlocks(added)) != 0 {
		t.Errorf("block 7 has %v", added)
	}
	if back, err := FromRun("dir", run); err != nil || !slices.Equal(seldomBlocks(Schedule(back, 1)), []int{0, 0, 1, 1}) {
		t.Errorf("the run has another schedule: %v", err)
	}
	if err := s.Repeat(3); err != nil || len(seldomBlocks(Schedule(s, 1))) != 6 {
		t.Errorf("with three repetitions: %v, %v", seldomBlocks(Schedule(s, 1)), err)
	}
	if back, err := FromRun("dir", s.NewRun("r", 1, time.Time{})); err != nil || len(seldomBlocks(Schedule(back, 1))) != 6 {
		t.Errorf("the resumed run has another schedule: %v", err)
	}
	_, err = Parse("x.yaml", []byte(strings.Replace(seldom, "repetitions: 2", "repetitions: 7", 1)))
	if err == nil || !strings.Contains(err.Error(), "repetitions: want at most the 6 of the file, got 7") {
		t.Errorf("got %v", err)
	}
}
