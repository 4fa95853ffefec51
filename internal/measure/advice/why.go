package advice

import (
	"fmt"

	"unnest.io/unnest/internal/measure/collocation"
	"unnest.io/unnest/internal/measure/stack"
	"unnest.io/unnest/internal/measure/stats"
)

// reasons says what each domain keeps, and what the domains compete for.
func (s study) reasons(all map[mix]map[int]visit, m mix, one visit) (why []string) {
	for i, l := range one.loads {
		if l2 := one.loads[max(i-1, 0)]; i > 0 && l2 == l {
			continue
		}
		if text := keeps(all, m, i, l); text != "" {
			why = append(why, text)
		}
	}
	if len(one.loads) == 2 {
		if text := compete(all, one.loads[0], one.loads[1]); text != "" {
			why = append(why, text)
		}
		if one.loads[0].kind == one.loads[1].kind {
			why = append(why, "the same I/O path: both are "+one.loads[0].kind)
		} else {
			why = append(why, fmt.Sprintf("different I/O paths: %s and %s", one.loads[0].kind, one.loads[1].kind))
		}
	}
	return why
}

// keeps says what the i-th domain of a mix keeps of its throughput alone, and how long it
// waits for processors.
func keeps(all map[mix]map[int]visit, m mix, i int, l load) string {
	var obs, waits []float64
	for block, v := range all[m] {
		if each, _, ok := shares(all, v, block); ok {
			obs = append(obs, each[i])
			if w, has := v.values[i][collocation.Waiting]; has {
				waits = append(waits, w)
			}
		}
	}
	share, err := stats.Summarize(obs)
	if err != nil {
		return ""
	}
	text := fmt.Sprintf("%s keeps %.0f %% of its throughput alone", l, 100*share.Center)
	if w, err := stats.Summarize(waits); err == nil {
		text += fmt.Sprintf(", and its threads wait for processors %.0f %% of the time", w.Mean)
	}
	return text
}

// need is what a load needs alone: of a processor, and of the network.
type need struct{ cpu, network float64 }

// needs returns the means over the blocks, by load. The host itself is no domain to place.
func needs(all map[mix]map[int]visit) map[load]need {
	of := map[load]need{}
	for m, blocks := range all {
		one := anyOf(blocks)
		if len(one.loads) != 1 || m.idle > 0 || one.loads[0].kind == string(stack.HOST) {
			continue
		}
		var n need
		for _, v := range blocks {
			n.cpu += v.values[0][collocation.Utilisation] / float64(len(blocks))
			n.network += v.values[0][collocation.Network] / float64(len(blocks))
		}
		of[one.loads[0]] = n
	}
	return of
}

// cpuBound reports whether a load needs more of the processors than of the network, each
// relative to the load of the run that needs most of it. known is false without its figures.
func cpuBound(all map[load]need, l load) (bound, known bool) {
	var most need
	for _, n := range all {
		most.cpu, most.network = max(most.cpu, n.cpu), max(most.network, n.network)
	}
	n, has := all[l]
	if !has || most.cpu == 0 || most.network == 0 || len(all) < 2 {
		return false, false
	}
	return n.cpu/most.cpu > n.network/most.network, true
}

// compete says what two loads need.
func compete(all map[mix]map[int]visit, a, b load) string {
	of := needs(all)
	boundA, knownA := cpuBound(of, a)
	boundB, knownB := cpuBound(of, b)
	switch {
	case !knownA || !knownB:
		return ""
	case boundA && boundB:
		return "both need the processors more than the network"
	case !boundA && !boundB:
		return "both need the network more than the processors"
	case boundA:
		return fmt.Sprintf("%s needs the processors more, %s the network", a, b)
	}
	return fmt.Sprintf("%s needs the processors more, %s the network", b, a)
}
