package levels

import (
	"maps"
	"slices"
	"strings"

	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/stack"
	"unnest.io/unnest/internal/report/document"
)

// nesting is a set of configurations that differ only in their level of virtualization
// and in the size of their guests.
type nesting struct {
	levels         []int                    // ascending
	configurations [][]result.Configuration // of each level, in the order of the run
}

// at returns the k-th configuration of the i-th level, the last one where there are
// fewer. Runs with and without over-commitment share one L0 (FitzGerald 2014, §2.4).
func (n nesting) at(i, k int) result.Configuration {
	return n.configurations[i][min(k, len(n.configurations[i])-1)]
}

// width returns the number of configurations of the level that has most.
func (n nesting) width() int {
	most := 0
	for _, c := range n.configurations {
		most = max(most, len(c))
	}
	return most
}

// names joins the k-th configurations from the lowest level up.
func (n nesting) names(k int) string {
	var names []string
	for i := range n.levels {
		names = append(names, n.at(i, k).Name)
	}
	return strings.Join(names, " → ")
}

// nestings finds the configurations of a run at several levels that have the same
// engine above their VMs and the same options, apart from the size of the guest.
func nestings(run result.Run) []nesting {
	var order []string
	levels := map[string]map[int][]result.Configuration{}
	for _, c := range run.Configurations {
		level, engine, known := levelOf(c.Stack)
		if !known {
			continue
		}
		key := string(engine) + "\x00" + sharedOptions(c.Options)
		if levels[key] == nil {
			order, levels[key] = append(order, key), map[int][]result.Configuration{}
		}
		levels[key][level] = append(levels[key][level], c)
	}
	var found []nesting
	for _, key := range order {
		if len(levels[key]) < 2 {
			continue
		}
		n := nesting{levels: slices.Sorted(maps.Keys(levels[key]))}
		for _, level := range n.levels {
			n.configurations = append(n.configurations, levels[key][level])
		}
		found = append(found, n)
	}
	return found
}

// levelOf returns the level of a stack and the container engine on top. The level of a
// machine reached over SSH is not known.
func levelOf(notation string) (level int, engine stack.Layer, known bool) {
	s, err := stack.Parse(notation)
	if err != nil || s.Remote() {
		return 0, "", false
	}
	engine, _ = s.Engine()
	return s.Level(), engine, true
}

// sharedOptions writes the options that the configurations of a nesting share. The
// thesis gives each level fewer processors and less memory (FitzGerald 2014, §2.4).
func sharedOptions(options map[string]string) string {
	shared := maps.Clone(options)
	delete(shared, "vcpus")
	delete(shared, "memory")
	return document.Settings(shared)
}

// levelRow is one row of the tables: a configuration and the one below it.
type levelRow struct {
	name, below string // below is empty at the lowest level
	level       int
	vcpus       int // 0: not known, or the same at every level
	belowVCPUs  int
}

// levelRows lists the configurations of nestings, from the lowest level of each up.
func levelRows(nestings []nesting) []levelRow {
	var all []levelRow
	for _, n := range nestings {
		sized := n.sized()
		for i, level := range n.levels {
			for k, c := range n.configurations[i] {
				r := levelRow{name: c.Name, level: level}
				if sized {
					r.vcpus = c.VCPUs()
				}
				if i > 0 {
					below := n.at(i-1, k)
					r.below = below.Name
					if sized {
						r.belowVCPUs = below.VCPUs()
					}
				}
				all = append(all, r)
			}
		}
	}
	return all
}

// sized reports whether the configurations have different numbers of vCPUs, all known.
func (n nesting) sized() bool {
	counts := map[int]bool{}
	for _, c := range slices.Concat(n.configurations...) {
		counts[c.VCPUs()] = true
	}
	return len(counts) > 1 && !counts[0]
}
