package experiment

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"unnest.io/unnest/internal/measure/stack"
	"unnest.io/unnest/internal/measure/workload"
)

// Pair is two nodes of a cluster, or one twice: that of the client and that of the server.
type Pair struct{ Client, Server string }

// nodeName is a name of a node: a DNS subdomain.
var nodeName = regexp.MustCompile(`^[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?$`)

// ParsePair parses CLIENT:SERVER.
func ParsePair(text string) (Pair, error) {
	client, server, _ := strings.Cut(text, ":")
	if !nodeName.MatchString(client) || !nodeName.MatchString(server) {
		return Pair{}, fmt.Errorf("want two nodes such as node1:node2, or one twice, got %q", text)
	}
	return Pair{client, server}, nil
}

// String returns the notation of the pair.
func (p Pair) String() string { return p.Client + ":" + p.Server }

// Within reports whether the pair is one node.
func (p Pair) Within() bool { return p.Client == p.Server }

// Describe says where the load goes.
func (p Pair) Describe() string {
	if p.Within() {
		return "within " + p.Client
	}
	return "from " + p.Client + " to " + p.Server
}

// labels are short names of the pairs for cases: same and across, with numbers where there are
// several of a kind.
func labels(pairs []Pair) (names []string) {
	seen, count := map[string]int{}, map[string]int{}
	kind := func(p Pair) string {
		if p.Within() {
			return "same"
		}
		return "across"
	}
	for _, p := range pairs {
		count[kind(p)]++
	}
	for _, p := range pairs {
		name := kind(p)
		seen[name]++
		if count[name] > 1 {
			name = fmt.Sprintf("%s-%d", name, seen[name])
		}
		names = append(names, name)
	}
	return names
}

// OfCluster reports whether the configurations are pods of a cluster.
func (s *Spec) OfCluster() bool {
	return slices.ContainsFunc(s.Configurations, func(c stack.Configuration) bool { return c.Stack.Pod() })
}

// leaveOut removes the configurations that do not run, and refuses unknown ones.
func (f *file) leaveOut() bool {
	var names []string
	for _, c := range f.spec.Configurations {
		names = append(names, c.Name)
	}
	if f.leftOut == nil || !f.checkNames("leave_out", f.leftOut, names, "no configuration is named") {
		return f.leftOut == nil
	}
	out := func(name string) bool { return slices.Contains(f.leftOut, name) }
	f.spec.Configurations = slices.DeleteFunc(f.spec.Configurations, func(c stack.Configuration) bool { return out(c.Name) })
	if f.spec.Baselines = slices.DeleteFunc(f.spec.Baselines, out); len(f.spec.Baselines) == 0 {
		f.spec.Baselines = nil
	}
	if len(f.spec.Configurations) == 0 {
		f.Fail("leave_out", "no configuration is left")
	}
	return len(f.spec.Configurations) > 0
}

// checkPairs refuses an experiment in a cluster and elsewhere, and pairs elsewhere.
func (f *file) checkPairs() {
	if !f.spec.OfCluster() {
		if f.spec.Pairs != nil {
			f.Fail("pairs", "they are of configurations with stack kubernetes: leave them out")
		}
		return
	}
	for i, c := range f.spec.Configurations {
		if !c.Stack.Pod() {
			f.Fail(fmt.Sprintf("configurations[%d]", i), "stack %s: other configurations have stack kubernetes", c.Stack)
		}
	}
	for i, p := range f.spec.Pairs {
		if slices.Contains(f.spec.Pairs[:i], p) {
			f.Fail(fmt.Sprintf("pairs[%d]", i), "%q is listed twice", p)
		}
	}
	for _, g := range f.groups {
		if g.suite != "" || g.probe != "" {
			f.Fail(g.path, "stack kubernetes has only cases with a workload")
		}
	}
}

// checkPeers refuses workloads that need more than the pods of a cluster, and those between two
// containers where client and server have none.
func (f *file) checkPeers(g group, w workload.Workload) bool {
	what, outside := "", func(c stack.Configuration) bool { return c.Drive != stack.Pod }
	switch peer, cluster := workload.IsPeer(w), f.spec.OfCluster(); {
	case cluster && !peer:
		what = "needs more than pods: stack kubernetes has connect, echo and stream"
	case !cluster && peer && slices.ContainsFunc(f.spec.Configurations, outside):
		what = "is between two containers: want drive: pod for all configurations, or stack kubernetes"
	}
	if what != "" {
		f.Fail(g.path+".workload", "%s %s", g.workload, what)
	}
	return what == ""
}

// addPairs adds a case for each pair of nodes and size of the group.
func (f *file) addPairs(g group, w workload.Workload) {
	names := labels(f.spec.Pairs)
	for i, pair := range f.spec.Pairs {
		one := g
		one.title = cmp.Or(one.title, g.name)
		one.name, one.title, one.pair = g.name+"."+names[i], one.title+" "+pair.Describe(), pair
		f.addSizes(one, w)
	}
}
