package report

import (
	"slices"

	"unnest/internal/measure/result"
	"unnest/internal/measure/stack"
)

// layersOf returns what is under a benchmark of a suite, none if it is not known.
func layersOf(c result.Configuration) []Hop {
	s, err := stack.Parse(c.Stack)
	if err != nil || s.Remote() || s.Xen() || s.Level() > 3 || c.Options["arch"] != "" {
		return nil
	}
	level := s.Level()
	machines := []machine{host, vm, innerVM, deeperVM}
	on := machines[level]
	hops := []Hop{{"benchmark", ends, on}}
	if _, contained := s.Engine(); contained {
		files := "layers of its image"
		if stack.Storage(c.Options["storage"]) == stack.Volume {
			files = "mounted directory"
		}
		hops = []Hop{{"benchmark in its container", ends, on}, {files, inNest, on}}
	}
	for ; level > 0; level-- {
		place := inVM
		if level > 1 {
			place = inNest
		}
		hops = append(hops, Hop{"kernel", place, machines[level]}, Hop{"QEMU", place, machines[level-1]})
	}
	return append(hops, Hop{"kernel", onHost, host})
}

// layers pictures what is under a benchmark in every configuration, with the verdicts. It is
// nil unless all are known.
func (b *builder) layers(estimates []Estimate) []Path {
	var all []Path
	for _, c := range b.run.Configurations {
		p := Path{Configuration: c.Name, Hops: layersOf(c)}
		if p.Hops == nil {
			return nil
		}
		all = append(all, p)
	}
	if len(b.baselines()) == 0 {
		return all
	}
	for _, t := range b.tallies(primaries(estimates)) {
		i := slices.IndexFunc(all, func(p Path) bool { return p.Configuration == t.name })
		all[i].Badge = t.String()
	}
	return all
}
