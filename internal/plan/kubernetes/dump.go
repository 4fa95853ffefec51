// Package kubernetes reads objects of a cluster: what pods request, and what they demand of the
// places where they run. It takes one object at a time, as JSON, and uses the scheduler's own
// types and helpers. Files and lists belong to package trace; what plans do about a demand is in
// the table of this package, and kept by cluster.Rules.
package kubernetes

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/json"

	"unnest.io/unnest/internal/plan/cluster"
)

// Dump is the objects of a cluster. Its methods read one object each; Finish brings them together.
type Dump struct {
	Nodes []cluster.Node

	nodes      map[string]*corev1.Node // name, labels and taints
	kinds      map[string]*kind        // by namespace and labels
	pods       []*pod                  // that are planned, and one of each DaemonSet
	affine     []affine
	terms      map[string]*term
	spreads    map[string]*spread
	order      []*spread
	ports      map[string]int32
	number     int32 // of what pods may forbid
	volumes    map[claim]volume
	users      map[claim]int // pods
	attachable map[string]int64
	namespaces map[string]labels.Set
	daemons    map[podName]*daemon
	counts     map[cluster.Rule]int
	budgets    []budget
	keys       map[string]bool // labels of nodes that make a difference to pods
}

// NewDump returns a dump without objects.
func NewDump() *Dump {
	return &Dump{nodes: map[string]*corev1.Node{}, kinds: map[string]*kind{}, terms: map[string]*term{}, spreads: map[string]*spread{}, ports: map[string]int32{}, volumes: map[claim]volume{}, users: map[claim]int{},
		attachable: map[string]int64{}, namespaces: map[string]labels.Set{}, daemons: map[podName]*daemon{}, counts: map[cluster.Rule]int{}, keys: map[string]bool{}}
}

// kind is pods of one namespace with equal labels.
type kind struct {
	namespace string
	labels    labels.Set
	pods      int64
	on        map[string]int // pods by node
	has       []int32
	takes     []cluster.Take
}

// pod is what is left to do for a pod when all objects are read.
type pod struct {
	kind    *kind
	rules   *cluster.Rules
	origin  *cluster.Origin
	claims  []claim
	unsure  []*term // whose namespaces are chosen by labels
	may     func(*corev1.Node) bool
	counted map[cluster.Rule]bool
	daemon  bool // one of a DaemonSet, which is not planned
}

// budget is a PodDisruptionBudget of pods in its namespace.
type budget struct {
	cluster.Budget
	namespace string
	selector  labels.Selector
}

