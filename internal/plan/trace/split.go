package trace

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// split returns the table of a line and its cells, which are valid until the next call.
type split func(line []byte) (*table, [][]byte, Reason, error)

// splitter returns how to split the lines of a file with rows of the tables.
func (c *Columns) splitter(tables []*table) split {
	switch t := tables[0]; {
	case c.json:
		return splitJSON(t)
	case t.columns == nil:
		h := needs(t.cells[:len(t.cells)-t.optional]...).orNot(t.cells[len(t.cells)-t.optional:]...)
		return func(line []byte) (*table, [][]byte, Reason, error) {
			cells, why, err := h.read(line)
			return t, cells, why, err
		}
	}
	return splitColumns(tables)
}

// splitColumns splits lines of tables without a header, which it tells apart by the number of
// columns and by table.when.
func splitColumns(tables []*table) split {
	most := 0
	for _, t := range tables {
		most = max(most, len(t.columns))
	}
	cells := make([][]byte, most)
	return func(line []byte) (*table, [][]byte, Reason, error) {
		n := columns(line, cells)
		for _, t := range tables {
			if n == len(t.columns) && (t.when.ref < 0 || t.when.of(cells)) {
				return t, cells[:n], kept, nil
			}
		}
		return nil, nil, kept, fmt.Errorf("has %d columns: want %s", n, wanted(tables))
	}
}

// wanted says how many columns rows have.
func wanted(tables []*table) string {
	var rows []string
	same := true
	for _, t := range tables {
		same = same && len(t.columns) == len(tables[0].columns)
		rows = append(rows, fmt.Sprintf("%d for %s", len(t.columns), t.row))
	}
	if same {
		return fmt.Sprintf("%d, as %s has", len(tables[0].columns), tables[0].row)
	}
	return strings.Join(rows, " or ")
}

// splitJSON splits lines with a JSON object each. A column is a key, or a path of keys with points
// between them. A key that lacks, and null, are an empty cell.
func splitJSON(t *table) split {
	of, paths := jsonType(t.cells)
	row := reflect.New(of)
	cells := make([][]byte, len(t.cells))
	return func(line []byte) (*table, [][]byte, Reason, error) {
		row.Elem().SetZero()
		if err := json.Unmarshal(line, row.Interface()); err != nil {
			return nil, nil, kept, fmt.Errorf("not %s: %w", t.row, err)
		}
		for i, path := range paths {
			var err error
			if cells[i], err = unquote(row.Elem().FieldByIndex(path).Bytes()); err != nil {
				return nil, nil, kept, inColumn(t.cells[i], cells[i], err)
			}
		}
		return t, cells, kept, nil
	}
}

// jsonType returns a type with a json.RawMessage for each column, so that one pass over a line
// decodes only these, and the index of each.
func jsonType(columns []string) (reflect.Type, [][]int) {
	var fields []reflect.StructField
	nested := map[string][]string{}
	for _, column := range columns {
		key, rest, deeper := strings.Cut(column, ".")
		if !slices.ContainsFunc(fields, func(f reflect.StructField) bool { return f.Tag.Get("json") == key }) {
			fields = append(fields, reflect.StructField{Name: fmt.Sprintf("F%d", len(fields)), Type: reflect.TypeFor[json.RawMessage](),
				Tag: reflect.StructTag(fmt.Sprintf("json:%q", key))})
		}
		if deeper {
			nested[key] = append(nested[key], rest)
		}
	}
	below := map[string][][]int{}
	for i := range fields {
		if rest := nested[fields[i].Tag.Get("json")]; rest != nil {
			fields[i].Type, below[fields[i].Tag.Get("json")] = jsonType(rest)
		}
	}
	var paths [][]int
	for _, column := range columns {
		key, rest, deeper := strings.Cut(column, ".")
		path := []int{slices.IndexFunc(fields, func(f reflect.StructField) bool { return f.Tag.Get("json") == key })}
		if deeper {
			path = append(path, below[key][slices.Index(nested[key], rest)]...)
		}
		paths = append(paths, path)
	}
	return reflect.StructOf(fields), paths
}

// unquote returns the text of a JSON value.
func unquote(raw []byte) ([]byte, error) {
	switch {
	case bytes.Equal(raw, []byte("null")):
		return nil, nil
	case bytes.IndexByte(raw, '\\') < 0:
		return bytes.Trim(raw, `"`), nil
	}
	var text string
	err := json.Unmarshal(raw, &text)
	return []byte(text), err
}
