package suite

import (
	"fmt"
	"regexp"
	"time"

	"unnest/internal/measure/result"
	"unnest/internal/measure/workload"
)

// sysbench returns the five tests of FitzGerald 2014, Table 3 and Listings 5-8,
// by sysbench 1.0.20 where the thesis has 0.5. Options that 1.0 no longer knows
// are said in today's words: --init-rng is a fixed --rand-seed, --max-requests
// is --events, --max-time is --time, and oltp.lua is oltp_read_write.
func sysbench() []Case {
	return []Case{
		{
			Suite: "sysbench", Name: "sysbench-cpu", Title: "Primes up to 20,000", Paper: "cpu",
			Package: "sysbench", Tools: []string{"sysbench"}, Metrics: transactional("transactions/s"),
			Run: func(p Profile, r Resources) string {
				return sysbenchRun("cpu", r.VCPUs, fmt.Sprintf("--events=%d --time=0 --cpu-max-prime=20000", scaled(p, 10_000)))
			},
			Parse: transactions(`(?m)^ +events per second: +([\d.]+)$`),
			Wall:  wall(20*time.Second, 10*time.Minute),
		},
		{
			Suite: "sysbench", Name: "sysbench-threads", Title: "64 threads that compete for 8 mutexes", Paper: "threads",
			Package: "sysbench", Tools: []string{"sysbench"}, Metrics: transactional("transactions/s"),
			Run: func(p Profile, _ Resources) string {
				return sysbenchRun("threads", 64, fmt.Sprintf("--events=%d --time=0 --thread-yields=1000 --thread-locks=8", scaled(p, 10_000)))
			},
			Parse: readThreads,
			Wall:  wall(20*time.Second, 10*time.Minute),
		},
		sysbenchMemory("write"),
		sysbenchMemory("read"),
		sysbenchOLTP(),
	}
}

// sysbenchScale is what the quick profile divides the thesis's sizes by: the
// transactions of cpu and threads, the memory that one transaction of memory
// covers, and the rows of oltp. Only oltp's half hour is cut further, to the
// shortest run that sysbench has, 1 s.
const sysbenchScale = 20

// scaled returns size in the profile.
func scaled(p Profile, size int64) int64 { return pick(p, size/sysbenchScale, size) }

// sysbenchRun is the part that Listings 5-8 have in common.
func sysbenchRun(test string, threads int, options string) string {
	return fmt.Sprintf("sysbench %s --threads=%d --rand-seed=1 --validate=on --percentile=95 %s run\n", test, threads, options)
}

// sysbenchMemory passes once over the guest's memory, in blocks that are, as in
// Listing 7, about a quarter of it; sysbench 1.0 takes only powers of two.
// Threads share the block, so that a pass fits in the memory that it covers.
// Table 3 promises 10,000 transactions, but the total size of the listing ends
// the test after one pass, and so it does here.
func sysbenchMemory(oper string) Case {
	return Case{
		Suite: "sysbench", Name: "sysbench-memory-" + oper, Title: "Pass over all memory, " + oper, Paper: "memory (" + oper + ")",
		Package: "sysbench", Tools: []string{"sysbench"}, Metrics: transactional("operations/s"),
		Run: func(p Profile, r Resources) string {
			block := powerOfTwo(scaled(p, r.Memory/4))
			return sysbenchRun("memory", r.VCPUs, fmt.Sprintf(
				"--events=%d --time=0 --memory-block-size=%d --memory-total-size=%d --memory-scope=global --memory-oper=%s",
				max(1, r.Memory/block), block, max(block, r.Memory/block*block), oper))
		},
		Parse: transactions(`(?m)^Total operations: \d+ \( *([\d.]+) per second\)$`),
		Wall:  wall(10*time.Second, time.Minute),
	}
}

// powerOfTwo returns the largest power of two that is not over n, or 1 KiB, the
// smallest block that is worth an operation.
func powerOfTwo(n int64) int64 {
	block := int64(1 << 10)
	for block*2 <= n {
		block *= 2
	}
	return block
}

// sysbenchOLTP runs the database on a socket in the working directory. What a
// transaction deletes it inserts again, so the table stays as it is.
func sysbenchOLTP() Case {
	return Case{
		Suite: "sysbench", Name: "sysbench-oltp", Title: "Database transactions, read and write", Paper: "oltp",
		Package: "sysbench mariadb-server-core", Tools: []string{"sysbench", "mariadbd"}, Metrics: transactional("transactions/s"),
		Prepare: func(p Profile, _ Resources) string {
			return "rm -rf db\nmkdir db db/test\n" + withMariaDB(sysbenchTable(p, 1)+" prepare\n")
		},
		Run: func(p Profile, r Resources) string {
			return withMariaDB(fmt.Sprintf("%s --validate=on --percentile=95 --events=0 --time=%d run\n",
				sysbenchTable(p, r.VCPUs), pick(p, 1, 1800)))
		},
		Parse: transactions(`(?m)^ +transactions: +\d+ +\(([\d.]+) per sec\.\)$`),
		Wall:  wall(30*time.Second, 32*time.Minute),
	}
}

// sysbenchTable is the table that Prepare makes and Run works on.
func sysbenchTable(p Profile, threads int) string {
	return fmt.Sprintf("sysbench oltp_read_write --db-driver=mysql --mysql-socket=db/sock --mysql-user=root --mysql-db=test"+
		" --table-size=%d --threads=%d --rand-seed=1", scaled(p, 1_000_000), threads)
}

// withMariaDB returns a script that runs body while MariaDB serves the data
// directory db, on the socket db/sock. The server has the sizes of the thesis's
// MySQL 5.5 (a buffer pool of 128 MiB, fsync rather than direct I/O), so that
// file systems that refuse direct I/O do the same work, and no io_uring, which
// containers forbid and guests do not. It has no system tables: nobody logs in.
// It is told to stop until it does: a signal that comes while it starts is lost.
func withMariaDB(body string) string {
	return `rm -f db/sock
mariadbd --no-defaults --user=root --datadir="$PWD/db" --socket=sock --pid-file=pid \
  --skip-networking --skip-grant-tables --innodb-buffer-pool-size=128M --innodb-log-file-size=16M \
  --innodb-flush-method=fsync --innodb-use-native-aio=0 \
  --innodb-buffer-pool-dump-at-shutdown=0 --innodb-buffer-pool-load-at-startup=0 >&2 &
server=$!
stop() { while kill $server 2>/dev/null; do sleep 0.05; done; }
trap stop EXIT
until [ -s db/pid ] && [ -S db/sock ]; do kill -0 $server; sleep 0.05; done
` + body + `trap - EXIT
stop
wait $server
`
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
