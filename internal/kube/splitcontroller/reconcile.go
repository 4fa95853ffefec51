package splitcontroller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"unnest.io/unnest/internal/kube/splitpod"
)

// reconciler executes splitpod's steps. It may be killed between any two calls of the API.
type reconciler struct {
	client.Client               // reads from the cache
	live          client.Reader // reads from the API server
	events        events.EventRecorder
	retry         time.Duration
	encrypted     bool

	prepared map[types.UID]*corev1.Pod // pods that this process has prepared, as long as the cache does not show it. Only the one worker uses it.
}

// Reconcile does the next step of a pod. Its changes make it run again.
func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	p, step, err := r.next(ctx, r.Client, request)
	if p != nil && err == nil && step.Rebuild != "" { // the cache may lack a companion
		p, step, err = r.next(ctx, r.live, request)
	}
	if p == nil {
		return reconcile.Result{}, err
	}
	if err != nil { // nothing wakes a pod that waits for a place
		r.warn(p, "SplitWaits", "Split", err.Error())
		return reconcile.Result{RequeueAfter: r.retry}, nil
	}
	err = r.execute(ctx, p, step)
	switch refused := apierrors.IsForbidden(err) && len(step.Create) > 0; {
	case refused && strings.Contains(err.Error(), "exceeded quota"): // of the API server's admission plugin
		err, step.Again = r.forbidden(ctx, p, err), r.retry
	case refused, errors.Is(err, errTaken):
		r.warn(p, "SplitWaits", "Split", err.Error())
		err, step.Again = nil, min(max(r.retry, time.Since(p.CreationTimestamp.Time)/10), 12*r.retry)
		if !splitpod.Refused(p).IsZero() { // it waited for a quota before: younger pods need not wait for it any longer
			err = r.condition(ctx, p, corev1.ConditionFalse, notReadyReason)
		}
	}
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) { // the cache is behind
		return reconcile.Result{RequeueAfter: r.retry / 10}, nil
	}
	if err != nil {
		r.warn(p, "SplitFails", "Split", err.Error())
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: step.Again}, nil
}

// notReadyReason is why ReadyCondition is false while a companion is not ready.
const notReadyReason = "FractionsNotReady"

// warn records an event. The API server refuses one whose note has more than 1,024 bytes.
func (r *reconciler) warn(p *corev1.Pod, reason, action, note string) {
	r.events.Eventf(p, nil, corev1.EventTypeWarning, reason, action, "%s", strings.ToValidUTF8(note[:min(len(note), 1000)], ""))
}

// next returns the pod and its next step; nil: there is nothing to do. An error with a pod is why
// it waits.
func (r *reconciler) next(ctx context.Context, from client.Reader, request reconcile.Request) (*corev1.Pod, splitpod.Step, error) {
	p := &corev1.Pod{}
	if err := from.Get(ctx, request.NamespacedName, p); err != nil {
		return nil, splitpod.Step{}, client.IgnoreNotFound(err)
	}
	if splitpod.Orphaned(p) {
		r.warn(p, "SplitOrphaned", "Delete", "the companion is deleted: it has lost its pod")
		return p, splitpod.Step{Delete: []*corev1.Pod{p}}, nil
	}
	if !splitpod.IsSplit(p) {
		return nil, splitpod.Step{}, nil
	}
	var own corev1.PodList
	err := from.List(ctx, &own, client.InNamespace(p.Namespace), client.MatchingLabels{splitpod.PodLabel: string(p.UID)})
	var all corev1.PodList
	var nodes corev1.NodeList
	if err == nil && splitpod.Unplaced(p) {
		err = errors.Join(r.List(ctx, &all, client.UnsafeDisableDeepCopy), r.List(ctx, &nodes, client.UnsafeDisableDeepCopy)) // Next only reads them
	}
	if err != nil {
		return nil, splitpod.Step{}, err
	}
	prepared := map[types.UID]*corev1.Pod{}
	for i := range all.Items {
		f := &all.Items[i]
		if mine := r.prepared[f.UID]; mine != nil && f.Labels[splitpod.PodLabel] == "" { // the list owns *f, and the cache its maps and slices: *f is replaced, not changed
			prepared[f.UID], *f = mine, *mine
		}
	}
	if len(all.Items) > 0 {
		r.prepared = prepared
	}
	in := splitpod.Cluster{Nodes: pointers(nodes.Items), Pods: pointers(all.Items), Now: time.Now()}
	if in.Volumes, err = r.volumes(ctx, p); err != nil {
		return p, splitpod.Step{}, err
	}
	var companions []*corev1.Pod
	for i := range own.Items {
		if splitpod.Owns(p, &own.Items[i]) {
			companions = append(companions, &own.Items[i])
		}
	}
	step, err := splitpod.Next(p, companions, in)
	return p, step, err
}

// volumes returns which nodes reach the volumes of a pod that waits for a place, by claim. Claims that wait for a node have none.
func (r *reconciler) volumes(ctx context.Context, p *corev1.Pod) (map[string]*corev1.NodeSelector, error) {
	all := map[string]*corev1.NodeSelector{}
	for _, name := range splitpod.Claims(p) {
		var claim corev1.PersistentVolumeClaim
		if err := r.live.Get(ctx, client.ObjectKey{Namespace: p.Namespace, Name: name}, &claim); err != nil {
			return nil, err
		}
		if claim.Spec.VolumeName == "" {
			continue
		}
		var v corev1.PersistentVolume
		if err := r.live.Get(ctx, client.ObjectKey{Name: claim.Spec.VolumeName}, &v); err != nil {
			return nil, err
		}
		if v.Spec.NodeAffinity != nil {
			all[name] = v.Spec.NodeAffinity.Required
		}
	}
	return all, nil
}

