package suite

import (
	"encoding/json"
	"fmt"
	"regexp"

	"unnest.io/unnest/internal/measure/workload"
)

// readers are those that the tables name: of outputs from which patterns of metrics are not enough.
var readers = map[string]reader{
	"elapsed":              readElapsed,
	"sunflow":              readSunflow,
	"fio read":             func(output []byte) ([]workload.Value, error) { return readFio("read", output) },
	"fio write":            func(output []byte) ([]workload.Value, error) { return readFio("write", output) },
	"bytes per second":     over(`(?m)^bytes (\d+)$`, megabyte),
	"postmark":             readPostMark,
	"apache":               readApache,
	"john":                 readJohn("Raw"),
	"john with many salts": readJohn("Many salts"),
	"sysbench threads":     readThreads,
	"trade":                readTrade,
}

// stressorLine is stress-ng's line of a stressor: bogo ops, then real, user and system seconds, then the operations per real
// second.
const stressorLine = `^stress-ng: metrc: \[\d+\] %s +\d+ +[\d.]+ +[\d.]+ +[\d.]+ +([\d.]+) +[\d.]+ `

// megabyte converts bytes to MB, the unit of the paper's tools.
const megabyte = 1e-6

// fioDirection is what a job did in one direction.
type fioDirection struct {
	Bytes     float64 `json:"io_bytes"`
	Bandwidth float64 `json:"bw_bytes"` // bytes/s
}

// fioReport is the part of fio's JSON that is read.
type fioReport struct {
	Jobs []struct {
		Error int          `json:"error"` // errno
		Read  fioDirection `json:"read"`
		Write fioDirection `json:"write"`
	} `json:"jobs"`
}

// readFio reads the throughput of one job in direction.
func readFio(direction string, output []byte) ([]workload.Value, error) {
	d, err := fioJob(direction, output)
	if err != nil {
		return nil, fmt.Errorf("read throughput: %w", err)
	}
	if !(d.Bytes > 0 && d.Bandwidth > 0) {
		return nil, fmt.Errorf("read throughput: jobs[0].%s: %v B at %v B/s: want numbers over 0", direction, d.Bytes, d.Bandwidth)
	}
	return []workload.Value{{Metric: "throughput", Value: d.Bandwidth * megabyte}}, nil
}

// fioJob returns what the only job of a report did in direction.
func fioJob(direction string, output []byte) (fioDirection, error) {
	var r fioReport
	if err := json.Unmarshal(output, &r); err != nil {
		return fioDirection{}, fmt.Errorf("decode fio's report: %w: %w", err, missing(output))
	}
	if len(r.Jobs) != 1 {
		return fioDirection{}, fmt.Errorf("fio's report has %d jobs: want 1", len(r.Jobs))
	}
	if e := r.Jobs[0].Error; e != 0 {
		return fioDirection{}, fmt.Errorf("jobs[0].error: fio's job failed with errno %d", e)
	}
	if direction == "read" {
		return r.Jobs[0].Read, nil
	}
	return r.Jobs[0].Write, nil
}

// over returns a reader of the amount per second of a timed script: the number that is
// amount's only group, times scale, over the seconds.
func over(amount string, scale float64) reader {
	read := numbers(field{"amount", regexp.MustCompile(amount), scale}, elapsedField)
	return func(output []byte) ([]workload.Value, error) {
		v, err := read(output)
		if err != nil {
			return nil, err
		}
		if v[1].Value == 0 {
			return nil, fmt.Errorf("read throughput: %v in less than 1 ms: too little to measure", v[0].Value/scale)
		}
		return []workload.Value{{Metric: "throughput", Value: v[0].Value / v[1].Value}}, nil
	}
}

// postMarkFailure finds why PostMark ended early: its exit status is 0 then too.
var postMarkFailure = regexp.MustCompile(`(?m)^.*(?:out of files!|Error: .*)$`)

// readPostMark reads the rate of a run that did all its transactions.
func readPostMark(output []byte) ([]workload.Value, error) {
	if line := postMarkFailure.Find(output); line != nil {
		return nil, fmt.Errorf("read throughput: the run ended early: %s", workload.Quote(line))
	}
	return over(`(?m)^transactions (\d+)$`, 1)(output)
}

// apacheFailures finds a response that was not the page.
var apacheFailures = regexp.MustCompile(`(?m)^(?:Failed requests: +[1-9]|Non-2xx responses:).*$`)

var apacheRate = regexp.MustCompile(`(?m)^Requests per second: +([\d.]+) \[#/sec\] \(mean\)$`)

// readApache reads the rate of a run whose requests were all answered.
func readApache(output []byte) ([]workload.Value, error) {
	if line := apacheFailures.Find(output); line != nil {
		return nil, fmt.Errorf("read throughput: not every request was answered: %s", workload.Quote(line))
	}
	return numbers(field{"throughput", apacheRate, 1})(output)
}

var sunflowPassed = regexp.MustCompile(`(?m)^BENCH  info  : Image check passed!$`)

// readSunflow reads the seconds of a run whose image was the right one.
func readSunflow(output []byte) ([]workload.Value, error) {
	if !sunflowPassed.Match(output) {
		return nil, fmt.Errorf("read seconds of an image that passed its check: %w", missing(output))
	}
	return readElapsed(output)
}

// readJohn reads john's figure, which is in thousands or millions if it is large.
func readJohn(line string) reader {
	figure := func(unit string, scale float64) reader {
		return numbers(field{"throughput", regexp.MustCompile(`(?m)^` + line + `:\t([\d.]+)` + unit + ` c/s real`), scale})
	}
	plain, thousands, millions := figure("", 1), figure("K", 1e3), figure("M", 1e6)
	return func(output []byte) ([]workload.Value, error) {
		for _, read := range []reader{thousands, millions} {
			if values, err := read(output); err == nil {
				return values, nil
			}
		}
		return plain(output)
	}
}

// latencyMean is the thesis's application response time.
var latencyMean = field{"latency_mean", regexp.MustCompile(`(?m)^ +avg: +([\d.]+)$`), 1}

// readThreads divides events by time, because the threads test prints no rate.
func readThreads(output []byte) ([]workload.Value, error) {
	v, err := numbers(
		field{"total time", regexp.MustCompile(`(?m)^ +total time: +([\d.]+)s$`), 1},
		field{"total number of events", regexp.MustCompile(`(?m)^ +total number of events: +(\d+)$`), 1},
		latencyMean)(output)
	if err != nil {
		return nil, err
	}
	return []workload.Value{{Metric: "throughput", Value: v[1].Value / v[0].Value}, v[2]}, nil
}
