package trace

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

// decimalRow has a row of decimals in each form that writers use: 313600 thousandths are
// 313.6, and 16 bytes hold the 38 digits of Spark.
type decimalRow struct {
	User      string   `parquet:"user"`
	Pod       string   `parquet:"pod"`
	Container string   `parquet:"container"`
	CPU       int64    `parquet:"cpu,decimal(3:18)"`
	Memory    [16]byte `parquet:"memory,decimal(2:38)"`
}

// sixteen returns an integer as 16 bytes in two's complement.
func sixteen(x int64) (b [16]byte) {
	if x < 0 {
		for i := range b {
			b[i] = 0xff
		}
	}
	binary.BigEndian.PutUint64(b[8:], uint64(x))
	return b
}

var decimalRows = []decimalRow{
	{"u", "p", "a", 313_600, sixteen(100 << 20)},
	{"u", "p", "b", 1, sixteen(-100)},
	{"u", "p", "c", 35_168, sixteen(200 << 20)},
}

const decimalsRead = "u p: a=313.6/1 c=35.168/2\n"

// A decimal has its scale, in every physical type.
func TestParquetDecimals(t *testing.T) {
	users, rep, err := Read(t.Context(), "parquet", []string{inParquet(t, decimalRows)}, Options{})
	if err != nil || show(users) != decimalsRead || rep.excluded[Negative] != 1 {
		t.Errorf("got %q, %s, %v; want %q and one negative request", show(users), shortly(rep), err, decimalsRead)
	}
	type small struct {
		User      string `parquet:"user"`
		Pod       string `parquet:"pod"`
		Container string `parquet:"container"`
		CPU       int32  `parquet:"cpu,decimal(2:9)"`
		Memory    uint64 `parquet:"memory"`
	}
	users, rep, err = Read(t.Context(), "parquet", []string{inParquet(t, []small{{"u", "p", "c", 150, 1 << 20}, {"u", "p", "d", 150, 1 << 63}})}, Options{})
	if err != nil || show(users) != "u p: c=1.5/1\n" || rep.Broken != 1 {
		t.Errorf("got %q, %s, %v; want 1.5 vCPU, and a broken row of 2⁶³ bytes", show(users), shortly(rep), err)
	}
	type timed struct {
		User      string `parquet:"user"`
		Pod       string `parquet:"pod"`
		Container string `parquet:"container"`
		CPU       int64  `parquet:"cpu,timestamp"`
		Memory    int64  `parquet:"memory"`
	}
	if _, _, err := Read(t.Context(), "parquet", []string{inParquet(t, []timed{{"u", "p", "c", 1, 1}})}, Options{}); err == nil || !strings.Contains(err.Error(), "the column cpu is of type TIMESTAMP") {
		t.Errorf("a time as cpu: error %v", err)
	}
}

// edited changes the footer of a parquet file, for forms that our library does not write.
func edited(t *testing.T, path string, edit func(*format.FileMetaData)) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	end := len(text) - 8
	start := end - int(binary.LittleEndian.Uint32(text[end:]))
	var footer format.FileMetaData
	if err := thrift.Unmarshal(new(thrift.CompactProtocol), text[start:end], &footer); err != nil {
		t.Fatal(err)
	}
	edit(&footer)
	changed, err := thrift.Marshal(new(thrift.CompactProtocol), footer)
	if err != nil {
		t.Fatal(err)
	}
	text = slices.Concat(text[:start], changed, binary.LittleEndian.AppendUint32(nil, uint32(len(changed))), []byte("PAR1"))
	path = filepath.Join(t.TempDir(), "edited.parquet")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A row group without rows has column chunks without pages: pyarrow and Spark write them.
func TestParquetEmptyRowGroups(t *testing.T) {
	for _, at := range []string{"before", "after", "alone"} {
		path := edited(t, inParquet(t, decimalRows), func(f *format.FileMetaData) {
			empty := f.RowGroups[0]
			empty.NumRows, empty.TotalByteSize = 0, 0
			empty.Columns = append([]format.ColumnChunk(nil), empty.Columns...)
			for i := range empty.Columns {
				c := &empty.Columns[i]
				c.MetaData.NumValues, c.MetaData.TotalCompressedSize, c.MetaData.TotalUncompressedSize = 0, 0, 0
				c.FileOffset, c.MetaData.DataPageOffset, c.MetaData.DictionaryPageOffset = 0, 0, 0
				c.ColumnIndexOffset, c.ColumnIndexLength, c.OffsetIndexOffset, c.OffsetIndexLength = 0, 0, 0, 0
			}
			for i := range f.RowGroups[0].Columns {
				c := &f.RowGroups[0].Columns[i]
				c.ColumnIndexOffset, c.ColumnIndexLength, c.OffsetIndexOffset, c.OffsetIndexLength = 0, 0, 0, 0
			}
			switch at {
			case "before":
				f.RowGroups = []format.RowGroup{empty, f.RowGroups[0]}
			case "after":
				f.RowGroups = append(f.RowGroups, empty)
			case "alone":
				f.RowGroups, f.NumRows = []format.RowGroup{empty}, 0
			}
		})
		users, rep, err := Read(t.Context(), "parquet", []string{path}, Options{})
		if at == "alone" {
			if err == nil || !strings.Contains(err.Error(), "has no rows") {
				t.Errorf("alone: got %q, error %v; want one that there are no rows", show(users), err)
			}
			continue
		}
		if err != nil || show(users) != decimalsRead || rep.Rows != 3 {
			t.Errorf("%s: got %q, %s, %v; want %q", at, show(users), shortly(rep), err, decimalsRead)
		}
	}
}

// LZ4_RAW is read. LZ4 is Hadoop's own framing, and is refused with a way out.
func TestParquetLZ4(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lz4.parquet")
	if err := parquet.WriteFile(path, decimalRows, parquet.Compression(&parquet.Lz4Raw)); err != nil {
		t.Fatal(err)
	}
	users, _, err := Read(t.Context(), "parquet", []string{path}, Options{})
	if err != nil || show(users) != decimalsRead {
		t.Errorf("LZ4_RAW: got %q, %v", show(users), err)
	}
	old := edited(t, path, func(f *format.FileMetaData) {
		for i := range f.RowGroups[0].Columns {
			f.RowGroups[0].Columns[i].MetaData.Codec = format.Lz4
		}
	})
	const want = "the column user is compressed with LZ4, which is not supported: write it with SNAPPY, ZSTD or LZ4_RAW"
	if _, _, err := Read(t.Context(), "parquet", []string{old}, Options{}); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("LZ4: error %v, want %q", err, want)
	}
}
