package result

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// execution returns n valid samples of one execution.
func execution(configuration string, block, n int) []Sample {
	samples := make([]Sample, n)
	for i := range samples {
		samples[i] = Sample{
			Run: "r1", Configuration: configuration, Suite: "network", Case: "udp_rr/1280",
			Metric: "metric" + string(rune('a'+i)), Unit: "us", Order: LIB,
			Value: 100 + float64(i), Block: block, Repetition: block, Boot: "b",
			Start: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC), Duration: 2.5,
			Tags: map[string]string{"size": "1280"},
		}
	}
	return samples
}

// encode returns the journal of the executions.
func encode(t testing.TB, executions ...[]Sample) []byte {
	t.Helper()
	var journal []byte
	for _, e := range executions {
		lines, err := EncodeExecution(e)
		if err != nil {
			t.Fatal(err)
		}
		journal = append(journal, lines...)
	}
	return journal
}

func TestParseJournalReadsWhatWasEncoded(t *testing.T) {
	a, b := execution("NAT", 0, 3), execution("BrFusion", 0, 1)
	data := encode(t, a, b)
	if lines := bytes.Count(data, []byte("\n")); lines != 4 {
		t.Errorf("journal of 4 samples has %d lines", lines)
	}
	got, err := ParseJournal("j", data)
	if err != nil {
		t.Fatal(err)
	}
	want := Journal{Samples: slices.Concat(a, b), Size: int64(len(data))}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("journal differs (-want +got):\n%s", diff)
	}
}

// Of a case in a block only the executions since the last resumption with a result count.
func TestJournalVoidsWhatWasMeasuredBeforeAResumption(t *testing.T) {
	at := func(configuration string, block, discarded, resumption int) []Sample {
		samples := execution(configuration, block, 2)
		for i := range samples {
			samples[i].Discarded, samples[i].Resumption = discarded, resumption
		}
		return samples
	}
	whole := [][]Sample{at("NAT", 0, 0, 0), at("BrFusion", 0, 0, 0)}
	before := [][]Sample{at("BrFusion", 1, 1, 0), at("BrFusion", 1, 0, 0), at("NAT", 1, 1, 0)}
	after := [][]Sample{at("NAT", 1, 1, 1), at("NAT", 1, 0, 1), at("BrFusion", 1, 0, 1)}
	none := at("NAT", 0, 1, 1) // its result is missing, so those of before still count
	want := Journal{
		Samples:   slices.Concat(whole[0], whole[1], after[1], after[2]),
		Discarded: slices.Concat(after[0], none),
		Void:      slices.Concat(before[1], before[0], before[2]),
	}
	all := slices.Concat(whole, before, after, [][]Sample{none})
	var got Journal
	for _, samples := range all {
		if got.Has(samples[0]) {
			t.Errorf("it already has %+v", samples[0].Measurement())
		}
		got.Add(samples)
	}
	if diff := cmp.Diff(want, got); diff != "" || !got.Has(before[1][0]) {
		t.Errorf("after the last was added (-want +got):\n%s", diff)
	}
	data := encode(t, all...)
	want.Size = int64(len(data))
	got, err := ParseJournal("j", data)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("after it was read: error %v (-want +got):\n%s", err, diff)
	}
}

// Executions of a case in a block are apart if nothing of it was measured for more than five minutes.
func TestApart(t *testing.T) {
	begin := execution("", 0, 1)[0].Start
	at := func(configuration, name string, block int, after, took time.Duration) Sample {
		return Sample{Configuration: configuration, Case: name, Block: block, Start: begin.Add(after), Duration: took.Seconds()}
	}
	j := Journal{Samples: []Sample{
		at("NAT", "late", 0, 0, time.Second), at("BrFusion", "late", 0, time.Hour, time.Second),
		at("NAT", "blocks", 0, 0, time.Second), at("NAT", "blocks", 1, time.Hour, time.Second),
		at("NAT", "long", 0, 0, time.Hour), at("BrFusion", "long", 0, time.Hour+maxPause, time.Second),
		at("BrFusion", "again", 0, 2*maxPause, time.Second), at("NAT", "again", 0, 0, time.Second),
	}, Discarded: []Sample{at("BrFusion", "again", 0, maxPause, time.Second)}}
	if got := j.Apart(); !slices.Equal(got, []string{"late"}) {
		t.Errorf("got %q", got)
	}
}

