package plan

import (
	"context"
	"slices"
	"time"

	"unnest/internal/plan/trace"
)

// reading compares trace.Read with a plain scan of the same files, which decompresses them
// and counts line ends. The two alternate.
func (b *benchmark) reading(ctx context.Context, format, path string) error {
	var scans, reads []time.Duration
	var rows int
	var bytes int64
	for range b.repetitions {
		begin := time.Now()
		n, err := trace.Scan(ctx, []string{path})
		if err != nil {
			return err
		}
		scans = append(scans, time.Since(begin))
		begin = time.Now()
		_, report, err := trace.Read(ctx, format, []string{path}, trace.Options{})
		if err != nil {
			return err
		}
		reads = append(reads, time.Since(begin))
		rows, bytes = report.Rows, n
	}
	scanned, read := median(scans), median(reads)
	b.printf("  reading: %d rows, %.1f MB decompressed, medians of %d in turns: %.0f rows/s, %.0f MB/s; plain scan of the bytes %.0f MB/s, so reading takes %.1f times as long\n",
		rows, float64(bytes)/1e6, b.repetitions, float64(rows)/read.Seconds(), float64(bytes)/1e6/read.Seconds(),
		float64(bytes)/1e6/scanned.Seconds(), read.Seconds()/scanned.Seconds())
	return nil
}

func median(times []time.Duration) time.Duration {
	slices.Sort(times)
	return times[len(times)/2]
}
