package result

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
)

// ErrNotFinite is the error for a sample whose value is NaN or infinite, which JSON cannot
// represent.
var ErrNotFinite = errors.New("value is not finite")

// maxValue is the largest absolute value of a sample.
const maxValue = 1e100

// Journal is the content of samples.jsonl.
type Journal struct {
	Samples   []Sample // the results
	Discarded []Sample // of disturbed executions, which were measured again
	// Void are samples of cases that have results of a later resumption in the same block. They do not count: the
	// values of a case in a block are compared with each other, and hours or a reboot may lie between the two.
	Void []Sample
	Size int64 // bytes of complete executions, where a writer continues
	// Dropped describes the incomplete execution that was dropped from the end of the
	// journal. Empty: nothing was dropped.
	Dropped string
}

// line is one line of the journal. The samples of an execution are contiguous lines, and
// the last one is marked. Without the mark the execution is incomplete.
type line struct {
	Sample
	End bool `json:"end,omitempty"`
}

// Execution identifies one execution of one case, whose samples were measured together.
type Execution struct {
	Configuration string
	Case          string
	Block         int
	Repetition    int
}

// Measurement identifies one measurement of an execution.
type Measurement struct {
	Execution
	Discarded, Resumption int
}

// String describes the execution for messages.
func (e Execution) String() string {
	return fmt.Sprintf("%s in %s, block %d, repetition %d", e.Case, e.Configuration, e.Block, e.Repetition)
}

// Execution returns the execution of s.
func (s Sample) Execution() Execution {
	return Execution{s.Configuration, s.Case, s.Block, s.Repetition}
}

// Measurement returns the measurement of s.
func (s Sample) Measurement() Measurement {
	return Measurement{s.Execution(), s.Discarded, s.Resumption}
}

// cell identifies the executions of the case of s in its block, in all configurations.
func (s Sample) cell() Execution { return Execution{Case: s.Case, Block: s.Block} }

// Validate returns an error unless s has a configuration, a case, a metric, an order and
// a value of at most 1e100.
func (s Sample) Validate() error {
	switch {
	case s.Configuration == "":
		return errors.New("sample has no configuration")
	case s.Case == "":
		return errors.New("sample has no case")
	case s.Metric == "":
		return errors.New("sample has no metric")
	case s.Block < 0 || s.Repetition < 0 || s.Discarded < 0 || s.Resumption < 0:
		return fmt.Errorf("sample of %s: block, repetition and resumption count from 0, discarded from 1", s.Execution())
	case math.IsNaN(s.Value) || math.IsInf(s.Value, 0):
		return fmt.Errorf("sample of %s: %s %v: %w", s.Execution(), s.Metric, s.Value, ErrNotFinite)
	case math.Abs(s.Value) > maxValue:
		return fmt.Errorf("sample of %s: %s %v: want at most %v, so that squares are finite", s.Execution(), s.Metric, s.Value, maxValue)
	}
	if err := s.Order.Validate(); err != nil {
		return fmt.Errorf("sample of %s: %s: %w", s.Execution(), s.Metric, err)
	}
	return nil
}

// EncodeExecution returns the journal lines of one execution, one for each sample, the
// last one with "end":true. All samples must be valid and of the same execution.
func EncodeExecution(samples []Sample) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	for i, s := range samples {
		if err := s.Validate(); err != nil {
			return nil, err
		}
		if s.Measurement() != samples[0].Measurement() {
			return nil, fmt.Errorf("samples of two executions in one append: %s and %s", samples[0].Execution(), s.Execution())
		}
		if err := enc.Encode(line{s, i == len(samples)-1}); err != nil {
			return nil, fmt.Errorf("encode sample of %s: %w", s.Execution(), err)
		}
	}
	return buf.Bytes(), nil
}

