// Package kubernetes reads objects of a cluster: what pods request, and what they demand of the
// places where they run. It takes one object at a time, as JSON, and uses the scheduler's own
// types and helpers. Files and lists belong to package trace; what plans do about a demand is in
// the table of this package, and kept by cluster.Rules.
package kubernetes

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"unnest/internal/plan/cluster"
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
	counted map[cluster.Rule]bool
	daemon  bool // one of a DaemonSet, which is not planned
}

// term is a required term about other pods. Those of anti-affinity by node have a number.
type term struct {
	number     int32
	selector   labels.Selector
	namespaces []string
	by         labels.Selector // of namespaces
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
	added := &pod{kind: d.kind(o), rules: &cluster.Rules{}, origin: p.Origin, claims: claims(o), counted: map[cluster.Rule]bool{}}
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

// selects adds the demands about nodes.
func (d *Dump) selects(p *pod, s *corev1.PodSpec) {
	for key := range s.NodeSelector {
		d.keys[key] = true
		p.count(nodeSelector)
	}
	p.origin.Pinned = p.origin.Pinned || s.NodeSelector[corev1.LabelHostname] != ""
	if s.Affinity != nil && s.Affinity.NodeAffinity != nil {
		if d.nodeTerms(p, s.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution) {
			p.count(nodeAffinity)
		}
		if len(s.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution) > 0 {
			p.count(preferences)
		}
	}
	for _, tolerated := range s.Tolerations {
		if !strings.HasPrefix(tolerated.Key, "node.kubernetes.io/") {
			p.count(tolerations)
		}
	}
}

// zones are the labels of nodes with which drivers of volumes name zones.
var zones = []string{corev1.LabelFailureDomainBetaZone, "topology.ebs.csi.aws.com/zone", "topology.gke.io/zone", "topology.disk.csi.azure.com/zone"}

// nodeTerms takes the labels that terms ask for, and reports whether there are any. A term that
// names a node pins the pod.
func (d *Dump) nodeTerms(p *pod, selector *corev1.NodeSelector) bool {
	if selector == nil {
		return false
	}
	for _, term := range selector.NodeSelectorTerms {
		for _, e := range term.MatchExpressions {
			if key := e.Key; slices.Contains(zones, key) {
				d.keys[corev1.LabelTopologyZone] = true
			} else {
				d.keys[key] = true
			}
			p.origin.Pinned = p.origin.Pinned || e.Key == corev1.LabelHostname
		}
		p.origin.Pinned = p.origin.Pinned || len(term.MatchFields) > 0
	}
	return len(selector.NodeSelectorTerms) > 0
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
	for _, c := range slices.Concat(s.InitContainers, s.Containers) {
		for _, port := range c.Ports {
			n := port.HostPort
			if s.HostNetwork {
				n = cmp.Or(n, port.ContainerPort)
			}
			if n <= 0 || c.RestartPolicy != nil && !sidecar(&c) {
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

// affinity adds the required terms about other pods.
func (d *Dump) affinity(p *pod, o *corev1.Pod) {
	if a := o.Spec.Affinity.PodAffinity; a != nil {
		for _, term := range a.RequiredDuringSchedulingIgnoredDuringExecution {
			if term.TopologyKey == corev1.LabelHostname {
				p.count(affinityNode)
			} else {
				d.keys[term.TopologyKey] = true
				p.count(affinityZone)
			}
		}
		if d.demandAffinity(p, o, a.RequiredDuringSchedulingIgnoredDuringExecution) != nil {
			p.count(badSelector)
		}
		if len(a.PreferredDuringSchedulingIgnoredDuringExecution) > 0 {
			p.count(preferences)
		}
	}
	a := o.Spec.Affinity.PodAntiAffinity
	if a == nil {
		return
	}
	for i := range a.RequiredDuringSchedulingIgnoredDuringExecution {
		asked := &a.RequiredDuringSchedulingIgnoredDuringExecution[i]
		if asked.TopologyKey != corev1.LabelHostname {
			d.keys[asked.TopologyKey] = true
			p.count(antiAffinityZone)
			continue
		}
		term, err := d.term(o, asked)
		if err != nil {
			p.count(badSelector)
			continue
		}
		p.count(antiAffinityNode)
		p.rules.Forbids = union(p.rules.Forbids, []int32{term.number})
		if term.by != nil {
			p.unsure = append(p.unsure, term)
		}
	}
	if len(a.PreferredDuringSchedulingIgnoredDuringExecution) > 0 {
		p.count(preferences)
	}
}

// term returns the term of a pod with its number.
func (d *Dump) term(o *corev1.Pod, asked *corev1.PodAffinityTerm) (*term, error) {
	t, err := newTerm(o, asked)
	if err != nil {
		return nil, err
	}
	key := t.String()
	if d.terms[key] == nil {
		d.number++
		t.number = d.number
		d.terms[key] = t
	}
	return d.terms[key], nil
}

func newTerm(o *corev1.Pod, asked *corev1.PodAffinityTerm) (*term, error) {
	selector, err := selectorOf(asked.LabelSelector, o.Labels, asked.MatchLabelKeys, asked.MismatchLabelKeys)
	if err != nil {
		return nil, err
	}
	t := &term{selector: selector, namespaces: asked.Namespaces}
	if asked.NamespaceSelector != nil {
		if t.by, err = metav1.LabelSelectorAsSelector(asked.NamespaceSelector); err != nil {
			return nil, err
		}
	} else if len(t.namespaces) == 0 {
		t.namespaces = []string{o.Namespace}
	}
	return t, nil
}

// String is equal for equal terms.
func (t *term) String() string { return fmt.Sprint(t.namespaces, " ", t.by, " ", t.selector) }

// selectorOf returns a selector of pods with the pod's own values of some labels.
func selectorOf(asked *metav1.LabelSelector, own map[string]string, match, mismatch []string) (labels.Selector, error) {
	if asked == nil {
		return labels.Nothing(), nil
	}
	asked = asked.DeepCopy()
	for operator, keys := range map[metav1.LabelSelectorOperator][]string{metav1.LabelSelectorOpIn: match, metav1.LabelSelectorOpNotIn: mismatch} {
		for _, key := range keys {
			if value, has := own[key]; has {
				asked.MatchExpressions = append(asked.MatchExpressions, metav1.LabelSelectorRequirement{Key: key, Operator: operator, Values: []string{value}})
			}
		}
	}
	return metav1.LabelSelectorAsSelector(asked)
}

// in reports whether the term is about pods of a namespace, and whether that is known.
func (t *term) in(namespace string, known map[string]labels.Set) (is, sure bool) {
	switch {
	case slices.Contains(t.namespaces, namespace):
		return true, true
	case t.by == nil:
		return false, true
	case t.by.Empty():
		return true, true
	}
	set, ok := known[namespace]
	if !ok {
		set = labels.Set{corev1.LabelMetadataName: namespace}
		requirements, _ := t.by.Requirements()
		ok = !slices.ContainsFunc(requirements, func(r labels.Requirement) bool { return r.Key() != corev1.LabelMetadataName })
	}
	return ok && t.by.Matches(set), ok
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

// attached adds the demands of the volumes of a pod.
func (d *Dump) attached(p *pod) {
	for _, c := range p.claims {
		v, known := d.volumes[c]
		switch {
		case !known:
			p.count(unknownVolume)
		case d.nodeTerms(p, v.nodes):
			p.count(volumeNodes)
		}
		if known && !v.shared && d.users[c] > 1 {
			p.count(sharedClaim)
		}
	}
}

// Budget reads a PodDisruptionBudget.
func (d *Dump) Budget(raw []byte) error {
	var b struct {
		Status struct {
			Allowed  int `json:"disruptionsAllowed"`
			Expected int `json:"expectedPods"`
		} `json:"status"`
	}
	if err := json.Unmarshal(raw, &b); err != nil {
		return err
	}
	how := budgets
	if b.Status.Allowed == 0 {
		how = budgetsNone
	}
	d.counts[cluster.Rule{What: table[how].what, How: table[how].how}] += b.Status.Expected
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
