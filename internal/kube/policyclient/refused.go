package policyclient

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// A namespace that changes its policies again and again has few events of its refusals.
const eventRate, eventBurst = 1, 20

// refusals says which namespaces have policies that are too large, in the log and, if the
// client may create events, in an event of the namespace.
type refusals struct {
	log    *slog.Logger
	api    rest.Interface // nil: no events
	limit  *rate.Limiter
	last   map[string][]string // by who refuses
	denied bool                // an event was not created: this is logged
}

func newRefusals(log *slog.Logger, api rest.Interface) *refusals {
	return &refusals{log: log, api: api, limit: rate.NewLimiter(eventRate, eventBurst), last: map[string][]string{}}
}

// say says what one of them refuses, if it is not the same as before.
func (r *refusals) say(ctx context.Context, who string, refused []string) {
	last := r.last[who]
	if slices.Equal(last, refused) {
		return
	}
	r.last[who] = refused
	if len(refused) == 0 {
		r.log.Info("no policies are too large any more", "refused by", who)
		return
	}
	r.log.Warn("policies are too large: the pods that they isolate have no connections; use fewer rules, peers or ports", "namespaces", refused, "refused by", who)
	for _, namespace := range refused {
		if !slices.Contains(last, namespace) && r.limit.Allow() {
			r.event(ctx, namespace, who)
		}
	}
}

func (r *refusals) event(ctx context.Context, namespace, who string) {
	if r.api == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, retryTime) // the other namespaces wait
	defer cancel()
	now := metav1.Now()
	err := r.api.Post().Namespace(namespace).Resource("events").Body(&corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{GenerateName: "network-policies-", Namespace: namespace},
		InvolvedObject: corev1.ObjectReference{Kind: "Namespace", APIVersion: "v1", Name: namespace, Namespace: namespace},
		Reason:         "NetworkPoliciesTooLarge", Type: corev1.EventTypeWarning, Count: 1, FirstTimestamp: now, LastTimestamp: now,
		Message: fmt.Sprintf("The network policies of namespace %s are too large for %s. The pods that they isolate have no connections. Use fewer rules, peers or ports.", namespace, who),
		Source:  corev1.EventSource{Component: "unnest-hostd-policy"},
	}).Do(ctx).Error()
	if err != nil && !r.denied {
		r.denied = true
		r.log.Warn("create an event: allow the client to create events, for users who cannot see this log", "namespace", namespace, "error", err)
	}
}
