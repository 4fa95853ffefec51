package xen

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"unnest.io/unnest/internal/testbed/place"
)

// Trace is what Xen's scheduler did in an interval. Its source are the records of xentrace
// (xen/include/public/trace.h).
type Trace struct {
	Window  time.Duration
	Domains map[int]Scheduled // by the ID of the domain, without the idle one. It lacks domains that never ran or waited
}

// Scheduled is what the scheduler gave to all virtual processors of a domain.
type Scheduled struct {
	CPU        time.Duration
	Waiting    time.Duration // runnable, but not running
	Executions uint64        // how often a virtual processor was given a processor
	Waited     uint64        // executions that ended because the virtual processor waits: for an event, or for dom0's emulation of a device
	Preempted  uint64        // executions that ended because another one was given the processor
}

// Add adds what another domain got.
func (s *Scheduled) Add(o Scheduled) {
	s.CPU += o.CPU
	s.Waiting += o.Waiting
	s.Executions += o.Executions
	s.Waited += o.Waited
	s.Preempted += o.Preempted
}

// idleDomain is the ID of the domain that has a processor while no other one has it.
const idleDomain = 0x7fff

// The records that xentrace writes, and the change of state of a virtual processor: bits 4 and 5 of its
// number are the new state, bits 8 and 9 the old one.
const (
	recordLost      = 0x0001f001
	recordCPUChange = 0x0001f003
	recordState     = 0x00021001
	recordStateMask = 0x0ffffccf
	recordContinue  = 0x00021002
)

// The states of a virtual processor (xen/include/public/vcpu.h, RUNSTATE_*).
const (
	running  = 0
	runnable = 1
	blocked  = 2 // waits for an event
	offline  = 3 // waits for Xen or dom0: an HVM domain for the emulation of a device, a paused one for its end
)

// maxWindow is longer than anybody records.
const maxWindow = 1000 * time.Hour

// change is a change of state of a virtual processor.
type change struct {
	cycles   uint64
	domain   uint16
	vcpu     uint16
	old, new uint32
}

// ParseTrace reads the records of xentrace, with the event mask 0x00021000. mhz is the frequency of the
// processors. The interval is that from the first record to the last one. Lost records are an error.
func ParseTrace(records []byte, mhz float64) (Trace, error) {
	if !(mhz > 0) || mhz > 1e6 {
		return Trace{}, fmt.Errorf("read xentrace: processors with %v MHz: want a number above 0", mhz)
	}
	changes, err := readChanges(records)
	if err != nil {
		return Trace{}, fmt.Errorf("read xentrace: %w", err)
	}
	if len(changes) == 0 {
		return Trace{}, errors.New("read xentrace: want changes of state, got none")
	}
	duration := func(cycles uint64) time.Duration { return time.Duration(float64(cycles) / mhz * 1e3) }
	first, last := changes[0].cycles, changes[len(changes)-1].cycles
	if window := float64(last-first) / mhz * 1e3; window < 1 || window > float64(maxWindow) {
		return Trace{}, fmt.Errorf("read xentrace: records of %g ns: want an interval of at most %v", window, maxWindow)
	}
	cycles := map[[2]uint16]*[4]uint64{} // of each virtual processor, by state
	since := map[[2]uint16]change{}
	all := map[int]Scheduled{}
	for _, c := range changes {
		key := [2]uint16{c.domain, c.vcpu}
		if cycles[key] == nil {
			cycles[key] = &[4]uint64{}
			since[key] = change{cycles: first}
		}
		cycles[key][c.old] += c.cycles - since[key].cycles
		since[key] = c
		if c.old == c.new { // it goes on
			continue
		}
		d := all[int(c.domain)]
		switch {
		case c.new == running:
			d.Executions++
		case c.old == running && c.new == runnable:
			d.Preempted++
		case c.old == running:
			d.Waited++
		}
		all[int(c.domain)] = d
	}
	for key, c := range since {
		cycles[key][c.new] += last - c.cycles
		d := all[int(key[0])]
		d.CPU += duration(cycles[key][running])
		d.Waiting += duration(cycles[key][runnable])
		all[int(key[0])] = d
	}
	delete(all, idleDomain)
	return Trace{Window: duration(last - first), Domains: all}, nil
}

