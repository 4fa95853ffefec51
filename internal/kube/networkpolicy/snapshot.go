package networkpolicy

import (
	"cmp"
	"maps"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"unnest.io/unnest/internal/hostapi/iprange"
)

// pod is what rules follow from of a pod with an address of its own, or without address yet.
type pod struct {
	name      types.NamespacedName
	labels    labels.Set
	addresses []iprange.Range
	node      []iprange.Range
	ports     []corev1.ContainerPort
}

// namespace is a namespace with its pods, ordered by name.
type namespace struct {
	name   string
	exists bool // else nothing but pods is known of it yet
	labels labels.Set
	pods   []*pod
}

// snapshot is a cluster. What has not changed is the same pointer in the next one.
type snapshot struct {
	generation int          // increases when a namespace has changed; never 0 after next
	namespaces []*namespace // ordered by name
	byName     map[string]*namespace
	labels     *map[string]labels.Set // of the namespaces
	pods       int
	objects    map[*corev1.Pod]*pod
}

func (s snapshot) next(c Cluster) snapshot {
	next := snapshot{byName: map[string]*namespace{}, objects: map[*corev1.Pod]*pod{}}
	named, believed := map[string]labels.Set{}, newBelief(c.Addresses)
	for _, n := range c.Namespaces {
		named[n.Name] = n.Labels
		next.byName[n.Name] = &namespace{name: n.Name, exists: true, labels: n.Labels}
	}
	if next.labels = s.labels; next.labels == nil || !reflect.DeepEqual(*next.labels, named) {
		next.labels = &named
	}
	before := map[types.NamespacedName]*pod{}
	for _, p := range s.objects {
		before[p.name] = p
	}
	for _, object := range c.Pods {
		ended := object.Status.Phase == corev1.PodSucceeded || object.Status.Phase == corev1.PodFailed
		if ended || object.Spec.HostNetwork { // the address of a pod that has ended may be another's
			continue
		}
		p, addresses, node := s.objects[object], believed.pod(object), believed.node(object)
		if p == nil || !slices.Equal(p.addresses, addresses) || !slices.Equal(p.node, node) {
			p = newPod(object, addresses, node)
			if was := before[p.name]; was != nil && reflect.DeepEqual(was, p) {
				p = was // something changed from which nothing follows
			}
		}
		next.objects[object] = p
		n := next.byName[object.Namespace]
		if n == nil {
			n = &namespace{name: object.Namespace}
			next.byName[n.name] = n
		}
		n.pods = append(n.pods, p)
		next.pods++
	}
	for _, name := range slices.Sorted(maps.Keys(next.byName)) {
		n := next.byName[name]
		slices.SortFunc(n.pods, func(a, b *pod) int { return cmp.Compare(a.name.Name, b.name.Name) })
		if was := s.byName[name]; was != nil && was.exists == n.exists && slices.Equal(was.pods, n.pods) && maps.Equal(was.labels, n.labels) {
			n = was
		}
		next.byName[name], next.namespaces = n, append(next.namespaces, n)
	}
	if next.generation = s.generation; next.generation == 0 || !slices.Equal(s.namespaces, next.namespaces) {
		next.generation++
	}
	return next
}

func (s *snapshot) podsOf(namespace string) []*pod {
	if n := s.byName[namespace]; n != nil {
		return n.pods
	}
	return nil
}

func newPod(object *corev1.Pod, addresses, node []iprange.Range) *pod {
	p := &pod{
		name:   types.NamespacedName{Namespace: object.Namespace, Name: object.Name},
		labels: object.Labels, addresses: addresses, node: node,
	}
	containers := slices.Clone(object.Spec.Containers)
	for _, c := range object.Spec.InitContainers { // a sidecar is one that goes on
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			containers = append(containers, c)
		}
	}
	for _, c := range containers {
		p.ports = append(p.ports, c.Ports...)
	}
	return p
}
