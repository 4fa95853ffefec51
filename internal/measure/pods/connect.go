package pods

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
)

// Cluster is an existing cluster, as the user's credentials show it.
type Cluster struct {
	config *rest.Config
	kinds
	Version string // of Kubernetes
}

// Connect reads a kubeconfig, as kubectl does, and calls the API server. kubeconfig and context may
// be empty: those of the environment, and the current one.
func Connect(ctx context.Context, kubeconfig, context string) (*Cluster, error) {
	klog.SetLogger(klog.Logger{}) // client-go writes what it also returns as errors to stderr
	config, err := ReadConfig(kubeconfig, context)
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = 50, 100 // the load is that of a person's command, not of a controller
	kinds, err := newKinds(config)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	var info version.Info
	answer, err := kinds.pods.api.Get().AbsPath("/version").Do(ctx).Raw()
	if err == nil {
		err = json.Unmarshal(answer, &info)
	}
	if err != nil {
		return nil, fmt.Errorf("ask %s for its version: %w", config.Host, err)
	}
	return &Cluster{config, kinds, info.GitVersion}, nil
}

// ReadConfig reads a kubeconfig, as Connect does. It calls nobody.
func ReadConfig(kubeconfig, context string) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: context})
	raw, err := loader.RawConfig()
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w; give another file by --kubeconfig", err)
	}
	if _, known := raw.Contexts[context]; context != "" && !known {
		return nil, fmt.Errorf("context %q: not in the kubeconfig; there are %s", context, strings.Join(slices.Sorted(maps.Keys(raw.Contexts)), ", "))
	}
	config, err := loader.ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, errors.New("find a cluster: no kubeconfig; set KUBECONFIG, or give --kubeconfig FILE")
	}
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	return config, nil
}

// allowed explains that the user may not do something.
func allowed(err error, what, fix string) error {
	if err == nil {
		return nil
	}
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("%s: %w; %s", what, err, fix)
	}
	return fmt.Errorf("%s: %w", what, err)
}

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
