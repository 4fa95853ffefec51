package suite

import (
	"strings"
	"testing"
)

func TestSysbenchScripts(t *testing.T) { checkScripts(t, "sysbench", sysbench()) }

// TestSysbenchSizes checks both profiles against FitzGerald 2014, Listings 5-8.
func TestSysbenchSizes(t *testing.T) {
	thesis := Resources{VCPUs: 4, Memory: 16 * gib}
	tests := []struct{ name, quick, paper string }{
		{"sysbench-cpu", "--threads=4 --rand-seed=1 --validate=on --percentile=95 --events=500 --time=0 --cpu-max-prime=20000",
			"--threads=4 --rand-seed=1 --validate=on --percentile=95 --events=10000 --time=0 --cpu-max-prime=20000"},
		{"sysbench-threads", "--threads=64 --rand-seed=1 --validate=on --percentile=95 --events=500 ", "--events=10000 --time=0 --thread-yields=1000 --thread-locks=8"},
		{"sysbench-memory-write", "--events=128 --time=0 --memory-block-size=134217728 --memory-total-size=17179869184",
			"--events=4 --time=0 --memory-block-size=4294967296 --memory-total-size=17179869184 --memory-scope=global --memory-oper=write"},
		{"sysbench-memory-read", "--memory-block-size=134217728 ", "--memory-oper=read"},
		{"sysbench-oltp", "--table-size=50000 --threads=4 --rand-seed=1 --validate=on --percentile=95 --events=0 --time=1 run",
			"--table-size=1000000 --threads=4 --rand-seed=1 --validate=on --percentile=95 --events=0 --time=1800 run"},
	}
	for _, tt := range tests {
		c, err := lookup(tt.name)
		if err != nil {
			t.Fatal(err)
		}
		for p, want := range map[Profile]string{Quick: tt.quick, Paper: tt.paper} {
			if run := c.Run(p, thesis); !strings.Contains(run, want) {
				t.Errorf("%s, %s: %q is not in\n%s", tt.name, p, want, run)
			}
		}
	}
}

func TestPowerOfTwo(t *testing.T) {
	for n, want := range map[int]int{0: 1 << 10, 1023: 1 << 10, 2048: 2048, 4095: 2048, 4000 << 20: 2 << 30, 4 << 30: 4 << 30} {
		if got := powerOfTwo(n); got != want {
			t.Errorf("powerOfTwo(%d) = %d, want %d", n, got, want)
		}
	}
}

func TestSysbenchParse(t *testing.T) {
	checkRecorded(t, sysbench(), map[string][]float64{
		"sysbench-cpu": {980.87, 2.03}, "sysbench-threads": {500 / 0.9253, 114.82},
		"sysbench-memory-write": {1752.07, 1.05}, "sysbench-memory-read": {2070.92, 0.62}, "sysbench-oltp": {666.27, 2.99},
	})
}

func TestSysbenchRefusals(t *testing.T) {
	oltp, err := lookup("sysbench-oltp")
	if err != nil {
		t.Fatal(err)
	}
	checkRefusals(t, oltp.Parse, []refusal{
		{"no server", recorded(t, "error-sysbench-oltp"),
			`read throughput: no such line, but "FATAL: unable to connect to MySQL server on socket 'db/sock', aborting..."`},
		{"no latency", strings.Replace(recorded(t, "sysbench-oltp"), " avg: ", " mean: ", 1), lastLatency(recorded(t, "sysbench-oltp"))},
	})
	checkRefusals(t, readThreads, []refusal{
		{"nothing", "", "read total time: no output"},
		{"too fast", strings.Replace(recorded(t, "sysbench-threads"), lineWith(recorded(t, "sysbench-threads"), "total time:"),
			"    total time:                          0.0000s\n", 1),
			`read total time from "total time:                          0.0000s": want a number over 0`},
	})
}

// lastLatency is the error for an output without a mean latency, with the same end.
func lastLatency(output string) string {
	return strings.Replace(lastLineOf(output), "read throughput", "read latency_mean", 1)
}
