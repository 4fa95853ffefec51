package paths

import (
	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/stack"
)

// layers returns what is under a benchmark of a suite, none if it is not known.
func layers(c result.Configuration) []Hop {
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

// Layers is what is under a benchmark in every configuration of a run, with its badge. There
// is nothing unless all are known.
func Layers(run result.Run, badges map[string]string) []Path {
	return pathsOf(run, layers, func(p *Path) { p.Badge = badges[p.Configuration] })
}
