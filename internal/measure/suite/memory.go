package suite

import (
	"fmt"
	"regexp"
	"time"
)

// memory stands for pts/memory of Lubomski et al., §3.3: nine cases that the
// paper does not list, of RAMspeed, STREAM and CacheBench, none of which Debian
// has. mbw copies as RAMspeed does, sysbench reads and writes in order and at
// random, and in blocks that fit the cache as CacheBench does, stress-ng has
// STREAM's four kernels.
func memory() []Case {
	return []Case{
		stressMemory("stream", "STREAM's copy, scale, add and triad", 15, 2000,
			"--stream-l3-size "+streamCache),
		mbw("memcpy", "MEMCPY", 0, "Copy of an array by memcpy"),
		mbw("dumb", "DUMB", 1, "Copy of an array word by word"),
		mbw("mcblock", "MCBLOCK", 2, "Copy of an array by memcpy of 256 KiB"),
		sysbenchRAM("read-seq", "Read in order", "read", "seq", ramBlock, gib),
		sysbenchRAM("write-seq", "Write in order", "write", "seq", ramBlock, gib),
		sysbenchRAM("read-rnd", "Read at random", "read", "rnd", ramBlock, gib),
		sysbenchRAM("write-rnd", "Write at random", "write", "rnd", ramBlock, gib),
		sysbenchRAM("cache-read", "Read within the cache", "read", "seq", cacheBlock, gib),
		sysbenchRAM("cache-write", "Write within the cache", "write", "seq", cacheBlock, gib),
		stressMemory("memcpy", "Copies of 2 MiB by every memcpy there is", 40, 10_000, "--memcpy-method all"),
		stressMemory("vm", "Moving inversions in fresh mappings", 1500, 400_000, "--vm-bytes 32M --vm-method move-inv"),
	}
}

const (
	mib = int64(1) << 20
	gib = int64(1) << 30

	// ramBlock is larger than what a core caches for itself.
	ramBlock = 4 * mib
	// cacheBlock fits the first level of every x86-64 processor of today.
	cacheBlock = int64(16) << 10
	// streamCache is what stress-ng is told that the cache has. It is fixed, for
	// the arrays are four times as large, and what a guest sees of the host's
	// cache differs between hypervisors.
	streamCache = "8M"
)

// stressMemory is a stressor of stress-ng, one worker per processor. ops are
// over all workers, because a run of a given time would differ in work.
func stressMemory(stressor, title string, quick, paper int, options string) Case {
	return Case{
		Suite: "memory", Name: "memory-" + stressor, Title: title,
		Package: "stress-ng", Tools: []string{"stress-ng"},
		Metrics: oneRate("bogo-ops/s"),
		Run: func(p Profile, r Resources) string {
			return fmt.Sprintf("stress-ng --stdout --metrics --seed 1 --%[1]s %[2]d --%[1]s-ops %[3]d %[4]s\n",
				stressor, r.VCPUs, pick(p, quick, paper), options)
		},
		// The line has bogo ops, then real, user and system seconds, then the
		// operations per real second.
		Parse: number("throughput", `(?m)^stress-ng: metrc: \[\d+\] `+regexp.QuoteMeta(stressor)+
			` +\d+ +[\d.]+ +[\d.]+ +[\d.]+ +([\d.]+) +[\d.]+ `),
		Wall: wall(20*time.Second, 10*time.Minute),
	}
}

// mbw copies between two arrays by one of mbw's methods, on one processor. The
// arrays together are at most half of the memory.
func mbw(name, method string, index int, title string) Case {
	return Case{
		Suite: "memory", Name: "memory-mbw-" + name, Title: title,
		Package: "mbw", Tools: []string{"mbw"},
		Metrics: oneRate("MiB/s"),
		Run: func(p Profile, r Resources) string {
			size := min(pick(p, 32*mib, gib), max(mib, r.Memory/4))
			return fmt.Sprintf("mbw -t%d -n %d %d\n", index, pick(p, 5, 10), size/mib)
		},
		Parse: number("throughput", `(?m)^AVG\tMethod: `+method+`\t.*\tCopy: ([\d.]+) MiB/s$`),
		Wall:  wall(10*time.Second, 2*time.Minute),
	}
}

// sysbenchRAM moves quick bytes, or in the paper's profile sysbench's own
// 100 GiB, in blocks; each thread has its own.
func sysbenchRAM(name, title, oper, mode string, block, quick int64) Case {
	return Case{
		Suite: "memory", Name: "memory-" + name, Title: title,
		Package: "sysbench", Tools: []string{"sysbench"},
		Metrics: oneRate("MiB/s"),
		Run: func(p Profile, r Resources) string {
			total := pick(p, quick, 100*gib)
			return fmt.Sprintf("sysbench memory --threads=%d --rand-seed=1 --events=%d --time=0 --memory-scope=local"+
				" --memory-block-size=%d --memory-total-size=%d --memory-oper=%s --memory-access-mode=%s run\n",
				r.VCPUs, total/block, block, total, oper, mode)
		},
		Parse: number("throughput", `(?m)^[\d.]+ MiB transferred \(([\d.]+) MiB/sec\)$`),
		Wall:  wall(20*time.Second, 20*time.Minute),
	}
}
