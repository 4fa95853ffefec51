package result

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
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
	Size      int64    // bytes of complete executions, where a writer continues
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

// measurement identifies one measurement of an execution.
type measurement struct {
	Execution
	discarded int
}

// String describes the execution for messages.
func (e Execution) String() string {
	return fmt.Sprintf("%s in %s, block %d, repetition %d", e.Case, e.Configuration, e.Block, e.Repetition)
}

// Execution returns the execution of s.
func (s Sample) Execution() Execution {
	return Execution{s.Configuration, s.Case, s.Block, s.Repetition}
}

func (s Sample) measurement() measurement { return measurement{s.Execution(), s.Discarded} }

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
	case s.Block < 0 || s.Repetition < 0 || s.Discarded < 0:
		return fmt.Errorf("sample of %s: block and repetition count from 0, discarded from 1", s.Execution())
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
		if s.measurement() != samples[0].measurement() {
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
	p := parser{seen: map[measurement]int{}}
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
	return p.journal, nil
}

// Has reports whether the journal has the measurement of which s is a sample.
func (j *Journal) Has(s Sample) bool {
	same := func(o Sample) bool { return o.measurement() == s.measurement() }
	return slices.ContainsFunc(j.Samples, same) || slices.ContainsFunc(j.Discarded, same)
}

// Add adds the samples of one measurement. It leaves Size to the caller.
func (j *Journal) Add(samples []Sample) {
	if samples[0].Discarded > 0 {
		j.Discarded = append(j.Discarded, samples...)
		return
	}
	j.Samples = append(j.Samples, samples...)
}

// parser collects the lines of a journal execution by execution.
type parser struct {
	journal Journal
	open    []Sample // the execution being read, not ended yet
	first   int      // its first line
	torn    bool     // the last line is incomplete
	seen    map[measurement]int
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
		if at, twice := p.seen[l.measurement()]; twice {
			return fmt.Errorf("%s is already on line %d", l.Execution(), at)
		}
		p.first = number
	} else if l.measurement() != p.open[0].measurement() {
		return fmt.Errorf("another execution begins before %s of line %d has ended", p.open[0].Execution(), p.first)
	}
	p.open = append(p.open, l.Sample)
	if l.End {
		p.seen[l.measurement()] = p.first
		p.journal.Add(p.open)
		p.journal.Size = offset
		p.open = nil
	}
	return nil
}
