// Package pacing says when an open loop sends requests, and records their latencies.
//
// It is pure: times are offsets from the start of the load, which the caller measures.
// Sending requests belongs to package load.
package pacing

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"unnest.io/unnest/internal/measure/workload"
)

// Schedule is the times of requests at a constant rate. Each connection sends every n-th
// request, one at a time: a request that is due while its connection waits for an answer
// is sent late, and its latency counts from the time at which it was due.
type Schedule struct {
	Rate        int // requests/s
	Connections int
}

// At returns when request i is due, from 0.
func (s Schedule) At(i int) time.Duration {
	return time.Duration(float64(i) / float64(s.Rate) * float64(time.Second))
}

// Before returns the number of requests that are due before end.
func (s Schedule) Before(end time.Duration) int {
	n := int(end.Seconds() * float64(s.Rate))
	for n > 0 && s.At(n-1) >= end {
		n--
	}
	for s.At(n) < end {
		n++
	}
	return n
}

// Of returns the connection of request i.
func (s Schedule) Of(i int) int { return i % s.Connections }

// Request is one request that was answered.
type Request struct {
	Kind string
	Due  time.Duration // when it should have been sent; without a schedule, Sent
	Sent time.Duration
	Done time.Duration

	Bytes int // of request and answer; 0: not counted
}

// Recorder collects the latencies of the requests that are due in a part of the load.
type Recorder struct {
	from, to  time.Duration
	answers   int
	latencies map[string]*hdrhistogram.Histogram // by kind
	naive     *hdrhistogram.Histogram
	late      *hdrhistogram.Histogram
	failures  map[string]float64 // by cause
	served    int                // answers that came from the time from on and before to
	bytes     float64            // of these
}

// NewRecorder returns a recorder for the requests that are due, and for the answers that come,
// from the time from on and before to. The latencies are those of the requests. The served
// answers and their bytes count by when they come: a server at its limit answers requests of that
// time long after its end.
func NewRecorder(from, to time.Duration) *Recorder {
	return &Recorder{from: from, to: to, latencies: map[string]*hdrhistogram.Histogram{}, failures: map[string]float64{}, naive: newHistogram(), late: newHistogram()}
}

// longest is the longest latency that is told apart from longer ones.
const longest = time.Hour

// newHistogram counts nanoseconds with three significant digits.
func newHistogram() *hdrhistogram.Histogram { return hdrhistogram.New(1, int64(longest), 3) }

func record(h *hdrhistogram.Histogram, d time.Duration) {
	_ = h.RecordValue(int64(min(max(d, 0), longest))) // always within its limits
}

// Add records an answered request.
func (r *Recorder) Add(q Request) {
	r.answers++
	if q.Done >= r.from && q.Done < r.to {
		r.served++
		r.bytes += float64(q.Bytes)
	}
	if q.Due < r.from || q.Due >= r.to {
		return
	}
	for _, kind := range []string{workload.AllRequests, q.Kind} {
		if r.latencies[kind] == nil {
			r.latencies[kind] = newHistogram()
		}
		record(r.latencies[kind], q.Done-q.Due)
	}
	record(r.naive, q.Done-q.Sent)
}

// Fail records a request without an answer, and its cause.
func (r *Recorder) Fail(q Request, cause string) {
	if q.Due >= r.from && q.Due < r.to {
		r.failures[cause]++
	}
}

// Late records by how much the generator was late to hand out a request, apart from waiting
// for answers.
func (r *Recorder) Late(d time.Duration) { record(r.late, d) }

// Report returns the report of a load by a schedule with planned requests in the recorded
// part; 0: without a schedule.
func (r *Recorder) Report(planned int) workload.LoadReport {
	report := workload.LoadReport{
		Seconds: (r.to - r.from).Seconds(), Planned: float64(planned), Answers: float64(r.answers), Served: float64(r.served),
		LateP99: micros(r.late.ValueAtQuantile(99)), Latencies: map[string]workload.Latency{}, Bytes: r.bytes,
	}
	if len(r.failures) > 0 {
		report.Failures = r.failures
	}
	for kind, h := range r.latencies {
		report.Latencies[kind] = describe(h)
	}
	if planned > 0 {
		naive := describe(r.naive)
		report.Naive = map[string]*workload.Latency{workload.AllRequests: &naive}
	}
	return report
}

func describe(h *hdrhistogram.Histogram) workload.Latency {
	return workload.Latency{
		Count: float64(h.TotalCount()), Mean: h.Mean() / 1e3, StdDev: h.StdDev() / 1e3,
		P50: micros(h.ValueAtQuantile(50)), P99: micros(h.ValueAtQuantile(99)), P999: micros(h.ValueAtQuantile(99.9)),
	}
}

func micros(ns int64) float64 { return float64(ns) / 1e3 }
