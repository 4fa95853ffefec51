package splitcontroller

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"unnest.io/unnest/internal/kube/splitpod"
)

// admit changes new pods with the annotation, and refuses those that cannot be split.
type admit struct {
	decoder admission.Decoder
	client  client.Client
	cache   client.Reader
	span    string
}

// Handle implements admission.Handler.
func (a *admit) Handle(ctx context.Context, request admission.Request) admission.Response {
	var p corev1.Pod
	if err := a.decoder.Decode(request, &p); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	if !splitpod.Asked(&p) {
		return admission.Allowed("")
	}
	p.Namespace = request.Namespace // a request may leave it out
	err := splitpod.Admit(&p, splitpod.Options{Span: a.span, Key: rand.Text(), Claim: func(name string) ([]corev1.PersistentVolumeAccessMode, error) {
		var c corev1.PersistentVolumeClaim
		err := a.client.Get(ctx, client.ObjectKey{Namespace: p.Namespace, Name: name}, &c)
		return c.Spec.AccessModes, err
	}})
	if err == nil {
		err = a.queue(ctx, &p)
	}
	if err == nil {
		err = a.try(ctx, &p)
	}
	if err != nil {
		return admission.Denied(err.Error())
	}
	changed, err := json.Marshal(&p)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	return admission.PatchResponseFromRaw(request.Object.Raw, changed)
}

// queue refuses the pod as long as an older one of its namespace waits for a quota.
func (a *admit) queue(ctx context.Context, p *corev1.Pod) error {
	var all corev1.PodList
	if err := a.cache.List(ctx, &all, client.InNamespace(p.Namespace), client.HasLabels{splitpod.PodLabel}); err != nil {
		return err
	}
	if first := splitpod.Ahead(p, pointers(all.Items), time.Now()); first != nil {
		return fmt.Errorf("pod %s waits for room in a quota for its fractions, and is older; try again later, delete that pod, or raise the quota", first.Name)
	}
	return nil
}

// try has the API server check the companions as it checks the pod: what they are, and whether the
// namespace's Pod Security and other admission let them in. It creates nothing.
func (a *admit) try(ctx context.Context, p *corev1.Pod) error {
	all, err := splitpod.Companions(p)
	if err != nil {
		return err
	}
	for i, c := range all {
		if c.Name, c.GenerateName = "", c.Name+"-"; p.Name == "" { // the API server makes the name later
			c.GenerateName = p.GenerateName
		}
		c.OwnerReferences = nil // the pod has no UID yet
		if err := a.client.Create(ctx, c, client.DryRunAll); err != nil {
			return fmt.Errorf("fraction %d of the pod: %w", i+2, err)
		}
	}
	return nil
}
