package trace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
)

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
