package policyclient

import (
	"context"
	"errors"
	"fmt"
	"regexp"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"unnest.io/unnest/internal/kube/networkpolicy"
	"unnest.io/unnest/internal/kube/splitpod"
)

// informers follow what policies depend on, by list and watch.
type informers struct {
	pods, namespaces, policies cache.SharedIndexInformer
	core                       rest.Interface // of the API server
}

// newInformers returns informers that call changed after each change. They know only the
// two API groups that they need, because all of them make a binary large.
func newInformers(config *rest.Config, changed func()) (*informers, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), networkingv1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	codecs := serializer.NewCodecFactory(scheme).WithoutConversion()
	all := &informers{}
	informer := func(group schema.GroupVersion, path, resource string, object runtime.Object) (cache.SharedIndexInformer, error) {
		c := rest.CopyConfig(config)
		c.GroupVersion, c.APIPath, c.NegotiatedSerializer = &group, path, codecs
		client, err := rest.RESTClientFor(c)
		if err != nil {
			return nil, err
		}
		if group == corev1.SchemeGroupVersion {
			all.core = client
		}
		i := cache.NewSharedIndexInformer(cache.NewListWatchFromClient(client, resource, "", fields.Everything()), object, 0, nil)
		_, err = i.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { changed() }, UpdateFunc: func(any, any) { changed() }, DeleteFunc: func(any) { changed() },
		})
		return i, errors.Join(err, i.SetTransform(strip))
	}
	for _, i := range []struct {
		to             *cache.SharedIndexInformer
		group          schema.GroupVersion
		path, resource string
		object         runtime.Object
	}{
		{&all.pods, corev1.SchemeGroupVersion, "/api", "pods", &corev1.Pod{}},
		{&all.namespaces, corev1.SchemeGroupVersion, "/api", "namespaces", &corev1.Namespace{}},
		{&all.policies, networkingv1.SchemeGroupVersion, "/apis", "networkpolicies", &networkingv1.NetworkPolicy{}},
	} {
		made, err := informer(i.group, i.path, i.resource, i.object)
		if err != nil {
			return nil, fmt.Errorf("watch %s: %w", i.resource, err)
		}
		*i.to = made
	}
	return all, nil
}

// strip drops what no rule follows from and takes much memory.
func strip(o any) (any, error) {
	if p, ok := o.(*corev1.Pod); ok {
		p.UID = runtimeUID(p)
		p.Labels = splitpod.EffectiveLabels(p) // policies for a split pod are for all of its fractions
	}
	if m, err := meta.Accessor(o); err == nil {
		m.SetManagedFields(nil)
		m.SetAnnotations(nil)
	}
	return o, nil
}

// configHash is kubelet's annotation of a static pod's mirror with the UID that the runtime knows.
const configHash = "kubernetes.io/config.hash"

var isHash = regexp.MustCompile(`^[0-9a-f]{32}$`).MatchString

// runtimeUID returns the UID of a pod as its node's runtime knows it. Whoever may create a pod may
// annotate it, so an annotation cannot be another pod's UID: that is a UUID.
func runtimeUID(p *corev1.Pod) types.UID {
	if hash := p.Annotations[configHash]; p.Annotations[corev1.MirrorPodAnnotationKey] != "" && isHash(hash) {
		return types.UID(hash)
	}
	return p.UID
}

// run follows changes until ctx ends.
func (i *informers) run(ctx context.Context) {
	for _, informer := range []cache.SharedIndexInformer{i.pods, i.namespaces, i.policies} {
		go informer.RunWithContext(ctx)
	}
}

// synced reports whether everything was listed once. Rules that follow from a part would
// allow too much.
func (i *informers) synced() bool {
	return i.pods.HasSynced() && i.namespaces.HasSynced() && i.policies.HasSynced()
}

func (i *informers) cluster() networkpolicy.Cluster {
	return networkpolicy.Cluster{
		Pods: list[*corev1.Pod](i.pods), Namespaces: list[*corev1.Namespace](i.namespaces), Policies: list[*networkingv1.NetworkPolicy](i.policies),
	}
}

func list[T any](i cache.SharedIndexInformer) (all []T) {
	for _, o := range i.GetStore().List() {
		if t, ok := o.(T); ok {
			all = append(all, t)
		}
	}
	return all
}
