package plan

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/gzip"

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
		n, err := scan(ctx, path)
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

// scan counts the lines of all files below path, and returns their decompressed bytes.
func scan(ctx context.Context, path string) (n int64, err error) {
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return 0, err
	}
	err = filepath.WalkDir(path, func(file string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		bytes, err := scanFile(ctx, file)
		n += bytes
		return err
	})
	return n, err
}

func scanFile(ctx context.Context, file string) (n int64, err error) {
	f, err := os.Open(file)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	r := io.Reader(bufio.NewReaderSize(f, 1<<20))
	if strings.HasSuffix(file, ".gz") {
		if r, err = gzip.NewReader(r); err != nil {
			return 0, fmt.Errorf("%s: %w", file, err)
		}
	}
	buffer := make([]byte, 1<<20)
	lines := 0
	for ctx.Err() == nil {
		k, err := r.Read(buffer)
		n += int64(k)
		lines += bytes.Count(buffer[:k], []byte{'\n'})
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, fmt.Errorf("%s: %w", file, err)
		}
	}
	return n, context.Cause(ctx)
}
