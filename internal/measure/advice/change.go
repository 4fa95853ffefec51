package advice

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/stack"
	"unnest.io/unnest/internal/measure/stats"
)

// rule is a change of one property of a configuration.
type rule struct {
	subject  Subject
	property string   // option, or stack
	from     []string // values of the property
	to       string
	pod      bool // only between the containers of a pod; else only from outside of it
	action   string
	instead  string
	command  string
	why      string
}

// rules are what can be changed, with the command that does it.
var rules = []rule{
	{PodNetwork, "network", []string{"nat"}, "brfusion", false,
		"give each pod a NIC of its own (BrFusion)", "keep bridge and NAT in the VM",
		"nerdctl run --network brfusion IMAGE  # set up: docs/brfusion.md",
		"packets pass no bridge and no NAT in the VM"},
	{PodNetwork, "network", []string{"nat"}, "brfusion-trunk", false,
		"give each pod a VLAN of a shared NIC (BrFusion)", "keep bridge and NAT in the VM",
		"nerdctl run --network brfusion-trunk IMAGE  # set up: docs/brfusion.md",
		"packets pass no bridge and no NAT in the VM"},
	{PodNetwork, "network", []string{"nat"}, "host", false,
		"let pods use the network of their machine", "keep bridge and NAT",
		"nerdctl run --network host IMAGE",
		"packets pass no bridge and no NAT; pods share the machine's ports"},
	{LocalNetwork, "network", []string{"nat", "overlay", "hostlo-plain"}, "hostlo", true,
		"connect the containers of a pod by Hostlo", "keep the present network within pods",
		"nerdctl run --network hostlo IMAGE  # set up: docs/hostlo.md",
		"packets pass neither a NAT nor a tunnel between the VMs"},
	{LocalNetwork, "network", []string{"nat", "overlay", "hostlo"}, "localhost", true,
		"keep the containers of a pod on one VM", "split pods over VMs",
		"unnest plan --kubeconfig default  # says what that costs",
		"packets stay in one kernel"},
	{Storage, "storage", []string{"overlay"}, "volume", false,
		"put working files on a volume", "keep working files in the container's layers",
		"nerdctl run --volume DIR:DIR IMAGE",
		"no copy on write between the container and its files"},
	{Levels, "stack", []string{"vm/vm"}, "vm", false,
		"run in the outer VM", "keep the nested VM",
		"unnest vm up NAME",
		"one hypervisor less below the operating system"},
	{Levels, "stack", []string{"vm"}, "metal", false,
		"run on the host instead of in a VM", "keep the VM",
		"nerdctl run IMAGE  # on the host",
		"no hypervisor below the operating system"},
}

// changes returns the choices that configurations of the run differ in, undecided.
func (s study) changes() (choices []Choice) {
	for _, a := range s.run.Configurations {
		for _, b := range s.run.Configurations {
			if r, ok := between(a, b); ok {
				choices = append(choices, s.change(r, a.Name, b.Name)...)
			}
		}
	}
	return choices
}

// change returns one choice for each scope of the run.
func (s study) change(r rule, from, to string) (choices []Choice) {
	for _, cases := range s.scopes() {
		var ratios []map[int]float64
		for _, c := range cases {
			ratios = append(ratios, s.logRatios(from, to, c))
		}
		e, ok := effect(ratios)
		if !ok {
			continue
		}
		m := primary(cases[0])
		choices = append(choices, Choice{
			Subject: r.subject, Action: r.action, Instead: r.instead, From: from, To: to,
			Suite: cases[0].Suite, Metric: m.Name, Unit: m.Unit, Order: m.Order, Cases: len(cases), Extremes: extremes(cases, ratios),
			Why: []string{r.why}, Command: r.command, Effect: e,
		})
	}
	return choices
}

// extremes returns the cases with the lowest and the highest ratio if the first is below 1 and the second
// above, each known from its own interval. Otherwise it returns nil.
func extremes(cases []result.Case, ratios []map[int]float64) []CaseRatio {
	var lowest, highest CaseRatio
	for i, c := range cases {
		e, ok := effect(ratios[i : i+1])
		if !ok || e.N < stats.MinRepetitions || e.P() >= stats.DefaultAlpha {
			continue
		}
		one := CaseRatio{c, e.Ratio()}
		if e.Log < 0 && (lowest.Ratio == 0 || one.Ratio < lowest.Ratio) {
			lowest = one
		}
		if e.Log > 0 && one.Ratio > highest.Ratio {
			highest = one
		}
	}
	if lowest.Ratio == 0 || highest.Ratio == 0 {
		return nil
	}
	return []CaseRatio{lowest, highest}
}

// between returns the rule that leads from a to b, which must not differ otherwise.
func between(a, b result.Configuration) (rule, bool) {
	from, to := properties(a), properties(b)
	for _, r := range rules {
		if slices.Contains(r.from, from[r.property]) && to[r.property] == r.to &&
			(from["drive"] == "pod") == r.pod && differ(from, to, r) {
			return r, true
		}
	}
	if r, ok := fewer(from, to); ok {
		return r, true
	}
	return rule{}, false
}

// differ reports whether two configurations differ in what the rule changes and in nothing
// else. Fewer levels may come with other processors and memory, which the hypervisor of
// the level has kept.
func differ(a, b map[string]string, r rule) bool {
	a, b = maps.Clone(a), maps.Clone(b)
	ignored := []string{r.property}
	if r.subject == Levels {
		ignored = append(ignored, "vcpus", "memory")
	}
	for _, k := range ignored {
		delete(a, k)
		delete(b, k)
	}
	return maps.Equal(a, b)
}

// fewer is the rule that leads to fewer processors, if nothing else differs but memory.
func fewer(a, b map[string]string) (rule, bool) {
	before, errA := strconv.Atoi(a["vcpus"])
	after, errB := strconv.Atoi(b["vcpus"])
	r := rule{
		subject: Overcommitment, property: "vcpus",
		action: "promise " + b["vcpus"] + " vCPUs instead of " + a["vcpus"], instead: "keep " + a["vcpus"] + " vCPUs",
		command: "unnest vm up --vcpus " + b["vcpus"] + " NAME",
		why:     "fewer vCPUs compete for the processors of the host",
	}
	a, b = maps.Clone(a), maps.Clone(b)
	delete(a, "memory")
	delete(b, "memory")
	return r, errA == nil && errB == nil && after < before && differ(a, b, r)
}

// properties are the options of a configuration, with its stack split into machine and
// engine, so that a change of one is a change of one property.
func properties(c result.Configuration) map[string]string {
	p := maps.Clone(c.Options)
	if p == nil {
		p = map[string]string{}
	}
	p["stack"] = c.Stack
	if s, err := stack.Parse(c.Stack); err == nil {
		if engine, ok := s.Engine(); ok {
			p["stack"], p["engine"] = strings.TrimSuffix(c.Stack, "/"+string(engine)), string(engine)
		}
	}
	return p
}
