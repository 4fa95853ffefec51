package suite

import (
	"fmt"
	"regexp"
	"slices"
	"time"

	"unnest/internal/measure/result"
	"unnest/internal/measure/workload"
)

// cpu returns the cases that load one virtual processor, for pts/cpu of the
// paper, §3.3: compression, ciphers, passwords, encoders, rendering, images,
// chess, biology, and loops of arithmetic.
func cpu() []Case {
	return slices.Concat(
		[]Case{sevenZip(), gzipText(), bzip2Text(), xzText(single)},
		opensslSpeeds(single), johns(single),
		[]Case{x264(single), lame(), flac(), povray(single)},
		graphicsMagick(single),
		[]Case{stockfish(single), hmmer(single), mafft(single)},
		stressCPU(single),
	)
}

// processors are how many virtual processors the cases of a suite load.
type processors struct {
	suite string
	count func(Resources) int
}

var (
	single = processors{"cpu", func(Resources) int { return 1 }}
	every  = processors{"multicore", func(r Resources) int { return r.VCPUs }}
)

// command returns a script of one command, whose only verb takes the number of
// threads.
func (n processors) command(quick, paper string) Script {
	return func(p Profile, r Resources) string { return fmt.Sprintf(pick(p, quick, paper), n.count(r)) }
}

// timedCase is a case that is timed.
func timedCase(suite, tool, title string, run Script, quick time.Duration) Case {
	return Case{
		Suite: suite, Name: suite + "-" + tool, Title: title, Package: tool, Tools: []string{tool},
		Metrics: []result.Metric{seconds},
		Run:     elapsed(run), Parse: readElapsed, Wall: wall(quick, 20*time.Minute),
	}
}

// opensslSpeeds are RSA with 4096 bits, as of pts/openssl, and for the ciphers of
// pts/gcrypt and pts/gnupg SHA-256 and AES-256 in CBC. Time is wall time: what a
// hypervisor takes away is not processor time of the guest.
func opensslSpeeds(n processors) []Case {
	base := Case{Suite: n.suite, Package: "openssl", Tools: []string{"openssl"}, Wall: wall(3*time.Second, 30*time.Second)}
	speed := func(quick, paper string) Script {
		return n.command("openssl speed -elapsed -multi %d -seconds 1 "+quick+" 2>&1\n", "openssl speed -elapsed -multi %d "+paper+" 2>&1\n")
	}
	rsa, sha, aes := base, base, base

	rsa.Name, rsa.Title = n.suite+"-rsa4096", "RSA signatures of 4096 bits"
	rsa.Metrics = []result.Metric{rate("signatures", "signatures/s"), rate("verifications", "verifications/s")}
	rsa.Run = speed("rsa4096", "rsa4096")
	rsa.Parse = numbers(
		field{"signatures", regexp.MustCompile(`(?m)^rsa 4096 bits +\S+ +\S+ +([\d.]+) +[\d.]+$`), 1},
		field{"verifications", regexp.MustCompile(`(?m)^rsa 4096 bits +\S+ +\S+ +[\d.]+ +([\d.]+)$`), 1})

	sha.Name, sha.Title, sha.Metrics = n.suite+"-sha256", "SHA-256 of blocks of 8 KiB", oneRate("MB/s")
	sha.Run = speed("-bytes 8192 -evp sha256", "-bytes 8192 -evp sha256")
	sha.Parse = opensslThroughput("sha256")

	aes.Name, aes.Title, aes.Metrics = n.suite+"-aes256", "AES-256-CBC of blocks of 8 KiB", oneRate("MB/s")
	aes.Run = speed("-bytes 8192 -evp aes-256-cbc", "-bytes 8192 -evp aes-256-cbc")
	aes.Parse = opensslThroughput("AES-256-CBC")
	return []Case{rsa, sha, aes}
}

// opensslThroughput reads the figure of an algorithm, 1000 bytes per second.
func opensslThroughput(algorithm string) reader {
	return numbers(field{"throughput", regexp.MustCompile(`(?mi)^` + regexp.QuoteMeta(algorithm) + ` +([\d.]+)k ?$`), 1e-3})
}

