package advice

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"unnest/internal/measure/result"
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

// partLoad returns the highest intensity of the run, in percent, or 0 if a case has the full load.
func (s study) partLoad() (highest int) {
	for _, c := range s.run.Cases {
		if c.Intensity == 0 || c.Intensity >= 100 {
			return 0
		}
		highest = max(highest, c.Intensity)
	}
	return highest
}

// neighbours returns the choices about domains on one host, undecided. Under a part of their full load,
// domains leave room for others also when they are alone. What they do together is then not compared with
// what one after the other would do, but with what they do on a host each.
func (s study) neighbours() (choices []Choice) {
	all := s.mixes()
	from, expected := "one after the other", "their throughput side by side is %s of that one after the other"
	if part := s.partLoad(); part > 0 {
		from = EachOnAHost
		expected = fmt.Sprintf("at %d %%%% of their full load, their throughput on one host is %%s of that on a host each", part)
	}
	mixes := slices.SortedFunc(maps.Keys(all), func(a, b mix) int {
		return cmp.Or(strings.Compare(a.active, b.active), a.idle-b.idle)
	})
	for _, m := range mixes {
		one := anyOf(all[m])
		switch {
		case len(one.loads) == 1 && m.idle > 0:
			choices = append(choices, s.together(all, m, fmt.Sprintf("leave %d idle next to %s", m.idle, m.active),
				"end idle neighbours of "+m.active, m.active+" alone", fmt.Sprintf("its throughput with %d idle next to it is %%s of that alone", m.idle))...)
		case len(one.loads) > 1 && m.idle == 0:
			choices = append(choices, s.together(all, m, "put "+m.active+" on one host", "keep "+m.active+" apart", from, expected)...)
		}
		if len(one.loads) == 2 && m.idle == 0 && one.loads[0] != one.loads[1] {
			choices = append(choices, s.mixed(all, m, one)...)
		}
	}
	return choices
}

// EachOnAHost is what domains under a part of their full load are compared with.
const EachOnAHost = "a host each"

// together compares the sum of shares of a mix with 1, or their mean with that of a host each.
func (s study) together(all map[mix]map[int]visit, m mix, action, instead, from, expected string) []Choice {
	ratios := map[int]float64{}
	for block, v := range all[m] {
		if _, sum, ok := shares(all, v, block); ok {
			if from == EachOnAHost {
				sum /= float64(len(v.loads))
			}
			ratios[block] = math.Log(sum)
		}
	}
	e, ok := effect([]map[int]float64{ratios})
	if !ok {
		return nil
	}
	c := s.neighbour(all, m, Choice{Action: action, Instead: instead, From: from, Expected: expected, Effect: e})
	if from == EachOnAHost {
		c.Metric = "mean_of_shares"
	}
	return []Choice{c}
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
	c.Subject, c.Suite, c.Metric, c.Unit, c.Order, c.Cases = Neighbours, "collocation", "sum_of_shares", "1", result.HIB, 1
	c.Starved, c.Share = starved(all, m)
	c.Limited = c.Limited || limited(all, m)
	c.Why = s.reasons(all, m, anyOf(all[m]))
	c.Command = "unnest bench FILE  # with these domains, to see it with your workload"
	return c
}
