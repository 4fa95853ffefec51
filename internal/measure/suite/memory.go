package suite

import (
	"fmt"
	"time"
)

const (
	mib = int64(1) << 20
	gib = int64(1) << 30

	// ramBlock is larger than a core's own caches.
	ramBlock = 4 * mib
	// cacheBlock fits the first level of every current x86-64 processor.
	cacheBlock = int64(16) << 10
)

// memory returns cases for pts/memory of Lubomski et al., §3.3: nine cases that the paper
// does not list, of RAMspeed, STREAM and CacheBench. Debian has none of these. mbw copies
// like RAMspeed; sysbench reads and writes in order, at random, and in blocks that fit the
// cache, like CacheBench; stress-ng has STREAM's four kernels.
func memory() []Case {
	cases := []Case{
		// The cache size is fixed, because the arrays are four times as large, and guests
		// see different caches under different hypervisors.
		stressMemory("stream", "STREAM's copy, scale, add and triad", "15 2000", "--stream-l3-size 8M"),
		mbw("memcpy", "MEMCPY", 0, "Copy of an array by memcpy"),
		mbw("dumb", "DUMB", 1, "Copy of an array word by word"),
		mbw("mcblock", "MCBLOCK", 2, "Copy of an array by memcpy of 256 KiB"),
		sysbenchRAM("read-seq", "Read in order", "read", "seq", ramBlock),
		sysbenchRAM("write-seq", "Write in order", "write", "seq", ramBlock),
		sysbenchRAM("read-rnd", "Read at random", "read", "rnd", ramBlock),
		sysbenchRAM("write-rnd", "Write at random", "write", "rnd", ramBlock),
		sysbenchRAM("cache-read", "Read within the cache", "read", "seq", cacheBlock),
		sysbenchRAM("cache-write", "Write within the cache", "write", "seq", cacheBlock),
		stressMemory("memcpy", "Copies of 2 MiB by every memcpy there is", "40 10000", "--memcpy-method all"),
		stressMemory("vm", "Moving inversions in fresh mappings", "1500 400000", "--vm-bytes 32M --vm-method move-inv"),
	}
	for i := range cases {
		cases[i].Suite, cases[i].Name = "memory", "memory-"+cases[i].Name
	}
	return cases
}

// stressMemory is a stressor of stress-ng, one worker per processor. ops, quick and
// paper, are over all workers: a run of a fixed time would not be a fixed amount of work.
func stressMemory(stressor, title, ops, options string) Case {
	return Case{
		Name: stressor, Title: title, Package: "stress-ng", Tools: []string{"stress-ng"}, Metrics: oneRate("bogo-ops/s"),
		Run: script(fmt.Sprintf("stress-ng --stdout --metrics --seed 1 --%[1]s {{.Threads}} --%[1]s-ops {{.Pick %[2]s}} %[3]s\n",
			stressor, ops, options)),
		Parse: stressRate(stressor), Wall: wall(20*time.Second, 10*time.Minute),
	}
}

// mbw copies between two arrays by one of mbw's methods, on one processor. The
// arrays together are at most half of the memory.
func mbw(name, method string, index int, title string) Case {
	return Case{
		Name: "mbw-" + name, Title: title, Package: "mbw", Tools: []string{"mbw"}, Metrics: oneRate("MiB/s"),
		Run: func(p Profile, r Resources) string {
			size := min(pick(p, 32*mib, gib), max(mib, r.Memory/4))
			return fmt.Sprintf("mbw -t%d -n %d %d\n", index, pick(p, 5, 10), size/mib)
		},
		Parse: number("throughput", `(?m)^AVG\tMethod: `+method+`\t.*\tCopy: ([\d.]+) MiB/s$`),
		Wall:  wall(10*time.Second, 2*time.Minute),
	}
}

// sysbenchRAM moves 1 GiB, or in the paper's profile sysbench's own 100 GiB, in blocks.
// Each thread has its own block.
func sysbenchRAM(name, title, oper, mode string, block int64) Case {
	return Case{
		Name: name, Title: title, Package: "sysbench", Tools: []string{"sysbench"}, Metrics: oneRate("MiB/s"),
		Run: func(p Profile, r Resources) string {
			total := pick(p, gib, 100*gib)
			return fmt.Sprintf("sysbench memory --threads=%d --rand-seed=1 --events=%d --time=0 --memory-scope=local"+
				" --memory-block-size=%d --memory-total-size=%d --memory-oper=%s --memory-access-mode=%s run\n",
				r.VCPUs, total/block, block, total, oper, mode)
		},
		Parse: number("throughput", `(?m)^[\d.]+ MiB transferred \(([\d.]+) MiB/sec\)$`),
		Wall:  wall(20*time.Second, 20*time.Minute),
	}
}
