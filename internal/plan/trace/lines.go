package trace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
)

// parse reads one line into a record. kept passes the record on, blank is not a row, and
// any other reason is counted. An error breaks the line; a fatal error, or errPast, ends
// the file.
type parse[T any] func(line []byte, record *T) (Reason, error)

// fatal is an error that ends the reading.
type fatal struct{ error }

func (f fatal) Unwrap() error { return f.error }

// errPast says that a file begins after the period.
var errPast = errors.New("begins after the period")

const (
	chunkSize  = 256 << 10 // bytes read at once
	maxLine    = 16 << 20  // bytes of a line; a longer one is not a line of a table
	batchSize  = 2048      // records handed over at once
	batchesAhd = 128       // batches of one file that may wait for the files before it
	giveUp     = 5         // broken lines at the start after which reading stops
)

// batch is the outcome of some lines of a file, in their order.
type batch[T any] struct {
	records  []T
	excluded [reasons]int
	rows     int      // without broken ones
	broken   int      // rows
	examples []Broken // the first of the broken rows
	err      error    // ends the file
}

// eachLine parses several files at once, and applies the records in the order of files
// and lines. It calls newParse for each file.
func eachLine[T any](ctx context.Context, files []string, o *Options, rep *Report,
	newParse func() parse[T], apply func(*T) error) error {
	ctx, cancel := context.WithCancel(ctx)
	var workers sync.WaitGroup
	defer workers.Wait()
	defer cancel()

	pending, free := make(chan chan batch[T], max(o.Workers-1, 0)), make(chan []T, 2*max(o.Workers, 1))
	workers.Go(func() {
		defer close(pending)
		for _, path := range files {
			out := make(chan batch[T], batchesAhd)
			select {
			case pending <- out:
			case <-ctx.Done():
				return
			}
			workers.Go(func() {
				defer close(out)
				parseFile(ctx, path, o, newParse(), out, free)
			})
		}
	})
	for _, path := range files {
		out, more := <-pending
		if !more {
			return context.Cause(ctx)
		}
		rows, skipped := rep.Rows, len(rep.Unread) > 0
		err := applyFile(ctx, out, free, o, rep, apply)
		// Files after a skipped one are later still: one without a readable row is skipped, too.
		if errors.Is(err, errPast) || skipped && rep.Rows == rows && errors.As(err, new(fatal)) && ctx.Err() == nil {
			rep.Unread = append(rep.Unread, path)
			continue
		}
		if err != nil {
			return inFile(path, err)
		}
		rep.Files++
	}
	return nil
}

// inFile adds the name of the file to an error that lacks it.
func inFile(path string, err error) error {
	var named fatal
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.As(err, &named) {
		return err
	}
	return fmt.Errorf("%s: %w", display(path), err)
}

// applyFile applies the batches of a file, and gives the memory of their records to the next ones.
func applyFile[T any](ctx context.Context, out <-chan batch[T], free chan<- []T, o *Options, rep *Report, apply func(*T) error) error {
	for b := range out {
		rep.Rows += b.rows + b.broken
		rep.Broken += b.broken
		rep.Examples = append(rep.Examples, b.examples[:min(len(b.examples), examples-len(rep.Examples))]...)
		for why, n := range b.excluded {
			rep.excluded[why] += n
		}
		if b.err != nil {
			return b.err
		}
		if err := rep.tooBroken(o); err != nil {
			return fatal{err}
		}
		for i := range b.records {
			if err := apply(&b.records[i]); err != nil {
				return err
			}
		}
		select {
		case free <- b.records[:0]:
		default:
		}
	}
	return context.Cause(ctx)
}

// lines makes batches of the lines of one file.
type lines[T any] struct {
	path  string
	parse parse[T]
	send  func(batch[T]) bool
	free  <-chan []T // memory of records that were applied

	next   batch[T]
	line   int // number of the last one
	header bool
	rows   int // of the file
	broken int // of the file
	first  Broken
}

// chunk parses lines, and reports whether to go on.
func (l *lines[T]) chunk(text []byte) bool {
	for line := range bytes.Lines(text) {
		if !l.one(bytes.TrimSuffix(bytes.TrimSuffix(line, []byte{'\n'}), []byte{'\r'})) {
			return false
		}
	}
	return true
}

