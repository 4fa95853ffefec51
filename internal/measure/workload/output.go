package workload

import (
	"bytes"
	"fmt"
	"math"
	"regexp"
	"strconv"
)

// maxQuoted limits quotes of a tool's output in errors, in bytes.
const maxQuoted = 200

// Quote quotes line for an error, truncated to maxQuoted bytes.
func Quote(line []byte) string {
	line = bytes.TrimSpace(line)
	if len(line) > maxQuoted {
		line = line[:maxQuoted]
	}
	return strconv.Quote(string(line))
}

// lastLine returns the last line of output that is not blank.
func lastLine(output []byte) []byte {
	output = bytes.TrimSpace(output)
	return output[bytes.LastIndexByte(output, '\n')+1:]
}

// checkNumber returns an error unless v is finite and not negative.
func checkNumber(v float64) error {
	if math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
		return fmt.Errorf("%v is not a finite number of at least 0", v)
	}
	return nil
}

// finish returns an Output of valid values and operations.
func finish(tool string, values []Value, operations float64) (Output, error) {
	for _, v := range values {
		if err := checkNumber(v.Value); err != nil {
			return Output{}, fmt.Errorf("%s: read %s: %w", tool, v.Metric, err)
		}
	}
	if err := checkNumber(operations); err != nil || operations == 0 {
		return Output{}, fmt.Errorf("%s: %v operations: want a finite number over 0", tool, operations)
	}
	return Output{Values: values, Operations: operations}, nil
}

// parseVersion returns the first group of pattern in output.
func parseVersion(tool string, pattern *regexp.Regexp, output []byte) (string, error) {
	m := pattern.FindSubmatch(output)
	if m == nil {
		return "", fmt.Errorf("%s: no version in %s", tool, Quote(output))
	}
	return string(m[1]), nil
}
