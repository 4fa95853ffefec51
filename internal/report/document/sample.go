package document

import (
	"iter"
	"time"
)

// Samples are the measured values of a document, for the formats of benchmarks.
type Samples struct {
	Run   string // identifier; empty where the document has no samples
	Facts []Fact // true of all
	All   iter.Seq[Sample]
}

// Sample is one measured value.
type Sample struct {
	Run       string
	Test      string // what was measured: "udp_rr/1280"
	Title     string // of the test and of others that Keys tell apart: "UDP ping-pong"
	Keys      []Fact // such as size, 1280
	Metric    string
	Primary   bool // the metric that the test is about
	Unit      string
	Better    string // higher or lower
	Value     float64
	Execution int // equal where values were measured together
	Start     time.Time
	Labels    map[string]string // all that is known of it; empty ones are not printed
}
