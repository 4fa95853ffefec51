package suite

import (
	"fmt"
	"regexp"
	"time"

	"unnest/internal/measure/result"
	"unnest/internal/measure/workload"
)

// kernelFiles is the number of files in Linux 2.6.32, which the paper unpacked. The
// trees of Compile Bench have about as many.
const kernelFiles = 30_500

// disk returns the rows of Lubomski et al., Tables 5 and 6, in their order and units.
// Sizes and options are those of the profiles of Phoronix 6.0.1, which the paper used.
// Where Debian has the tool, it is the same one; fio or a script makes the calls of the
// others (AIO-Stress, IOzone, Threaded I/O Tester, Compile Bench).
//
// No case asks for direct I/O, because the paper's tools did not: its figures of
// several GB/s are those of the page cache. So every case does the same on ext4,
// overlayfs and tmpfs.
func disk() []Case {
	const s, m = time.Second, time.Minute
	cases := []Case{
		// One thread writes blocks of 64 KiB at random to one file, with 64 in flight, and
		// submits 8 at a time.
		fio("aio-stress", "Asynchronous writes at random", "AIO-Stress", "write", "",
			scratch(fioRun("scratch", "aio", "--ioengine=libaio --rw=randwrite --bs=64k --size={{.Pick 33554432 2147483648}} --iodepth=64 --iodepth_batch=8")),
			wall(10*s, 2*m)),
		// Each insertion is a transaction, so each one waits for the disk. The profile runs
		// a file of 2,500 three times.
		{Name: "sqlite", Title: "Insertions into a database", Paper: "SQLite",
			Package: "sqlite3", Tools: []string{"sqlite3"}, Metrics: []result.Metric{seconds},
			Prepare: script("for i in $(seq {{.Pick 20 2500}}); do\n" +
				`  echo "INSERT INTO pts1 (I, DT, F1, F2) VALUES ('$i', CURRENT_TIMESTAMP, 'D5', '28; 28; 28; 29');"` +
				"\ndone >insertions.sql\n"),
			Run: script(scratch("sqlite3 scratch/benchmark.db \"CREATE TABLE pts1 ('I' SMALLINT NOT NULL," +
				" 'DT' TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP, 'F1' VARCHAR(4) NOT NULL, 'F2' VARCHAR(16) NOT NULL);\"\n" +
				timed("for i in 1 2 3; do sqlite3 scratch/benchmark.db <insertions.sql; done"))),
			Parse: readElapsed, Wall: wall(10*s, 30*m)},
		{Name: "fs-mark", Title: "Files of 1 MiB written and synchronized", Paper: "FS-Mark",
			Package: "fsmark", Tools: []string{"fs_mark"}, Metrics: oneRate("files/s"),
			Run:   script(scratch("mkdir scratch/files\nfs_mark -d scratch/files -l scratch/log -s 1048576 -n {{.Pick 40 1000}}\n")),
			Parse: number("throughput", `(?m)^ +\d+ +\d+ +1048576 +([\d.]+) +\d+ *$`), Wall: wall(20*s, 5*m)},
		dbench(1, "Dbench1"), dbench(12, "Dbench2"), dbench(48, "Dbench3"), dbench(128, "Dbench4"),
		// Records of 4 KiB, the smallest of the paper's profile. The paper's file has 8 GiB,
		// half of its machine's memory, and is read from the page cache. A write is measured
		// up to the end of fsync.
		fio("iozone-read", "Read of a file in order", "IOzone1", "read",
			"head -c {{.Pick 33554432 8589934592}} /dev/zero >iozone.0.0\n",
			"cat iozone.0.0 >/dev/null\n"+fioRun(".", "iozone", "--ioengine=psync --rw=read --bs=4k --size={{.Pick 33554432 8589934592}} --loops={{.Pick 4 1}}"),
			wall(10*s, 10*m)),
		fio("iozone-write", "Write of a file in order", "IOzone2", "write", "",
			scratch(fioRun("scratch", "iozone", "--ioengine=psync --rw=write --bs=4k --size={{.Pick 33554432 8589934592}} --end_fsync=1")),
			wall(20*s, 20*m)),
		// 32 threads, each with a file, read or write 1,000 blocks of 4 KiB at random.
		// Writes are synchronous; the quick profile makes fewer.
		fio("tiobench-read", "Reads at random by 32 threads", "Threaded I/O Tester1", "read", tiobenchFiles,
			"cat tiobench.*.0 >/dev/null\n"+tiobench("--rw=randread --io_size=4000k"), wall(10*s, 2*m)),
		fio("tiobench-write", "Synchronous writes at random by 32 threads", "Threaded I/O Tester2", "write", tiobenchFiles,
			tiobench(`--rw=randwrite --sync=1 --io_size={{.Pick "64k" "4000k"}}`), wall(20*s, 15*m)),
		compileBench("create", "Creation of source trees", "Compile Bench1", "",
			scratch(timed(tree("create", "scratch")))),
		compileBench("compile", "Reading of sources and writing of objects", "Compile Bench2", createTrees,
			"trap 'find trees -name \"*.o\" -delete' EXIT\n"+timed(tree("compile", "trees"))),
		compileBench("read", "Reading of compiled trees", "Compile Bench3", createTrees+tree("compile", "trees")+" >/dev/null\n",
			timed(tree("read", "trees"))),
		// The paper unpacks Linux 2.6.32 as tar.bz2, here a generated tree with as many files.
		{Name: "unpack", Title: "Unpacking of a source tree", Paper: "Unpacking",
			Package: "bzip2", Tools: []string{"tar", "bzip2", "perl"}, Metrics: []result.Metric{seconds},
			Prepare: script(withTreePerl("{{.Pick 2097152 16777216}}", fmt.Sprintf("rm -rf trees\nmkdir trees\n"+
				"perl tree.pl create trees 1 {{.Pick 150 %d}} <text >/dev/null\n"+
				"tar -c --sort=name trees | bzip2 >tree.tar.bz2\nrm -rf trees tree.pl text\n", kernelFiles))),
			Run:   script(scratch(timed("tar -xjf tree.tar.bz2 -C scratch"))),
			Parse: readElapsed, Wall: wall(20*s, 10*m)},
		// A mail server's small files. The rate is over the whole run, by our clock, because
		// PostMark counts whole seconds.
		{Name: "postmark", Title: "Transactions on many small files", Paper: "PostMark",
			Package: "postmark", Tools: []string{"postmark"}, Metrics: oneRate("transactions/s"),
			Run: script(scratch(timed("postmark <<'END'\nset location scratch\nset seed 42\nset size 5120 524288\n"+
				"set number {{.Pick 100 500}}\nset transactions {{.Pick 300 250000}}\nrun\nquit\nEND\necho") +
				"echo transactions {{.Pick 300 250000}}\n")),
			Parse: readPostMark, Wall: wall(20*s, 20*m)},
		// A file of 2 GiB. The paper's 160 MB/s are several times what gzip reaches on text,
		// so its file was of zeros.
		{Name: "gzip-file", Title: "Compression of a file by gzip", Paper: "Gzip Compression",
			Package: "gzip", Tools: []string{"gzip"}, Metrics: []result.Metric{seconds},
			Prepare: script("head -c {{.Pick 25165824 2147483648}} /dev/zero >file\n"),
			Run:     script(scratch(timed("gzip -c file >scratch/file.gz"))),
			Parse:   readElapsed, Wall: wall(20*s, 5*m)},
		// 100 clients at a time fetch a page of 4 KiB over the loopback, from port 8088 as in
		// the paper's profile. The server drops root's rights and then cannot pass the
		// directories above, so it is confined to its directory. In there it does not find
		// the library that ends its threads, so that is preloaded.
		{Name: "apache", Title: "Requests for a static page", Paper: "Apache Benchmark",
			Package: "apache2-bin apache2-utils", Tools: []string{"apache2", "ab"}, Metrics: oneRate("requests/s"),
			Run:   script(scratch(`{{template "apache.sh" .}}`)),
			Parse: readApache, Wall: wall(30*s, 20*m)},
	}
	for i := range cases {
		cases[i].Suite = "disk"
	}
	return cases
}