// one parses a line, and reports whether to go on.
func (l *lines[T]) one(line []byte) bool {
	l.line++
	if len(line) == 0 {
		return true
	}
	b := &l.next
	if cap(b.records) == 0 {
		select {
		case b.records = <-l.free:
		default:
			b.records = make([]T, 0, batchSize)
		}
	}
	b.records = b.records[:len(b.records)+1]
	why, err := l.parse(line, &b.records[len(b.records)-1])
	if err != nil || why != kept {
		b.records = b.records[:len(b.records)-1]
	}
	switch {
	case err != nil:
		return l.breaks(err)
	case why == blank:
		l.header = true
		return true
	case why != kept:
		b.excluded[why]++
	}
	b.rows++
	l.rows++
	return len(b.records) < batchSize && b.rows < 8*batchSize || l.flush(nil)
}

// breaks counts a broken line, and reports whether to go on.
func (l *lines[T]) breaks(err error) bool {
	broken := Broken{l.path, "line", l.line, err}
	var final fatal
	switch {
	case errors.Is(err, errPast):
		return l.flush(errPast)
	case errors.As(err, &final):
		broken.Err = final.error
		return l.flush(fatal{errors.New(broken.String())})
	}
	if l.broken == 0 {
		l.first = broken
	}
	b := &l.next
	b.broken++
	l.broken++
	if len(b.examples) < examples {
		b.examples = append(b.examples, broken)
	}
	if l.rows == 0 && l.broken == giveUp {
		return l.flush(l.mostlyBroken())
	}
	return b.broken < batchSize || l.flush(nil)
}

// mostlyBroken returns the error for a file with more broken lines than others. Without a
// header nothing says that the file has the format at all.
func (l *lines[T]) mostlyBroken() error {
	advice := ""
	switch {
	case !l.header:
		advice = ": name the format that the file has"
	case l.broken > 1:
		advice = fmt.Sprintf(" (%d of the first %d rows are broken)", l.broken, l.rows+l.broken)
	}
	return fatal{errors.New(l.first.String() + advice)}
}

func (l *lines[T]) end(err error) {
	switch {
	case !errors.Is(err, io.EOF):
		l.flush(fatal{fmt.Errorf("%w (after line %d)", readError(l.path, err), l.line)})
	case l.broken > l.rows:
		l.flush(l.mostlyBroken())
	default:
		l.flush(nil)
	}
}

// flush hands over a batch, and reports whether to go on.
func (l *lines[T]) flush(err error) bool {
	b := l.next
	b.err = err
	l.next = batch[T]{}
	return l.send(b) && err == nil
}

// understood returns an error when the first lines of a file are not of the format.
func understood[T any](ctx context.Context, path string, o *Options, newParse func() parse[T]) error {
	enough := errors.New("understood")
	err := eachLine(ctx, []string{path}, o, &Report{}, newParse, func(*T) error { return fatal{enough} })
	if errors.Is(err, enough) {
		return nil
	}
	return err
}

func parseFile[T any](ctx context.Context, path string, o *Options, p parse[T], out chan<- batch[T], records <-chan []T) {
	l := &lines[T]{path: display(path), parse: p, free: records, send: func(b batch[T]) bool {
		select {
		case out <- b:
			return true
		case <-ctx.Done():
			return false
		}
	}}
	r, err := open(ctx, path, o.Stdin)
	if err != nil {
		l.send(batch[T]{err: fatal{err}})
		return
	}
	defer r.Close()
	chunks, free := make(chan chunk, 2), make(chan []byte, 4)
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		cancel()
		for range chunks { // until readChunks no longer uses r
		}
	}()
	go readChunks(ctx, r, chunks, free)
	for c := range chunks {
		if !l.chunk(c.lines) {
			return
		}
		if c.err != nil {
			l.end(c.err)
		}
		select {
		case free <- c.lines:
		default:
		}
	}
}

// chunk is some whole lines. The last of a file has an error, io.EOF if all is well.
type chunk struct {
	lines []byte
	err   error
}

// readChunks reads and decompresses ahead of parsing. It reuses the memory of free chunks.
func readChunks(ctx context.Context, r io.Reader, out chan<- chunk, free <-chan []byte) {
	defer close(out)
	var rest []byte // incomplete line
	var err error
	for err == nil {
		var buffer []byte
		select {
		case buffer = <-free:
		default:
		}
		buffer = slices.Grow(buffer[:0], len(rest)+chunkSize)[:len(rest)+chunkSize]
		n := copy(buffer, rest)
		for m := 0; err == nil && n < len(buffer); n += m {
			m, err = r.Read(buffer[n:])
		}
		end := n
		if !errors.Is(err, io.EOF) {
			end = bytes.LastIndexByte(buffer[:n], '\n') + 1
		}
		if rest = buffer[end:n]; err == nil && len(rest) > maxLine {
			err = fmt.Errorf("a line is longer than %d MiB: name a file of text with one row in each line", maxLine>>20)
		}
		select {
		case out <- chunk{buffer[:end], err}:
		case <-ctx.Done():
			return
		}
	}
}
