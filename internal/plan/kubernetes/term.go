package kubernetes

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

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
