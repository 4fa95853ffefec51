package suite

import (
	"fmt"
	"regexp"
	"time"

	"unnest/internal/measure/result"
)

// words returns a script that makes a file called text of so many bytes, the
// same everywhere: 5000 words, the first ones often, so that it compresses.
func words(quick, paper int64) Script {
	return func(p Profile, _ Resources) string {
		return fmt.Sprintf(`perl - %d >text <<'END'
srand 1;
my @words = map { join '', map { chr 97 + int rand 26 } 1 .. 2 + int rand 8 } 1 .. 5000;
for (my $left = shift; $left > 0; ) {
    my $word = $words[5000 * rand() ** 3] . (rand() < 0.1 ? "\n" : ' ');
    print substr $word, 0, $left;
    $left -= length $word;
}
END
`, pick(p, quick, paper))
	}
}

// sevenZip is pts/compress-7zip: 7-Zip's own benchmark. Quick takes one pass of
// the smallest dictionary.
func sevenZip() Case {
	return Case{
		Suite: "cpu", Name: "cpu-7zip", Title: "Compression and decompression by 7-Zip",
		Package: "p7zip-full", Tools: []string{"7z"},
		Metrics: []result.Metric{rate("rating", "MIPS"), rate("compression", "MIPS"), rate("decompression", "MIPS")},
		Run:     single.command("7z b 1 -mmt%d -md18 -mtime=0\n", "7z b -mmt%d\n"),
		Parse: numbers(
			field{"rating", regexp.MustCompile(`(?m)^Tot: +\d+ +\d+ +(\d+)$`), 1},
			field{"compression", regexp.MustCompile(`(?m)^Avr: +\d+ +\d+ +\d+ +(\d+) +\|`), 1},
			field{"decompression", regexp.MustCompile(`(?m)^Avr: .*\| +\d+ +\d+ +\d+ +(\d+)$`), 1}),
		Wall: wall(30*time.Second, 10*time.Minute),
	}
}

// gzipText is pts/compress-gzip: 2 GB, here eight times the same 256 MiB.
func gzipText() Case {
	c := timedCase("cpu", "gzip", "Compression by gzip", func(p Profile, _ Resources) string {
		return fmt.Sprintf("for ((i = 0; i < %d; i++)); do cat text; done | gzip -c >/dev/null\n", pick(p, 1, 8))
	}, 8*time.Second)
	c.Tools, c.Prepare = []string{"gzip", "perl"}, words(3*mib, 256*mib)
	return c
}

// bzip2Text is pts/compress-pbzip2 on one processor: 256 MB.
func bzip2Text() Case {
	c := timedCase("cpu", "bzip2", "Compression by bzip2", func(p Profile, _ Resources) string {
		return pick(p, "bzip2 -1 -c text >/dev/null\n", "bzip2 -5 -c text >/dev/null\n")
	}, 10*time.Second)
	c.Tools, c.Prepare = []string{"bzip2", "perl"}, words(3*mib/2, 256*mib)
	return c
}

// xzText is pts/compress-lzma: 256 MB. Threads share the text by blocks.
func xzText(n processors) Case {
	c := timedCase(n.suite, "xz", "Compression by xz",
		n.command("xz -T%d -3 --block-size=256KiB -c text >/dev/null\n", "xz -T%d -c text >/dev/null\n"), 15*time.Second)
	c.Package, c.Tools, c.Prepare = "xz-utils", []string{"xz", "perl"}, words(mib, 256*mib)
	return c
}
