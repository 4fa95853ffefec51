package karpenter

import (
	"context"
	"fmt"
	"reflect"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpenter "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// objects is an API server that is read only: what Karpenter's simulation asks for. The fake client
// of controller-runtime encodes all objects at each call, which would take most of the time.
type objects struct {
	client.Client // of calls that the simulation does not make

	pool    *karpenter.NodePool
	daemons []apps.DaemonSet
	single  map[client.ObjectKey][]client.Object // claims, volumes, nodes and namespaces by name

	pods        []*v1.Pod
	onNode      map[string][]*v1.Pod
	inNamespace map[string][]*v1.Pod
}

// index sorts the pods by node and by namespace.
func (o *objects) index() {
	o.onNode, o.inNamespace = map[string][]*v1.Pod{}, map[string][]*v1.Pod{}
	for _, p := range o.pods {
		o.onNode[p.Spec.NodeName] = append(o.onNode[p.Spec.NodeName], p)
		o.inNamespace[p.Namespace] = append(o.inNamespace[p.Namespace], p)
	}
}

func (o *objects) put(object client.Object) {
	key := client.ObjectKeyFromObject(object)
	o.single[key] = append(o.single[key], object)
}

// Get copies the object of the type and name.
func (o *objects) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	if _, volume := into.(*v1.PersistentVolume); volume {
		key.Namespace = ""
	}
	for _, object := range o.single[key] {
		if reflect.TypeOf(object) == reflect.TypeOf(into) {
			reflect.ValueOf(into).Elem().Set(reflect.ValueOf(object).Elem())
			return nil
		}
	}
	return errors.NewNotFound(schema.GroupResource{Resource: fmt.Sprintf("%T", into)}, key.String())
}

// List lists pods by node or namespace, and all objects of the other types.
func (o *objects) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	by := client.ListOptions{}
	by.ApplyOptions(options)
	switch list := list.(type) {
	case *v1.PodList:
		of := o.pods
		if by.FieldSelector != nil {
			name, ok := by.FieldSelector.RequiresExactMatch("spec.nodeName")
			if !ok {
				return fmt.Errorf("pods by %s: want spec.nodeName", by.FieldSelector)
			}
			of = o.onNode[name]
		} else if by.Namespace != "" {
			of = o.inNamespace[by.Namespace]
		}
		list.Items = nil
		for _, p := range of {
			if by.LabelSelector == nil || by.LabelSelector.Matches(labels.Set(p.Labels)) {
				list.Items = append(list.Items, *p)
			}
		}
	case *karpenter.NodePoolList:
		list.Items = []karpenter.NodePool{*o.pool}
	case *apps.DaemonSetList:
		list.Items = o.daemons
	case *policy.PodDisruptionBudgetList: // there is none
	default:
		return fmt.Errorf("a list of %T is not there", list)
	}
	return nil
}