// johns are the three ciphers of pts/john-the-ripper: Blowfish, traditional DES
// with many salts, and MD5.
func johns(n processors) []Case {
	cases := make([]Case, 0, 3)
	for _, c := range []struct{ name, format, title, line string }{
		{"bcrypt", "bcrypt", "Passwords by Blowfish", "Raw"},
		{"descrypt", "descrypt", "Passwords by traditional DES", "Many salts"},
		{"md5crypt", "md5crypt", "Passwords by MD5", "Raw"},
	} {
		cases = append(cases, Case{
			Suite: n.suite, Name: n.suite + "-john-" + c.name, Title: c.title,
			Package: "john", Tools: []string{"john"}, Metrics: oneRate("passwords/s"),
			Run: n.command("OMP_NUM_THREADS=%d john --test=1 --format="+c.format+" 2>&1\n",
				"OMP_NUM_THREADS=%d john --test --format="+c.format+" 2>&1\n"),
			Parse: readJohn(c.line),
			Wall:  wall(5*time.Second, 20*time.Second),
		})
	}
	return cases
}

// readJohn reads john's figure, which is in thousands or millions if it is large.
func readJohn(line string) reader {
	const figure = `(?m)^%s:\t([\d.]+)%s c/s real`
	plain := number("throughput", fmt.Sprintf(figure, line, ""))
	large := map[string]reader{}
	for unit, scale := range map[string]float64{"K": 1e3, "M": 1e6} {
		large[unit] = numbers(field{"throughput", regexp.MustCompile(fmt.Sprintf(figure, line, unit)), scale})
	}
	return func(output []byte) ([]workload.Value, error) {
		for _, unit := range []string{"K", "M"} {
			if values, err := large[unit](output); err == nil {
				return values, nil
			}
		}
		return plain(output)
	}
}

// stockfish searches the positions that it brings along, as pts/crafty and
// pts/stockfish. On one thread it always visits the same nodes.
func stockfish(n processors) Case {
	const program = "/usr/games/stockfish"
	return Case{
		Suite: n.suite, Name: n.suite + "-stockfish", Title: "Chess positions",
		Package: "stockfish", Tools: []string{program}, Metrics: []result.Metric{rate("throughput", "nodes/s")},
		Run:   n.command(program+" bench 16 %d 5 2>&1\n", program+" bench 128 %d 13 2>&1\n"),
		Parse: number("throughput", `(?m)^Nodes/second +: (\d+)$`),
		Wall:  wall(15*time.Second, 5*time.Minute),
	}
}

// stressCPU are loops of arithmetic: for pts/n-queens, for pts/scimark2's Fourier
// transform and for the dense matrices of pts/himeno and pts/scimark2.
func stressCPU(n processors) []Case {
	cases := make([]Case, 0, 3)
	for _, c := range []struct {
		name, method, title string
		quick, paper        int
	}{
		{"queens", "queens", "Queens on a chess board", 100, 60_000},
		{"fft", "fft", "Fourier transform", 150, 100_000},
		{"matrix", "matrixprod", "Product of dense matrices", 150, 100_000},
	} {
		cases = append(cases, Case{
			Suite: n.suite, Name: n.suite + "-" + c.name, Title: c.title,
			Package: "stress-ng", Tools: []string{"stress-ng"}, Metrics: oneRate("bogo-ops/s"),
			Run: func(p Profile, r Resources) string {
				return fmt.Sprintf("stress-ng --stdout --metrics --seed 1 --cpu %d --cpu-method %s --cpu-ops %d\n",
					n.count(r), c.method, pick(p, c.quick, c.paper))
			},
			Parse: stressRate("cpu"),
			Wall:  wall(10*time.Second, 10*time.Minute),
		})
	}
	return cases
}

// stressRate reads stress-ng's line of a stressor: bogo ops, then real, user and
// system seconds, then the operations per real second.
func stressRate(stressor string) reader {
	return number("throughput", `(?m)^stress-ng: metrc: \[\d+\] `+regexp.QuoteMeta(stressor)+
		` +\d+ +[\d.]+ +[\d.]+ +[\d.]+ +([\d.]+) +[\d.]+ `)
}