// notSafe are annotations with which pods refuse to be moved by autoscalers.
var notSafe = map[string]string{"karpenter.sh/do-not-disrupt": "true", "karpenter.sh/do-not-evict": "true", "cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}

// count counts a demand of the pod. One that is not honoured holds its node.
func (p *pod) count(d demand, more ...string) {
	what := table[d].what + strings.Join(more, "")
	p.counted[cluster.Rule{What: what, How: table[d].how}] = true
	if table[d].how == cluster.Not {
		p.origin.Held = cmp.Or(p.origin.Held, what)
	}
}

// Count counts a pod among those that selectors match.
func (d *Dump) Count(p *Pod) {
	k := d.kind(p.Object)
	k.pods++
	if node := p.Object.Spec.NodeName; node != "" {
		k.on[node]++
	}
}

func (d *Dump) kind(p *corev1.Pod) *kind {
	key := p.Namespace + " " + labels.Set(p.Labels).String()
	k := d.kinds[key]
	if k == nil {
		k = &kind{namespace: p.Namespace, labels: p.Labels, on: map[string]int{}}
		d.kinds[key] = k
	}
	return k
}

// Plan adds the demands of a pod that is planned. The planner keeps pods in a pool of equal nodes:
// rules about nodes and zones then hold as they do today.
func (d *Dump) Plan(p *Pod) {
	added := d.add(p)
	p.Rules = added.rules
}

func (d *Dump) add(p *Pod) *pod {
	o := p.Object
	s := &o.Spec
	added := &pod{kind: d.kind(o), rules: &cluster.Rules{}, origin: p.Origin, claims: claims(o), may: eligible(s, true), counted: map[cluster.Rule]bool{}}
	d.pods = append(d.pods, added)
	d.selects(added, s)
	d.publishes(added, s)
	if s.Affinity != nil {
		d.affinity(added, o)
	}
	for i := range s.TopologySpreadConstraints {
		d.spread(added, o, &s.TopologySpreadConstraints[i])
	}
	if bytes := storage(o); bytes > 0 {
		added.count(storageRoom)
		added.rules.Takes = append(added.rules.Takes, cluster.Take{Limit: cluster.StorageLimit, Amount: bytes})
	}
	if n := len(added.claims); n > 0 {
		added.count(attachedVolumes)
		added.rules.Takes = append(added.rules.Takes, cluster.Take{Limit: cluster.VolumeLimit, Amount: int64(n)})
		for _, c := range added.claims {
			d.users[c]++
		}
	}
	if hasDisk(o) {
		added.count(cloudDisk)
	}
	if len(s.Containers) > 1 && sharesVolume(o) {
		added.count(sharedFiles)
	}
	if s.SchedulerName != "" && s.SchedulerName != corev1.DefaultSchedulerName {
		added.count(otherScheduler)
	}
	if s.SchedulingGroup != nil {
		added.count(podGroup)
	}
	for _, field := range p.unknown {
		added.count(unknownField, ": "+field)
	}
	if s.Priority != nil && *s.Priority != 0 {
		added.count(priority)
	}
	for key, value := range notSafe {
		if o.Annotations[key] == value {
			added.count(notMoved, "annotation "+key+": move them by hand")
		}
	}
	return added
}

// Facts is what a dump says when all of it is read.
type Facts struct {
	DaemonSets []cluster.DaemonSet
	PerVM      cluster.PerVM
	Limits     []cluster.Limit
	Rules      []cluster.Rule
	Selectors  []string // labels of nodes that make a difference to pods, sorted
}

// Finish completes the rules of the planned pods, and returns what holds for all.
func (d *Dump) Finish() Facts {
	kinds := slices.Collect(maps.Values(d.kinds))
	for _, p := range d.pods {
		d.attached(p)
		if n := d.nodes[p.origin.Node]; n != nil && !p.daemon && p.origin.Kind != "Node" && !p.may(n) {
			p.count(nodeRefuses)
		}
		for i := range d.budgets {
			if b := &d.budgets[i]; b.namespace == p.kind.namespace && b.selector.Matches(p.kind.labels) {
				p.origin.Budgets = append(p.origin.Budgets, &b.Budget)
			}
		}
		for _, t := range p.unsure {
			if slices.ContainsFunc(kinds, func(k *kind) bool {
				_, sure := t.in(k.namespace, d.namespaces)
				return !sure && t.selector.Matches(k.labels)
			}) {
				p.count(namespaceLabels)
			}
		}
	}
	d.holdAffine(kinds)
	for _, k := range kinds {
		for _, t := range d.terms {
			if is, _ := t.in(k.namespace, d.namespaces); is && t.selector.Matches(k.labels) {
				k.has = append(k.has, t.number)
			}
		}
		slices.Sort(k.has)
	}
	limits := []cluster.Limit{
		cluster.StorageLimit: {Name: "ephemeral storage", Most: cluster.Unlimited, Legal: cluster.Unlimited},
		cluster.VolumeLimit:  {Name: "volumes", Most: cluster.Unlimited, Legal: cluster.Unlimited},
	}
	for _, s := range d.order {
		limits = append(limits, d.limit(s, kinds, int32(len(limits))))
	}
	for _, p := range d.pods {
		p.rules.Has = union(p.rules.Has, p.kind.has)
		p.rules.Takes = append(p.rules.Takes, p.kind.takes...)
		if p.daemon {
			continue
		}
		for rule := range p.counted {
			d.counts[rule]++
		}
	}
	for i, n := range d.Nodes {
		d.Nodes[i].Volumes = d.attachable[n.Name]
	}
	f := Facts{Limits: limits, Rules: d.rules(), Selectors: slices.Sorted(maps.Keys(d.keys))}
	f.DaemonSets, f.PerVM = d.sets()
	return f
}

// Budget reads a PodDisruptionBudget.
func (d *Dump) Budget(raw []byte) error {
	var b policyv1.PodDisruptionBudget
	if err := json.UnmarshalCaseSensitivePreserveInts(raw, &b); err != nil {
		return err
	}
	selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
	if err != nil {
		return err
	}
	allowed := max(0, int(b.Status.DisruptionsAllowed))
	d.budgets = append(d.budgets, budget{cluster.Budget{Name: b.Namespace + "/" + b.Name, Allowed: allowed}, b.Namespace, selector})
	how := budgets
	if allowed == 0 {
		how = budgetsNone
	}
	d.counts[cluster.Rule{What: table[how].what, How: table[how].how}] += int(b.Status.ExpectedPods)
	return nil
}

// rules returns the rules with their numbers of pods.
func (d *Dump) rules() []cluster.Rule {
	var all []cluster.Rule
	for rule, pods := range d.counts {
		rule.Pods = pods
		all = append(all, rule)
	}
	slices.SortFunc(all, func(a, b cluster.Rule) int {
		return strings.Compare(fmt.Sprint(a.How, a.What), fmt.Sprint(b.How, b.What))
	})
	return all
}

// podName is the name of a pod, or of what made it.
type podName struct{ namespace, name string }

func (n podName) String() string { return n.namespace + "/" + n.name }

type daemon struct {
	request cluster.Resources // the largest of its pods
	nodes   map[string]bool
	pod     *pod // one of them
}

// Daemon adds a pod to its DaemonSet.
func (d *Dump) Daemon(p *Pod) {
	name := podName{p.Object.Namespace, p.DaemonSet()}
	set := d.daemons[name]
	if set == nil {
		set = &daemon{nodes: map[string]bool{}, pod: d.add(p)}
		set.pod.daemon = true
		d.daemons[name] = set
	}
	set.request = set.request.Max(p.Request())
	set.nodes[p.Object.Spec.NodeName] = true
}

// sets returns the DaemonSets, and what they run on every VM.
func (d *Dump) sets() (all []cluster.DaemonSet, sum cluster.PerVM) {
	names := slices.SortedFunc(maps.Keys(d.daemons), func(a, b podName) int {
		return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name))
	})
	for _, name := range names {
		set := d.daemons[name]
		sum.Request = sum.Request.Add(set.request)
		sum.Pods++
		all = append(all, cluster.DaemonSet{Name: name.String(), Request: set.request, Nodes: set.nodes, Rules: set.pod.rules})
	}
	return all, sum
}