// readChanges returns the changes of state in the order of their time. That a virtual processor goes on
// running is a change to the same state.
func readChanges(records []byte) (all []change, err error) {
	for at := 0; at < len(records); {
		rest := records[at:]
		word := func(i int) uint32 { return binary.LittleEndian.Uint32(rest[4*i:]) }
		if len(rest) < 4 {
			return nil, fmt.Errorf("byte %d: the last record is cut off", at)
		}
		header := word(0)
		event, extra, data := header&0x0fffffff, int(header>>28&7), 1
		if header>>31 != 0 {
			data = 3 // after the time
		}
		if len(rest) < 4*(data+extra) {
			return nil, fmt.Errorf("byte %d: the last record is cut off", at)
		}
		at += 4 * (data + extra)
		switch {
		case event == recordCPUChange:
			if extra != 2 {
				return nil, fmt.Errorf("byte %d: a change of the processor with %d words: want 2", at, extra)
			}
		case event == recordLost:
			return nil, errors.New("records are lost, because dom0 was too slow: give dom0 a larger weight")
		case event&recordStateMask == recordState || event == recordContinue:
			if data != 3 || extra != 1 {
				return nil, fmt.Errorf("byte %d: a change of state with %d words: want its time and 1", at, extra)
			}
			c := change{cycles: uint64(word(2))<<32 | uint64(word(1)), vcpu: uint16(word(3)), domain: uint16(word(3) >> 16)}
			if event != recordContinue {
				c.old, c.new = event>>8&3, event>>4&3
			}
			all = append(all, c)
		}
	}
	slices.SortStableFunc(all, func(a, b change) int { return cmp.Compare(a.cycles, b.cycles) })
	return all, nil
}

//go:embed scripts/trace
var traceScript string

// tracePatience is how long xentrace may take to begin, and how long its records may take to come. An emulated dom0 is slow.
const tracePatience = time.Minute

// Tracing records what Xen's scheduler does.
type Tracing struct {
	input   io.Closer // of the script, which records until its input ends
	kill    context.CancelFunc
	process place.Process
	printed traceOutput
}

// Trace begins to record, and returns when Xen records. Call Stop. If ctx ends before, the recording is
// killed, but Xen goes on until the next one ends, or Remove.
func (h *Host) Trace(ctx context.Context) (_ *Tracing, err error) {
	ctx, kill := context.WithCancel(ctx)
	input, end := io.Pipe()
	t := &Tracing{input: end, kill: kill, printed: traceOutput{begun: make(chan struct{})}}
	args := []string{"sh", "-c", traceScript, "trace", h.Dir}
	if t.process, err = h.Dom0.Start(ctx, place.Command{Args: args, Stdin: input, Stdout: &t.printed}); err != nil {
		kill()
		return nil, fmt.Errorf("trace Xen's scheduler: %w", err)
	}
	select {
	case <-t.printed.begun:
		if len(t.printed.line) > 0 {
			return t, nil
		}
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-time.After(tracePatience):
		kill()
		err = fmt.Errorf("it records nothing for %v", tracePatience)
	}
	return nil, fmt.Errorf("trace Xen's scheduler: %w", errors.Join(err, t.end()))
}

// Stop ends the recording and reads it.
func (t *Tracing) Stop() (Trace, error) {
	if err := t.end(); err != nil {
		return Trace{}, fmt.Errorf("trace Xen's scheduler: %w", err)
	}
	mhz, err := strconv.ParseFloat(strings.TrimSpace(string(t.printed.line)), 64)
	if err != nil {
		return Trace{}, fmt.Errorf("trace Xen's scheduler: frequency of the processors: %w", err)
	}
	return ParseTrace(t.printed.records.Bytes(), mhz)
}

// end ends the script, and kills it if it does not end in time.
func (t *Tracing) end() error {
	defer time.AfterFunc(tracePatience, t.kill).Stop()
	defer t.kill()
	err := t.input.Close()
	return errors.Join(t.process.Wait(), err)
}

// traceOutput takes what the script prints: a line, and records.
type traceOutput struct {
	line    []byte        // without its end
	begun   chan struct{} // closed after the line
	ended   bool          // the line
	records bytes.Buffer
}

func (o *traceOutput) Write(p []byte) (int, error) {
	if o.ended {
		return o.records.Write(p)
	}
	line, rest, ended := bytes.Cut(p, []byte("\n"))
	o.line = append(o.line, line...)
	if ended {
		o.ended = true
		close(o.begun)
		_, _ = o.records.Write(rest) // never fails
	}
	return len(p), nil
}
