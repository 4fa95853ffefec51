package advice

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"unnest.io/unnest/internal/measure/collocation"
	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/stack"
	"unnest.io/unnest/internal/yamldoc"
)

// load is a kind of domain with what it serves.
type load struct {
	kind string // hvm
	size int    // bytes of the documents
}

func (l load) String() string {
	if l.size == 0 {
		return l.kind
	}
	return fmt.Sprintf("%s(%s)", l.kind, stack.FormatBytes(int64(l.size)))
}

// named names loads: "hvm(1KiB) + pvm(1KiB)", or "2 hvm(1KiB)" where they are equal.
func named(loads []load) string {
	counts := map[string]int{}
	for _, l := range loads {
		counts[l.String()]++
	}
	var names []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		if n := counts[name]; n > 1 {
			name = fmt.Sprintf("%d %s", n, name)
		}
		names = append(names, name)
	}
	return strings.Join(names, " + ")
}

// mix is a set of domains on one host: the active loads in order, and how many are idle.
type mix struct {
	active string // the loads, as they are named
	idle   int
}

// visit is what the active domains of a mix had in one block, at the case where they
// together had most of what each has alone.
type visit struct {
	loads   []load
	values  []map[string]float64 // of each load, by metric
	limited bool                 // the load generator was at its limit, or late
}

// rate returns the throughput of the i-th load.
func (v visit) rate(i int) float64 { return v.values[i][collocation.Server] }

// execution is one execution of a case in a configuration.
type execution struct {
	configuration, suite, name string
	block                      int
}

// domains are the metrics of each domain of an execution, by its name.
type domains struct {
	metrics map[string]map[string]float64
	idle    map[string]bool
	size    map[string]int
	limited bool
}

func (s study) executions() map[execution]*domains {
	all := map[execution]*domains{}
	limited := map[execution]bool{} // the tag is on samples of the whole execution
	for _, x := range s.samples {
		name := x.Tags[collocation.DomainTag]
		k := execution{x.Configuration, x.Suite, x.Case, x.Block}
		limited[k] = limited[k] || x.Tags[collocation.LimitTag] != ""
		if name == "" {
			continue
		}
		if all[k] == nil {
			all[k] = &domains{metrics: map[string]map[string]float64{}, idle: map[string]bool{}, size: map[string]int{}}
		}
		if all[k].metrics[name] == nil {
			all[k].metrics[name] = map[string]float64{}
		}
		all[k].metrics[name][x.Metric] = x.Value
		all[k].idle[name] = x.Tags[collocation.ActiveTag] == "false"
		if n, err := strconv.Atoi(x.Tags[collocation.SizeTag]); err == nil {
			all[k].size[name] = n
		}
	}
	for k, d := range all {
		d.limited = limited[k]
	}
	return all
}

// mixes collects the visits of a run by mix and block. Of several cases in one block, such
// as intensities, the peak counts: of a domain that is alone its highest throughput, of
// others the highest sum of shares.
func (s study) mixes() map[mix]map[int]visit {
	visits := map[mix]map[int][]visit{}
	for k, d := range s.executions() {
		m, v := s.visit(k, d)
		if len(v.loads) == 0 {
			continue
		}
		if visits[m] == nil {
			visits[m] = map[int][]visit{}
		}
		visits[m][k.block] = append(visits[m][k.block], v)
	}
	all := map[mix]map[int]visit{}
	for _, m := range slices.SortedFunc(maps.Keys(visits), func(a, b mix) int {
		return cmp.Or(len(anyOf(visits[a])[0].loads)-len(anyOf(visits[b])[0].loads), a.idle-b.idle)
	}) {
		all[m] = map[int]visit{}
		for block, some := range visits[m] {
			all[m][block] = slices.MaxFunc(some, func(v, w visit) int {
				return cmp.Compare(height(all, v, block), height(all, w, block))
			})
		}
	}
	return all
}

// height is what the peak is the highest of.
func height(all map[mix]map[int]visit, v visit, block int) float64 {
	if _, sum, ok := shares(all, v, block); ok {
		return sum
	}
	sum := 0.0
	for i := range v.loads {
		sum += v.rate(i)
	}
	return sum
}

// anyOf returns what the first block has.
func anyOf[V any](blocks map[int]V) V { return blocks[slices.Min(slices.Collect(maps.Keys(blocks)))] }

// visit sorts the domains of one execution by load. An idle domain need not have samples,
// if the configuration names it.
func (s study) visit(k execution, d *domains) (mix, visit) {
	size, sizes := s.sizeOf(k.suite, k.name), s.sizes(k.configuration)
	idle := 0
	v := visit{limited: d.limited}
	for _, name := range slices.Sorted(maps.Keys(d.metrics)) {
		if d.idle[name] {
			idle++
			continue
		}
		v.loads = append(v.loads, load{strings.TrimRight(name, "0123456789"), cmp.Or(d.size[name], sizes[name], size)})
		v.values = append(v.values, d.metrics[name])
	}
	return mix{named(v.loads), max(idle, strings.Count(s.notation(k.configuration), "idle"))}, v
}

func (s study) sizeOf(suite, name string) int {
	i := slices.IndexFunc(s.run.Cases, func(c result.Case) bool { return c.Suite == suite && c.Name == name })
	if i < 0 {
		return 0
	}
	return s.run.Cases[i].Size
}

// notation is how a configuration writes its domains: hvm1+pvm1(100KiB)+hvm2(idle).
func (s study) notation(configuration string) string {
	i := slices.IndexFunc(s.run.Configurations, func(c result.Configuration) bool { return c.Name == configuration })
	if i < 0 {
		return ""
	}
	return s.run.Configurations[i].Options["domains"]
}

// sizes are the sizes that a configuration gives to domains.
func (s study) sizes(configuration string) map[string]int {
	sizes := map[string]int{}
	for one := range strings.SplitSeq(s.notation(configuration), "+") {
		name, with, _ := strings.Cut(strings.TrimSuffix(one, ")"), "(")
		for word := range strings.FieldsSeq(with) {
			if n, err := yamldoc.Bytes(word); err == nil && !strings.Contains(with, "weight "+word) {
				sizes[name] = int(n)
			}
		}
	}
	return sizes
}
