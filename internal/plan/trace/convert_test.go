package trace

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// documented returns the commands of docs/plan.md that a comment marks for the test.
func documented(t *testing.T, name string) string {
	t.Helper()
	text := read(t, "../../../docs/plan.md")
	_, block, ok := strings.Cut(text, "<!-- test: "+name+" -->\n```\n")
	block, _, closed := strings.Cut(block, "\n```")
	if !ok || !closed {
		t.Fatalf("docs/plan.md has no block for the test %s", name)
	}
	return block
}

// inShell runs commands in a directory.
func inShell(t *testing.T, dir, commands string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-ec", commands)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s\n%v: %s", commands, err, out)
	}
}

// packing is the tables that AzureTracesForPacking2020.md describes.
const packing = `
CREATE TABLE vm (vmId INTEGER, tenantId INTEGER, vmTypeId INTEGER, priority INTEGER, starttime REAL, endtime REAL);
CREATE TABLE vmType (id INTEGER, vmTypeId INTEGER, machineId INTEGER, core REAL, memory REAL, hdd REAL, ssd REAL, nic REAL);
INSERT INTO vmType VALUES (0,1,16,0.25,0.5,NULL,0.1,0.1),(1,1,17,0.125,0.25,NULL,0.1,0.1),(2,2,16,0.5,0.5,NULL,0,0),(3,3,16,0,0,NULL,0,0),(4,4,16,-1,0,NULL,0,0);
INSERT INTO vm VALUES (100,7,1,0,-2.5,NULL),(101,7,2,1,0.5,1.5),(102,8,1,0,1.5,90),(103,8,3,0,0,1),(104,8,4,0,0,1),(105,8,99,0,0,1),(106,NULL,1,0,0,1);`

// The documented query makes the CSV file of the Azure trace.
func TestConvertAzure(t *testing.T) {
	if _, err := exec.LookPath("sqlite3"); err != nil {
		t.Skip("sqlite3 is not installed: THE DOCUMENTED CONVERSION OF THE AZURE TRACE WAS NOT TRIED")
	}
	dir := t.TempDir()
	inShell(t, dir, "sqlite3 packing_trace_zone_a_v1.sqlite '"+packing+"'")
	inShell(t, dir, documented(t, "sqlite3"))
	if diff := cmp.Diff(read(t, "testdata/azure/vms.csv"), strings.ReplaceAll(read(t, filepath.Join(dir, "vms.csv")), "\r\n", "\n")); diff != "" {
		t.Errorf("vms.csv (-want +got):\n%s", diff)
	}
}

func TestReadAzure(t *testing.T) {
	for _, c := range []struct {
		period       *Period
		want, report string
	}{
		{nil, "7 100: 100=12/98304\n7 101: 101=48/196608\n8 102: 102=12/98304\n",
			"7 rows, 3 kept, 1 broken; 1 requests neither CPU nor memory; 1 negative request; 1 owner unknown"},
		{At(24 * time.Hour), "7 100: 100=12/98304\n7 101: 101=48/196608\n",
			"7 rows, 2 kept, 1 broken; 1 owner unknown; 3 outside the period"},
	} {
		users, report, err := Read(t.Context(), "azure", []string{"testdata/azure/vms.csv"}, Options{Period: c.period})
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

// testdata/spark is what deploy/plan/google2019.py has written with Spark 4.3.0 of
// testdata/google2019 at 1001 s, in one shard. It has the same users as the JSON lines.
func TestSparkCSV(t *testing.T) {
	sameUsers(t, "testdata/spark")
}

// sameUsers checks that a table has the users of testdata/google2019 at 1001 s.
func sameUsers(t *testing.T, path string) {
	t.Helper()
	want, _, err := Read(t.Context(), "google2019", []string{"testdata/google2019"}, Options{Period: At(1001 * time.Second)})
	if err != nil {
		t.Fatal(err)
	}
	got, report, err := Read(t.Context(), "csv", []string{path}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	addsUp(t, report)
	if diff := cmp.Diff(want, got); diff != "" || len(want) == 0 {
		t.Errorf("%d users; %s (-want +got):\n%s", len(want), path, diff)
	}
}

// duckDBVariable names a Python with the module duckdb, if python3 has none.
const duckDBVariable = "UNNEST_DUCKDB_PYTHON"

// The documented command makes a CSV file of Parquet files with numbers of several types.
func TestConvertParquet(t *testing.T) {
	python := "python3"
	if named := os.Getenv(duckDBVariable); named != "" {
		python = named
	}
	if err := exec.CommandContext(t.Context(), python, "-c", "import duckdb").Run(); err != nil {
		t.Skipf("%s has no module duckdb (pip install duckdb, or set %s): THE DOCUMENTED CONVERSION OF PARQUET FILES WAS NOT TRIED", python, duckDBVariable)
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "users"), 0o755); err != nil {
		t.Fatal(err)
	}
	convert := func(rows string) {
		t.Helper()
		script := `import duckdb, sys; duckdb.sql("COPY (" + sys.argv[1] + ") TO '" + sys.argv[2] + "/users/1.parquet' (FORMAT parquet)")`
		if out, err := exec.CommandContext(t.Context(), python, "-c", script, rows, dir).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", rows, err, out)
		}
		inShell(t, dir, strings.Replace(documented(t, "duckdb"), "python3", python, 1))
	}
	spark, err := filepath.Abs("testdata/spark")
	if err != nil {
		t.Fatal(err)
	}
	convert("FROM read_csv('" + spark + "/part-*.csv.gz')")
	sameUsers(t, filepath.Join(dir, "users.csv"))
	convert(`FROM (VALUES ('u', 'p', 'a', 313.600::DECIMAL(18,3), (100<<20)::DECIMAL(38,2)), ('u', 'p', 'b', 0.001, -100), ('u', 'a "b", c', 'x', 35.168, 200<<20)) r("user", pod, container, cpu, memory)`)
	decimals, rep, err := Read(t.Context(), "csv", []string{filepath.Join(dir, "users.csv")}, Options{})
	if want := "u p: a=313.6/100\nu a \"b\", c: x=35.168/200\n"; err != nil || show(decimals) != want || rep.excluded[Negative] != 1 {
		t.Errorf("got %q, %s, %v; want %q and one negative request", show(decimals), shortly(rep), err, want)
	}
	convert(`FROM (VALUES ('u', 'p', 'a', 0.5::DOUBLE, 1048576), ('u', 'p', 'b', 'NaN', 1048576), ('u', 'p', 'c', 1e30, 1), ('u', 'p', 'd', 0.1, NULL)) r("user", pod, container, cpu, memory)`)
	floats, rep, err := Read(t.Context(), "csv", []string{filepath.Join(dir, "users.csv")}, Options{})
	if want := "u p: a=0.5/1 d=0.1/0\n"; err != nil || show(floats) != want || rep.excluded[NotANumber] != 1 || rep.Broken != 1 {
		t.Errorf("got %q, %s, %v; want %q, one that is not a number and one too large", show(floats), shortly(rep), err, want)
	}
}