// At every cut the journal has only complete executions.
func TestParseJournalDropsAnExecutionCutAnywhere(t *testing.T) {
	a, b := execution("NAT", 0, 3), execution("BrFusion", 0, 3)
	first, data := len(encode(t, a)), encode(t, a, b)
	for cut := range data {
		got, err := ParseJournal("j", data[:cut])
		if err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		want := Journal{}
		if cut >= first {
			want = Journal{Samples: a, Size: int64(first)}
		}
		if cut != 0 && cut != first {
			want.Dropped = map[bool]string{
				false: "j: dropped the incomplete execution at byte 0",
				true:  "j: dropped the incomplete execution at byte " + strconv.Itoa(first),
			}[cut > first]
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("cut at %d (-want +got):\n%s", cut, diff)
		}
	}
}

func TestParseJournalRefusesBrokenLines(t *testing.T) {
	good := string(encode(t, execution("NAT", 0, 1)))
	open := string(encode(t, execution("NAT", 0, 2)))
	open = open[:strings.Index(open, "\n")+1]
	tests := []struct{ name, data, want string }{
		{"broken line in the middle", "{broken}\n" + good, "j:1: parse sample"},
		{"broken last line with its end", good + "{broken}\n", "j:2: parse sample"},
		{"blank line", good + "\n", "j:2: parse sample"},
		{"number too large for a float", strings.Replace(good, ":100,", ":1e999,", 1), "j:1: parse sample"},
		{"execution not ended", open + string(encode(t, execution("BrFusion", 0, 1))), "j:2: another execution begins before udp_rr/1280 in NAT, block 0, repetition 0 of line 1 has ended"},
		{"execution twice", good + good, "j:2: udp_rr/1280 in NAT, block 0, repetition 0 is already on line 1"},
		{"unknown order", strings.Replace(good, "LIB", "up", 1), `order "up"`},
		{"no configuration", "{\"value\":1}\n", "j:1: sample has no configuration"},
		{"no value", strings.Replace(good, `"value":100,`, "", 1), "j:1: sample of udp_rr/1280 in NAT, block 0, repetition 0: metrica has no value"},
		{"null", strings.Replace(good, `"value":100,`, `"value":null,`, 1), "metrica has no value"},
		{"huge", strings.Replace(good, `"value":100,`, `"value":1e300,`, 1), "want at most 1e+100"},
		{"negative discarded", strings.Replace(good, `"block":0`, `"block":0,"discarded":-1`, 1), "discarded from 1"},
		{"negative block", strings.Replace(good, `"block":0`, `"block":-1`, 1), "count from 0"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := ParseJournal("j", []byte(tt.data))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q in it", err, tt.want)
			}
		})
	}
}

func TestEncodeExecutionRefuses(t *testing.T) {
	for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		s := execution("NAT", 0, 2)
		s[1].Value = v
		if _, err := EncodeExecution(s); !errors.Is(err, ErrNotFinite) {
			t.Errorf("value %v: error %v, want ErrNotFinite", v, err)
		}
	}
	mixed := append(execution("NAT", 0, 1), execution("NAT", 1, 1)...)
	if _, err := EncodeExecution(mixed); err == nil || !strings.Contains(err.Error(), "two executions") {
		t.Errorf("two executions: error %v", err)
	}
	for _, spoil := range []func(*Sample){
		func(s *Sample) { s.Case = "" },
		func(s *Sample) { s.Metric = "" },
		func(s *Sample) { s.Order = "" },
		func(s *Sample) { s.Repetition = -1 },
	} {
		s := execution("NAT", 0, 1)
		spoil(&s[0])
		if _, err := EncodeExecution(s); err == nil {
			t.Errorf("encoded the invalid sample %+v", s[0])
		}
	}
}

// For any bytes, the parser returns only complete executions, and parsing them again gives
// the same result.
func FuzzParseJournal(f *testing.F) {
	data := encode(f, execution("NAT", 0, 2), execution("BrFusion", 1, 1))
	f.Add(data)
	f.Add(data[:len(data)-7])
	f.Add([]byte{})
	f.Add([]byte("{}\n"))
	f.Add([]byte("\x00\x00\x00"))
	f.Add(bytes.Replace(data, []byte(`,"end":true`), nil, 1))
	f.Fuzz(func(t *testing.T, data []byte) {
		journal, err := ParseJournal("j", data)
		if err != nil {
			return
		}
		if (journal.Dropped == "") != (journal.Size == int64(len(data))) {
			t.Errorf("%d of %d bytes kept, dropped %q", journal.Size, len(data), journal.Dropped)
		}
		again, err := ParseJournal("j", data[:journal.Size])
		if err != nil || again.Dropped != "" {
			t.Fatalf("whole part: error %v, dropped %q", err, again.Dropped)
		}
		if diff := cmp.Diff(journal.Samples, again.Samples); diff != "" {
			t.Error(diff)
		}
		for _, s := range journal.Samples {
			if err := s.Validate(); err != nil {
				t.Error(err)
			}
		}
	})
}
