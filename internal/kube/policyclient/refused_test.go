package policyclient

import (
	"context"
	"log/slog"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A namespace that the daemon refuses has one event, as long as that is so; what the others have
// is sent all the same.
func TestRefused(t *testing.T) {
	api := newAPIServer(t)
	api.set(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "web"}}, newPod("a", "10.0.0.1"))
	d, daemon := newHostDaemon(t)
	d.refused = []string{"big"}
	start(t, api.config(), daemon)
	select {
	case got := <-api.created:
		if got != "NetworkPoliciesTooLarge big" {
			t.Errorf("created %s", got)
		}
	case <-time.After(patience):
		t.Fatal("no event")
	}
	api.set(denyExcept("b"))
	next(t, d, "policy", func(c commit) bool { return len(c.pods) == 1 && peers(c.pods["web/a"]) != nil })
	d.fail <- struct{}{}
	next(t, d, "new stream", func(c commit) bool { return c.first })
	d.fail <- struct{}{}
	next(t, d, "new stream", func(c commit) bool { return c.first }) // after the answer to the one before
	if len(api.created) > 0 {
		t.Errorf("created %s again", <-api.created)
	}
}

// A namespace whose policies are refused again and again has a few events, and takes none of another's. An event that could not be
// created comes later.
func TestAttackManyRefusals(t *testing.T) {
	api := newAPIServer(t)
	i, err := newInformers(api.config(), func() {})
	if err != nil {
		t.Fatal(err)
	}
	r := newRefusals(slog.New(slog.DiscardHandler), i.core)
	for range 50 {
		r.say(t.Context(), "daemon", []string{"evil"})
		r.say(t.Context(), "daemon", nil)
	}
	if n := len(api.created); n < 1 || n > eventBurst+2 { // it may take two minutes
		t.Errorf("%d events of a namespace, want %d", n, eventBurst)
	}
	for len(api.created) > 0 {
		<-api.created
	}
	ended, end := context.WithCancel(t.Context())
	end()
	r.say(ended, "daemon", []string{"web"})
	if r.send(t.Context()); len(api.created) != 1 || <-api.created != "NetworkPoliciesTooLarge web" {
		t.Errorf("the event of another namespace is not created once")
	}
	if r.send(t.Context()); len(api.created) > 0 {
		t.Errorf("created %s again", <-api.created)
	}
}
