package boot

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"unnest.io/unnest/internal/measure/workload"
)

// memoryOf returns the means over processes of the memory that each maps: RSS counts pages that
// processes share for each of them, and PSS divides such pages between them.
func memoryOf(pids []int) ([]workload.Value, error) {
	var rss, pss float64
	for _, pid := range pids {
		content, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		if err != nil {
			return nil, fmt.Errorf("read the memory of a guest: %w", err)
		}
		r, p, err := parseMemory(string(content))
		if err != nil {
			return nil, fmt.Errorf("read the memory of a guest: %w", err)
		}
		rss, pss = rss+r, pss+p
	}
	n := float64(len(pids))
	return []workload.Value{{Metric: "memory_rss", Value: rss / n}, {Metric: "memory_pss", Value: pss / n}}, nil
}

// parseMemory returns RSS and PSS in MiB from the content of a file smaps_rollup.
func parseMemory(rollup string) (rss, pss float64, err error) {
	of := map[string]float64{}
	for line := range strings.Lines(rollup) {
		key, rest, _ := strings.Cut(line, ":")
		if kib, ok := strings.CutSuffix(strings.TrimSpace(rest), " kB"); ok {
			if of[key], err = strconv.ParseFloat(kib, 64); err != nil {
				return 0, 0, err
			}
		}
	}
	if of["Rss"] == 0 || of["Pss"] == 0 {
		return 0, 0, fmt.Errorf("no RSS and PSS in %q", rollup)
	}
	return of["Rss"] / 1024, of["Pss"] / 1024, nil
}
