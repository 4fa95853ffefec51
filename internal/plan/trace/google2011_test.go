package trace

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"unnest.io/unnest/internal/plan/cluster"
)

// google2011 returns the directory with part 0 of clusterdata-2011-2, which the
// environment names, because the data is not ours to ship.
func google2011(t testing.TB) string {
	dir := os.Getenv("UNNEST_GOOGLE2011")
	if dir == "" {
		t.Skip("UNNEST_GOOGLE2011 does not name a directory with task_events and job_events, part 0 of 500 of " +
			"clusterdata-2011-2: THE READER WAS NOT TRIED ON REAL DATA")
	}
	return dir
}

// The numbers are of an awk program over the same file, which keeps in arrays by job
// and index the last SCHEDULE, end and UPDATE_RUNNING at or before T.
func TestGoogle2011Golden(t *testing.T) {
	dir := google2011(t)
	for _, c := range []struct {
		at                      time.Duration
		users, pods, containers int
		empty                   int
		cpu, memory             float64 // in largest machines
	}{
		{0, 507, 3974, 132980, 2, 7492.653850898, 5468.160151922},
		{3000 * time.Second, 507, 3977, 135407, 2, 7472.343207198, 5619.306850322},
		{5611 * time.Second, 507, 3968, 131408, 2, 7418.267644198, 5384.301552922},
	} {
		users, report, err := Read(t.Context(), "google2011", []string{dir}, Options{Period: At(c.at)})
		if err != nil {
			t.Fatal(err)
		}
		addsUp(t, report)
		if report.Users != c.users || report.Pods != c.pods || report.Containers != c.containers || report.excluded[NoRequest] != c.empty {
			t.Errorf("at %v: %d users, %d pods, %d containers, %d empty, want %d, %d, %d, %d", c.at,
				report.Users, report.Pods, report.Containers, report.excluded[NoRequest], c.users, c.pods, c.containers, c.empty)
		}
		if report.Rows != 450146 || report.Broken != 0 {
			t.Errorf("at %v: %s, want 450146 rows", c.at, shortly(report))
		}
		var sum cluster.Resources
		for _, u := range users {
			for _, p := range u.Pods {
				sum = sum.Add(p.Request())
			}
		}
		cpu, memory := float64(sum.CPU)/(96*cluster.VCPU), float64(sum.Memory)/(384<<30)
		if math.Abs(cpu-c.cpu) > 1e-6 || math.Abs(memory-c.memory) > 1e-6 {
			t.Errorf("at %v: %.9f CPU and %.9f memory, want %.9f and %.9f", c.at, cpu, memory, c.cpu, c.memory)
		}
	}
}

// At time 0 there are schedule rows and submit rows, and each of the former counts.
func TestGoogle2011Beginning(t *testing.T) {
	_, report, err := Read(t.Context(), "google2011", []string{google2011(t)}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if report.Kept+report.excluded[NoRequest] != 132982 || report.excluded[OtherEvent] != 144339 || report.excluded[Outside] != 172825 {
		t.Error(shortly(report), "; want 132982 SCHEDULE rows, 144339 SUBMIT rows, 172825 later rows")
	}
}

func BenchmarkGoogle2011(b *testing.B) {
	dir := google2011(b)
	for _, c := range []struct {
		name string
		at   time.Duration
	}{{"beginning", 0}, {"end", 5611 * time.Second}} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			rows := 0
			for b.Loop() {
				_, report, err := Read(b.Context(), "google2011", []string{dir}, Options{Period: At(c.at)})
				if err != nil {
					b.Fatal(err)
				}
				rows += report.Rows
			}
			b.ReportMetric(float64(rows)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}

// BenchmarkGoogle2011Scan decompresses the same file and counts its lines: a lower bound for
// any reader on one processor.
func BenchmarkGoogle2011Scan(b *testing.B) {
	path := filepath.Join(google2011(b), "task_events")
	for b.Loop() {
		n, err := scan(b.Context(), []string{path})
		if err != nil {
			b.Fatal(err)
		}
		b.SetBytes(n)
	}
}

// BenchmarkParseTask2011 parses a line without reading it from a file.
func BenchmarkParseTask2011(b *testing.B) {
	o, c := Options{}, builtinColumns("google2011")
	if err := o.complete(c); err != nil {
		b.Fatal(err)
	}
	p := c.parse(&o)
	line := []byte("0,2,3418309,1,4155527081,1,70s3v5qRyCO/1PCdI6fVXnrW8FU/w+5CKRSa72xgcIo=,3,9,0.125,0.07446,0.0004244,0")
	b.SetBytes(int64(len(line)))
	b.ReportAllocs()
	var e record
	for b.Loop() {
		if _, err := p(line, &e); err != nil {
			b.Fatal(err)
		}
	}
}

// scan decompresses files and counts their lines, which no reader does faster, and returns
// the number of decompressed bytes.
func scan(ctx context.Context, paths []string) (n int64, err error) {
	files, err := expand(paths)
	if err != nil {
		return 0, err
	}
	for _, path := range files {
		r, err := open(ctx, path, nil)
		if err != nil {
			return n, err
		}
		var lines lineCounter
		m, err := io.Copy(&lines, r)
		n += m
		if err = errors.Join(err, r.Close(), context.Cause(ctx)); err != nil {
			return n, inFile(path, err)
		}
	}
	return n, nil
}

type lineCounter int

func (c *lineCounter) Write(p []byte) (int, error) {
	*c += lineCounter(bytes.Count(p, []byte{'\n'}))
	return len(p), nil
}
