package suite

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"

	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/workload"
)

// reader parses the standard output of a script.
type reader = func(output []byte) ([]workload.Value, error)

// seconds is the metric of a case that is timed.
var seconds = result.Metric{Name: "seconds", Unit: "s", Order: result.LIB}

// readElapsed reads the seconds of a timed script.
var readElapsed = numbers(elapsedField)

// elapsedField is the last line of a timed script.
var elapsedField = field{seconds.Name, regexp.MustCompile(`(?m)^seconds (\d+\.\d{3})$`), 1}

// field finds the value of a metric in the output of a tool.
type field struct {
	metric  string
	pattern *regexp.Regexp // matches once in the output; its only group is the number
	scale   float64        // converts the number to the metric's unit
}

// numbers returns a reader of several metrics. Each pattern has to match exactly once:
// two matches mean that the output has another format than expected. The first metric is
// that of the case in tables and has to be over 0, because reports divide by it; the
// others may be 0.
func numbers(fields ...field) reader {
	return func(output []byte) ([]workload.Value, error) {
		values := make([]workload.Value, len(fields))
		for i, f := range fields {
			v, err := f.read(output)
			if err != nil {
				return nil, fmt.Errorf("read %s: %w", f.metric, err)
			}
			if i == 0 && v == 0 {
				return nil, fmt.Errorf("read %s from %s: want a number over 0", f.metric, workload.Quote(f.pattern.Find(output)))
			}
			values[i] = workload.Value{Metric: f.metric, Value: v}
		}
		return values, nil
	}
}

// read returns the field's value, finite and not negative.
func (f field) read(output []byte) (float64, error) {
	found := f.pattern.FindAllSubmatch(output, 2)
	switch len(found) {
	case 0:
		return 0, missing(output)
	case 2:
		return 0, fmt.Errorf("in two places: %s and %s", workload.Quote(found[0][0]), workload.Quote(found[1][0]))
	}
	v, err := strconv.ParseFloat(string(found[0][1]), 64)
	if err != nil {
		return 0, fmt.Errorf("from %s: %w", workload.Quote(found[0][0]), err)
	}
	v *= f.scale
	if math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
		return 0, fmt.Errorf("from %s: want a finite number of at least 0", workload.Quote(found[0][0]))
	}
	return v, nil
}

// failure finds the line in which most tools report an error.
var failure = regexp.MustCompile(`(?mi)^.*\b(?:error|fail(?:ed|ure)?|fatal|cannot|can't|unable|usage)\b.*$`)

// missing returns an error for output without a figure. It quotes the line of a failure,
// else the last line.
func missing(output []byte) error {
	text := bytes.TrimSpace(output)
	if len(text) == 0 {
		return errors.New("no output")
	}
	if line := failure.Find(text); line != nil {
		return fmt.Errorf("no such line, but %s", workload.Quote(line))
	}
	return fmt.Errorf("no such line, output ends with %s", workload.Quote(text[bytes.LastIndexByte(text, '\n')+1:]))
}
