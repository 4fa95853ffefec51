package suite

import (
	"encoding/json"
	"fmt"
	"time"

	"unnest/internal/measure/workload"
)

// fio is a case of suite disk that one job of fio measures. prepare and run are
// templates, see script; prepare may be empty. direction is read or write.
func fio(name, title, paper, direction, prepare, run string, wall func(Profile) time.Duration) Case {
	c := Case{
		Name: name, Title: title, Paper: paper, Package: "fio", Tools: []string{"fio"}, Metrics: oneRate("MB/s"),
		Run: script(run), Wall: wall,
		Parse: func(output []byte) ([]workload.Value, error) { return readFio(direction, output) },
	}
	if prepare != "" {
		c.Prepare = script(prepare)
	}
	return c
}

// fioRun runs a job of fio on files in the directory, which are named after the job.
// The options match the paper's tools: files are not allocated ahead of time, and
// reading starts with the page cache as it is.
func fioRun(directory, job, options string) string {
	return fmt.Sprintf("fio --output-format=json --directory=%s --name=%s --group_reporting"+
		" --fallocate=none --invalidate=0 --randseed=1 %s\n", directory, job, options)
}

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
