package report

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"unnest/internal/measure/result"
)

// ladder is a set of configurations that differ in their level of virtualization
// and in the size of their guests only.
type ladder struct {
	levels []int                    // ascending
	rungs  [][]result.Configuration // of each level, in the order of the run
}

// at returns the k-th configuration of the i-th level, the last one where there
// are fewer. Runs with and without over-commitment share one L0 (FitzGerald 2014,
// §2.4).
func (l ladder) at(i, k int) result.Configuration {
	return l.rungs[i][min(k, len(l.rungs[i])-1)]
}

// width returns the number of configurations of the level that has most.
func (l ladder) width() int {
	most := 0
	for _, r := range l.rungs {
		most = max(most, len(r))
	}
	return most
}

// names joins the k-th configurations from the lowest level up.
func (l ladder) names(k int) string {
	var names []string
	for i := range l.levels {
		names = append(names, l.at(i, k).Name)
	}
	return strings.Join(names, " → ")
}

// ladders finds the configurations of a run that stand at several levels: those
// alike in what stands above the VMs and in every option but the size of the
// guest.
func ladders(run result.Run) []ladder {
	var order []string
	levels := map[string]map[int][]result.Configuration{}
	for _, c := range run.Configurations {
		level, above, known := levelOf(c.Stack)
		if !known {
			continue
		}
		key := above + "\x00" + sharedOptions(c.Options)
		if levels[key] == nil {
			order, levels[key] = append(order, key), map[int][]result.Configuration{}
		}
		levels[key][level] = append(levels[key][level], c)
	}
	var found []ladder
	for _, key := range order {
		if len(levels[key]) < 2 {
			continue
		}
		l := ladder{levels: slices.Sorted(maps.Keys(levels[key]))}
		for _, level := range l.levels {
			l.rungs = append(l.rungs, levels[key][level])
		}
		found = append(found, l)
	}
	return found
}

// levelOf counts the VMs of a stack and returns what stands above them. It is
// not known of a machine reached over SSH.
func levelOf(stack string) (level int, above string, known bool) {
	var rest []string
	for layer := range strings.SplitSeq(stack, "/") {
		switch layer {
		case "ssh", "":
			return 0, "", false
		case "vm":
			level++
		case "metal":
		default:
			rest = append(rest, layer)
		}
	}
	return level, strings.Join(rest, "/"), true
}

// sharedOptions writes the options that configurations must share to differ in their
// level only. The thesis gives each level fewer processors and less memory
// (FitzGerald 2014, §2.4).
func sharedOptions(options map[string]string) string {
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(options)) {
		if key != "vcpus" && key != "memory" {
			parts = append(parts, key+"="+options[key])
		}
	}
	return strings.Join(parts, ",")
}

// rung is one row of the tables: a configuration and the one below it.
type rung struct {
	name, below string // below is empty at the lowest level
	level       int
	vcpus       int // 0: not told, or the same at every level
	belowVCPUs  int
}

// rungsOf lists the rungs of ladders, from the lowest level of each up.
func rungsOf(ladders []ladder) []rung {
	var all []rung
	for _, l := range ladders {
		sized := l.sized()
		for i, level := range l.levels {
			for k, c := range l.rungs[i] {
				r := rung{name: c.Name, level: level}
				if i > 0 {
					r.below = l.at(i-1, k).Name
				}
				if sized {
					r.vcpus = vcpus(c)
				}
				if sized && i > 0 {
					r.belowVCPUs = vcpus(l.at(i-1, k))
				}
				all = append(all, r)
			}
		}
	}
	return all
}

// sized reports whether every configuration tells its number of vCPUs, and not
// all the same.
func (l ladder) sized() bool {
	counts := map[int]bool{}
	for _, r := range l.rungs {
		for _, c := range r {
			counts[vcpus(c)] = true
		}
	}
	return len(counts) > 1 && !counts[0]
}

// vcpus returns the number of vCPUs of a configuration, 0 when it does not tell.
func vcpus(c result.Configuration) int {
	n, err := strconv.Atoi(c.Options["vcpus"])
	if err != nil || n < 1 {
		return 0
	}
	return n
}