// publishes adds the ports of the node that the pod uses. Two pods clash if they have a port and
// protocol, and one address or one of them all addresses.
func (d *Dump) publishes(p *pod, s *corev1.PodSpec) {
	number := func(of string) int32 {
		if d.ports[of] == 0 {
			d.number++
			d.ports[of] = d.number
		}
		return d.ports[of]
	}
	lasting := slices.DeleteFunc(slices.Clone(s.InitContainers), func(c corev1.Container) bool { return !sidecar(&c) })
	for _, c := range append(lasting, s.Containers...) {
		for _, port := range c.Ports {
			n := port.HostPort
			if s.HostNetwork {
				n = cmp.Or(n, port.ContainerPort)
			}
			if n <= 0 {
				continue
			}
			p.count(hostPorts)
			of := fmt.Sprint(cmp.Or(string(port.Protocol), "TCP"), " ", n)
			address := cmp.Or(port.HostIP, allAddresses)
			has, forbids := []int32{number(of), number(of + " " + address)}, []int32{number(of + " " + allAddresses), number(of + " " + address)}
			if address == allAddresses {
				forbids = []int32{number(of)}
			}
			p.rules.Has = union(p.rules.Has, has)
			p.rules.Forbids = union(p.rules.Forbids, forbids)
		}
	}
}

const allAddresses = "0.0.0.0"

func union(a, b []int32) []int32 {
	a = slices.Concat(a, b)
	slices.Sort(a)
	return slices.Compact(a)
}