const tiobenchFiles = "for i in $(seq 0 31); do head -c {{.Pick 1048576 67108864}} /dev/zero >tiobench.$i.0; done\n"

func tiobench(options string) string {
	return fioRun(".", "tiobench", "--ioengine=psync --thread --numjobs=32 --bs=4k --size={{.Pick 1048576 67108864}} --norandommap "+options)
}

// dbench is the file server load of dbench by so many clients.
//
// The quick profile's load is the part of the whole one in two of its eleven
// directories. It flushes as often, in 1.3 % of its operations, but a client has 1.2 MB
// of files instead of 24 MB, so that 128 clients fit in a small guest. A quick run has
// 16 processes at most, whose clients take turns: dbench starts to count when every
// client has written, and 128 processes that wait for one disk take far longer to get
// there. It lasts 2 s, the shortest that has a figure. When a client has not started by
// then, dbench reports 0 and the run is repeated with twice the time, up to 64 s. The
// paper's profile has the whole load, dbench's own ten minutes and a process per client.
func dbench(clients int, paper string) Case {
	processes := min(clients, 16)
	return Case{
		Name: fmt.Sprintf("dbench-%d", clients), Title: fmt.Sprintf("File server load of %d clients", clients), Paper: paper,
		Package: "dbench", Tools: []string{"dbench"}, Metrics: oneRate("MB/s"),
		Prepare: func(p Profile, r Resources) string {
			const whole = "/usr/share/dbench/client.txt"
			return script(pick(p, "awk '\n{{template \"dbench.awk\"}}' "+whole+" >load\n", "ln -sf "+whole+" load\n"))(p, r)
		},
		Run: func(p Profile, _ Resources) string {
			return scratch(pick(p, fmt.Sprintf(`for limit in 2 4 8 16 32 64; do
  dbench -t $limit -c load -D scratch --clients-per-process=%d %d >scratch/output
  if ! grep -q '^Throughput 0 ' scratch/output; then break; fi
  rm -rf scratch/clients
done
cat scratch/output
`, clients/processes, processes), fmt.Sprintf("dbench -t 600 -c load -D scratch %d\n", clients)))
		},
		Parse: number("throughput", `(?m)^Throughput ([\d.]+) MB/sec `),
		Wall:  wall(20*time.Second, 12*time.Minute),
	}
}

