package xen

import (
	"cmp"
	"compress/gzip"
	"encoding/binary"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
)

// record is a record of xentrace, with a time unless it is 0.
func record(event uint32, cycles uint64, data ...uint32) (b []byte) {
	header := event | uint32(len(data))<<28
	if cycles != 0 {
		header |= 1 << 31
	}
	b = binary.LittleEndian.AppendUint32(b, header)
	if cycles != 0 {
		b = binary.LittleEndian.AppendUint64(b, cycles)
	}
	for _, d := range data {
		b = binary.LittleEndian.AppendUint32(b, d)
	}
	return b
}

// becomes is the change of state of a virtual processor.
func becomes(cycles uint64, domain, vcpu, old, state uint32) []byte {
	return record(recordState|old<<8|state<<4, cycles, domain<<16|vcpu)
}

// The states of two domains and dom0 on two processors at 1,000 MHz, so a cycle is 1 ns.
func TestParseTrace(t *testing.T) {
	trace := slices.Concat(
		record(recordCPUChange, 0, 0, 16*3),
		becomes(1000, 0, 0, running, blocked), // it ran before, which is not in the interval
		becomes(1000, 5, 0, runnable, running),
		becomes(1400, 5, 0, running, runnable),
		record(0x0001f002, 0, 0, 0, 0), // the end of a buffer
		becomes(1400, idleDomain, 0, blocked, running),
		record(recordCPUChange, 0, 1, 16*3),
		becomes(1100, 5, 1, blocked, runnable), // blocked before
		becomes(1500, 5, 1, runnable, running),
		record(recordContinue, 1600, 5<<16|1),
		record(recordContinue, 1700, 7<<16), // it ran all the time
		record(0x00028006, 1800, 5, 0),      // another class, which does not count
		becomes(2000, 0, 0, blocked, runnable),
	)
	got, err := ParseTrace(trace, 1000)
	want := Trace{Window: 1000, Domains: map[int]Scheduled{
		0: {Waited: 1},
		5: {CPU: 400 + 500, Waiting: 600 + 400, Executions: 2, Preempted: 1},
		7: {CPU: 1000},
	}}
	if diff := gocmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("differs (-want +got), %v:\n%s", err, diff)
	}
	if got, err := ParseTrace(trace, 2000); err != nil || got.Window != 500 || got.Domains[5].CPU != 450 {
		t.Errorf("at 2,000 MHz: %+v, %v", got, err)
	}
	sum := got.Domains[0]
	sum.Add(got.Domains[5])
	if want := (Scheduled{CPU: 900, Waiting: 1000, Executions: 2, Waited: 1, Preempted: 1}); sum != want {
		t.Errorf("sum %+v, want %+v", sum, want)
	}
}

// The records of a dom0, of a PV domain that computed, and of a PVH domain that had just started, on one emulated
// processor on 2026-11-27. The numbers are those of another program. At 1,000 MHz, a cycle is 1 ns.
func TestParseTraceOfXen(t *testing.T) {
	file, err := os.Open("testdata/xentrace.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	content, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	records, err := io.ReadAll(content)
	if err != nil {
		t.Fatal(err)
	}
	got, err := ParseTrace(records, 1000)
	want := Trace{Window: 41900140854, Domains: map[int]Scheduled{
		0: {CPU: 11984594427, Waiting: 6463004275, Executions: 1131, Waited: 742, Preempted: 389},
		1: {CPU: 23950350554, Waiting: 17949790300, Executions: 1241, Preempted: 1241},
		2: {CPU: 5931867331, Waiting: 16859445382, Executions: 762, Waited: 103, Preempted: 659},
	}}
	if diff := gocmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("differs (-want +got), %v:\n%s", err, diff)
	}
}

