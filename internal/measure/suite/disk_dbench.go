package suite

import (
	"fmt"
	"time"
)

// dbenches are the paper's Dbench1..4: the file server load of dbench by 1, 12,
// 48 and 128 clients.
func dbenches() []Case {
	var cases []Case
	for i, clients := range []int{1, 12, 48, 128} {
		cases = append(cases, Case{
			Suite: "disk", Name: fmt.Sprintf("dbench-%d", clients),
			Title: fmt.Sprintf("File server load of %d clients", clients), Paper: fmt.Sprintf("Dbench%d", i+1),
			Package: "dbench", Tools: []string{"dbench"}, Metrics: oneRate("MB/s"),
			Prepare: dbenchLoad,
			Run:     func(p Profile, _ Resources) string { return scratch(dbenchRun(p, clients)) },
			Parse:   number("throughput", `(?m)^Throughput ([\d.]+) MB/sec `),
			Wall:    wall(20*time.Second, 12*time.Minute),
		})
	}
	return cases
}

// dbenchLoad makes the load of the quick profile: what the whole load does in two
// of its eleven directories. It flushes as often, 1.3 % of its operations, but a
// client has 1.2 MB of files, not 24 MB, and so 128 clients fit in a small guest.
// The paper's profile takes the whole load.
func dbenchLoad(p Profile, _ Resources) string {
	const whole = "/usr/share/dbench/client.txt"
	if p == Paper {
		return "ln -sf " + whole + " load\n"
	}
	return `awk '
/~dmtmp\\(ACCESS|WORD)["\\]/ || /\\(clients|client1|~dmtmp)"/ { if ($1 == "NTCreateX") kept[$5] = 1; print; next }
$1 == "NTCreateX" { delete kept[$5] }
$1 ~ /^(Close|Flush|ReadX|WriteX|LockX|UnlockX|QUERY_FILE_INFORMATION|SET_FILE_INFORMATION)$/ && $2 in kept
' ` + whole + ` >load
`
}

// dbenchRun runs the load for dbench's own ten minutes, each client a process. A
// quick run lasts for 2 s, the shortest that has a figure, and has 16 processes
// at most, whose clients take turns: dbench counts from when every client has
// written, and 128 processes that wait for one disk take far longer to get there.
// Where clients are not all at work in time, dbench says 0; then it gets twice
// the time, up to 64 s.
func dbenchRun(p Profile, clients int) string {
	if p == Paper {
		return fmt.Sprintf("dbench -t 600 -c load -D scratch %d\n", clients)
	}
	processes := min(clients, 16)
	return fmt.Sprintf(`for limit in 2 4 8 16 32 64; do
  dbench -t $limit -c load -D scratch --clients-per-process=%d %d >scratch/output
  if ! grep -q '^Throughput 0 ' scratch/output; then break; fi
  rm -rf scratch/clients
done
cat scratch/output
`, clients/processes, processes)
}
