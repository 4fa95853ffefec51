package suite

import (
	"slices"
	"time"
)

// multicore returns the cases that load every virtual processor, for
// pts/multicore of the paper, §3.3. Many are timed, so that less is better.
func multicore() []Case {
	return slices.Concat(
		[]Case{sevenZipArchive(), pbzip2(), xzText(every), zstd()},
		opensslSpeeds(every)[:1], johns(every)[:1],
		[]Case{x264(every), povray(every)},
		graphicsMagick(every)[:2],
		[]Case{stockfish(every), hmmer(every), mafft(every), primesieve()},
		stressCPU(every)[:1],
	)
}

// sevenZipArchive is for pts/compress-7zip: 7-Zip's own benchmark on several
// threads first tries the processors for longer than quick allows.
func sevenZipArchive() Case {
	c := timedCase("multicore", "7zip", "Compression by 7-Zip",
		every.command("7z a -mmt%d -mx3 -md256k text.7z text >/dev/null\nrm text.7z\n", "7z a -mmt%d text.7z text >/dev/null\nrm text.7z\n"), 15*time.Second)
	c.Package, c.Tools, c.Prepare = "p7zip-full", []string{"7z", "perl"}, words(2*mib, 256*mib)
	return c
}

// pbzip2 is pts/compress-pbzip2: 256 MB.
func pbzip2() Case {
	c := timedCase("multicore", "pbzip2", "Compression by parallel bzip2",
		every.command("pbzip2 -c -p%d -r -1 text >/dev/null\n", "pbzip2 -c -p%d -r -5 text >/dev/null\n"), 15*time.Second)
	c.Tools, c.Prepare = []string{"pbzip2", "perl"}, words(2*mib, 256*mib)
	return c
}

// zstd is later than the paper, and the compressor of most archives today.
func zstd() Case {
	c := timedCase("multicore", "zstd", "Compression by zstd",
		every.command("zstd -q -9 -T%d -B1MiB -c text >/dev/null\n", "zstd -q -19 -T%d -c text >/dev/null\n"), 15*time.Second)
	c.Tools, c.Prepare = []string{"zstd", "perl"}, words(4*mib, 256*mib)
	return c
}

// primesieve counts primes by an even load on every core, as pts/c-ray and
// pts/smallpt, which Debian has not, load them.
func primesieve() Case {
	return timedCase("multicore", "primesieve", "Prime numbers",
		every.command("primesieve -q -t%d 5e8 >/dev/null\n", "primesieve -q -t%d 1e12 >/dev/null\n"), 10*time.Second)
}
