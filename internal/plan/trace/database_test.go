package trace

import (
	"database/sql"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"
)

// packing makes a database with the tables that AzureTracesForPacking2020.md describes.
func packing(t testing.TB, statements ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "packing_trace zone?a.sqlite")
	db, err := sql.Open("sqlite", "file:"+strings.NewReplacer(" ", "%20", "?", "%3f").Replace(path))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, s := range statements {
		if _, err := db.Exec(s); err != nil {
			t.Fatal(s, err)
		}
	}
	return path
}

const (
	azureVM   = `CREATE TABLE vm (vmId INTEGER, tenantId INTEGER, vmTypeId INTEGER, priority INTEGER, starttime REAL, endtime REAL)`
	azureType = `CREATE TABLE vmType (id INTEGER, vmTypeId INTEGER, machineId INTEGER, core REAL, memory REAL, hdd REAL, ssd REAL, nic REAL)`
)

func TestReadAzure(t *testing.T) {
	path := packing(t, azureVM, azureType,
		`INSERT INTO vmType VALUES (0,1,16,0.25,0.5,NULL,0.1,0.1),(1,1,17,0.125,0.25,NULL,0.1,0.1),(2,2,16,0.5,0.5,NULL,0,0),(3,3,16,0,0,NULL,0,0),(4,4,16,-1,0,NULL,0,0)`,
		`INSERT INTO vm VALUES (100,7,1,0,-2.5,NULL),(101,7,2,1,0.5,1.5),(102,8,1,0,1.5,90),(103,8,3,0,0,1),(104,8,4,0,0,1),(105,8,99,0,0,1),(106,NULL,1,0,0,1)`)
	for _, c := range []struct {
		period       *Period
		want, report string
	}{
		{nil, "7 100: 100=12/98304\n7 101: 101=48/196608\n8 102: 102=12/98304\n",
			"7 rows, 3 kept, 1 broken; 1 requests neither CPU nor memory; 1 negative request; 1 owner unknown"},
		{At(24 * time.Hour), "7 100: 100=12/98304\n7 101: 101=48/196608\n",
			"7 rows, 2 kept, 1 broken; 1 owner unknown; 3 outside the period"},
	} {
		users, report, err := Read(t.Context(), "azure", []string{path}, Options{Period: c.period})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, show(users)); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(c.report, shortly(report)); diff != "" {
			t.Error(diff)
		}
		addsUp(t, report)
	}
}

func TestReadAzureRefuses(t *testing.T) {
	cut := packing(t, azureVM, azureType, `INSERT INTO vmType VALUES (0,1,16,0.25,0.5,NULL,0.1,0.1)`,
		`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<5000) INSERT INTO vm SELECT i,i,1,0,0,1 FROM n`)
	info, err := os.Stat(cut)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(cut, info.Size()/2); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ path, want string }{
		{packing(t, azureVM), "want the tables vm and vmType"},
		{packing(t, azureType), "want the tables vm and vmType"},
		{packing(t, azureVM, `CREATE TABLE vmType (id INTEGER)`), "want the tables vm and vmType"},
		{cut, "damaged or incomplete; fetch it again"},
	} {
		_, _, err := Read(t.Context(), "azure", []string{c.path}, Options{})
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), c.path) {
			t.Errorf("error %v, want %q", err, c.want)
		}
	}
}

// inParquet writes rows to a file.
func inParquet[T any](t *testing.T, rows []T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pods.parquet")
	if err := parquet.WriteFile(path, rows); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestReadParquet(t *testing.T) {
	type row struct {
		Note      string  `parquet:"note"`
		User      string  `parquet:"user,dict"`
		Pod       string  `parquet:"pod"`
		Container string  `parquet:"container"`
		CPU       float64 `parquet:"cpu"`
		Memory    *int64  `parquet:"memory,optional"`
	}
	gib, minus := int64(1<<30), int64(-1)
	rows := []row{
		{"x", "ann", "web", "nginx", 0.5, &gib},
		{"x", "ann", "web", "log", 0.1, nil},
		{"x", "bob", "p", "c", 0, nil},
		{"x", "bob", "p", "d", math.NaN(), &gib},
		{"x", "bob", "p", "e", 1, &minus},
		{"x", "", "p", "f", 1, &gib},
		{"x", "bob", "p", "g", 1e30, &gib},
	}
	for range 1500 {
		rows = append(rows, row{"", "cyd", "many", "c", 0.001, &gib})
	}
	users, report, err := Read(t.Context(), "parquet", []string{inParquet(t, rows)}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := "ann web: nginx=0.5/1024 log=0.1/0\ncyd many:" + strings.Repeat(" c=0.001/1024", 1500) + "\n"
	if diff := cmp.Diff(want, show(users)); diff != "" {
		t.Error(diff)
	}
	const counts = "1507 rows, 1502 kept, 2 broken; 1 requests neither CPU nor memory; 1 negative request; 1 request is not a number (1 requests no memory)"
	if diff := cmp.Diff(counts, shortly(report)); diff != "" {
		t.Error(diff)
	}
	addsUp(t, report)
}

// Whole numbers of vCPUs and floating numbers of bytes are read as well.
func TestReadParquetTypes(t *testing.T) {
	type row struct {
		User      string  `parquet:"user"`
		Pod       string  `parquet:"pod"`
		Container string  `parquet:"container"`
		CPU       int32   `parquet:"cpu"`
		Memory    float32 `parquet:"memory"`
	}
	users, _, err := Read(t.Context(), "parquet", []string{inParquet(t, []row{{"u", "p", "c", 3, 1 << 20}})}, Options{})
	if err != nil || show(users) != "u p: c=3/1\n" {
		t.Errorf("%q, %v", show(users), err)
	}
}

func TestReadParquetRefuses(t *testing.T) {
	type lacking struct {
		User string `parquet:"user"`
	}
	type wrong struct {
		User      string `parquet:"user"`
		Pod       string `parquet:"pod"`
		Container string `parquet:"container"`
		CPU       string `parquet:"cpu"`
		Memory    int64  `parquet:"memory"`
	}
	whole := inParquet(t, []wrong{{"u", "p", "c", "1", 1}})
	text, err := os.ReadFile(whole)
	if err != nil {
		t.Fatal(err)
	}
	cut := filepath.Join(t.TempDir(), "cut.parquet")
	if err := os.WriteFile(cut, text[:len(text)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ path, want string }{
		{inParquet(t, []lacking{{"u"}}), "lacks the column pod"},
		{whole, "the column cpu is of type STRING: names are strings"},
		{cut, "not a complete parquet file"},
	} {
		_, _, err := Read(t.Context(), "parquet", []string{c.path}, Options{})
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), c.path) {
			t.Errorf("error %v, want %q", err, c.want)
		}
	}
}
