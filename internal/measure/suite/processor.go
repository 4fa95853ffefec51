package suite

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"unnest/internal/measure/result"
	"unnest/internal/measure/workload"
)

// cpu returns the cases that load one virtual processor: pts/cpu of the paper, §3.3.
func cpu() []Case {
	return processorCases("cpu", func(Resources) int { return 1 })
}

// multicore returns the cases that load every virtual processor: pts/multicore of the
// paper, §3.3. Many of them are timed, so that less is better.
func multicore() []Case {
	return processorCases("multicore", func(r Resources) int { return r.VCPUs })
}

// processorCase is a case of suite cpu, of suite multicore, or of both. prepare and run
// are templates, see script.
type processorCase struct {
	suites       string
	name, title  string
	pkg, tools   string          // pkg: name if empty, tools: pkg if empty
	prepare, run string          // prepare may be empty; run has no newline at its end
	metrics      []result.Metric // nil: run is timed, with readElapsed
	parse        reader
	quick, paper time.Duration
}

func processorCases(suite string, threads func(Resources) int) []Case {
	var cases []Case
	for _, p := range processorTable() {
		if !slices.Contains(strings.Fields(p.suites), suite) {
			continue
		}
		c := Case{
			Suite: suite, Name: suite + "-" + p.name, Title: p.title,
			Package: p.pkg, Tools: strings.Fields(p.tools), Metrics: p.metrics, Parse: p.parse, Wall: wall(p.quick, p.paper),
		}
		p.run += "\n"
		if c.Package == "" {
			c.Package = p.name
		}
		if len(c.Tools) == 0 {
			c.Tools = []string{c.Package}
		}
		if c.Metrics == nil {
			c.Metrics, c.Parse, p.run = []result.Metric{seconds}, readElapsed, timed(p.run)
		}
		if p.prepare != "" {
			c.Prepare = threaded(threads, p.prepare)
		}
		c.Run = threaded(threads, p.run)
		cases = append(cases, c)
	}
	return cases
}