func pointers[T any](items []T) []*T {
	all := make([]*T, len(items))
	for i := range items {
		all[i] = &items[i]
	}
	return all
}

func (r *reconciler) execute(ctx context.Context, p *corev1.Pod, s splitpod.Step) (err error) {
	each := func(pods []*corev1.Pod, do func(*corev1.Pod) error) {
		for _, p := range pods {
			if err == nil {
				err = do(p)
			}
		}
	}
	if s.Prepare.Host != "" {
		var prepared *corev1.Pod
		err = r.change(ctx, p, func(p *corev1.Pod) {
			splitpod.Prepare(p, s.Prepare)
			prepared = p
		})
		if err == nil {
			r.prepared[p.UID] = prepared
		}
	}
	each(s.Create, func(c *corev1.Pod) error { return r.create(ctx, p, c) })
	each(s.Release, func(f *corev1.Pod) error { return r.change(ctx, f, splitpod.Release) })
	each(s.Connect, func(f *corev1.Pod) (err error) {
		if r.encrypted {
			f, err = splitpod.Encrypted(f)
		}
		if err != nil {
			return err
		}
		return r.note(ctx, f, splitpod.NetworkAnnotation)
	})
	each(s.Update, func(c *corev1.Pod) error { return r.note(ctx, c, splitpod.LabelsAnnotation) })
	each(s.Delete, func(c *corev1.Pod) error {
		var o []client.DeleteOption
		if p.DeletionGracePeriodSeconds != nil && p.Spec.NodeName != "" { // that of a pod without a node is 0
			o = append(o, client.GracePeriodSeconds(*p.DeletionGracePeriodSeconds))
		}
		return r.remove(ctx, c, o...)
	})
	if s.Rebuild != "" {
		r.warn(p, "SplitRebuild", "Delete", "the pod is deleted: "+s.Rebuild)
		err = r.remove(ctx, p)
	}
	if s.Ready != nil && *s.Ready {
		err = r.condition(ctx, p, corev1.ConditionTrue, "FractionsReady")
	} else if s.Ready != nil {
		err = r.condition(ctx, p, corev1.ConditionFalse, notReadyReason)
	}
	return err
}

// forbidden handles a refusal of a companion for want of a quota: it deletes the pod if that has to make room for others, and else notes that
// it waits.
func (r *reconciler) forbidden(ctx context.Context, p *corev1.Pod, why error) error {
	var all corev1.PodList
	if err := r.List(ctx, &all, client.InNamespace(p.Namespace), client.HasLabels{splitpod.PodLabel}); err != nil {
		return err
	}
	if yield := splitpod.Yield(p, pointers(all.Items), time.Now()); yield != "" {
		r.warn(p, "SplitRebuild", "Delete", fmt.Sprintf("the pod is deleted: %s: %v", yield, why))
		return r.remove(ctx, p)
	}
	r.warn(p, "SplitWaits", "Split", why.Error())
	if splitpod.Refused(p).IsZero() {
		return r.condition(ctx, p, corev1.ConditionFalse, splitpod.ForbiddenReason)
	}
	return nil
}

// change changes a pod unless somebody else has changed it meanwhile.
func (r *reconciler) change(ctx context.Context, p *corev1.Pod, do func(*corev1.Pod)) error {
	changed := p.DeepCopy()
	do(changed)
	return r.Patch(ctx, changed, client.MergeFromWithOptions(p, client.MergeFromWithOptimisticLock{}))
}

// note sets one annotation of a pod to what it is here, and leaves the others as they are. It changes no other pod of the name:
// the API server refuses another UID.
func (r *reconciler) note(ctx context.Context, p *corev1.Pod, key string) error {
	was := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}}
	now := was.DeepCopy()
	now.UID, now.Annotations = p.UID, map[string]string{key: p.Annotations[key]}
	return r.Patch(ctx, now, client.MergeFrom(was))
}

var errTaken = errors.New("another pod has this name; delete it")

// create creates a companion, unless it exists.
func (r *reconciler) create(ctx context.Context, p, c *corev1.Pod) error {
	err := r.Create(ctx, c)
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	var other corev1.Pod
	if err := r.live.Get(ctx, client.ObjectKeyFromObject(c), &other); err != nil {
		return err
	}
	if !splitpod.Owns(p, &other) {
		return fmt.Errorf("create companion %s: %w", c.Name, errTaken)
	}
	return nil
}

// remove deletes this pod, not a later one of its name.
func (r *reconciler) remove(ctx context.Context, p *corev1.Pod, o ...client.DeleteOption) error {
	return client.IgnoreNotFound(r.Delete(ctx, p, append(o, client.Preconditions{UID: &p.UID})...))
}

// condition says in the pod's status whether its companions are ready. It changes no other pod of the name, as note.
func (r *reconciler) condition(ctx context.Context, p *corev1.Pod, status corev1.ConditionStatus, reason string) error {
	was := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}}
	now := was.DeepCopy()
	now.UID = p.UID
	now.Status.Conditions = []corev1.PodCondition{{Type: splitpod.ReadyCondition, Status: status, Reason: reason, LastTransitionTime: metav1.Now()}}
	return r.Status().Patch(ctx, now, client.StrategicMergeFrom(was))
}
