package pods

import (
	"context"
	"errors"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What a run has made is removed leaseTime after the run was killed.
const (
	leaseTime  = 5 * time.Minute
	renewEvery = time.Minute
)

// takeLease makes the object that owns everything else, and renews it until ctx ends. A user who may
// make no jobs gets a note: what such a run leaves when it is killed only ends by itself.
func (b *Set) takeLease(ctx context.Context) error {
	job := b.plan.leaseObject(leaseTime)
	err := b.cluster.jobs.create(ctx, b.plan.namespace, job)
	if apierrors.IsForbidden(err) {
		b.facts.Notes = append(b.facts.Notes, fmt.Sprintf("The user may not create jobs in namespace %s. If the run is killed, its pods end after %s, and stay until somebody deletes them.", b.plan.namespace, b.plan.life))
		return nil
	}
	if err != nil {
		return fmt.Errorf("create job %s: %w", b.plan.run, err)
	}
	b.plan.owner = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: job.Name, UID: job.UID}}
	began := time.Now()
	go func() {
		for tick := time.NewTicker(renewEvery); ; {
			select {
			case <-ctx.Done():
				tick.Stop()
				return
			case <-tick.C:
				// A later one may succeed. If none does, an execution says that its pod has ended.
				patch := fmt.Appendf(nil, `{"spec":{"activeDeadlineSeconds":%d}}`, seconds(time.Since(began)+leaseTime))
				_ = b.cluster.jobs.patch(ctx, b.plan.namespace, b.plan.run, patch)
			}
		}
	}()
	return nil
}

// sweep removes the namespaces of killed runs. Their content has removed itself.
func (c *Cluster) sweep(ctx context.Context) {
	var list corev1.NamespaceList
	if err := c.namespaces.list(ctx, "", metav1.ListOptions{LabelSelector: ownLabel}, &list); err != nil {
		return // only those who make namespaces can have left some
	}
	for _, n := range list.Items {
		var jobs batchv1.JobList
		err := c.jobs.list(ctx, n.Name, metav1.ListOptions{}, &jobs)
		if err == nil && len(jobs.Items) == 0 && time.Since(n.CreationTimestamp.Time) > leaseTime {
			_ = c.namespaces.delete(ctx, "", n.Name)
		}
	}
}

// removeLimit is how long pods may take to end on a busy cluster.
const removeLimit = 3 * time.Minute

// Down removes everything that Up has made, and waits until it is gone.
func (b *Set) Down() error {
	b.stopLease()
	ctx, cancel := context.WithTimeout(context.Background(), removeLimit)
	defer cancel()
	for _, s := range b.servers {
		_ = s.stdin.Close()
	}
	err := b.remove(ctx)
	if err != nil {
		return fmt.Errorf("remove what was made in namespace %s: %w; remove it by `kubectl delete jobs,pods,services -n %s -l %s=%s`", b.plan.namespace, err, b.plan.namespace, runLabel, b.plan.run)
	}
	return nil
}

// remove removes the namespace last: its controller looks only now and then whether pods are left.
func (b *Set) remove(ctx context.Context) error {
	c, namespace := b.cluster, b.plan.namespace
	var err error
	for _, name := range b.made {
		err = errors.Join(err, found(c.pods.delete(ctx, namespace, name)))
	}
	for name := range b.services {
		err = errors.Join(err, found(c.services.delete(ctx, namespace, name)))
	}
	if b.plan.owner != nil {
		err = errors.Join(err, found(c.jobs.delete(ctx, namespace, b.plan.run)))
	}
	if len(b.made) > 0 {
		err = errors.Join(err, awaitGone(ctx, func() (string, error) {
			pods, err := b.list(ctx)
			for name := range pods {
				return "pod " + name, err
			}
			return "", err
		}))
	}
	if b.madeNamespace {
		err = errors.Join(err, found(c.namespaces.delete(ctx, "", namespace)), awaitGone(ctx, func() (string, error) {
			err := c.namespaces.get(ctx, "", namespace, &corev1.Namespace{})
			if apierrors.IsNotFound(err) {
				return "", nil
			}
			return "namespace " + namespace, err
		}))
	}
	return err
}

// found returns an error unless it says that there is no such object.
func found(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// awaitGone waits until nothing is left. left names something that is.
func awaitGone(ctx context.Context, left func() (string, error)) error {
	for {
		name, err := left()
		if err == nil && name == "" {
			return nil
		}
		if pause(ctx) != nil {
			return fmt.Errorf("%s is still there after %v: %w", name, removeLimit, errors.Join(err, ctx.Err()))
		}
	}
}

// pause waits for a moment, or returns why ctx has ended.
func pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(500 * time.Millisecond):
		return nil
	}
}
