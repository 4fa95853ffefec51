package suite

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"unnest.io/unnest/internal/measure/workload"
)

// recorded returns the recorded output of a tool.
func recorded(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// checkRecorded reads the recorded output of each case, and wants the values, in
// the order of the case's metrics.
func checkRecorded(t *testing.T, cases []Case, want map[string][]float64) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			values, err := c.Parse([]byte(recorded(t, c.Name)))
			if err != nil {
				t.Fatal(err)
			}
			if len(values) != len(c.Metrics) || len(values) != len(want[c.Name]) {
				t.Fatalf("got %v, want %v of the metrics %v", values, want[c.Name], c.Metrics)
			}
			for i, v := range values {
				if v.Metric != c.Metrics[i].Name || math.Abs(v.Value/want[c.Name][i]-1) > 1e-9 {
					t.Errorf("got %v, want %s %v", v, c.Metrics[i].Name, want[c.Name][i])
				}
			}
		})
	}
}

// refusal is an output without figures, and the error of Parse.
type refusal struct{ name, output, want string }

// checkRefusals wants an error of read for each output.
func checkRefusals(t *testing.T, read func([]byte) ([]workload.Value, error), tests []refusal) {
	t.Helper()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := read([]byte(tt.output))
			if err == nil {
				t.Fatalf("got %v, want an error", got)
			}
			if err.Error() != tt.want {
				t.Errorf("got  %s\nwant %s", err, tt.want)
			}
		})
	}
}

// checkScripts checks properties of all cases: scripts are deterministic, larger in the
// paper's profile and leave nothing running.
func checkScripts(t *testing.T, suite string, cases []Case) {
	t.Helper()
	machine := Resources{VCPUs: 2, Memory: gib}
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			if c.Suite != suite || c.Title == "" || c.Package == "" || len(c.Tools) == 0 {
				t.Errorf("incomplete: %+v", c)
			}
			for _, p := range []Profile{Quick, Paper} {
				if first, second := c.Run(p, machine), c.Run(p, machine); first != second {
					t.Errorf("%s: another script each time", p)
				}
				if run := c.Run(p, machine); strings.Contains(run, "&\n") && !strings.Contains(run, "trap stop EXIT") {
					t.Errorf("%s: what runs in the background is not ended:\n%s", p, run)
				}
				for _, m := range c.Metrics {
					if err := m.Order.Validate(); err != nil || m.Name == "" || m.Unit == "" {
						t.Errorf("metric %+v: %v", m, err)
					}
				}
			}
			if c.Run(Quick, machine) == c.Run(Paper, machine) &&
				(c.Prepare == nil || c.Prepare(Quick, machine) == c.Prepare(Paper, machine)) {
				t.Error("the profiles are the same")
			}
			if quick, paper := c.Wall(Quick), c.Wall(Paper); quick <= 0 || quick >= paper {
				t.Errorf("takes %v, or %v in the paper's profile", quick, paper)
			}
		})
	}
}

func TestDiskScripts(t *testing.T) { checkScripts(t, "disk", disk()) }

