package advice

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"unnest.io/unnest/internal/measure/collocation"
	"unnest.io/unnest/internal/measure/result"
)

// alone finds the visit of a load that was alone on the host in a block.
func alone(all map[mix]map[int]visit, l load, block int) (visit, bool) {
	v, ok := all[mix{active: l.String()}][block]
	return v, ok && v.rate(0) > 0
}

// shares returns what each domain of a visit keeps of its throughput alone, and their sum:
// 1 if the domains together do what one after the other would do in the same time. It is
// also called weighted speedup, or system throughput (Eyerman and Eeckhout 2008).
func shares(all map[mix]map[int]visit, v visit, block int) (each []float64, sum float64, ok bool) {
	for i, l := range v.loads {
		single, found := alone(all, l, block)
		if !found {
			return nil, 0, false
		}
		each = append(each, v.rate(i)/single.rate(0))
		sum += each[i]
	}
	return each, sum, sum > 0
}

// neighbours returns the choices about domains on one host, undecided. Under a part of their full load,
// domains leave room for others also when they are alone. What they do together is then not compared with
// what one after the other would do, but with what each does on a host of its own.
func (s study) neighbours() (choices []Choice) {
	all := s.mixes()
	sideBySide := Choice{Metric: sumOfShares, From: "one after the other", Expected: "their throughput side by side is %s of that one after the other"}
	if part := collocation.PartLoad(s.run.Cases); part > 0 {
		sideBySide = Choice{Metric: meanOfShares, From: "hosts of their own",
			Expected: fmt.Sprintf("at %d %%%% of their full load, their throughput on one host is %%s of that on hosts of their own", part)}
	}
	mixes := slices.SortedFunc(maps.Keys(all), func(a, b mix) int {
		return cmp.Or(strings.Compare(a.active, b.active), a.idle-b.idle)
	})
	for _, m := range mixes {
		one := anyOf(all[m])
		switch {
		case len(one.loads) == 1 && m.idle > 0:
			choices = append(choices, s.together(all, m, Choice{Metric: sumOfShares, From: m.active + " alone",
				Action: fmt.Sprintf("leave %d idle next to %s", m.idle, m.active), Instead: "end idle neighbours of " + m.active,
				Expected: fmt.Sprintf("its throughput with %d idle next to it is %%s of that alone", m.idle)})...)
		case len(one.loads) > 1 && m.idle == 0:
			c := sideBySide
			c.Action, c.Instead = "put "+m.active+" on one host", "keep "+m.active+" apart"
			choices = append(choices, s.together(all, m, c)...)
		}
		if len(one.loads) == 2 && m.idle == 0 && one.loads[0] != one.loads[1] {
			choices = append(choices, s.mixed(all, m, one)...)
		}
	}
	return choices
}

// The metrics of choices about domains: of what each domain has of its throughput alone.
const (
	sumOfShares  = "sum_of_shares"
	meanOfShares = "mean_of_shares"
)

// together compares the metric of a choice about a mix with 1.
func (s study) together(all map[mix]map[int]visit, m mix, c Choice) []Choice {
	ratios := map[int]float64{}
	for block, v := range all[m] {
		if _, sum, ok := shares(all, v, block); ok {
			if c.Metric == meanOfShares {
				sum /= float64(len(v.loads))
			}
			ratios[block] = math.Log(sum)
		}
	}
	e, ok := effect([]map[int]float64{ratios})
	if !ok {
		return nil
	}
	c.Effect = e
	return []Choice{s.neighbour(all, m, c)}
}

// EqualPairs is what mixed pairs are compared with.
const EqualPairs = "equal pairs"

// mixed compares two hosts that each have one of both loads with two hosts that have two of
// one load.
func (s study) mixed(all map[mix]map[int]visit, m mix, one visit) []Choice {
	like := func(i int) mix { return mix{active: named([]load{one.loads[i], one.loads[i]})} }
	ratios := map[int]float64{}
	for block, v := range all[m] {
		a, hasA := all[like(0)][block]
		b, hasB := all[like(1)][block]
		_, mixed, ok := shares(all, v, block)
		if !hasA || !hasB || !ok {
			continue
		}
		_, sumA, okA := shares(all, a, block)
		_, sumB, okB := shares(all, b, block)
		if okA && okB {
			ratios[block] = math.Log(2 * mixed / (sumA + sumB))
		}
	}
	e, ok := effect([]map[int]float64{ratios})
	if !ok {
		return nil
	}
	x, y := one.loads[0], one.loads[1]
	return []Choice{s.neighbour(all, m, Choice{
		Action:   fmt.Sprintf("of 2 %s and 2 %s, put one of each on each host", x, y),
		Instead:  fmt.Sprintf("put the 2 %s on one host and the 2 %s on another", x, y),
		From:     EqualPairs,
		Metric:   sumOfShares,
		Expected: "the throughput of mixed pairs is %s of that of equal pairs",
		Limited:  limited(all, like(0)) || limited(all, like(1)),
		Effect:   e,
	})}
}

// limited reports whether the load generator was at its limit in a mix, or with one of its
// loads alone: with faster clients the shares may be others.
func limited(all map[mix]map[int]visit, m mix) bool {
	for block, v := range all[m] {
		if v.limited {
			return true
		}
		for _, l := range v.loads {
			if single, ok := alone(all, l, block); ok && single.limited {
				return true
			}
		}
	}
	return false
}

// starved returns the load of a mix that keeps least of its throughput alone, with what it
// keeps (geometric mean over the blocks), if this is less than half of its turn: the
// n-th part, if the n domains of the mix took turns.
func starved(all map[mix]map[int]visit, m mix) (name string, share float64) {
	for i, l := range anyOf(all[m]).loads {
		var kepts []float64
		n := 1.0
		for block, v := range all[m] {
			if each, _, ok := shares(all, v, block); ok {
				kepts, n = append(kepts, each[i]), float64(len(each))
			}
		}
		if kept := math.Exp(meanLog(kepts)); kept < 0.5/n && (name == "" || kept < share) {
			name, share = l.String(), kept
		}
	}
	return name, share
}

// neighbour completes a choice about a mix.
func (s study) neighbour(all map[mix]map[int]visit, m mix, c Choice) Choice {
	c.To = m.active
	if m.idle > 0 {
		c.To += fmt.Sprintf(" + %d idle", m.idle)
	}
	c.Subject, c.Suite, c.Unit, c.Order, c.Cases = Neighbours, "collocation", "1", result.HIB, 1
	c.Starved, c.Share = starved(all, m)
	c.Limited = c.Limited || limited(all, m)
	c.Why = s.reasons(all, m, anyOf(all[m]))
	c.Command = "unnest bench FILE  # with these domains, to see it with your workload"
	return c
}
