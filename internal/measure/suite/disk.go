package suite

import (
	"fmt"
	"regexp"
	"slices"
	"time"

	"unnest/internal/measure/result"
	"unnest/internal/measure/workload"
)

// disk returns the rows of Lubomski et al., Tables 5 and 6, in their order and
// units. The paper took them from Phoronix 6.0.1, whose profiles of that time say
// sizes and flags. Where Debian has the program, it is the same one; the others
// (AIO-Stress, IOzone, Threaded I/O Tester, Compile Bench) are done over with fio
// or a script, call by call.
//
// Nothing here asks for direct I/O, as the paper's programs did not: its figures
// of several GB/s are the page cache's. So every case does the same on ext4,
// overlayfs and tmpfs.
func disk() []Case {
	return slices.Concat(
		[]Case{aioStress(), sqlite(), fsMark()},
		dbenches(),
		ioZone(),
		threadedIO(),
		compileBench(),
		[]Case{unpack(), postMark(), gzip(), apacheBench()},
	)
}

// oneRate is the only metric of a case that measures throughput.
func oneRate(unit string) []result.Metric { return []result.Metric{rate("throughput", unit)} }

// megabyte makes MB of bytes, as the paper's tools print it.
const megabyte = 1e-6

// scratch returns a script that runs body with an empty directory "scratch" in
// the working directory, and removes it however body ends.
func scratch(body string) string {
	return "rm -rf scratch\ntrap 'rm -rf scratch' EXIT\nmkdir scratch\n" + body
}

// over returns a reader of how much was done in the seconds that timed printed:
// the number that is amount's only group, times scale, over the seconds.
func over(amount string, scale float64) reader {
	read := numbers(
		field{"amount", regexp.MustCompile(amount), scale},
		field{seconds.Name, regexp.MustCompile(`(?m)^seconds (\d+\.\d{3})$`), 1})
	return func(output []byte) ([]workload.Value, error) {
		v, err := read(output)
		if err != nil {
			return nil, err
		}
		if v[1].Value == 0 {
			return nil, fmt.Errorf("read throughput: %v in less than 1 ms: too little to measure", v[0].Value/scale)
		}
		return []workload.Value{{Metric: "throughput", Value: v[0].Value / v[1].Value}}, nil
	}
}

// sqlite is the paper's SQLite: insertions, each a transaction of its own, so
// that each waits for the disk. The profile runs a file of 2,500 three times.
func sqlite() Case {
	return Case{
		Suite: "disk", Name: "sqlite", Title: "Insertions into a database", Paper: "SQLite",
		Package: "sqlite3", Tools: []string{"sqlite3"}, Metrics: []result.Metric{seconds},
		Prepare: func(p Profile, _ Resources) string {
			return fmt.Sprintf("for i in $(seq %d); do\n"+
				`  echo "INSERT INTO pts1 (I, DT, F1, F2) VALUES ('$i', CURRENT_TIMESTAMP, 'D5', '28; 28; 28; 29');"`+
				"\ndone >insertions.sql\n", pick(p, 20, 2500))
		},
		Run: func(Profile, Resources) string {
			return scratch("sqlite3 scratch/benchmark.db \"CREATE TABLE pts1 ('I' SMALLINT NOT NULL," +
				" 'DT' TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP, 'F1' VARCHAR(4) NOT NULL, 'F2' VARCHAR(16) NOT NULL);\"\n" +
				timed("for i in 1 2 3; do sqlite3 scratch/benchmark.db <insertions.sql; done"))
		},
		Parse: readElapsed,
		Wall:  wall(10*time.Second, 30*time.Minute),
	}
}

// fsMark is the paper's FS-Mark: files of 1 MiB, each synchronized.
func fsMark() Case {
	return Case{
		Suite: "disk", Name: "fs-mark", Title: "Files of 1 MiB written and synchronized", Paper: "FS-Mark",
		Package: "fsmark", Tools: []string{"fs_mark"}, Metrics: oneRate("files/s"),
		Run: func(p Profile, _ Resources) string {
			return scratch(fmt.Sprintf("mkdir scratch/files\nfs_mark -d scratch/files -l scratch/log -s 1048576 -n %d\n", pick(p, 40, 1000)))
		},
		Parse: number("throughput", `(?m)^ +\d+ +\d+ +1048576 +([\d.]+) +\d+ *$`),
		Wall:  wall(20*time.Second, 5*time.Minute),
	}
}

// postMark is the paper's PostMark: a mail server's small files. The rate is
// over the whole run, by our clock: PostMark counts whole seconds.
func postMark() Case {
	return Case{
		Suite: "disk", Name: "postmark", Title: "Transactions on many small files", Paper: "PostMark",
		Package: "postmark", Tools: []string{"postmark"}, Metrics: oneRate("transactions/s"),
		Run: func(p Profile, _ Resources) string {
			n := pick(p, 300, 250_000)
			return scratch(timed(fmt.Sprintf("postmark <<'END'\nset location scratch\nset seed 42\n"+
				"set size 5120 524288\nset number %d\nset transactions %d\nrun\nquit\nEND\necho", pick(p, 100, 500), n)) +
				fmt.Sprintf("echo transactions %d\n", n))
		},
		Parse: readPostMark,
		Wall:  wall(20*time.Second, 20*time.Minute),
	}
}

// postMarkFailure is what PostMark says when it gives up early, with status 0.
var postMarkFailure = regexp.MustCompile(`(?m)^.*(?:out of files!|Error: .*)$`)

// readPostMark reads the rate of a run that did all its transactions.
func readPostMark(output []byte) ([]workload.Value, error) {
	if line := postMarkFailure.Find(output); line != nil {
		return nil, fmt.Errorf("read throughput: the run ended early: %s", workload.Quote(line))
	}
	return over(`(?m)^transactions (\d+)$`, 1)(output)
}

// gzip is the paper's Gzip Compression of a file of 2 GiB. At 160 MB/s, several
// times as fast as gzip is on text, that file was of zeros.
func gzip() Case {
	return Case{
		Suite: "disk", Name: "gzip-file", Title: "Compression of a file by gzip", Paper: "Gzip Compression",
		Package: "gzip", Tools: []string{"gzip"}, Metrics: []result.Metric{seconds},
		Prepare: func(p Profile, _ Resources) string {
			return fmt.Sprintf("head -c %d /dev/zero >file\n", pick(p, 24*mib, 2*gib))
		},
		Run:   func(Profile, Resources) string { return scratch(timed("gzip -c file >scratch/file.gz")) },
		Parse: readElapsed,
		Wall:  wall(20*time.Second, 5*time.Minute),
	}
}
