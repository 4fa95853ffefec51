package pods

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	config, err := readConfig(kubeconfig, context)
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

func readConfig(kubeconfig, context string) (*rest.Config, error) {
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