// ParseJournal parses a journal; name identifies it in errors. It drops an incomplete
// execution at the end of data, whose writer was killed or had a full disk, and describes
// it in Dropped. A broken line elsewhere is an error with the line number.
func ParseJournal(name string, data []byte) (Journal, error) {
	p := parser{seen: map[Measurement]int{}}
	var offset int64
	for number := 1; len(data) > 0; number++ {
		text, rest, whole := bytes.Cut(data, []byte{'\n'})
		if !whole {
			p.torn = true
			break
		}
		offset += int64(len(text)) + 1
		if err := p.add(number, offset, text); err != nil {
			return Journal{}, fmt.Errorf("%s:%d: %w", name, number, err)
		}
		data = rest
	}
	if p.torn || len(p.open) > 0 {
		p.journal.Dropped = fmt.Sprintf("%s: dropped the incomplete execution at byte %d", name, p.journal.Size)
	}
	p.journal.settle()
	return p.journal, nil
}

// All returns all samples, also those that do not count.
func (j *Journal) All() []Sample { return slices.Concat(j.Samples, j.Discarded, j.Void) }

// Has reports whether the journal has the measurement of which s is a sample.
func (j *Journal) Has(s Sample) bool {
	return slices.ContainsFunc(j.All(), func(o Sample) bool { return o.Measurement() == s.Measurement() })
}

// Add adds the samples of one measurement. It leaves Size to the caller.
func (j *Journal) Add(samples []Sample) {
	j.add(samples)
	if samples[0].Resumption > 0 {
		j.settle()
	}
}

func (j *Journal) add(samples []Sample) {
	if samples[0].Discarded > 0 {
		j.Discarded = append(j.Discarded, samples...)
		return
	}
	j.Samples = append(j.Samples, samples...)
}

// settle moves samples to Void.
func (j *Journal) settle() {
	last := map[Execution]int{}
	for _, s := range j.Samples {
		last[s.cell()] = max(last[s.cell()], s.Resumption)
	}
	for _, from := range []*[]Sample{&j.Samples, &j.Discarded} {
		var count []Sample
		for _, s := range *from {
			if s.Resumption < last[s.cell()] {
				j.Void = append(j.Void, s)
			} else {
				count = append(count, s)
			}
		}
		*from = count
	}
}

// maxPause is the longest pause between two executions of a case in a block that is not worth a word: containers and guests
// start again in it.
const maxPause = 5 * time.Minute

// Apart returns the cases that have a block in which more than five minutes passed between two executions, sorted.
// Journals of versions that did not count resumptions have such blocks.
func (j *Journal) Apart() []string {
	cells, apart := map[Execution][]Sample{}, map[string]bool{}
	for _, s := range slices.Concat(j.Samples, j.Discarded) {
		cells[s.cell()] = append(cells[s.cell()], s)
	}
	for _, samples := range cells {
		slices.SortFunc(samples, func(a, b Sample) int { return a.Start.Compare(b.Start) })
		for i, s := range samples[1:] {
			end := samples[i].Start.Add(time.Duration(samples[i].Duration * float64(time.Second)))
			if s.Start.Sub(end) > maxPause {
				apart[s.Case] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(apart))
}

// parser collects the lines of a journal execution by execution.
type parser struct {
	journal Journal
	open    []Sample // the execution being read, not ended yet
	first   int      // its first line
	torn    bool     // the last line is incomplete
	seen    map[Measurement]int
}

// add adds a line that ends before offset.
func (p *parser) add(number int, offset int64, text []byte) error {
	var l struct {
		line
		Value *float64 `json:"value"`
	}
	if err := json.Unmarshal(text, &l); err != nil {
		return fmt.Errorf("parse sample: %w", err)
	}
	if l.Value == nil {
		return fmt.Errorf("sample of %s: %s has no value", l.Execution(), l.Metric)
	}
	l.Sample.Value = *l.Value
	if err := l.Validate(); err != nil {
		return err
	}
	if len(p.open) == 0 {
		if at, twice := p.seen[l.Measurement()]; twice {
			return fmt.Errorf("%s is already on line %d", l.Execution(), at)
		}
		p.first = number
	} else if l.Measurement() != p.open[0].Measurement() {
		return fmt.Errorf("another execution begins before %s of line %d has ended", p.open[0].Execution(), p.first)
	}
	p.open = append(p.open, l.Sample)
	if l.End {
		p.seen[l.Measurement()] = p.first
		p.journal.add(p.open)
		p.journal.Size = offset
		p.open = nil
	}
	return nil
}