// processorTable lists the cases in the order of the suites. docs/suites.md says which
// test of the paper each one stands for.
func processorTable() []processorCase {
	const both, s, m = "cpu multicore", time.Second, time.Minute
	return []processorCase{
		// 7-Zip's own benchmark on several threads first tests the processors for longer
		// than the quick profile allows, so multicore compresses a text.
		{suites: "cpu", name: "7zip", title: "Compression and decompression by 7-Zip", pkg: "p7zip-full", tools: "7z",
			run:     `7z b {{.Pick "1 " ""}}-mmt{{.Threads}}{{.Pick " -md18 -mtime=0" ""}}`,
			metrics: []result.Metric{rate("rating", "MIPS"), rate("compression", "MIPS"), rate("decompression", "MIPS")},
			parse: numbers(
				field{"rating", regexp.MustCompile(`(?m)^Tot: +\d+ +\d+ +(\d+)$`), 1},
				field{"compression", regexp.MustCompile(`(?m)^Avr: +\d+ +\d+ +\d+ +(\d+) +\|`), 1},
				field{"decompression", regexp.MustCompile(`(?m)^Avr: .*\| +\d+ +\d+ +\d+ +(\d+)$`), 1}),
			quick: 30 * s, paper: 10 * m},
		{suites: "multicore", name: "7zip", title: "Compression by 7-Zip", pkg: "p7zip-full", tools: "7z perl", prepare: words(2*mib, 256*mib),
			run:   `7z a -mmt{{.Threads}}{{.Pick " -mx3 -md256k" ""}} text.7z text >/dev/null` + "\nrm text.7z",
			quick: 15 * s, paper: 20 * m},
		// The paper compresses 2 GB, here the same 256 MiB eight times.
		{suites: "cpu", name: "gzip", title: "Compression by gzip", tools: "gzip perl", prepare: words(3*mib, 256*mib),
			run:   "for ((i = 0; i < {{.Pick 1 8}}; i++)); do cat text; done | gzip -c >/dev/null",
			quick: 8 * s, paper: 20 * m},
		{suites: "cpu", name: "bzip2", title: "Compression by bzip2", tools: "bzip2 perl", prepare: words(3*mib/2, 256*mib),
			run:   "bzip2 {{.Pick -1 -5}} -c text >/dev/null",
			quick: 10 * s, paper: 20 * m},
		{suites: "multicore", name: "pbzip2", title: "Compression by parallel bzip2", tools: "pbzip2 perl", prepare: words(2*mib, 256*mib),
			run:   "pbzip2 -c -p{{.Threads}} -r {{.Pick -1 -5}} text >/dev/null",
			quick: 15 * s, paper: 20 * m},
		// Threads share the text by blocks.
		{suites: both, name: "xz", title: "Compression by xz", pkg: "xz-utils", tools: "xz perl", prepare: words(mib, 256*mib),
			run:   `xz -T{{.Threads}}{{.Pick " -3 --block-size=256KiB" ""}} -c text >/dev/null`,
			quick: 15 * s, paper: 20 * m},
		// zstd is newer than the paper; most archives use it today.
		{suites: "multicore", name: "zstd", title: "Compression by zstd", tools: "zstd perl", prepare: words(4*mib, 256*mib),
			run:   `zstd -q {{.Pick -9 -19}} -T{{.Threads}}{{.Pick " -B1MiB" ""}} -c text >/dev/null`,
			quick: 15 * s, paper: 20 * m},

		openssl(both, "rsa4096", "RSA signatures of 4096 bits", "rsa4096",
			[]result.Metric{rate("signatures", "signatures/s"), rate("verifications", "verifications/s")},
			numbers(
				field{"signatures", regexp.MustCompile(`(?m)^rsa 4096 bits +\S+ +\S+ +([\d.]+) +[\d.]+$`), 1},
				field{"verifications", regexp.MustCompile(`(?m)^rsa 4096 bits +\S+ +\S+ +[\d.]+ +([\d.]+)$`), 1})),
		openssl("cpu", "sha256", "SHA-256 of blocks of 8 KiB", "-bytes 8192 -evp sha256", oneRate("MB/s"), opensslThroughput("sha256")),
		openssl("cpu", "aes256", "AES-256-CBC of blocks of 8 KiB", "-bytes 8192 -evp aes-256-cbc", oneRate("MB/s"), opensslThroughput("AES-256-CBC")),
		john(both, "bcrypt", "Passwords by Blowfish", "Raw"),
		john("cpu", "descrypt", "Passwords by traditional DES", "Many salts"),
		john("cpu", "md5crypt", "Passwords by MD5", "Raw"),

		// 600 frames of 704×576, here ten times the same 60. Frames are noise that moves.
		{suites: both, name: "x264", title: "H.264 encoding", tools: "x264 perl",
			prepare: input(`perl - {{.Pick "352 288 8" "704 576 60"}}`, "frames.pl"),
			run: "{ cat header; for ((i = 0; i < {{.Pick 1 10}}; i++)); do cat frames; done; } |" +
				" x264 --no-progress --demuxer y4m --threads {{.Threads}} -o /dev/null - 2>&1",
			metrics: oneRate("frames/s"), parse: number("throughput", `(?m)^encoded \d+ frames, ([\d.]+) fps, `),
			quick: 15 * s, paper: 15 * m},
		{suites: "cpu", name: "lame", title: "MP3 encoding", tools: "lame perl", prepare: melody(2, 210),
			run:   "lame --quiet -h melody.wav /dev/null",
			quick: 10 * s, paper: 20 * m},
		{suites: "cpu", name: "flac", title: "FLAC encoding", tools: "flac perl", prepare: melody(6, 210),
			run:   "flac --silent --best -c melody.wav >/dev/null",
			quick: 5 * s, paper: 20 * m},
		// The standard scene cannot be made small. This one has most of its features.
		{suites: both, name: "povray", title: "Ray tracing", prepare: input("cat >scene.pov", "scene.pov"),
			run:   `povray +Iscene.pov -D -F {{.Pick "+W32 +H24" "+W512 +H512 +A0.3"}} +WT{{.Threads}} >/dev/null 2>&1`,
			quick: 15 * s, paper: 20 * m},
		graphicsMagick(both, "hwb", "Image to the HWB color space", "-colorspace HWB"),
		graphicsMagick(both, "threshold", "Local adaptive thresholding of an image", "-lat 10x10-5%"),
		graphicsMagick("cpu", "blur", "Blurring of an image", "-blur 0x1.0"),
		graphicsMagick("cpu", "resize", "Resizing of an image", "-resize 50%"),
		graphicsMagick("cpu", "sharpen", "Sharpening of an image", "-sharpen 0x1.0"),

		// Stockfish searches its built-in positions. On one thread it always visits the
		// same nodes.
		{suites: both, name: "stockfish", title: "Chess positions", tools: "/usr/games/stockfish",
			run:     "/usr/games/stockfish bench {{.Pick 16 128}} {{.Threads}} {{.Pick 5 13}} 2>&1",
			metrics: oneRate("nodes/s"), parse: number("throughput", `(?m)^Nodes/second +: (\d+)$`),
			quick: 15 * s, paper: 5 * m},
		// --max disables the filters, which would leave almost no work in unrelated
		// proteins. With --cpu 0 HMMER has no extra thread that only reads.
		{suites: both, name: "hmmer", title: "Search for a protein family", tools: "hmmsearch hmmbuild perl",
			prepare: proteins("12", "100", "{{.Pick 150 20000}}") + "hmmbuild --cpu 0 --amino model family >/dev/null\n",
			run:     "hmmsearch --max --cpu {{if eq .Threads 1}}0{{else}}{{.Threads}}{{end}} --noali model database >/dev/null",
			quick:   15 * s, paper: 20 * m},
		{suites: both, name: "mafft", title: "Alignment of proteins", tools: "mafft perl",
			prepare: proteins("{{.Pick 8 60}}", "{{.Pick 100 560}}", "0"),
			run:     "mafft --quiet --thread {{.Threads}} --localpair --maxiterate {{.Pick 2 10000}} family >/dev/null",
			quick:   15 * s, paper: 20 * m},
		// primesieve loads every core evenly, as pts/c-ray and pts/smallpt do. Debian has
		// neither of these.
		{suites: "multicore", name: "primesieve", title: "Prime numbers",
			run:   `primesieve -q -t{{.Threads}} {{.Pick "5e8" "1e12"}} >/dev/null`,
			quick: 10 * s, paper: 20 * m},
		// Loops of arithmetic: for pts/n-queens, the Fourier transform of pts/scimark2,
		// and the dense matrices of pts/himeno and pts/scimark2.
		stressCPU(both, "queens", "queens", "Queens on a chess board", "100 60000"),
		stressCPU("cpu", "fft", "fft", "Fourier transform", "150 100000"),
		stressCPU("cpu", "matrix", "matrixprod", "Product of dense matrices", "150 100000"),
	}
}

