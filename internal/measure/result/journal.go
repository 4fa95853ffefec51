package result

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
)

// ErrNotFinite is returned for a sample whose value is NaN or infinite: neither
// has a place in an estimate, nor in JSON.
var ErrNotFinite = errors.New("value is not finite")

// Journal is what samples.jsonl holds.
type Journal struct {
	Samples []Sample
	// Size is the number of bytes that hold whole executions; a writer goes on
	// from here.
	Size int64
	// Note says in words what was dropped from the end of the journal: the
	// samples of an execution whose writing was cut short. Empty: nothing.
	Note string
}

// line is one line of the journal. The samples of one execution are contiguous
// lines, the last of them marked: an execution without its mark was not written
// whole.
type line struct {
	Sample
	End bool `json:"end,omitempty"`
}

// Execution identifies one execution of one case: the samples that share it
// were measured together.
type Execution struct {
	Configuration string
	Case          string
	Block         int
	Repetition    int
}

// String names the execution for people.
func (e Execution) String() string {
	return fmt.Sprintf("%s in %s, block %d, repetition %d", e.Case, e.Configuration, e.Block, e.Repetition)
}

// Execution returns the execution that s belongs to.
func (s Sample) Execution() Execution {
	return Execution{s.Configuration, s.Case, s.Block, s.Repetition}
}

// Validate returns an error unless s can stand in a journal: it names what was
// measured, its order is known and its value finite.
func (s Sample) Validate() error {
	switch {
	case s.Configuration == "":
		return errors.New("sample names no configuration")
	case s.Case == "":
		return errors.New("sample names no case")
	case s.Metric == "":
		return errors.New("sample names no metric")
	case s.Block < 0 || s.Repetition < 0:
		return fmt.Errorf("sample of %s: block and repetition count from 0", s.Execution())
	case math.IsNaN(s.Value) || math.IsInf(s.Value, 0):
		return fmt.Errorf("sample of %s: %s %v: %w", s.Execution(), s.Metric, s.Value, ErrNotFinite)
	}
	if err := s.Order.Validate(); err != nil {
		return fmt.Errorf("sample of %s: %s: %w", s.Execution(), s.Metric, err)
	}
	return nil
}

// EncodeExecution returns the journal lines of one execution: one line per
// sample, the last marked with "end":true. All samples must be valid and belong
// to the same execution.
func EncodeExecution(samples []Sample) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	for i, s := range samples {
		if err := s.Validate(); err != nil {
			return nil, err
		}
		if s.Execution() != samples[0].Execution() {
			return nil, fmt.Errorf("samples of two executions in one append: %s and %s", samples[0].Execution(), s.Execution())
		}
		if err := enc.Encode(line{s, i == len(samples)-1}); err != nil {
			return nil, fmt.Errorf("encode sample of %s: %w", s.Execution(), err)
		}
	}
	return buf.Bytes(), nil
}

// ParseJournal reads a journal; name stands for it in errors. An execution cut
// short at the end of data, because its writer was killed or the disk was full,
// is dropped whole and told in the note. A broken line anywhere else is an error
// that names the line.
func ParseJournal(name string, data []byte) (Journal, error) {
	p := parser{seen: map[Execution]int{}}
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
	return p.finish(name), nil
}

// parser collects the lines of a journal execution by execution.
type parser struct {
	journal Journal
	open    []Sample // the execution being read, not ended yet
	first   int      // its first line
	torn    bool     // the last line has no end
	seen    map[Execution]int
}

// add takes the line that ends before offset.
func (p *parser) add(number int, offset int64, text []byte) error {
	var l line
	if err := json.Unmarshal(text, &l); err != nil {
		return fmt.Errorf("parse sample: %w", err)
	}
	if err := l.Validate(); err != nil {
		return err
	}
	if len(p.open) == 0 {
		if at, twice := p.seen[l.Execution()]; twice {
			return fmt.Errorf("%s is already on line %d", l.Execution(), at)
		}
		p.first = number
	} else if l.Execution() != p.open[0].Execution() {
		return fmt.Errorf("another execution begins before %s of line %d has ended", p.open[0].Execution(), p.first)
	}
	p.open = append(p.open, l.Sample)
	if l.End {
		p.seen[l.Execution()] = p.first
		p.journal.Samples = append(p.journal.Samples, p.open...)
		p.journal.Size = offset
		p.open = nil
	}
	return nil
}

// finish drops what is still open.
func (p *parser) finish(name string) Journal {
	if p.torn || len(p.open) > 0 {
		p.journal.Note = fmt.Sprintf("%s: dropped the execution cut short at byte %d", name, p.journal.Size)
	}
	return p.journal
}
