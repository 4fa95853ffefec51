package trace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"

	"github.com/parquet-go/parquet-go"

	"unnest/internal/plan/cluster"
)

// readParquet reads files with the columns of the csv format: user, pod and container are
// strings; cpu, in vCPUs, and memory, in bytes, are integers or floating-point numbers and
// may be null. Other columns are skipped.
func readParquet(ctx context.Context, paths []string, o *Options, rep *Report) ([]cluster.User, error) {
	return gather(paths, o, rep, func(path string, g *grouping) error { return readParquetFile(ctx, path, g, o, rep) })
}

func readParquetFile(ctx context.Context, path string, g *grouping, o *Options, rep *Report) error {
	file, err := os.Open(path)
	if err != nil {
		return fatal{err}
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	f, err := parquet.OpenFile(file, info.Size())
	if err != nil {
		return fmt.Errorf("not a complete parquet file: %w: name the format that the file has, or fetch it again", err)
	}
	at, err := ownLeaves(f.Schema())
	if err != nil {
		return err
	}
	t := &parquetTable{path: path, at: at, g: g, o: o, rep: rep, seen: names{}}
	for _, group := range f.RowGroups() {
		if err := t.group(ctx, group); err != nil {
			return err
		}
	}
	return nil
}

// ownLeaves returns where our columns are.
func ownLeaves(schema *parquet.Schema) (at [5]int, err error) {
	for i, name := range ownColumns {
		leaf, found := schema.Lookup(name)
		if !found {
			return at, fmt.Errorf("lacks the column %s: it needs user, pod, container, cpu and memory", name)
		}
		kind := leaf.Node.Type().Kind()
		if text := kind == parquet.ByteArray; text != (i < 3) || kind == parquet.Boolean || kind == parquet.Int96 || leaf.MaxRepetitionLevel > 0 {
			return at, fmt.Errorf("the column %s is of type %v: names are strings, cpu and memory numbers", name, kind)
		}
		at[i] = leaf.ColumnIndex
	}
	return at, nil
}

type parquetTable struct {
	path string
	at   [5]int
	line int
	g    *grouping
	o    *Options
	rep  *Report
	seen names
}

func (t *parquetTable) group(ctx context.Context, group parquet.RowGroup) error {
	rows := group.Rows()
	defer rows.Close()
	buffer := make([]parquet.Row, 512)
	for {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		n, err := rows.ReadRows(buffer)
		for _, row := range buffer[:n] {
			if err := t.row(row); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("row %d: %w: the file is damaged; fetch it again", t.line+1, err)
		}
	}
}

func (t *parquetTable) row(row parquet.Row) error {
	t.line++
	var r rowTable
	var cpu, memory amount
	var err error
	for _, v := range row {
		switch v.Column() {
		case t.at[0]:
			r.user = t.seen.of(v.ByteArray())
		case t.at[1]:
			r.pod = t.seen.of(v.ByteArray())
		case t.at[2]:
			r.name = t.seen.of(v.ByteArray())
		case t.at[3]:
			cpu, err = parquetAmount("cpu", v, cluster.VCPU, err)
		case t.at[4]:
			memory, err = parquetAmount("memory", v, 1, err)
		}
	}
	if err == nil {
		err = r.named()
	}
	if err != nil {
		return t.rep.broken(Broken{t.path, "row", t.line, err}, t.o)
	}
	if r.request = t.o.request(cpu, memory); !t.rep.add(r.request) {
		return nil
	}
	return t.g.add(r.user, r.pod, r.name, r.Resources)
}

// parquetAmount reads a number, or passes on an error of a column before.
func parquetAmount(column string, v parquet.Value, unit int64, before error) (amount, error) {
	if before != nil || v.IsNull() {
		return amount{}, before
	}
	switch v.Kind() {
	case parquet.Double:
		return floatAmount(column, v.Double(), unit)
	case parquet.Float:
		return floatAmount(column, float64(v.Float()), unit)
	case parquet.Int32:
		return wholeAmount(column, int64(v.Int32()), unit)
	}
	return wholeAmount(column, v.Int64(), unit)
}

func wholeAmount(column string, x, unit int64) (amount, error) {
	if x < 0 {
		return amount{why: Negative}, nil
	}
	value, err := number{mantissa: uint64(x)}.times(unit)
	if err != nil {
		return amount{}, fmt.Errorf("%s %d: %w", column, x, err)
	}
	return amount{value: value}, nil
}

// floatAmount returns x in units, rounded to the nearest.
func floatAmount(column string, x float64, unit int64) (amount, error) {
	value := math.Round(x * float64(unit))
	switch {
	case math.IsNaN(x) || math.IsInf(x, 0):
		return amount{why: NotANumber}, nil
	case x < 0:
		return amount{why: Negative}, nil
	case value >= math.MaxInt64:
		return amount{}, fmt.Errorf("%s %g: %w", column, x, errTooLarge)
	}
	return amount{value: int64(value)}, nil
}
