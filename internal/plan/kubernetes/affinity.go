package kubernetes

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

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

// affine is a pod with required affinity by other labels than that of the node, such as zones.
type affine struct {
	pod   *pod
	terms []affineTerm
	of    string // equal for equal terms of pods of one kind
}

type affineTerm struct {
	*term
	key string // label of nodes
}

// bond is affine pods of one kind, with equal terms, in one place.
type bond struct {
	affine
	pods  []*pod
	where []string // values of the terms' labels
	among []*kind  // that match all terms, so that one of them must be where the pods are
	alone bool     // the first pod may come, because it matches and none that matches is elsewhere
}

// demandAffinity adds required affinity by other labels.
func (d *Dump) demandAffinity(p *pod, o *corev1.Pod, asked []corev1.PodAffinityTerm) error {
	a := affine{pod: p, of: fmt.Sprintf("%p", p.kind)}
	for i := range asked {
		t, err := newTerm(o, &asked[i])
		if err != nil {
			return err
		}
		a.terms = append(a.terms, affineTerm{t, asked[i].TopologyKey})
		a.of += fmt.Sprintf(" %v in %v", t, asked[i].TopologyKey)
	}
	if len(a.terms) > 0 {
		d.affine = append(d.affine, a)
	}
	return nil
}

// holdAffine holds the pods that the scheduler might not put where they are if it started from the
// pods that stay. The scheduler waives affinity for the first of pods that match their own terms,
// but only while none that matches runs elsewhere.
func (d *Dump) holdAffine(kinds []*kind) {
	bonds := d.bonds(kinds)
	unsure := map[*kind]map[string]int{} // pods by node
	add := func(b *bond, n int) {
		for _, p := range b.pods {
			if unsure[p.kind] == nil {
				unsure[p.kind] = map[string]int{}
			}
			unsure[p.kind][p.origin.Node] += n
		}
	}
	for _, b := range bonds {
		add(b, 1)
	}
	met := func(b *bond) bool {
		for i, t := range b.terms {
			if !slices.ContainsFunc(b.among, func(k *kind) bool {
				for node, pods := range k.on {
					if value, has := d.label(node, t.key); has && value == b.where[i] && pods > unsure[k][node] {
						return true
					}
				}
				return false
			}) {
				return false
			}
		}
		return true
	}
	for more := true; more; {
		left := slices.DeleteFunc(slices.Clone(bonds), func(b *bond) bool {
			if !b.alone && !met(b) {
				return false
			}
			add(b, -1)
			return true
		})
		bonds, more = left, len(left) < len(bonds)
	}
	for _, b := range bonds {
		for _, p := range b.pods {
			p.count(affinityFirst)
		}
	}
}

// bonds returns the affine pods that may move.
func (d *Dump) bonds(kinds []*kind) (all []*bond) {
	known := map[string]*bond{}
	for _, a := range d.affine {
		o := a.pod.origin
		if o.Node == "" || o.Held != "" || o.Pinned {
			continue
		}
		b := &bond{affine: a, alone: true}
		of := a.of
		for _, t := range a.terms {
			value, has := d.label(o.Node, t.key)
			b.where = append(b.where, value)
			b.alone = b.alone && has
			of += fmt.Sprintf(" %q", value)
		}
		if known[of] == nil {
			known[of] = b
			all = append(all, b)
			d.match(b, kinds)
		}
		known[of].pods = append(known[of].pods, a.pod)
	}
	return all
}

// match finds the kinds of pods that match all terms, and whether the first pod may come alone.
func (d *Dump) match(b *bond, kinds []*kind) {
	for _, k := range kinds {
		is, sure := true, true
		for _, t := range b.terms {
			in, known := t.in(k.namespace, d.namespaces)
			is = is && (in || !known) && t.selector.Matches(k.labels)
			sure = sure && known
		}
		if !is {
			continue
		}
		for i, t := range b.terms {
			for node := range k.on {
				value, has := d.label(node, t.key)
				b.alone = b.alone && has && value == b.where[i]
			}
		}
		if sure {
			b.among = append(b.among, k)
		}
	}
	b.alone = b.alone && slices.Contains(b.among, b.pod.kind)
}

func (d *Dump) label(node, key string) (value string, has bool) {
	if n := d.nodes[node]; n != nil {
		value, has = n.Labels[key]
	}
	return value, has
}

// term is a required term about other pods. Those of anti-affinity by node have a number.
type term struct {
	number     int32
	selector   labels.Selector
	namespaces []string
	by         labels.Selector // of namespaces
}

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
