// Package splitcontroller carries out splits of pods in a Kubernetes cluster: a webhook admits
// pods with the annotation unnest.io/split, and a controller makes their companions and looks
// after them.
//
// What becomes of a pod belongs to package splitpod, the localhost of its fractions to the CNI
// plugin hostlo.
package splitcontroller

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/log"
	metrics "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"unnest.io/unnest/internal/kube/splitpod"
)

// Names of objects, which the chart has too.
const (
	Name     = "unnest-split" // of the Service, the webhook and the lease
	Secret   = "unnest-split-webhook"
	admitURL = "/admit"
)

// Options say where the controller works.
type Options struct {
	Namespace string // of its Service, Secret and lease
	Host      string // address of the webhook; empty: all
	Port      int    // of the webhook
	Health    string // ADDRESS:PORT of /healthz and /readyz
	Metrics   string // ADDRESS:PORT of /metrics; 0: none
	Span      string // of split pods: splitpod.SpanNetwork, or else the host's
	Encrypted bool   // tunnels of SpanNetwork are inside WireGuard
	Log       *slog.Logger

	retry time.Duration // of a pod that waits; 0: 5 s
}

// unlimited leaves the rate of requests to the API server, which shares it out fairly. Without that, client-go waits after five a second.
func unlimited(api *rest.Config) *rest.Config {
	api = rest.CopyConfig(api)
	api.QPS = -1
	return api
}

// Run admits and looks after split pods until ctx ends. Several processes may run: all admit pods,
// and one controls them.
func Run(ctx context.Context, api *rest.Config, o Options) error {
	logger := logr.FromSlogHandler(o.Log.Handler())
	log.SetLogger(logger)
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), admissionregistrationv1.AddToScheme(scheme)); err != nil {
		return err
	}
	certificates := &certificates{options: o, now: time.Now}
	api = unlimited(api)
	m, err := ctrl.NewManager(api, ctrl.Options{
		Scheme: scheme, Logger: logger,
		Cache:                         cache.Options{DefaultTransform: cache.TransformStripManagedFields()},
		Metrics:                       metrics.Options{BindAddress: o.Metrics},
		HealthProbeBindAddress:        o.Health,
		LeaderElection:                true,
		LeaderElectionID:              Name,
		LeaderElectionNamespace:       o.Namespace,
		LeaderElectionReleaseOnCancel: true,
		Controller:                    config.Controller{SkipNameValidation: new(true)}, // tests run several in one process
		WebhookServer: webhook.NewServer(webhook.Options{Host: o.Host, Port: o.Port, TLSOpts: []func(*tls.Config){func(c *tls.Config) {
			c.MinVersion, c.GetCertificate = tls.VersionTLS12, certificates.get
		}}}),
	})
	if err != nil {
		return fmt.Errorf("reach the API server: %w", err)
	}
	// Secret and webhook are read without a cache, which needs the right to list all of them.
	if certificates.client, err = client.New(api, client.Options{Scheme: scheme, HTTPClient: m.GetHTTPClient(), Mapper: m.GetRESTMapper()}); err != nil {
		return err
	}
	m.GetWebhookServer().Register(admitURL, &webhook.Admission{Handler: &admit{admission.NewDecoder(scheme), certificates.client, m.GetClient(), o.Span}})
	r := &reconciler{Client: m.GetClient(), live: m.GetAPIReader(), events: m.GetEventRecorder(Name), retry: cmp.Or(o.retry, 5*time.Second), encrypted: o.Encrypted, prepared: map[types.UID]*corev1.Pod{}}
	split := predicate.NewPredicateFuncs(func(o client.Object) bool {
		p := o.(*corev1.Pod)
		return splitpod.IsSplit(p) || splitpod.Orphaned(p)
	})
	err = errors.Join(
		m.Add(certificates),
		m.AddHealthzCheck("running", func(*http.Request) error { return nil }),
		m.AddReadyzCheck("certificate", func(*http.Request) error { _, err := certificates.get(nil); return err }),
		ctrl.NewControllerManagedBy(m).Named(Name).For(&corev1.Pod{}, builder.WithPredicates(split)).Owns(&corev1.Pod{}).Complete(r))
	if err != nil {
		return err
	}
	return m.Start(ctx)
}
