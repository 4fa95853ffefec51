package kubernetes

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// Pods with affinity by zone hold their nodes if the scheduler might not put them there again:
// while a pod that matches is elsewhere, it waives the affinity for none of them.
func TestAffinityByZoneThatTheFirstPodMightNotMeet(t *testing.T) {
	const near = `"affinity":{"podAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{"topologyKey":"zone","labelSelector":{"matchLabels":{"tier":"data"}}}]}},`
	const others = `"affinity":{"podAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{"topologyKey":"zone","labelSelector":{"matchLabels":{"tier":"web"}}}]}},`
	const everywhere = `"affinity":{"podAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{"topologyKey":"zone","labelSelector":{"matchLabels":{"tier":"data"}},"namespaceSelector":{"matchLabels":{"team":"x"}}}]}},`
	type pod struct{ name, tier, node, spec string }
	for name, c := range map[string]struct {
		pods []pod
		held []string
	}{
		"all that match are in the zone":       {[]pod{{"a", "data", "n0", near}, {"b", "data", "n1", near}}, nil},
		"one alone":                            {[]pod{{"a", "data", "n0", near}}, nil},
		"others are in another zone":           {[]pod{{"a", "data", "n0", near}, {"b", "data", "n1", near}, {"f", "data", "n2", ""}}, []string{"a", "b"}},
		"one alone, another in another zone":   {[]pod{{"a", "data", "n0", near}, {"f", "data", "n2", ""}}, []string{"a"}},
		"one without affinity is in the zone":  {[]pod{{"a", "data", "n0", near}, {"b", "data", "n1", ""}, {"f", "data", "n2", ""}}, nil},
		"a chain from one without affinity":    {[]pod{{"a", "web", "n0", near}, {"b", "data", "n1", others}, {"c", "web", "n1", ""}, {"f", "data", "n2", ""}}, nil},
		"each needs the other":                 {[]pod{{"a", "web", "n0", near}, {"b", "data", "n1", others}}, []string{"a", "b"}},
		"the node is in no zone":               {[]pod{{"a", "data", "n3", near}}, []string{"a"}},
		"it is met nowhere":                    {[]pod{{"a", "web", "n0", near}, {"f", "data", "n2", ""}}, []string{"a"}},
		"the labels of namespaces are missing": {[]pod{{"a", "data", "n0", everywhere}}, []string{"a"}},
	} {
		t.Run(name, func(t *testing.T) {
			d := NewDump()
			for i, zone := range []string{`"zone":"a"`, `"zone":"a"`, `"zone":"b"`, ``} {
				if _, err := d.Node(fmt.Appendf(nil, `{"metadata":{"name":"n%d","labels":{%s}}}`, i, zone)); err != nil {
					t.Fatal(err)
				}
			}
			all := map[string]*Pod{}
			for _, p := range c.pods {
				read, err := ParsePod(fmt.Appendf(nil, `{"metadata":{"name":%q,"namespace":"shop","labels":{"tier":%q}},"spec":{%s"nodeName":%q,"containers":[{"name":"c"}]}}`, p.name, p.tier, p.spec, p.node))
				if err != nil {
					t.Fatal(err)
				}
				d.Count(read)
				d.Plan(read)
				all[p.name] = read
			}
			d.Finish()
			var held []string
			for _, name := range slices.Sorted(maps.Keys(all)) {
				if strings.Contains(all[name].Origin.Held, "pod affinity by zone") {
					held = append(held, name)
				}
			}
			if !slices.Equal(held, c.held) {
				t.Errorf("held %v, want %v", held, c.held)
			}
		})
	}
}
