package suite

import (
	"encoding/json"
	"fmt"
	"time"

	"unnest/internal/measure/workload"
)

// fioRun is a job of fio on files in the directory, named after the job. Files
// are not allocated ahead of time, as the paper's programs do not, and reading
// starts with the page cache as it is.
func fioRun(directory, job, options string) string {
	return fmt.Sprintf("fio --output-format=json --directory=%s --name=%s --group_reporting"+
		" --fallocate=none --invalidate=0 --randseed=1 %s\n", directory, job, options)
}

// aioStress is the paper's AIO-Stress: random writes of 64 KiB to one file by one
// thread, 64 in flight, 8 handed in at a time.
func aioStress() Case {
	return Case{
		Suite: "disk", Name: "aio-stress", Title: "Asynchronous writes at random", Paper: "AIO-Stress",
		Package: "fio", Tools: []string{"fio"}, Metrics: oneRate("MB/s"),
		Run: func(p Profile, _ Resources) string {
			return scratch(fioRun("scratch", "aio", fmt.Sprintf(
				"--ioengine=libaio --rw=randwrite --bs=64k --size=%d --iodepth=64 --iodepth_batch=8", pick(p, 32*mib, 2*gib))))
		},
		Parse: fioWrite,
		Wall:  wall(10*time.Second, 2*time.Minute),
	}
}

// ioZone is the paper's IOzone, by records of 4 KiB, the smallest its profile
// has: writing a file up to the end of fsync, and reading it when it was just
// written. The paper's file has 8 GiB, half of the memory of its machine, and is
// read from the page cache.
func ioZone() []Case {
	size := func(p Profile) int64 { return pick(p, 32*mib, 8*gib) }
	return []Case{
		{
			Suite: "disk", Name: "iozone-read", Title: "Read of a file in order", Paper: "IOzone1",
			Package: "fio", Tools: []string{"fio"}, Metrics: oneRate("MB/s"),
			Prepare: func(p Profile, _ Resources) string {
				return fmt.Sprintf("head -c %d /dev/zero >iozone.0.0\n", size(p))
			},
			Run: func(p Profile, _ Resources) string {
				return "cat iozone.0.0 >/dev/null\n" + fioRun(".", "iozone", fmt.Sprintf(
					"--ioengine=psync --rw=read --bs=4k --size=%d --loops=%d", size(p), pick(p, 4, 1)))
			},
			Parse: fioRead,
			Wall:  wall(10*time.Second, 10*time.Minute),
		},
		{
			Suite: "disk", Name: "iozone-write", Title: "Write of a file in order", Paper: "IOzone2",
			Package: "fio", Tools: []string{"fio"}, Metrics: oneRate("MB/s"),
			Run: func(p Profile, _ Resources) string {
				return scratch(fioRun("scratch", "iozone", fmt.Sprintf(
					"--ioengine=psync --rw=write --bs=4k --size=%d --end_fsync=1", size(p))))
			},
			Parse: fioWrite,
			Wall:  wall(20*time.Second, 20*time.Minute),
		},
	}
}

// threadedIO is the paper's Threaded I/O Tester: 32 threads, each with a file of
// its own (64 MiB in the paper), which read or write 1,000 blocks of 4 KiB at
// random. Writes are synchronous. The quick profile writes fewer.
func threadedIO() []Case {
	size := func(p Profile) int64 { return pick(p, mib, 64*mib) }
	run := func(p Profile, options string) string {
		return fioRun(".", "tiobench", fmt.Sprintf(
			"--ioengine=psync --thread --numjobs=32 --bs=4k --size=%d --norandommap %s", size(p), options))
	}
	prepare := func(p Profile, _ Resources) string {
		return fmt.Sprintf("for i in $(seq 0 31); do head -c %d /dev/zero >tiobench.$i.0; done\n", size(p))
	}
	return []Case{
		{
			Suite: "disk", Name: "tiobench-read", Title: "Reads at random by 32 threads", Paper: "Threaded I/O Tester1",
			Package: "fio", Tools: []string{"fio"}, Metrics: oneRate("MB/s"),
			Prepare: prepare,
			Run: func(p Profile, _ Resources) string {
				return "cat tiobench.*.0 >/dev/null\n" + run(p, "--rw=randread --io_size=4000k")
			},
			Parse: fioRead,
			Wall:  wall(10*time.Second, 2*time.Minute),
		},
		{
			Suite: "disk", Name: "tiobench-write", Title: "Synchronous writes at random by 32 threads", Paper: "Threaded I/O Tester2",
			Package: "fio", Tools: []string{"fio"}, Metrics: oneRate("MB/s"),
			Prepare: prepare,
			Run: func(p Profile, _ Resources) string {
				return run(p, "--rw=randwrite --sync=1 --io_size="+pick(p, "64k", "4000k"))
			},
			Parse: fioWrite,
			Wall:  wall(20*time.Second, 15*time.Minute),
		},
	}
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

// fioRead and fioWrite read the throughput of one job.
func fioRead(output []byte) ([]workload.Value, error)  { return readFio("read", output) }
func fioWrite(output []byte) ([]workload.Value, error) { return readFio("write", output) }

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