// compileBench creates source trees, compiles them (reads every source and writes an
// object of the same size), or reads sources and objects. The paper's tool is a script
// for Python 2, which Debian no longer has. Nothing is synchronized, as in that tool.
func compileBench(name, title, paper, prepare, run string) Case {
	return Case{
		Name: "compilebench-" + name, Title: title, Paper: paper,
		Package: "perl-base", Tools: []string{"perl"}, Metrics: oneRate("MB/s"),
		Prepare: script(withTreePerl("1048576", prepare)),
		Run:     script(run),
		Parse:   over(`(?m)^bytes (\d+)$`, megabyte),
		Wall:    wall(20*time.Second, 20*time.Minute),
	}
}

var createTrees = "rm -rf trees\nmkdir trees\n" + tree("create", "trees") + " >/dev/null\n"

// tree runs tree.pl on the trees in a directory.
func tree(mode, directory string) string {
	return fmt.Sprintf(`perl tree.pl %s %s {{.Pick "1 1000" "10 %d"}} <text`, mode, directory, kernelFiles)
}

// withTreePerl returns a script that makes tree.pl and a text of so many bytes, and runs
// body. Trees that are much larger than the text repeat it and compress better.
func withTreePerl(bytes, body string) string {
	return input("cat >tree.pl", "tree.pl") + "perl tree.pl text " + bytes + " >text\n" + body
}

// over returns a reader of the amount per second of a timed script: the number that is
// amount's only group, times scale, over the seconds.
func over(amount string, scale float64) reader {
	read := numbers(field{"amount", regexp.MustCompile(amount), scale}, elapsedField)
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

// postMarkFailure finds why PostMark ended early: its exit status is 0 then too.
var postMarkFailure = regexp.MustCompile(`(?m)^.*(?:out of files!|Error: .*)$`)

// readPostMark reads the rate of a run that did all its transactions.
func readPostMark(output []byte) ([]workload.Value, error) {
	if line := postMarkFailure.Find(output); line != nil {
		return nil, fmt.Errorf("read throughput: the run ended early: %s", workload.Quote(line))
	}
	return over(`(?m)^transactions (\d+)$`, 1)(output)
}

// apacheFailures finds a response that was not the page.
var apacheFailures = regexp.MustCompile(`(?m)^(?:Failed requests: +[1-9]|Non-2xx responses:).*$`)

// readApache reads the rate of a run whose requests were all answered.
func readApache(output []byte) ([]workload.Value, error) {
	if line := apacheFailures.Find(output); line != nil {
		return nil, fmt.Errorf("read throughput: not every request was answered: %s", workload.Quote(line))
	}
	return number("throughput", `(?m)^Requests per second: +([\d.]+) \[#/sec\] \(mean\)$`)(output)
}
