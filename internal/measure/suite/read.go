package suite

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"

	"unnest/internal/measure/result"
	"unnest/internal/measure/workload"
)

// reader is what Case.Parse is: it reads the standard output of a script.
type reader = func(output []byte) ([]workload.Value, error)

// seconds is the metric of a case that is timed.
var seconds = result.Metric{Name: "seconds", Unit: "s", Order: result.LIB}

// rate is a metric of which more is better.
func rate(name, unit string) result.Metric {
	return result.Metric{Name: name, Unit: unit, Order: result.HIB}
}

// elapsed returns script with a last line of standard output that says how long
// it took, in wall time, for readElapsed. A script that fails is not timed.
func elapsed(script Script) Script {
	return func(p Profile, r Resources) string { return timed(script(p, r)) }
}

// timed is elapsed for the text of a script, or of the part of one that is to be
// timed. Standard error stays what it is: only bash's own line is led away.
func timed(text string) string {
	return "TIMEFORMAT='seconds %3R'\n{ time {\n" + text + "\n} 2>&9; } 9>&2 2>&1\n"
}

// readElapsed reads the seconds of a script that elapsed has wrapped.
var readElapsed = number(seconds.Name, `(?m)^seconds (\d+\.\d{3})$`)

// field says where the value of a metric stands in what a tool prints.
type field struct {
	metric  string
	pattern *regexp.Regexp // matches once in the output; its only group is the number
	scale   float64        // what the number is multiplied with to be in the metric's unit
}

// number returns a reader of one metric, whose number is the only group of
// pattern and in its unit already.
func number(metric, pattern string) reader {
	return numbers(field{metric, regexp.MustCompile(pattern), 1})
}

// numbers returns a reader of several metrics. Each pattern has to match once:
// an output with two candidates is not the one that the pattern was made for.
// The first metric, which stands for the case, is over 0, because every figure
// of it is divided by; the others may be 0.
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

// failure finds the line by which most tools say why they have no figures.
var failure = regexp.MustCompile(`(?mi)^.*\b(?:error|fail(?:ed|ure)?|fatal|cannot|can't|unable|usage)\b.*$`)

// missing explains why output has no figure: by the line of a failure, else by
// the last one.
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
