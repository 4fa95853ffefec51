package trace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
)

// parse reads one line into a record, and says what becomes of it: kept passes the
// record on, blank is no row, any other reason is counted. An error breaks the
// line; one that is a fatal, or errPast, ends the file.
type parse[T any] func(line []byte, record *T) (Reason, error)

// fatal is an error that no other line can make good.
type fatal struct{ error }

func (f fatal) Unwrap() error { return f.error }

// errPast says that the file begins after the period, and so do those after it.
var errPast = errors.New("begins after the period")

const (
	chunkSize  = 256 << 10 // bytes that are read at once
	maxLine    = 16 << 20  // bytes of a line; beyond it is no table
	batchSize  = 2048      // records that are handed over at once
	batchesAhd = 128       // batches of one file that may wait for those before it
	strange    = 5         // broken lines at the beginning that make it another format
)

// batch is what became of some lines of a file, in their order.
type batch[T any] struct {
	records  []T
	excluded [reasons]int
	rows     int // without broken ones
	broken   []Broken
	brokens  int
	err      error // ends the file
}

// eachLine parses the lines of files, several files at once, and applies the
// records in the order of files and lines. newParse is called for each file.
func eachLine[T any](ctx context.Context, files []string, o *Options, rep *Report,
	newParse func() parse[T], apply func(*T) error) error {
	ctx, cancel := context.WithCancel(ctx)
	var workers sync.WaitGroup
	defer workers.Wait()
	defer cancel()

	pending := make(chan chan batch[T], max(o.Workers-1, 0))
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
				parseFile(ctx, path, newParse(), out)
			})
		}
	})
	for i, path := range files {
		out, more := <-pending
		if !more {
			return context.Cause(ctx)
		}
		err := applyFile(ctx, out, o, rep, apply)
		if errors.Is(err, errPast) {
			rep.Unread = append(rep.Unread, files[i:]...)
			return nil
		}
		if err != nil {
			return inFile(path, err)
		}
		rep.Files++
	}
	return nil
}

// inFile puts the name of the file before an error that does not have it.
func inFile(path string, err error) error {
	var named fatal
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.As(err, &named) {
		return err
	}
	return fmt.Errorf("%s: %w", path, err)
}

// applyFile applies what became of one file.
func applyFile[T any](ctx context.Context, out <-chan batch[T], o *Options, rep *Report, apply func(*T) error) error {
	for b := range out {
		rep.Rows += b.rows + b.brokens
		rep.Broken += b.brokens
		for _, example := range b.broken {
			if len(rep.Examples) < examples {
				rep.Examples = append(rep.Examples, example)
			}
		}
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
	}
	return context.Cause(ctx)
}

// parseFile parses the lines of a file into batches.
func parseFile[T any](ctx context.Context, path string, p parse[T], out chan<- batch[T]) {
	l := &lines[T]{path: path, parse: p, send: func(b batch[T]) bool {
		select {
		case out <- b:
			return true
		case <-ctx.Done():
			return false
		}
	}}
	r, err := open(path)
	if err != nil {
		l.send(batch[T]{err: fatal{err}})
		return
	}
	defer r.Close()
	chunks, free := make(chan chunk, 2), make(chan []byte, 4)
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		cancel()
		for range chunks { // until the reader has ended, because it uses r
		}
	}()
	go readChunks(ctx, r, chunks, free)
	for c := range chunks {
		if !l.chunk(c.lines) {
			return
		}
		if c.err != nil {
			l.end(c.err)
			return
		}
		select {
		case free <- c.buffer:
		default:
		}
	}
}

// chunk is some whole lines; the last of a file comes with io.EOF.
type chunk struct {
	lines  []byte
	buffer []byte // that the lines are in
	err    error
}

// readChunks reads and decompresses ahead of parsing.
func readChunks(ctx context.Context, r io.Reader, out chan<- chunk, free <-chan []byte) {
	defer close(out)
	var rest []byte
	for {
		var buffer []byte
		select {
		case buffer = <-free:
		default:
			buffer = make([]byte, chunkSize)
		}
		c := readChunk(r, buffer, rest)
		rest = bytes.Clone(c.buffer[len(c.lines):])
		if c.err == nil || errors.Is(c.err, io.EOF) {
			c.buffer = c.buffer[:cap(c.buffer)]
		}
		select {
		case out <- c:
		case <-ctx.Done():
			return
		}
		if c.err != nil {
			return
		}
	}
}

// readChunk fills the buffer, behind the rest of the chunk before, and grows it
// until there is a whole line in it. The buffer is returned cut to what was read.
func readChunk(r io.Reader, buffer, rest []byte) chunk {
	for len(buffer) < len(rest)+chunkSize/2 {
		buffer = make([]byte, 2*len(buffer))
	}
	n := copy(buffer, rest)
	for {
		m, err := r.Read(buffer[n:])
		n += m
		switch {
		case errors.Is(err, io.EOF):
			return chunk{buffer[:n], buffer[:n], io.EOF}
		case err != nil:
			return chunk{buffer[:lineEnd(buffer[:n])], buffer[:n], err}
		case n < len(buffer):
			continue
		}
		if end := lineEnd(buffer); end > 0 {
			return chunk{lines: buffer[:end], buffer: buffer}
		}
		if n >= maxLine {
			return chunk{nil, buffer, fmt.Errorf("a line is longer than %d MiB: this is no table of text", maxLine>>20)}
		}
		buffer = append(buffer, make([]byte, len(buffer))...)
	}
}

func lineEnd(b []byte) int { return bytes.LastIndexByte(b, '\n') + 1 }

// lines makes batches of the lines of one file.
type lines[T any] struct {
	path  string
	parse parse[T]
	send  func(batch[T]) bool

	next    batch[T]
	line    int // number of the last one
	rows    int // of the file
	brokens int // of the file
	first   error
}

// chunk parses lines, and reports whether to go on.
func (l *lines[T]) chunk(text []byte) bool {
	for len(text) > 0 {
		line := text
		if end := bytes.IndexByte(text, '\n'); end >= 0 {
			line, text = text[:end], text[end+1:]
		} else {
			text = nil
		}
		if !l.one(bytes.TrimSuffix(line, []byte{'\r'})) {
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
		b.records = make([]T, 0, batchSize)
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
	var final fatal
	switch {
	case errors.Is(err, errPast):
		l.flush(errPast)
		return false
	case errors.As(err, &final):
		l.flush(fatal{fmt.Errorf("%s:%d: %w", l.path, l.line, final.error)})
		return false
	}
	broken := Broken{l.path, l.line, err}
	if l.first == nil {
		l.first = broken.err()
	}
	b := &l.next
	b.brokens++
	l.brokens++
	if len(b.broken) < examples {
		b.broken = append(b.broken, broken)
	}
	if l.rows == 0 && l.brokens == strange {
		l.otherFormat()
		return false
	}
	return b.brokens < batchSize || l.flush(nil)
}

func (b Broken) err() error { return fmt.Errorf("%s", b.String()) }

func (l *lines[T]) otherFormat() {
	l.flush(fatal{fmt.Errorf("%w: no line is understood: name the format that the file has", l.first)})
}

// end hands over what is left.
func (l *lines[T]) end(err error) {
	switch {
	case !errors.Is(err, io.EOF):
		l.flush(fatal{fmt.Errorf("%w (after line %d)", readError(l.path, err), l.line)})
	case l.rows == 0 && l.brokens > 0 || l.brokens > l.rows:
		l.otherFormat()
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