// What is not the records of an interval is refused, whatever its bytes are.
func TestParseTraceRefused(t *testing.T) {
	pair := slices.Concat(becomes(1000, 1, 0, running, blocked), becomes(2000, 1, 0, blocked, running))
	for name, test := range map[string]struct {
		records []byte
		mhz     float64
		want    string
	}{
		"no records":     {nil, 1000, "got none"},
		"one record":     {pair[:16], 1000, "records of 0 ns"},
		"another year":   {slices.Concat(pair, becomes(1<<63, 1, 0, running, blocked)), 1000, "at most 1000h"},
		"cut in a word":  {pair[:18], 1000, "cut off"},
		"cut in a value": {pair[:28], 1000, "cut off"},
		"lost":           {slices.Concat(pair, record(recordLost, 3000, 17, 0, 0, 0)), 1000, "records are lost"},
		"no time":        {record(recordState, 0, 1<<16), 1000, "want its time"},
		"no processor":   {record(recordCPUChange, 0, 1), 1000, "want 2"},
		"no frequency":   {pair, 0, "MHz"},
		"NaN":            {pair, math.NaN(), "MHz"},
	} {
		if got, err := ParseTrace(test.records, test.mhz); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %+v, %v", name, got, err)
		}
	}
}

// A second count goes through the interval cycle by cycle.
func TestParseTraceBruteForce(t *testing.T) {
	r := rand.New(rand.NewPCG(17, 1))
	for range 300 {
		type event struct {
			cycles       uint64
			domain, vcpu uint32
			old, new     uint32
		}
		var events []event
		first, last := uint64(math.MaxUint64), uint64(0)
		for domain := range uint32(3) {
			for vcpu := range uint32(1 + r.IntN(2)) {
				now, state := uint64(1), uint32(r.IntN(4))
				for range r.IntN(8) {
					now += 1 + uint64(r.IntN(40))
					next := (state + 1 + uint32(r.IntN(3))) % 4
					events = append(events, event{now, domain, vcpu, state, next})
					state, first, last = next, min(first, now), max(last, now)
				}
			}
		}
		if len(events) < 2 || first == last {
			continue
		}
		want := Trace{Window: time.Duration(last - first), Domains: map[int]Scheduled{}}
		for domain := range uint32(3) {
			var d Scheduled
			found := false
			for vcpu := range uint32(2) {
				of := slices.DeleteFunc(slices.Clone(events), func(e event) bool { return e.domain != domain || e.vcpu != vcpu })
				if len(of) == 0 {
					continue
				}
				found = true
				for at := first; at < last; at++ {
					state := of[0].old
					for _, e := range of {
						if e.cycles <= at {
							state = e.new
						}
					}
					switch state {
					case running:
						d.CPU++
					case runnable:
						d.Waiting++
					}
				}
				for _, e := range of {
					switch [2]uint32{e.old, e.new} {
					case [2]uint32{running, blocked}, [2]uint32{running, offline}:
						d.Waited++
					case [2]uint32{running, runnable}:
						d.Preempted++
					case [2]uint32{blocked, running}, [2]uint32{runnable, running}, [2]uint32{offline, running}:
						d.Executions++
					}
				}
			}
			if found {
				want.Domains[int(domain)] = d
			}
		}
		// Two processors record, each in the order of time, and their windows follow each other.
		var records []byte
		slices.SortStableFunc(events, func(a, b event) int { return cmp.Compare(a.cycles, b.cycles) })
		for processor := range uint32(2) {
			records = append(records, record(recordCPUChange, 0, processor, 0)...)
			for _, e := range events {
				if (e.domain+e.vcpu)%2 == processor {
					records = append(records, becomes(e.cycles, e.domain, e.vcpu, e.old, e.new)...)
				}
			}
		}
		got, err := ParseTrace(records, 1000)
		if diff := gocmp.Diff(want, got); err != nil || diff != "" {
			t.Fatalf("%v differs (-want +got), %v:\n%s", events, err, diff)
		}
	}
}

func FuzzParseTrace(f *testing.F) {
	f.Add(slices.Concat(record(recordCPUChange, 0, 0, 32), becomes(1000, 1, 0, running, blocked), becomes(2000, 1, 0, blocked, running)))
	f.Fuzz(func(t *testing.T, records []byte) {
		got, err := ParseTrace(records, 1000)
		if err == nil && got.Window <= 0 {
			t.Errorf("got %+v", got)
		}
	})
}
