package pacing

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"unnest.io/unnest/internal/measure/workload"
)

const ms = time.Millisecond

// Requests are due in order at the rate, the first one at once, and Before counts them.
func TestSchedule(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Schedule{Rate: rapid.IntRange(1, 1_000_000).Draw(t, "rate"), Connections: rapid.IntRange(1, 1000).Draw(t, "connections")}
		end := time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "end"))
		n := s.Before(end)
		if want := end.Seconds() * float64(s.Rate); math.Abs(float64(n)-want) > 1 {
			t.Fatalf("%d requests before %v, want about %v", n, end, want)
		}
		if s.At(0) != 0 || n > 0 && s.At(n-1) >= end || s.At(n) < end {
			t.Fatalf("the last request before %v is at %v, the next one at %v", end, s.At(n-1), s.At(n))
		}
		i := rapid.IntRange(0, 1_000_000).Draw(t, "request")
		if s.At(i+1) < s.At(i) || s.Of(i) < 0 || s.Of(i) >= s.Connections || s.Of(i+s.Connections) != s.Of(i) {
			t.Fatalf("request %d is at %v on connection %d, the next one at %v", i, s.At(i), s.Of(i), s.At(i+1))
		}
	})
}

// simulate loads a server by a schedule until end. The server takes a time for each request
// and does nothing in its pause.
func simulate(s Schedule, end, takes, pause, pauseEnd time.Duration) workload.LoadReport {
	r := NewRecorder(0, end)
	free := make([]time.Duration, s.Connections) // when each connection has its answer
	for i := range s.Before(end) {
		due, conn := s.At(i), s.Of(i)
		sent := max(due, free[conn])
		if sent >= end {
			continue
		}
		done := sent + takes
		if sent >= pause && sent < pauseEnd {
			done = pauseEnd + takes
		}
		free[conn] = done
		r.Add(Request{Kind: workload.Get, Due: due, Sent: sent, Done: done})
	}
	return r.Report(s.Before(end))
}

// A server that pauses for 1 s of 10 s makes a tenth of the requests wait. The latencies show
// that, and the naive ones, which begin when a request is sent, hide it.
func TestCoordinatedOmission(t *testing.T) {
	report := simulate(Schedule{Rate: 1000, Connections: 2}, 10*time.Second, 100*time.Microsecond, 5*time.Second, 6*time.Second)
	got, naive := report.Latencies[workload.AllRequests], report.Naive[workload.AllRequests]
	if got.Count != 10000 || report.Answers != 10000 || report.Planned != 10000 || report.Seconds != 10 {
		t.Fatalf("got %+v", report)
	}
	if got.P50 < 99 || got.P50 > 101 || naive.P50 < 99 || naive.P50 > 101 {
		t.Errorf("medians: %v and naive %v µs, want those without a pause, 100", got.P50, naive.P50)
	}
	if got.P99 < 800_000 || naive.P99 > 101 {
		t.Errorf("99th percentiles: %v and naive %v µs, want over 800,000 and 100", got.P99, naive.P99)
	}
	// The waiting times are from 0 to 1 s, evenly, for a tenth of the requests.
	if got.Mean < 45_000 || got.Mean > 60_000 || naive.Mean > 400 {
		t.Errorf("means: %v and naive %v µs, want about 50,000 and 300", got.Mean, naive.Mean)
	}
	if got.StdDev < 150_000 || got.StdDev > 200_000 {
		t.Errorf("standard deviation: %v µs", got.StdDev)
	}
}

// A server that is too slow answers fewer requests than planned.
func TestRateNotReached(t *testing.T) {
	report := simulate(Schedule{Rate: 1000, Connections: 2}, 10*time.Second, 4*ms, 0, 0)
	got := report.Latencies[workload.AllRequests]
	if got.Count != 5000 || report.Planned != 10000 {
		t.Errorf("%v answers of %v, want half", got.Count, report.Planned)
	}
	if naive := report.Naive[workload.AllRequests]; naive.P99 > 4100 || got.P99 < 4e6 {
		t.Errorf("99th percentiles: %v and naive %v µs", got.P99, naive.P99)
	}
}

// Kinds are told apart, and requests that are due in the warm-up are only counted.
func TestRecorder(t *testing.T) {
	r := NewRecorder(time.Second, 3*time.Second)
	for _, q := range []Request{
		{workload.Get, 999 * ms, 999 * ms, 2 * time.Second, 100},
		{workload.Get, time.Second, time.Second + ms, time.Second + 2*ms, 100},
		{workload.Set, 2 * time.Second, 2 * time.Second, 2*time.Second + 10*ms, 100},
		{workload.Get, 3 * time.Second, 3 * time.Second, 3*time.Second + ms, 100},
	} {
		r.Add(q)
	}
	for range 100 {
		r.Late(50 * time.Microsecond)
	}
	report := r.Report(0)
	if report.Answers != 4 || report.Seconds != 2 || report.Planned != 0 || report.Naive != nil {
		t.Errorf("got %+v", report)
	}
	if math.Abs(report.LateP99-50) > 0.1 {
		t.Errorf("late by %v µs, want 50", report.LateP99)
	}
	for kind, want := range map[string][2]float64{workload.AllRequests: {2, 6000}, workload.Get: {1, 2000}, workload.Set: {1, 10000}} {
		if got := report.Latencies[kind]; got.Count != want[0] || math.Abs(got.Mean/want[1]-1) > 1e-3 {
			t.Errorf("%s: got %+v, want %v", kind, got, want)
		}
	}
}

// Answers are served when they come: a server that answers 50 of 100 requests/s serves 50/s,
// though it answers all requests of the measured part later.
func TestServed(t *testing.T) {
	r := NewRecorder(time.Second, 3*time.Second)
	for i := range 300 {
		due := time.Duration(i) * 10 * ms
		r.Add(Request{workload.Get, due, due, time.Duration(i+1) * 20 * ms, 100})
	}
	report := r.Report(200)
	if got := report.Latencies[workload.AllRequests].Count; got != 200 {
		t.Errorf("%v requests of the measured part are answered, want all 200", got)
	}
	if report.Served != 100 || report.Bytes != 10_000 {
		t.Errorf("%v answers with %v bytes served, want 100 with 10000", report.Served, report.Bytes)
	}
}
