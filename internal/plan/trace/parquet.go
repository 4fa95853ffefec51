package trace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"os"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"

	"unnest/internal/plan/cluster"
)

// readParquet reads files with the columns of the csv format: user, pod and container are
// strings; cpu, in vCPUs, and memory, in bytes, are integers, decimals or floating-point
// numbers and may be null. Other columns are skipped.
func readParquet(ctx context.Context, paths []string, o *Options, rep *Report) ([]cluster.User, error) {
	return gather(paths, o, rep, func(path string, g *grouping) error { return readParquetFile(ctx, path, g, o, rep) })
}

func readParquetFile(ctx context.Context, path string, g *grouping, o *Options, rep *Report) (err error) {
	defer func() { // the library takes offsets and lengths of a file to be right
		if cause := recover(); cause != nil {
			err = fmt.Errorf("not a complete parquet file: %v: fetch it again", cause)
		}
	}()
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
	t := &parquetTable{path: path, g: g, o: o, rep: rep, seen: names{}}
	if err := t.columns(f); err != nil {
		return err
	}
	for _, group := range f.RowGroups() {
		if group.NumRows() == 0 {
			continue // its column chunks may have no pages
		}
		if err := t.group(ctx, group); err != nil {
			return err
		}
	}
	return nil
}

// columns finds our columns, and returns an error unless each can be read.
func (t *parquetTable) columns(f *parquet.File) error {
	for i, name := range ownColumns {
		leaf, found := f.Schema().Lookup(name)
		if !found {
			return fmt.Errorf("lacks the column %s: it needs user, pod, container, cpu and memory", name)
		}
		t.at[i] = leaf.ColumnIndex
		kind := leaf.Node.Type().Kind()
		if i >= numberColumns {
			number, ok := numberOf(leaf.Node.Type())
			if !ok || leaf.MaxRepetitionLevel > 0 {
				return fmt.Errorf("the column %s is of type %v: names are strings, cpu and memory numbers", name, leaf.Node.Type())
			}
			t.numbers[i-numberColumns] = number
		} else if kind != parquet.ByteArray || leaf.MaxRepetitionLevel > 0 {
			return fmt.Errorf("the column %s is of type %v: names are strings, cpu and memory numbers", name, kind)
		}
		for _, group := range f.Metadata().RowGroups {
			codec := group.Columns[leaf.ColumnIndex].MetaData.Codec
			if codec == format.Lz4 || codec == format.LZO {
				return fmt.Errorf("the column %s is compressed with %v, which is not supported: write it with SNAPPY, ZSTD or LZ4_RAW", name, codec)
			}
		}
	}
	return nil
}

// numberColumns is how many of ownColumns are before cpu and memory.
const numberColumns = 3

// parquetNumber says how a column stores numbers.
type parquetNumber struct {
	scale    int32 // decimals of a stored integer
	unsigned bool
}

// numberOf reports whether a type is one of numbers, and which.
func numberOf(of parquet.Type) (n parquetNumber, ok bool) {
	kind := of.Kind()
	if kind == parquet.Boolean || kind == parquet.Int96 {
		return n, false
	}
	bytes := kind == parquet.ByteArray || kind == parquet.FixedLenByteArray
	if of.LogicalType() == nil {
		return n, !bytes
	}
	switch logical := of.LogicalType().Value.(type) {
	case nil:
		return n, !bytes
	case *format.DecimalType:
		return parquetNumber{scale: logical.Scale}, logical.Scale >= 0
	case *format.IntType:
		return parquetNumber{unsigned: !logical.IsSigned}, !bytes
	}
	return n, false // a date, a time, …
}

type parquetTable struct {
	path    string
	at      [5]int
	numbers [2]parquetNumber // of cpu and memory
	line    int
	g       *grouping
	o       *Options
	rep     *Report
	seen    names
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
			cpu, err = t.numbers[0].amount("cpu", v, cluster.VCPU, err)
		case t.at[4]:
			memory, err = t.numbers[1].amount("memory", v, 1, err)
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

// amount reads a number, or passes on an error of a column before.
func (n parquetNumber) amount(column string, v parquet.Value, unit int64, before error) (amount, error) {
	if before != nil || v.IsNull() {
		return amount{}, before
	}
	switch v.Kind() {
	case parquet.Double:
		return floatAmount(column, v.Double(), unit)
	case parquet.Float:
		return floatAmount(column, float64(v.Float()), unit)
	}
	x := n.integer(v)
	switch {
	case x.Sign() < 0:
		return amount{why: Negative}, nil
	case !x.IsUint64():
		return amount{}, fmt.Errorf("%s %v with %d decimals: %w", column, x, n.scale, errTooLarge)
	}
	value, err := number{mantissa: x.Uint64(), exponent: -int(n.scale)}.times(unit)
	if err != nil {
		return amount{}, fmt.Errorf("%s %v with %d decimals: %w", column, x, n.scale, err)
	}
	return amount{value: value}, nil
}

// integer returns the stored integer, without its scale.
func (n parquetNumber) integer(v parquet.Value) *big.Int {
	switch kind := v.Kind(); {
	case kind == parquet.Int32 && n.unsigned:
		return big.NewInt(int64(v.Uint32()))
	case kind == parquet.Int32:
		return big.NewInt(int64(v.Int32()))
	case kind == parquet.Int64 && n.unsigned:
		return new(big.Int).SetUint64(v.Uint64())
	case kind == parquet.Int64:
		return big.NewInt(v.Int64())
	}
	text := v.ByteArray() // in two's complement
	x := new(big.Int).SetBytes(text)
	if len(text) > 0 && text[0] >= 0x80 {
		x.Sub(x, new(big.Int).Lsh(big.NewInt(1), uint(8*len(text))))
	}
	return x
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