// TestDiskRows checks the rows of Lubomski et al., Tables 5 and 6: names, units
// and orders.
func TestDiskRows(t *testing.T) {
	want := []string{
		"AIO-Stress HIB MB/s", "SQLite LIB s", "FS-Mark HIB files/s", "Dbench1 HIB MB/s", "Dbench2 HIB MB/s",
		"Dbench3 HIB MB/s", "Dbench4 HIB MB/s", "IOzone1 HIB MB/s", "IOzone2 HIB MB/s",
		"Threaded I/O Tester1 HIB MB/s", "Threaded I/O Tester2 HIB MB/s", "Compile Bench1 HIB MB/s",
		"Compile Bench2 HIB MB/s", "Compile Bench3 HIB MB/s", "Unpacking LIB s", "PostMark HIB transactions/s",
		"Gzip Compression LIB s", "Apache Benchmark HIB requests/s",
	}
	var got []string
	for _, c := range disk() {
		got = append(got, c.Paper+" "+string(c.Metrics[0].Order)+" "+c.Metrics[0].Unit)
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// TestDiskPaperSizes checks the sizes of the paper's profiles.
func TestDiskPaperSizes(t *testing.T) {
	want := map[string]string{
		"aio-stress": "--bs=64k --size=2147483648 --iodepth=64", "fs-mark": "-s 1048576 -n 1000",
		"dbench-128": "dbench -t 600 -c load -D scratch 128", "iozone-write": "--size=8589934592 --end_fsync=1",
		"tiobench-read": "--numjobs=32 --bs=4k --size=67108864", "tiobench-write": "--sync=1 --time_based --runtime=10",
		"compilebench-create": "create scratch 10 30500", "postmark": "set number 500\nset transactions 250000",
		"apache": "ab -q -n 1000000 -c 100 ",
	}
	for _, c := range disk() {
		if run := c.Run(Paper, Resources{VCPUs: 2, Memory: gib}); !strings.Contains(run, want[c.Name]) {
			t.Errorf("%s: %q is not in\n%s", c.Name, want[c.Name], run)
		}
	}
}

// In the quick profile, fio goes on for a time where its amount would take milliseconds, and all attempts of dbench
// end before the time limit.
func TestDiskQuickTimes(t *testing.T) {
	const loop = "for limit in "
	timed, attempts := 0, 0
	for _, c := range disk() {
		run := c.Run(Quick, Resources{VCPUs: 2, Memory: gib})
		if strings.Contains(run, "--time_based --runtime=2") {
			timed++
		}
		i := strings.Index(run, loop)
		if i < 0 {
			continue
		}
		attempts++
		list, _, _ := strings.Cut(run[i+len(loop):], ";")
		sum := time.Duration(0)
		for s := range strings.FieldsSeq(list) {
			d, err := time.ParseDuration(s + "s")
			if err != nil {
				t.Fatal(err)
			}
			sum += d
		}
		if limit := 6 * c.Wall(Quick); sum < time.Minute || sum+time.Minute/2 > limit {
			t.Errorf("%s: attempts take %v, and the limit is %v", c.Name, sum, limit)
		}
	}
	if timed != 3 || attempts != 4 {
		t.Errorf("%d cases go on for a time and %d have attempts, want 3 and 4", timed, attempts)
	}
}

func TestDiskParse(t *testing.T) {
	checkRecorded(t, disk(), map[string][]float64{
		"aio-stress": {2236.962133}, "sqlite": {0.111}, "fs-mark": {863.7},
		"dbench-1": {74.4261}, "dbench-12": {130.624}, "dbench-48": {178.651}, "dbench-128": {199.048},
		"iozone-read": {2080.895007}, "iozone-write": {871.543688},
		"tiobench-read": {6898.526315}, "tiobench-write": {104.8576},
		"compilebench-create": {36.687273 / 1.009}, "compilebench-compile": {73.374546 / 0.723}, "compilebench-read": {73.374546 / 0.056},
		"unpack": {0.418}, "postmark": {1000 / 0.531}, "gzip-file": {0.371}, "apache": {10228.48},
	})
}

func TestFioRefusals(t *testing.T) {
	report := recorded(t, "aio-stress")
	checkRefusals(t, func(output []byte) ([]workload.Value, error) { return readFio("write", output) }, []refusal{
		{"nothing", "\n", "read throughput: decode fio's report: unexpected end of JSON input: no output"},
		{"no directory", recorded(t, "error-fio-directory"),
			"read throughput: decode fio's report: invalid character 'i' in literal false (expecting 'a'): no such line, but \"fio: failed parsing directory=/nonexistent\""},
		{"no job", `{"jobs": []}`, "read throughput: fio's report has 0 jobs: want 1"},
		{"failed job", strings.Replace(report, `"error" : 0`, `"error" : 28`, 1),
			"read throughput: jobs[0].error: fio's job failed with errno 28"},
		{"other direction", recorded(t, "iozone-read"), "read throughput: jobs[0].write: 0 B at 0 B/s: want numbers over 0"},
	})
}

func TestDbenchRefusals(t *testing.T) {
	c, err := lookup("dbench-1")
	if err != nil {
		t.Fatal(err)
	}
	checkRefusals(t, c.Parse, []refusal{
		{"never at work", recorded(t, "error-dbench-warmup"), `read throughput from "Throughput 0 MB/sec": want a number over 0`},
		{"nothing", "", "read throughput: no output"},
	})
}

func TestPostMarkRefusals(t *testing.T) {
	checkRefusals(t, readPostMark, []refusal{
		{"out of files", recorded(t, "error-postmark-files"),
			`read throughput: the run ended early: "Performing transactions.......out of files!"`},
		{"untimed", "transactions 1000\n", `read seconds: no such line, output ends with "transactions 1000"`},
		{"no time", "seconds 0.000\ntransactions 1000\n", "read throughput: 1000 in less than 1 ms: too little to measure"},
	})
}

func TestApacheRefusals(t *testing.T) {
	page := recorded(t, "apache")
	checkRefusals(t, readApache, []refusal{
		{"no page", recorded(t, "error-apache-404"),
			`read throughput: not every request was answered: "Non-2xx responses:      200"`},
		{"failures", strings.Replace(page, "Failed requests:        0", "Failed requests:        12", 1),
			`read throughput: not every request was answered: "Failed requests:        12"`},
		{"ended early", page[:strings.Index(page, "Document Path")],
			`read throughput: no such line, output ends with "Server Port:            8088"`},
	})
}
