package suite

import (
	"fmt"
	"regexp"
	"time"

	"unnest/internal/measure/result"
	"unnest/internal/measure/workload"
)

// sysbench returns the five tests of FitzGerald 2014, Table 3 and Listings 5-8,
// by sysbench 1.0.20, where the thesis has 0.5. Options that 1.0 does not have are
// replaced: --init-rng by a fixed --rand-seed, --max-requests by --events, --max-time by
// --time, and oltp.lua by oltp_read_write.
//
// The quick profile divides by 20 the thesis's transactions of cpu and threads, the
// memory of one transaction of memory, and the rows of oltp. The half hour of oltp
// becomes 1 s, the shortest run of sysbench.
func sysbench() []Case {
	const s, m = time.Second, time.Minute
	cases := []Case{
		{Name: "cpu", Title: "Primes up to 20,000", Paper: "cpu", Metrics: transactional("transactions/s"),
			Run:   script(sysbenchRun("cpu", "{{.Threads}}", "--events={{.Pick 500 10000}} --time=0 --cpu-max-prime=20000")),
			Parse: transactions(`(?m)^ +events per second: +([\d.]+)$`), Wall: wall(20*s, 10*m)},
		{Name: "threads", Title: "64 threads that compete for 8 mutexes", Paper: "threads", Metrics: transactional("transactions/s"),
			Run:   script(sysbenchRun("threads", "64", "--events={{.Pick 500 10000}} --time=0 --thread-yields=1000 --thread-locks=8")),
			Parse: readThreads, Wall: wall(20*s, 10*m)},
		sysbenchMemory("write"),
		sysbenchMemory("read"),
		// What a transaction deletes it inserts again, so the table stays as it is.
		{Name: "oltp", Title: "Database transactions, read and write", Paper: "oltp",
			Package: "sysbench mariadb-server-core", Tools: []string{"sysbench", "mariadbd"}, Metrics: transactional("transactions/s"),
			Prepare: script("rm -rf db\nmkdir db db/test\n" + withMariaDB(sysbenchTable("1")+" prepare\n")),
			Run: script(withMariaDB(sysbenchTable("{{.Threads}}") +
				" --validate=on --percentile=95 --events=0 --time={{.Pick 1 1800}} run\n")),
			Parse: transactions(`(?m)^ +transactions: +\d+ +\(([\d.]+) per sec\.\)$`), Wall: wall(30*s, 32*m)},
	}
	for i := range cases {
		c := &cases[i]
		c.Suite, c.Name = "sysbench", "sysbench-"+c.Name
		if c.Package == "" {
			c.Package, c.Tools = "sysbench", []string{"sysbench"}
		}
	}
	return cases
}

// sysbenchRun is the part that Listings 5-8 have in common.
func sysbenchRun(test, threads, options string) string {
	return fmt.Sprintf("sysbench %s --threads=%s --rand-seed=1 --validate=on --percentile=95 %s run\n", test, threads, options)
}

// sysbenchMemory passes once over the guest's memory, in blocks of about a quarter of
// it, as in Listing 7; sysbench 1.0 accepts only powers of two. Threads share the block,
// so that a pass fits in the memory. Table 3 says 10,000 transactions, but the total
// size in the listing ends the test after one pass, and so it does here.
func sysbenchMemory(oper string) Case {
	return Case{
		Name: "memory-" + oper, Title: "Pass over all memory, " + oper, Paper: "memory (" + oper + ")", Metrics: transactional("operations/s"),
		Run: func(p Profile, r Resources) string {
			block := powerOfTwo(pick(p, r.Memory/4/20, r.Memory/4))
			return sysbenchRun("memory", fmt.Sprint(r.VCPUs), fmt.Sprintf(
				"--events=%d --time=0 --memory-block-size=%d --memory-total-size=%d --memory-scope=global --memory-oper=%s",
				max(1, r.Memory/block), block, max(block, r.Memory/block*block), oper))
		},
		Parse: transactions(`(?m)^Total operations: \d+ \( *([\d.]+) per second\)$`),
		Wall:  wall(10*time.Second, time.Minute),
	}
}

// powerOfTwo returns the largest power of two that is not over n, or 1 KiB, the
// smallest useful block.
func powerOfTwo(n int64) int64 {
	block := int64(1 << 10)
	for block*2 <= n {
		block *= 2
	}
	return block
}

// sysbenchTable is the table that Prepare makes and Run works on.
func sysbenchTable(threads string) string {
	return "sysbench oltp_read_write --db-driver=mysql --mysql-socket=db/sock --mysql-user=root --mysql-db=test" +
		" --table-size={{.Pick 50000 1000000}} --threads=" + threads + " --rand-seed=1"
}

// withMariaDB returns a script that runs body while MariaDB serves the data directory
// db on the socket db/sock. The server has the sizes of the thesis's MySQL 5.5: a buffer
// pool of 128 MiB, and fsync instead of direct I/O, so that file systems without direct
// I/O do the same work. It does not use io_uring, because containers forbid it and
// guests do not. It has no system tables, because nobody logs in. The script signals it
// until it stops, because a signal during its start is lost.
func withMariaDB(body string) string {
	return `{{template "mariadb.sh"}}` + body + "trap - EXIT\nstop\nwait $server\n"
}

// latencyMean is the thesis's application response time.
var latencyMean = field{"latency_mean", regexp.MustCompile(`(?m)^ +avg: +([\d.]+)$`), 1}

// transactional are the two metrics of the thesis's tables.
func transactional(unit string) []result.Metric {
	return []result.Metric{rate("throughput", unit), {Name: latencyMean.metric, Unit: "ms", Order: result.LIB}}
}

// transactions returns a reader of both metrics, the rate by its pattern.
func transactions(pattern string) reader {
	return numbers(field{"throughput", regexp.MustCompile(pattern), 1}, latencyMean)
}

// readThreads divides events by time, because the threads test prints no rate.
func readThreads(output []byte) ([]workload.Value, error) {
	v, err := numbers(
		field{"total time", regexp.MustCompile(`(?m)^ +total time: +([\d.]+)s$`), 1},
		field{"total number of events", regexp.MustCompile(`(?m)^ +total number of events: +(\d+)$`), 1},
		latencyMean)(output)
	if err != nil {
		return nil, err
	}
	return []workload.Value{{Metric: "throughput", Value: v[1].Value / v[0].Value}, v[2]}, nil
}
