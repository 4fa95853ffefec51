package pods

import (
	"context"
	"errors"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// kinds are the objects that a run uses. Its clients know only their API groups, because all of
// them make a binary large.
type kinds struct {
	pods, services, namespaces, nodes, events, jobs, runtimeClasses kind
	parameters                                                      runtime.ParameterCodec
}

func newKinds(config *rest.Config) (k kinds, err error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), batchv1.AddToScheme(scheme), nodev1.AddToScheme(scheme)); err != nil {
		return k, err
	}
	codecs := serializer.NewCodecFactory(scheme).WithoutConversion()
	k.parameters = runtime.NewParameterCodec(scheme)
	of := func(group schema.GroupVersion, path string, resources map[string]*kind) {
		c := rest.CopyConfig(config)
		c.GroupVersion, c.APIPath, c.NegotiatedSerializer = &group, path, codecs
		api, errClient := rest.RESTClientFor(c)
		err = errors.Join(err, errClient)
		for resource, to := range resources {
			*to = kind{api, k.parameters, resource}
		}
	}
	of(corev1.SchemeGroupVersion, "/api", map[string]*kind{"pods": &k.pods, "services": &k.services, "namespaces": &k.namespaces, "nodes": &k.nodes, "events": &k.events})
	of(batchv1.SchemeGroupVersion, "/apis", map[string]*kind{"jobs": &k.jobs})
	of(nodev1.SchemeGroupVersion, "/apis", map[string]*kind{"runtimeclasses": &k.runtimeClasses})
	return k, err
}

// kind is the client of one resource. The namespace is empty for those without one.
type kind struct {
	api        *rest.RESTClient
	parameters runtime.ParameterCodec
	resource   string
}

// create creates an object and stores in it what the API server has made of it.
func (k kind) create(ctx context.Context, namespace string, o runtime.Object) error {
	return k.api.Post().NamespaceIfScoped(namespace, namespace != "").Resource(k.resource).Body(o).Do(ctx).Into(o)
}

func (k kind) get(ctx context.Context, namespace, name string, into runtime.Object) error {
	return k.api.Get().NamespaceIfScoped(namespace, namespace != "").Resource(k.resource).Name(name).Do(ctx).Into(into)
}

func (k kind) list(ctx context.Context, namespace string, o metav1.ListOptions, into runtime.Object) error {
	return k.api.Get().NamespaceIfScoped(namespace, namespace != "").Resource(k.resource).VersionedParams(&o, k.parameters).Do(ctx).Into(into)
}

func (k kind) delete(ctx context.Context, namespace, name string) error {
	background := metav1.DeletePropagationBackground
	return k.api.Delete().NamespaceIfScoped(namespace, namespace != "").Resource(k.resource).Name(name).
		Body(&metav1.DeleteOptions{PropagationPolicy: &background}).Do(ctx).Error()
}

func (k kind) patch(ctx context.Context, namespace, name string, merge []byte) error {
	return k.api.Patch(types.MergePatchType).Namespace(namespace).Resource(k.resource).Name(name).Body(merge).Do(ctx).Error()
}
