package policyclient

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// A namespace that changes its policies again and again has eventBurst events of its refusals, and then one in eventTime, after which
// also an event that could not be created is tried again.
const (
	eventTime  = time.Minute
	eventBurst = 3
)

// refusal is of the policies of a namespace.
type refusal struct{ namespace, who string }

// refusals says which namespaces have policies that are too large, in the log and, if the
// client may create events, in an event of the namespace.
type refusals struct {
	log    *slog.Logger
	api    rest.Interface           // nil: no events
	limits map[string]*rate.Limiter // by namespace
	last   map[string][]string      // by who refuses
	due    map[refusal]bool         // without event yet
	denied bool                     // an event was not created: this is logged
}

func newRefusals(log *slog.Logger, api rest.Interface) *refusals {
	return &refusals{log: log, api: api, limits: map[string]*rate.Limiter{}, last: map[string][]string{}, due: map[refusal]bool{}}
}

// say says what one of them refuses, if it is not the same as before.
func (r *refusals) say(ctx context.Context, who string, refused []string) {
	last := r.last[who]
	if slices.Equal(last, refused) {
		return
	}
	r.last[who] = refused
	for _, namespace := range last {
		if !slices.Contains(refused, namespace) {
			delete(r.due, refusal{namespace, who})
		}
	}
	if len(refused) == 0 {
		r.log.Info("no policies are too large any more", "refused by", who)
		return
	}
	r.log.Warn("policies are too large: the pods that they isolate have no connections; use fewer rules, peers or ports", "namespaces", refused, "refused by", who)
	for _, namespace := range refused {
		if !slices.Contains(last, namespace) {
			r.due[refusal{namespace, who}] = true
		}
	}
	r.send(ctx)
}

// send creates the events that are due, as far as each namespace may have more. It takes retryTime at most: other namespaces wait.
func (r *refusals) send(ctx context.Context) {
	maps.DeleteFunc(r.limits, func(_ string, l *rate.Limiter) bool { return l.Tokens() >= eventBurst })
	if r.api == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, retryTime)
	defer cancel()
	for what := range r.due {
		if r.limits[what.namespace] == nil {
			r.limits[what.namespace] = rate.NewLimiter(rate.Every(eventTime), eventBurst)
		}
		if ctx.Err() == nil && r.limits[what.namespace].Allow() && r.event(ctx, what.namespace, what.who) {
			delete(r.due, what)
		}
	}
}

// event reports whether it has created an event.
func (r *refusals) event(ctx context.Context, namespace, who string) bool {
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
	return err == nil
}