// openssl measures wall time: processor time of the guest would leave out what a
// hypervisor takes away.
func openssl(suites, name, title, algorithm string, metrics []result.Metric, parse reader) processorCase {
	return processorCase{
		suites: suites, name: name, title: title, pkg: "openssl",
		run:     `openssl speed -elapsed -multi {{.Threads}} {{.Pick "-seconds 1 " ""}}` + algorithm + " 2>&1",
		metrics: metrics, parse: parse, quick: 3 * time.Second, paper: 30 * time.Second,
	}
}

// opensslThroughput reads the figure of an algorithm, in 1000 bytes per second.
func opensslThroughput(algorithm string) reader {
	return numbers(field{"throughput", regexp.MustCompile(`(?mi)^` + regexp.QuoteMeta(algorithm) + ` +([\d.]+)k ?$`), 1e-3})
}

func john(suites, format, title, line string) processorCase {
	return processorCase{
		suites: suites, name: "john-" + format, title: title, pkg: "john",
		run:     `OMP_NUM_THREADS={{.Threads}} john --test{{.Pick "=1" ""}} --format=` + format + " 2>&1",
		metrics: oneRate("passwords/s"), parse: readJohn(line), quick: 5 * time.Second, paper: 20 * time.Second,
	}
}

// readJohn reads john's figure, which is in thousands or millions if it is large.
func readJohn(line string) reader {
	figure := func(unit string, scale float64) reader {
		return numbers(field{"throughput", regexp.MustCompile(`(?m)^` + line + `:\t([\d.]+)` + unit + ` c/s real`), scale})
	}
	plain, thousands, millions := figure("", 1), figure("K", 1e3), figure("M", 1e6)
	return func(output []byte) ([]workload.Value, error) {
		for _, read := range []reader{thousands, millions} {
			if values, err := read(output); err == nil {
				return values, nil
			}
		}
		return plain(output)
	}
}

// melody returns a script that makes melody.wav of so many seconds: stereo of
// 44.1 kHz, tones that fade, with noise.
func melody(quick, paper int) string {
	return input(fmt.Sprintf("perl - {{.Pick %d %d}} >melody.wav", quick, paper), "melody.pl")
}

// graphicsMagick is an operation on an image of 12 megapixels in the paper's profile:
// rows of the same noise, each moved.
func graphicsMagick(suites, name, title, operation string) processorCase {
	return processorCase{
		suites: suites, name: "gm-" + name, title: title, pkg: "graphicsmagick", tools: "gm perl",
		prepare: input(`perl - {{.Pick "640 480" "4288 2848"}} >image.ppm`, "image.pl"),
		run:     "OMP_NUM_THREADS={{.Threads}} gm benchmark -duration {{.Pick 1 60}} convert image.ppm " + operation + " null: 2>&1",
		metrics: oneRate("iterations/min"),
		parse:   numbers(field{"throughput", regexp.MustCompile(`(?m)^Results: \d+ threads \d+ iter \S+ user \S+ total ([\d.]+) iter/s `), 60}),
		quick:   3 * time.Second, paper: 61 * time.Second,
	}
}

// proteins returns a script that makes two files in FASTA: family, a protein of the
// length and its variants, and database, unrelated proteins of 300 amino acids.
func proteins(family, length, database string) string {
	return input("perl - "+family+" "+length+" "+database, "proteins.pl")
}

func stressCPU(suites, name, method, title, ops string) processorCase {
	return processorCase{
		suites: suites, name: name, title: title, pkg: "stress-ng",
		run:     "stress-ng --stdout --metrics --seed 1 --cpu {{.Threads}} --cpu-method " + method + " --cpu-ops {{.Pick " + ops + "}}",
		metrics: oneRate("bogo-ops/s"), parse: stressRate("cpu"), quick: 10 * time.Second, paper: 10 * time.Minute,
	}
}

// stressRate reads stress-ng's line of a stressor: bogo ops, then real, user and
// system seconds, then the operations per real second.
func stressRate(stressor string) reader {
	return number("throughput", `(?m)^stress-ng: metrc: \[\d+\] `+regexp.QuoteMeta(stressor)+
		` +\d+ +[\d.]+ +[\d.]+ +[\d.]+ +([\d.]+) +[\d.]+ `)
}
