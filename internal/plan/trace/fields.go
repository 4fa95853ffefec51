package trace

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// columns splits a line at commas into at most len(into) columns, and returns how many
// there are. A column in double quotes may contain commas and doubled quotes, but no line
// break.
func columns(line []byte, into [][]byte) int {
	if bytes.IndexByte(line, '"') >= 0 {
		return quotedColumns(line, into)
	}
	n := 0
	for {
		end := bytes.IndexByte(line, ',')
		if end < 0 {
			break
		}
		if n < len(into) {
			into[n] = line[:end]
		}
		n++
		line = line[end+1:]
	}
	if n < len(into) {
		into[n] = line
	}
	return n + 1
}

func quotedColumns(line []byte, into [][]byte) int {
	n := 0
	for {
		field, rest, more := quotedColumn(line)
		if n < len(into) {
			into[n] = field
		}
		n++
		if !more {
			return n
		}
		line = rest
	}
}

// quotedColumn returns the first column, the text after its comma, and whether there is a
// comma.
func quotedColumn(line []byte) (field, rest []byte, more bool) {
	if len(line) == 0 || line[0] != '"' {
		return bytes.Cut(line, []byte{','})
	}
	for i := 1; i < len(line); i++ {
		switch {
		case line[i] != '"':
			field = append(field, line[i])
		case i+1 < len(line) && line[i+1] == '"':
			field = append(field, '"')
			i++
		default:
			_, rest, more = bytes.Cut(line[i+1:], []byte{','})
			return field, rest, more
		}
	}
	return field, nil, false
}

// header finds columns by their names, and skips other columns.
type header struct {
	want  []string
	extra []string // columns that may lack
	at    []int    // indices of the wanted columns
	row   [][]byte
	found bool
	out   [][]byte // result of read, valid until the next call
}

func needs(names ...string) *header { return &header{want: names} }

// orNot adds columns that are empty if the header lacks them.
func (h *header) orNot(names ...string) *header {
	h.extra = names
	return h
}

// read splits a line into the wanted columns. The first line is the header: read returns
// blank for it, or a fatal error when a column is missing.
func (h *header) read(line []byte) ([][]byte, Reason, error) {
	if !h.found {
		return nil, blank, h.names(line)
	}
	if n := columns(line, h.row); n != len(h.row) {
		return nil, kept, fmt.Errorf("has %d columns: want %d, as the header has", n, len(h.row))
	}
	for i, at := range h.at {
		h.out[i] = nil
		if at >= 0 {
			h.out[i] = h.row[at]
		}
	}
	return h.out, kept, nil
}

func (h *header) names(line []byte) error {
	h.found, h.out = true, make([][]byte, len(h.want)+len(h.extra))
	line = bytes.TrimPrefix(line, []byte("\ufeff"))
	h.row = make([][]byte, bytes.Count(line, []byte{','})+1)
	h.row = h.row[:columns(line, h.row)]
	var names []string
	for _, name := range h.row {
		names = append(names, strings.TrimSpace(string(name)))
	}
	for _, want := range h.want {
		at := slices.Index(names, want)
		if at < 0 {
			return fatal{fmt.Errorf("the header %q lacks the column %s: the first line must name %s",
				clip(line), want, strings.Join(h.want, ","))}
		}
		h.at = append(h.at, at)
	}
	for _, name := range h.extra {
		h.at = append(h.at, slices.Index(names, name))
	}
	return nil
}

// names keeps one string for equal texts, to save memory.
type names map[string]string

func (n names) of(text []byte) string {
	if s, known := n[string(text)]; known {
		return s
	}
	s := string(text)
	n[s] = s
	return s
}
