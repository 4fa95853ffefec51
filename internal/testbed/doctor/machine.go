package doctor

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// What the quick start wants: with less than wanted it is limited, with less
// than half of that it cannot work.
const (
	wantMemory = 2 << 30 // bytes: one guest, the client beside it and the page cache
	wantDisk   = 4 << 30 // bytes: packages, root file system and image of the guest
	wantCPUs   = 2       // one for the guest, one for the client that loads it
)

// machine checks the user and the size of the machine.
func machine(_ context.Context, p Probes) []Check {
	return append(require(user(p), memory(p), disk(p)), processors(p))
}

func user(p Probes) Check {
	if !p.Root {
		return Check{Name: "root", State: Missing, Found: "running as an ordinary user", Remedy: "run unnest by sudo"}
	}
	return Check{Name: "root", State: OK, Found: "running as root"}
}

func processors(p Probes) Check {
	c := Check{Name: "processors", State: OK, Found: strconv.Itoa(p.CPUs)}
	if p.CPUs < wantCPUs {
		c.State = Limited
		c.Remedy = fmt.Sprintf("use a machine with %d: guest and client share one, which shows in every figure", wantCPUs)
	}
	return c
}

func memory(p Probes) Check {
	text, err := p.ReadFile("/proc/meminfo")
	if err != nil {
		return works("memory", "", err, "mount -t proc proc /proc")
	}
	available, err := memAvailable(text)
	if err != nil {
		return works("memory", "", err, "use Linux 3.14 or newer")
	}
	return enough("memory", available, wantMemory, "available", "stop what else uses memory, or use a larger machine")
}

// memAvailable returns the bytes that /proc/meminfo says can be used without
// swapping.
func memAvailable(meminfo string) (uint64, error) {
	lines := bufio.NewScanner(strings.NewReader(meminfo))
	for lines.Scan() {
		value, found := strings.CutPrefix(lines.Text(), "MemAvailable:")
		if !found {
			continue
		}
		kib, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 54)
		if err != nil {
			return 0, fmt.Errorf("parse MemAvailable in /proc/meminfo: %w", err)
		}
		return kib << 10, nil
	}
	return 0, errors.New("no MemAvailable in /proc/meminfo")
}

func disk(p Probes) Check {
	free, err := p.FreeDisk(p.CacheDir)
	if err != nil {
		return works("disk", "", err, "name a directory that can be written by UNNEST_CACHE")
	}
	return enough("disk", free, wantDisk, "free for "+p.CacheDir, "make room, or name a directory elsewhere by UNNEST_CACHE")
}

// enough judges an amount in bytes.
func enough(name string, have, want uint64, where, remedy string) Check {
	c := Check{Name: name, State: OK, Found: gibibytes(have) + " " + where}
	switch {
	case have >= want:
		return c
	case have >= want/2:
		c.State = Limited
	default:
		c.State = Missing
	}
	c.Found += ", want " + gibibytes(want)
	c.Remedy = remedy
	return c
}

func gibibytes(n uint64) string {
	return strconv.FormatFloat(float64(n)/(1<<30), 'f', 1, 64) + " GiB"
}
