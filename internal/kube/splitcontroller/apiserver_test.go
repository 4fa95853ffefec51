//go:build kubernetes

package splitcontroller

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"unnest.io/unnest/internal/kube/kubetest"
	"unnest.io/unnest/internal/kube/splitpod"
)

const (
	patience  = time.Minute // on a busy machine
	namespace = "unnest-system"
	account   = "system:serviceaccount:" + namespace + ":" + Name
)

// world is an API server with scheduler and controllers, three nodes on two hosts, and the chart's
// objects. No kubelet runs pods: the test says what they are.
type world struct {
	t *testing.T
	client.Client
	config *rest.Config
	port   int
	span   string // of the next controller

	encrypted bool // the next controller
}

func newWorld(t *testing.T) *world {
	t.Helper()
	config := kubetest.StartAPIServer(t)
	config.QPS, config.Burst = 1000, 1000
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), appsv1.AddToScheme(scheme), admissionregistrationv1.AddToScheme(scheme),
		autoscalingv1.AddToScheme(scheme), autoscalingv2.AddToScheme(scheme), policyv1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, config: config}
	w.eventually("the API server answers", func() (err error) {
		w.Client, err = client.New(config, client.Options{Scheme: scheme})
		if err == nil {
			err = w.List(t.Context(), &corev1.NamespaceList{})
		}
		return err
	})
	_, port := kubetest.FreeAddress(t)
	w.port, _ = strconv.Atoi(port)
	for _, name := range []string{namespace, "shop"} {
		w.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	w.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "strict", Labels: map[string]string{"pod-security.kubernetes.io/enforce": "baseline"}}})
	for name, host := range map[string]string{"a1": "a", "b1": "b", "b2": "b"} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{splitpod.HostLabel: host, corev1.LabelHostname: name}}}
		w.create(n)
		n.Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse("8"), "memory": resource.MustParse("8Gi"), "pods": resource.MustParse("100")}
		n.Status.Capacity = n.Status.Allocatable
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: map[string]string{"a1": "10.0.0.1", "b1": "10.0.0.2", "b2": "10.0.0.3"}[name]}}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		w.check(w.Status().Update(t.Context(), n))
		n.Spec.Taints = nil // admission's for a node that is not ready yet
		w.check(w.Update(t.Context(), n))
	}
	for _, o := range kubetest.SplitObjects(t, namespace, fmt.Sprintf("https://127.0.0.1:%d/admit", w.port)) {
		w.create(o)
	}
	kubetest.StartControllers(t, config, "--horizontal-pod-autoscaler-sync-period=1s",
		"--controllers=garbage-collector-controller,deployment-controller,replicaset-controller,resourcequota-controller,disruption-controller,horizontal-pod-autoscaler-controller")
	return w
}

func (w *world) check(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) create(o client.Object) {
	w.t.Helper()
	if err := w.Create(w.t.Context(), o); err != nil {
		w.t.Fatalf("create %T %s: %v", o, o.GetName(), err)
	}
}

// eventually waits until f returns nil.
func (w *world) eventually(what string, f func() error) {
	w.t.Helper()
	var err error
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if err = f(); err == nil {
			return
		}
	}
	w.t.Fatalf("%s: not within %v: %v", what, patience, err)
}

// controller runs the controller with its rights in the chart, until stop or the end of the test.
// After so many changes of pods it is killed; 0: never.
func (w *world) controller(changes int32) (stop func()) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	config := rest.CopyConfig(w.config)
	config.QPS, config.Burst = 0, 0 // as unnest-kube's
	config.Impersonate = rest.ImpersonationConfig{UserName: account, Groups: []string{"system:serviceaccounts", "system:authenticated"}}
	if changes > 0 {
		left := &atomic.Int32{}
		left.Store(changes)
		config.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return trip(func(r *http.Request) (*http.Response, error) {
				dry := r.URL.Query().Has("dryRun")
				if r.Method != http.MethodGet && strings.Contains(r.URL.Path, "/pods") && !dry && left.Add(-1) < 0 {
					cancel()
					return nil, errors.New("the controller is killed")
				}
				return next.RoundTrip(r)
			})
		})
	}
	address, _ := kubetest.FreeAddress(w.t)
	var log bytes.Buffer
	ended := make(chan error, 1)
	go func() {
		ended <- Run(ctx, config, Options{Namespace: namespace, Host: "127.0.0.1", Port: w.port, Health: address, Metrics: "0", Span: w.span, Encrypted: w.encrypted, Log: slog.New(slog.NewTextHandler(&log, nil)), retry: 200 * time.Millisecond})
	}()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		err := <-ended
		if w.t.Failed() || err != nil && changes == 0 {
			w.t.Logf("the controller ended (%v):\n%s", err, log.String())
		}
	}
	w.t.Cleanup(stop)
	w.eventually("the controller is ready", func() error {
		if ctx.Err() != nil {
			return nil
		}
		answer, err := http.Get("http://" + address + "/readyz")
		if err == nil {
			defer answer.Body.Close()
			if answer.StatusCode != http.StatusOK {
				err = errors.New(answer.Status)
			}
		}
		return err
	})
	return stop
}

type trip func(*http.Request) (*http.Response, error)

func (f trip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func pod(ns, name, split string, containers ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: map[string]string{"app": name}, Annotations: map[string]string{}}}
	if split != "" {
		p.Annotations[splitpod.SplitAnnotation] = split
	}
	for _, c := range containers {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: c, Image: "none", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{"cpu": resource.MustParse("100m")},
		}})
	}
	return p
}

func (w *world) get(name string) (*corev1.Pod, error) {
	p := &corev1.Pod{}
	return p, w.Get(w.t.Context(), client.ObjectKey{Namespace: "shop", Name: name}, p)
}

// running waits until pods are scheduled, and plays their kubelets, which say that they are ready.
func (w *world) running(names ...string) (pods []*corev1.Pod) {
	w.t.Helper()
	for _, name := range names {
		w.eventually(name+" is scheduled", func() error {
			p, err := w.get(name)
			if err == nil && p.Spec.NodeName == "" {
				err = fmt.Errorf("gates %v, conditions %v", p.Spec.SchedulingGates, p.Status.Conditions)
			}
			return err
		})
		p, err := w.get(name)
		w.check(err)
		pods = append(pods, p)
	}
	return pods
}

// waits waits until an event says why the pod does.
func (w *world) waits(p *corev1.Pod, why string) {
	w.t.Helper()
	w.eventually("an event says why", func() error {
		var all corev1.EventList
		err := w.List(w.t.Context(), &all, client.InNamespace("shop"))
		for _, e := range all.Items {
			if strings.HasPrefix(e.Reason, "Split") && e.InvolvedObject.UID == p.UID && strings.Contains(e.Message, why) {
				return err
			}
		}
		return errors.Join(err, fmt.Errorf("%d events", len(all.Items)))
	})
}

// condition sets a condition of a pod.
func (w *world) condition(name string, c corev1.PodConditionType, status corev1.ConditionStatus) {
	w.t.Helper()
	w.eventually("set condition", func() error {
		p, err := w.get(name)
		if err != nil {
			return err
		}
		p.Status.Phase = corev1.PodRunning
		for i := range p.Status.Conditions {
			if p.Status.Conditions[i].Type == c {
				p.Status.Conditions[i].Status = status
				return w.Status().Update(w.t.Context(), p)
			}
		}
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: c, Status: status})
		return w.Status().Update(w.t.Context(), p)
	})
}

func (w *world) wantReady(name string, want corev1.ConditionStatus) {
	w.t.Helper()
	w.eventually(fmt.Sprintf("%s has its fractions ready: %s", name, want), func() error {
		p, err := w.get(name)
		if err != nil {
			return err
		}
		for _, c := range p.Status.Conditions {
			if c.Type == splitpod.ReadyCondition && c.Status == want {
				return nil
			}
		}
		return fmt.Errorf("conditions %v", p.Status.Conditions)
	})
}

// end plays the kubelet of pods that are being deleted. Nothing may be left in the end.
func (w *world) end() {
	w.t.Helper()
	now := int64(0)
	w.eventually("nothing is left", func() error {
		var all corev1.PodList
		if err := w.List(w.t.Context(), &all, client.InNamespace("shop")); err != nil {
			return err
		}
		for i := range all.Items {
			if all.Items[i].DeletionTimestamp != nil {
				_ = w.Delete(w.t.Context(), &all.Items[i], &client.DeleteOptions{GracePeriodSeconds: &now})
			}
		}
		if len(all.Items) > 0 {
			return fmt.Errorf("%d pods, such as %s", len(all.Items), all.Items[0].Name)
		}
		return nil
	})
}

func (w *world) wantRefused(o client.Object, want string) {
	w.t.Helper()
	if err := w.Create(w.t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
		w.t.Errorf("create %s: got %v, want a refusal with %q", o.GetName(), err, want)
	}
}

// A real API server, scheduler and controllers, with the controller's own rights.
func TestOnAPIServer(t *testing.T) {
	w := newWorld(t)
	stop := w.controller(0)
	for _, s := range []struct {
		name string
		run  func()
	}{
		{"a pod is split", w.split},
		{"a companion is lost", w.lost},
		{"init containers come first", w.initContainers},
		{"fractions share volumes", w.volumes},
		{"refused", w.refused},
		{"others change nothing", w.immutable},
		{"fractions are debugged", w.debug},
		{"no room", w.noRoom},
		{"just enough room", w.exact},
		{"a Deployment", w.deployment},
		{"a quota for one pod", w.quota},
		{"the certificate is replaced", w.rotate},
		{"a kubelet chooses no host", w.forgedHost},
	} {
		if !t.Run(s.name, func(t *testing.T) { w.t = t; s.run() }) {
			w.t = t
			return
		}
	}
	w.t = t
	stop()
	t.Run("the webhook is down", func(t *testing.T) { w.t = t; w.down() })
	t.Run("a companion is left over", func(t *testing.T) { w.t = t; w.orphan() })
	t.Run("killed at each step", func(t *testing.T) { w.t = t; w.killed() })
	t.Run("nodes of any hosts", func(t *testing.T) { w.t = t; w.network() })
}

func (w *world) split() {
	p := pod("shop", "web", "a;b,c;d", "a", "b", "c", "d")
	w.create(p)
	if len(p.Spec.Containers) != 1 || len(p.Spec.SchedulingGates) != 1 {
		w.t.Errorf("the pod has %d containers and the gates %v", len(p.Spec.Containers), p.Spec.SchedulingGates)
	}
	w.t.Log("three fractions fit on no host with two nodes")
	w.waits(p, "host b: 2 of 3 fit")
	w.check(w.Delete(w.t.Context(), p))
	w.end()
	w.create(pod("shop", "web", "a;b,c", "a", "b", "c"))
	pods := w.running("web", "web-f1")
	first, second := pods[0], pods[1]
	if first.Spec.NodeName == second.Spec.NodeName || first.Spec.NodeName[0] != 'b' || second.Spec.NodeName[0] != 'b' {
		w.t.Errorf("fractions are on %s and %s, want both nodes of host b", first.Spec.NodeName, second.Spec.NodeName)
	}
	if a, b := first.Annotations, second.Annotations; a[splitpod.SegmentAnnotation] != string(first.UID) || b[splitpod.SegmentAnnotation] != string(first.UID) ||
		len(a[splitpod.KeyAnnotation]) < 16 || a[splitpod.KeyAnnotation] != b[splitpod.KeyAnnotation] {
		w.t.Errorf("segments are %v and %v", a, b)
	}
	w.wantReady("web", corev1.ConditionFalse)
	w.condition("web-f1", corev1.PodReady, corev1.ConditionTrue)
	w.wantReady("web", corev1.ConditionTrue)
	w.condition("web-f1", corev1.PodReady, corev1.ConditionFalse)
	w.wantReady("web", corev1.ConditionFalse)
	first, err := w.get("web")
	w.check(err)
	first.Labels["tier"] = "front"
	w.check(w.Update(w.t.Context(), first))
	w.eventually("policies see the new label", func() error {
		c, err := w.get("web-f1")
		if err == nil && splitpod.EffectiveLabels(c)["tier"] != "front" {
			err = fmt.Errorf("labels %v", splitpod.EffectiveLabels(c))
		}
		return err
	})
	grace := int64(7)
	w.check(w.Delete(w.t.Context(), first, &client.DeleteOptions{GracePeriodSeconds: &grace}))
	w.eventually("the companion ends with the pod", func() error {
		c, err := w.get("web-f1")
		if err == nil && (c.DeletionGracePeriodSeconds == nil || *c.DeletionGracePeriodSeconds != grace) {
			err = fmt.Errorf("grace period %v", c.DeletionGracePeriodSeconds)
		}
		return err
	})
	w.t.Log("the next pod of the name, as a StatefulSet makes it, waits for the end of the companion")
	w.check(w.Delete(w.t.Context(), first, client.GracePeriodSeconds(0)))
	next := pod("shop", "web", "a;b,c", "a", "b", "c")
	w.create(next)
	w.waits(next, "create companion web-f1: another pod has this name")
	w.check(w.Delete(w.t.Context(), second, client.GracePeriodSeconds(0)))
	w.running("web", "web-f1")
	w.check(w.Delete(w.t.Context(), next, client.GracePeriodSeconds(0)))
	w.end()
}

// A node is lost, so its pod is deleted: the whole pod is.
func (w *world) lost() {
	w.create(pod("shop", "web", "a;b", "a", "b"))
	c := w.running("web", "web-f1")[1]
	w.check(w.Delete(w.t.Context(), c))
	w.deleted("web")
	w.end()
}

// deleted waits until a pod is deleted, or is gone.
func (w *world) deleted(name string) {
	w.t.Helper()
	w.eventually(name+" is deleted", func() error {
		p, err := w.get(name)
		if err == nil && p.DeletionTimestamp == nil {
			err = errors.New("it is there")
		}
		return client.IgnoreNotFound(err)
	})
}

// The companion is held back until the kubelet of the pod says that its init containers have ended.
func (w *world) initContainers() {
	p := pod("shop", "web", "a;b", "a", "b")
	p.Spec.InitContainers = []corev1.Container{{Name: "i", Image: "none"}}
	w.create(p)
	w.running("web")
	w.wantReady("web", corev1.ConditionFalse)
	if c, err := w.get("web-f1"); err != nil || len(c.Spec.SchedulingGates) != 1 || len(c.Spec.InitContainers) != 0 {
		w.t.Errorf("the companion has the gates %v and the init containers %v (%v)", c.Spec.SchedulingGates, c.Spec.InitContainers, err)
	}
	w.condition("web", corev1.PodInitialized, corev1.ConditionTrue)
	w.running("web-f1")
	w.check(w.Delete(w.t.Context(), p, client.GracePeriodSeconds(0)))
	w.end()
}

// mounting returns a pod of two fractions that mount a volume.
func mounting(ns string, v corev1.VolumeSource) *corev1.Pod {
	p := pod(ns, "web", "a;b", "a", "b")
	p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: v}}
	for i := range p.Spec.Containers {
		p.Spec.Containers[i].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	}
	return p
}

// An emptyDir becomes a volume of the host in each fraction, which nobody writes by hand. A claim is asked for its
// access modes.
func (w *world) volumes() {
	emptyDir := corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
	w.create(mounting("shop", emptyDir))
	pods := w.running("web", "web-f1")
	key := pods[0].Annotations[splitpod.KeyAnnotation]
	for i, owner := range []string{"", string(pods[0].UID)} {
		for _, v := range pods[i].Spec.Volumes {
			if a := v.CSI; v.Name == "data" && (a == nil || a.Driver != splitpod.VolumeDriver || a.VolumeAttributes["key"] != key || a.VolumeAttributes["pod"] != owner) {
				w.t.Errorf("fraction %d has %+v, want the key %q of the pod %q", i, v, key, owner)
			}
		}
	}
	w.t.Log("a user copies a fraction, with its key")
	stolen := pods[1].DeepCopy()
	stolen.ObjectMeta = metav1.ObjectMeta{Namespace: "shop", Name: "thief", Annotations: stolen.Annotations}
	delete(stolen.Annotations, splitpod.LabelsAnnotation) // with it, it looks like a fraction
	stolen.Spec.NodeName = ""
	w.wantRefused(stolen, "for fractions of split pods only")
	stolen.Annotations[splitpod.SplitAnnotation] = "b"
	w.wantRefused(stolen, "for the webhook of split pods only")
	w.check(w.Delete(w.t.Context(), pods[0], client.GracePeriodSeconds(0)))
	w.end()
	w.check(w.Create(w.t.Context(), mounting("strict", emptyDir), client.DryRunAll))
	memory := corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}
	w.wantRefused(mounting("shop", memory), "an emptyDir of medium Memory is in the memory of one node")
	claim := func(name string, modes ...corev1.PersistentVolumeAccessMode) corev1.VolumeSource {
		w.create(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: modes, Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{"storage": resource.MustParse("1Mi")}},
		}})
		return corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}
	}
	w.check(w.Create(w.t.Context(), mounting("shop", claim("many", corev1.ReadWriteMany)), client.DryRunAll))
	w.wantRefused(mounting("shop", claim("one", corev1.ReadWriteOnce)), `its claim "one" has the access modes [ReadWriteOnce], of which neither ReadWriteMany`)
	w.wantRefused(mounting("strict", corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "many"}}), `"many" not found`)
}

func (w *world) refused() {
	p := pod("shop", "web", "a;b", "a", "b")
	p.Spec.HostNetwork = true
	w.wantRefused(p, "hostNetwork")
	w.wantRefused(pod("shop", "web", "a;x", "a", "b"), `no container "x"`)
	yes := true
	p = pod("strict", "web", "a;b", "a", "b")
	p.Spec.Containers[1].SecurityContext = &corev1.SecurityContext{Privileged: &yes}
	w.wantRefused(p, "fraction 2 of the pod: ")
	w.wantRefused(p, `violates PodSecurity "baseline:latest": privileged`)
	p = pod("shop", "web", "a;b", "a", "b")
	p.Spec.Containers[1].Image = ""
	w.wantRefused(p, "fraction 2 of the pod: ")
	p = pod("shop", "web", "a;b", "a", "b")
	p.Annotations[splitpod.CompanionsAnnotation] = "[]"
	w.wantRefused(p, "for the controller of split pods only")
	w.t.Log("a LimitRange for pods counts each fraction")
	least := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "least"}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{
		{Type: corev1.LimitTypePod, Min: corev1.ResourceList{"cpu": resource.MustParse("150m")}},
	}}}
	try := func() string {
		return fmt.Sprint(w.Create(w.t.Context(), pod("shop", "web", "a;b", "a", "b"), client.DryRunAll))
	}
	w.create(least)
	w.eventually("a fraction is too small", func() (err error) {
		if got := try(); !strings.Contains(got, "fraction 2 of the pod: ") || !strings.Contains(got, "minimum cpu usage per Pod is 150m, but request is 100m") {
			err = errors.New(got)
		}
		return err
	})
	w.check(w.Create(w.t.Context(), pod("shop", "whole", "", "a", "b"), client.DryRunAll))
	w.check(w.Delete(w.t.Context(), least))
	w.eventually("nothing limits fractions", func() (err error) {
		if got := try(); got != "<nil>" {
			err = errors.New(got)
		}
		return err
	})
	w.end()
}

// Who may change pods cannot have the controller make others.
func (w *world) immutable() {
	whole := pod("shop", "whole", "", "a")
	w.create(whole)
	web := pod("shop", "web", "a;b", "a", "b")
	manifest := web.DeepCopy()
	w.create(web)
	w.running("web", "web-f1")
	w.t.Log("the user applies the manifest again: its second container is not in the pod")
	if err := w.Patch(w.t.Context(), manifest, client.StrategicMergeFrom(web)); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "may not add or remove containers") {
		w.t.Errorf("apply the manifest again: %v, want a refusal", err)
	}
	forged := pod("shop", "web-f2", "", "a")
	forged.Labels, forged.Annotations = map[string]string{"unnest.io/split-pod": "x", "unnest.io/fraction": "2"}, map[string]string{"unnest.io/segment": "x"}
	if err := w.Create(w.t.Context(), forged); err == nil || !strings.Contains(err.Error(), "unnest-split-new") {
		w.t.Errorf("create a pod that looks like a fraction: %v, want a refusal", err)
	}
	forged = pod("shop", "forged", "", "a")
	forged.Annotations[splitpod.CompanionsAnnotation] = "[]"
	w.wantRefused(forged, "'unnest-split-new'")
	for _, m := range []metav1.ObjectMeta{{Annotations: forged.Annotations}, {Labels: map[string]string{splitpod.PodLabel: "x"}}} {
		m.Namespace, m.Name = "shop", "whole"
		b := &corev1.Binding{ObjectMeta: m, Target: corev1.ObjectReference{Kind: "Node", Name: "a1"}}
		w.wantRefused(b, "a binding must not write")
		if err := w.SubResource("binding").Create(w.t.Context(), whole, b); err == nil || !strings.Contains(err.Error(), "a binding must not write") {
			w.t.Errorf("bind a pod with %v %v: %v, want a refusal", m.Annotations, m.Labels, err)
		}
	}
	for _, tt := range []struct{ name, metadata string }{
		{"whole", `{"annotations": {"unnest.io/split": "a", "unnest.io/companions": "[]"}}`},
		{"whole", `{"annotations": {"unnest.io/companions": "[]"}}`},
		{"whole", `{"labels": {"unnest.io/split-pod": "x"}}`},
		{"web", `{"annotations": {"unnest.io/companions": "[]"}}`},
		{"web", `{"annotations": {"unnest.io/split": null}}`},
		{"web", `{"annotations": {"unnest.io/segment-key": "0123456789abcdef"}}`},
		{"web-f1", `{"annotations": {"unnest.io/pod-labels": "{}"}}`},
		{"web-f1", `{"annotations": {"unnest.io/segment": "x"}}`},
	} {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: tt.name}}
		err := w.Patch(w.t.Context(), p, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":`+tt.metadata+`}`)))
		if err == nil || !strings.Contains(err.Error(), "unnest-split") {
			w.t.Errorf("%s of %s: %v, want a refusal", tt.metadata, tt.name, err)
		}
		err = w.Status().Patch(w.t.Context(), p, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":`+tt.metadata+`}`)))
		if err == nil || !strings.Contains(err.Error(), "unnest-split") {
			w.t.Errorf("%s of %s by its status: %v, want a refusal", tt.metadata, tt.name, err)
		}
	}
	whole = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "whole"}}
	w.check(w.Patch(w.t.Context(), whole, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations": {"other": "x"}}}`))))
	w.check(w.DeleteAllOf(w.t.Context(), &corev1.Pod{}, client.InNamespace("shop"), client.GracePeriodSeconds(0)))
	w.end()
}

// fill leaves little room on a node, by the pod full.
func (w *world) fill(node string) *corev1.Pod {
	full := pod("shop", "full", "", "a")
	full.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("7")
	full.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	w.create(full)
	w.running("full")
	return full
}

// A pod whose fractions fit nowhere starts in no part, and starts when there is room.
func (w *world) noRoom() {
	full := w.fill("b1")
	p := pod("shop", "web", "a;b", "a", "b")
	p.Spec.PriorityClassName = "system-cluster-critical"
	for i := range p.Spec.Containers {
		p.Spec.Containers[i].Resources.Requests["cpu"] = resource.MustParse("2")
	}
	w.create(p)
	w.waits(p, "host b: 1 of 2 fit")
	w.t.Log("neither the scheduler nor an autoscaler of nodes makes room for it")
	if full, err := w.get("full"); err != nil || full.DeletionTimestamp != nil {
		w.t.Errorf("a pod of lower priority is deleted: %v", err)
	}
	if waiting, err := w.get("web"); err != nil || len(waiting.Status.Conditions) != 1 || waiting.Status.Conditions[0].Reason != corev1.PodReasonSchedulingGated {
		w.t.Errorf("the pod has the conditions %v, want the gate's only (%v)", waiting.Status.Conditions, err)
	}
	if _, err := w.get("web-f1"); client.IgnoreNotFound(err) != nil || err == nil {
		w.t.Errorf("a companion exists, though there is no room: %v", err)
	}
	w.check(w.Delete(w.t.Context(), full, client.GracePeriodSeconds(0)))
	w.running("web", "web-f1")
	w.check(w.Delete(w.t.Context(), p, client.GracePeriodSeconds(0)))
	w.end()
}

// The large fraction gets the only node that has room for it, though the scheduler places the small one before, and would rather have it there.
func (w *world) exact() {
	w.fill("b2")
	p := pod("shop", "web", "a;b", "a", "b")
	p.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("7500m")
	p.Spec.Containers[1].Resources.Requests["cpu"] = resource.MustParse("1")
	w.create(p)
	if c := w.running("web", "web-f1")[1]; c.Spec.NodeName != "b2" {
		w.t.Errorf("the companion is on %s", c.Spec.NodeName)
	}
	w.check(w.DeleteAllOf(w.t.Context(), &corev1.Pod{}, client.InNamespace("shop"), client.GracePeriodSeconds(0)))
	w.end()
}

// Of two pods whose first fractions use a quota up, one gives its part of that back, and the other runs.
func (w *world) quota() {
	q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "q"}, Spec: corev1.ResourceQuotaSpec{
		Hard: corev1.ResourceList{corev1.ResourceRequestsCPU: resource.MustParse("200m")},
	}}
	w.create(q)
	w.eventually("the quota counts", func() error {
		err := w.Get(w.t.Context(), client.ObjectKeyFromObject(q), q)
		if err == nil && q.Status.Hard == nil {
			err = errors.New("it does not")
		}
		return err
	})
	d := replicas("d", 2)
	d.Spec.Template.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "other"}} // which the controller waits for
	w.create(d)
	var pods corev1.PodList
	w.eventually("both pods exist", func() error {
		err := w.List(w.t.Context(), &pods, client.InNamespace("shop"))
		if len(pods.Items) != 2 {
			err = errors.Join(err, fmt.Errorf("%d pods", len(pods.Items)))
		}
		return err
	})
	for i := range pods.Items {
		pods.Items[i].Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: splitpod.Gate}}
		w.check(w.Update(w.t.Context(), &pods.Items[i]))
	}
	w.eventually("a pod runs", func() error {
		var all corev1.PodList
		err := w.List(w.t.Context(), &all, client.InNamespace("shop"))
		for i := range all.Items {
			if all.Items[i].Spec.NodeName == "" {
				err = errors.Join(err, fmt.Errorf("%s has no node", all.Items[i].Name))
			}
		}
		if len(all.Items) != 2 {
			err = errors.Join(err, fmt.Errorf("%d pods, want one with its companion", len(all.Items)))
		}
		return err
	})
	w.check(w.Delete(w.t.Context(), d, client.PropagationPolicy(metav1.DeletePropagationBackground)))
	w.check(w.Delete(w.t.Context(), q))
	w.end()
}

// replicas returns a Deployment of pods with two fractions.
func replicas(name string, count int32) *appsv1.Deployment {
	template := pod("", "", "a;b", "a", "b")
	template.Labels = map[string]string{"app": name}
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: appsv1.DeploymentSpec{
		Replicas: &count, Selector: &metav1.LabelSelector{MatchLabels: template.Labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: template.Labels, Annotations: template.Annotations}, Spec: template.Spec},
	}}
}

// While no controller runs, the garbage collector deletes companions after their pod. The next controller deletes a companion
// that has lost its owner.
func (w *world) orphan() {
	stop := w.controller(0)
	p, other := pod("shop", "web", "a;b", "a", "b"), pod("shop", "other", "a;b", "a", "b")
	w.create(p)
	w.create(other)
	w.running("web", "web-f1", "other", "other-f1")
	stop()
	w.check(w.Delete(w.t.Context(), other, client.GracePeriodSeconds(0)))
	w.deleted("other-f1") // by the garbage collector
	w.check(w.Delete(w.t.Context(), p, client.GracePeriodSeconds(0), client.PropagationPolicy(metav1.DeletePropagationOrphan)))
	w.eventually("the companion has no owner", func() error {
		c, err := w.get("web-f1")
		if err == nil && len(c.OwnerReferences) > 0 {
			err = errors.New("it has one")
		}
		return err
	})
	defer w.controller(0)()
	w.end()
}

// A Deployment counts a split pod once, and so do an autoscaler and a budget. Its deletion removes the whole pods.
func (w *world) deployment() {
	d := replicas("d", 2)
	w.create(d)
	w.replicas(d, 2)
	w.autoscaled(d)
	w.budget(d)
	w.check(w.Delete(w.t.Context(), d, client.PropagationPolicy(metav1.DeletePropagationBackground)))
	w.end()
}

// replicas makes all fractions ready, and waits until a Deployment has want pods with a companion each.
func (w *world) replicas(d *appsv1.Deployment, want int32) (all corev1.PodList) {
	w.t.Helper()
	w.eventually("each pod has its companion", func() error {
		all = corev1.PodList{}
		err := w.List(w.t.Context(), &all, client.InNamespace("shop"))
		count := map[string]int32{}
		for i := range all.Items {
			p := &all.Items[i]
			count[p.Labels["app"]]++
			if p.Spec.NodeName == "" {
				return fmt.Errorf("%s has no node", p.Name)
			}
			w.condition(p.Name, corev1.PodReady, corev1.ConditionTrue)
		}
		if count["d"] != want || count[""] != want {
			err = errors.Join(err, fmt.Errorf("pods by label: %v", count))
		}
		return err
	})
	w.eventually(fmt.Sprintf("%d replicas", want), func() error {
		err := w.Get(w.t.Context(), client.ObjectKeyFromObject(d), d)
		if err == nil && (d.Status.Replicas != want || d.Status.ReadyReplicas != want) {
			err = fmt.Errorf("status %+v", d.Status)
		}
		return err
	})
	return all
}

// autoscaled has companions use nine times the memory of the first fractions. The autoscaler sees only the first fractions, and scales the Deployment.
func (w *world) autoscaled(d *appsv1.Deployment) {
	var scale autoscalingv1.Scale
	w.check(w.SubResource("scale").Get(w.t.Context(), d, &scale))
	selector, err := labels.Parse(scale.Status.Selector)
	w.check(err)
	pods := w.replicas(d, 2)
	for i := range pods.Items {
		if l := pods.Items[i].Labels; selector.Matches(labels.Set(l)) != (l[splitpod.FractionLabel] == "0") {
			w.t.Errorf("the scale has the selector %s, a pod the labels %v", selector, l)
		}
	}
	object := func(version, kind, name string, content map[string]any) *unstructured.Unstructured {
		o := &unstructured.Unstructured{Object: content}
		o.SetAPIVersion(version)
		o.SetKind(kind)
		o.SetName(name)
		return o
	}
	metrics := object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "pods.metrics.k8s.io", map[string]any{"spec": map[string]any{
		"group": "metrics.k8s.io", "scope": "Namespaced", "names": map[string]any{"plural": "pods", "kind": "PodMetrics"},
		"versions": []any{map[string]any{"name": "v1beta1", "served": true, "storage": true, "schema": map[string]any{
			"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true},
		}}},
	}})
	metrics.SetAnnotations(map[string]string{"api-approved.kubernetes.io": "unapproved, in place of the metrics server"})
	w.create(metrics)
	for i := range pods.Items {
		p := &pods.Items[i]
		m := object("metrics.k8s.io/v1beta1", "PodMetrics", p.Name, map[string]any{
			"timestamp": time.Now().UTC().Format(time.RFC3339), "window": "10s", "containers": []any{map[string]any{
				"name": p.Spec.Containers[0].Name, "usage": map[string]any{"memory": map[bool]string{true: "100Mi", false: "900Mi"}[p.Labels["app"] == "d"]},
			}},
		})
		m.SetNamespace("shop")
		m.SetLabels(p.Labels)
		w.eventually("pods have metrics", func() error { return w.Create(w.t.Context(), m) })
	}
	average := resource.MustParse("100Mi")
	h := &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "d"}, Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
		ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "d"}, MaxReplicas: 3,
		Metrics: []autoscalingv2.MetricSpec{{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
			Name: corev1.ResourceMemory, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: &average},
		}}},
	}}
	w.create(h)
	w.eventually("the autoscaler has looked", func() error {
		err := w.Get(w.t.Context(), client.ObjectKeyFromObject(h), h)
		if err == nil && len(h.Status.CurrentMetrics) != 1 {
			err = fmt.Errorf("status %+v", h.Status)
		}
		return err
	})
	if got := h.Status.CurrentMetrics[0].Resource.Current.AverageValue; got == nil || got.Cmp(average) != 0 || h.Status.CurrentReplicas != 2 || h.Status.DesiredReplicas != 2 {
		w.t.Errorf("the autoscaler sees %v of each pod, and wants %d of %d replicas", got, h.Status.DesiredReplicas, h.Status.CurrentReplicas)
	}
	w.eventually("the autoscaler gets another aim", func() error {
		err := w.Get(w.t.Context(), client.ObjectKeyFromObject(h), h)
		h.Spec.Metrics[0].Resource.Target.AverageValue = new(resource.MustParse("70Mi"))
		return errors.Join(err, w.Update(w.t.Context(), h))
	})
	w.replicas(d, 3)
	w.check(w.Delete(w.t.Context(), h))
	w.check(w.Delete(w.t.Context(), metrics))
}

func (w *world) evict(name string) error {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
	return w.SubResource("eviction").Create(w.t.Context(), p, &policyv1.Eviction{})
}

// budget counts each of three pods once and protects them, but not their companions, whose loss ends their pod.
func (w *world) budget(d *appsv1.Deployment) {
	b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "d"}, Spec: policyv1.PodDisruptionBudgetSpec{Selector: d.Spec.Selector, MinAvailable: new(intstr.FromInt32(3))}}
	w.create(b)
	w.eventually("the budget counts the pods", func() error {
		err := w.Get(w.t.Context(), client.ObjectKeyFromObject(b), b)
		if s := b.Status; err == nil && (s.ExpectedPods != 3 || s.CurrentHealthy != 3 || s.DisruptionsAllowed != 0) {
			err = fmt.Errorf("status %+v", s)
		}
		return err
	})
	pods := w.replicas(d, 3).Items
	name := pods[slices.IndexFunc(pods, func(p corev1.Pod) bool { return p.Labels["app"] == "d" })].Name
	if err := w.evict(name); !apierrors.IsTooManyRequests(err) || !apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause) {
		w.t.Errorf("evict a pod: %v, want a refusal by the budget", err)
	}
	w.check(w.evict(name + "-f1"))
	w.deleted(name)
	w.check(w.Delete(w.t.Context(), b))
}

// With the span network three fractions are on nodes of two hosts, and get the addresses of all. Nobody else gives a
// pod the number of a segment.
func (w *world) network() {
	w.span = splitpod.SpanNetwork
	stop := w.controller(0)
	defer stop()
	w.eventually("the webhook answers", func() error {
		return w.Create(w.t.Context(), pod("shop", "web", "a;b;c", "a", "b", "c"), client.DryRunAll)
	})
	p := pod("shop", "web", "a;b;c", "a", "b", "c")
	w.create(p)
	w.waits(p, "no node has the label "+splitpod.HostLabel+"=network")
	w.wantGuarded("web")                              // it has no place yet
	for _, name := range []string{"a1", "b1", "b2"} { // as Unnest's DaemonSet does
		change := []byte(`{"metadata":{"labels":{"` + splitpod.HostLabel + `":"network"}}}`)
		w.check(w.Patch(w.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, client.RawPatch("application/merge-patch+json", change)))
	}
	w.running("web", "web-f1", "web-f2")
	for i, name := range []string{"web", "web-f1", "web-f2"} {
		w.eventually(name+" has its segment", func() error {
			f, err := w.get(name)
			if got := f.Annotations[splitpod.NetworkAnnotation]; err == nil && !strings.Contains(got, fmt.Sprintf(`"fraction":%d,"nodes":["10.0.0.`, i+1)) {
				err = fmt.Errorf("noted is %q", got)
			}
			return err
		})
	}
	forged := pod("shop", "forged", "", "a")
	forged.Annotations[splitpod.NetworkAnnotation] = "{}"
	w.wantRefused(forged, "unnest.io/segment-network is for the controller")
	change := []byte(`{"metadata":{"annotations":{"unnest.io/segment-network":"{}"}}}`)
	if err := w.Patch(w.t.Context(), p, client.RawPatch("application/merge-patch+json", change)); err == nil || !strings.Contains(err.Error(), "unnest.io/segment-network is for the controller") {
		w.t.Errorf("another segment for the pod: %v, want a refusal", err)
	}
	if err := w.Status().Patch(w.t.Context(), p, client.RawPatch("application/merge-patch+json", change)); err == nil || !strings.Contains(err.Error(), "unnest.io/segment-network is for the controller") {
		w.t.Errorf("another segment by the status: %v, want a refusal", err)
	}
	w.wantGuarded("web-f1")
	w.check(w.Delete(w.t.Context(), p, client.GracePeriodSeconds(0)))
	stop()
	w.encrypted = true
	defer w.controller(0)()
	w.networkInit()
	w.end()
}

// ephemeral gives a pod an ephemeral container with further fields in JSON. In the same request it tries to change an annotation.
func (w *world) ephemeral(name, container, fields string) error {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
	change := fmt.Appendf(nil, `{"metadata":{"annotations":{"unnest.io/companions":"[]"}},"spec":{"ephemeralContainers":[{"name":"%s","image":"none",%s}]}}`, container, fields)
	return w.SubResource("ephemeralcontainers").Patch(w.t.Context(), p, client.RawPatch(types.StrategicMergePatchType, change))
}

// wantGuarded checks which ephemeral containers the webhook refuses for a fraction with tunnels.
func (w *world) wantGuarded(name string) {
	w.t.Helper()
	for i, context := range []string{`{"capabilities":{"add":["CHOWN"]}}`, `{"capabilities":{"add":["net_admin"]}}`, `{"privileged":true}`} {
		err := w.ephemeral(name, fmt.Sprintf("debug-%d", i), `"securityContext":`+context)
		if refused := i > 0; refused != (err != nil) || refused && !strings.Contains(err.Error(), "an ephemeral container of a fraction") {
			w.t.Errorf("an ephemeral container of %s with %s: %v", name, context, err)
		}
	}
}

// debug gives the fractions on one host ephemeral containers, as kubectl debug does, and copies the first fraction.
func (w *world) debug() {
	w.create(pod("shop", "web", "a;b", "a", "b"))
	w.running("web", "web-f1")
	for name, containers := range map[string][2]string{"web": {"a", "b"}, "web-f1": {"b", "a"}} {
		w.check(w.ephemeral(name, "in-"+name, `"targetContainerName":"`+containers[0]+`","securityContext":{"privileged":true}`))
		if err := w.ephemeral(name, "other", `"targetContainerName":"`+containers[1]+`"`); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "targetContainerName: Not found") {
			w.t.Errorf("an ephemeral container of %s in the container of the other fraction: %v", name, err)
		}
		p, err := w.get(name)
		w.check(err)
		if len(p.Spec.EphemeralContainers) != 1 || p.Spec.EphemeralContainers[0].Name != "in-"+name || p.Annotations[splitpod.CompanionsAnnotation] == "[]" {
			w.t.Errorf("%s has %+v, and notes %v", name, p.Spec.EphemeralContainers, p.Annotations)
		}
	}
	first, err := w.get("web")
	w.check(err)
	c := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "copy"}, Spec: *first.Spec.DeepCopy()} // as --copy-to
	c.Spec.NodeName, c.Spec.EphemeralContainers = "", nil
	if w.check(w.Create(w.t.Context(), c.DeepCopy(), client.DryRunAll)); len(c.Spec.ReadinessGates) != 1 {
		w.t.Errorf("the copy has the readiness gates %v", c.Spec.ReadinessGates)
	}
	c.Annotations = first.Annotations // and --keep-annotations
	w.wantRefused(c, "it is for the controller of split pods only; remove it")
	w.check(w.Delete(w.t.Context(), first, client.GracePeriodSeconds(0)))
	w.end()
}

// networkInit has a pod with init containers: the companion has its segment when these have ended. The controller notes no addresses: a
// node that does not encrypt refuses that.
func (w *world) networkInit() {
	p := pod("shop", "init", "a;b", "a", "b")
	p.Spec.InitContainers = []corev1.Container{{Name: "i", Image: "none"}}
	w.create(p)
	noted := func(name string) (string, error) {
		f, err := w.get(name)
		return f.Annotations[splitpod.NetworkAnnotation], err
	}
	w.eventually("the first fraction has its segment", func() error {
		text, err := noted("init")
		if err == nil && text == "" {
			err = errors.New("nothing is noted")
		}
		return err
	})
	if f, err := w.get("init-f1"); err != nil || f.Spec.NodeName == "" || f.Annotations[splitpod.NetworkAnnotation] != "" {
		w.t.Errorf("before the init containers have ended, the companion has %v and the node %q: %v", f.Annotations, f.Spec.NodeName, err)
	}
	w.condition("init", corev1.PodInitialized, corev1.ConditionTrue)
	w.eventually("the companion has its segment", func() error {
		text, err := noted("init-f1")
		if err == nil && !strings.Contains(text, `"fraction":2,"nodes":null,"names":["`) {
			err = fmt.Errorf("noted is %q", text)
		}
		return err
	})
	w.check(w.Delete(w.t.Context(), p, client.GracePeriodSeconds(0)))
}

// A certificate that ends soon is replaced. The API server trusts the new one, and those that other
// processes serve.
func (w *world) rotate() {
	trusted := func() []byte {
		var c admissionregistrationv1.MutatingWebhookConfiguration
		w.check(w.Get(w.t.Context(), client.ObjectKey{Name: Name}, &c))
		return c.Webhooks[0].ClientConfig.CABundle
	}
	first := trusted()
	w.check(w.Delete(w.t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: Secret}}))
	for _, tt := range []struct {
		shift time.Duration
		host  string
		want  int
	}{{remaining - validity - time.Hour, "127.0.0.1", 2}, {0, "127.0.0.1", 3}, {0, "127.0.0.1", 3}, {0, "10.9.8.7", 4}, {0, "127.0.0.1", 4}, {0, "", 4}} { // two controllers with addresses of their own
		c := &certificates{client: w.Client, options: Options{Namespace: namespace, Host: tt.host}, now: func() time.Time { return time.Now().Add(tt.shift) }}
		w.check(c.ensure(w.t.Context()))
		if n := bytes.Count(trusted(), []byte("BEGIN")); n != tt.want || !bytes.HasPrefix(trusted(), first) {
			w.t.Errorf("%d certificates are trusted, want %d with the first one", n, tt.want)
		}
		if leaf := c.current.Load().Leaf; tt.host != "" && leaf.VerifyHostname(tt.host) != nil {
			w.t.Errorf("the certificate is for %v, want %s with them", leaf.IPAddresses, tt.host)
		}
	}
	p := pod("shop", "web", "a;b", "a", "b") // the webhook still serves the first one
	w.create(p)
	w.check(w.Delete(w.t.Context(), p, client.GracePeriodSeconds(0)))
	w.end()
}

// A node that has been taken over has its kubelet's credentials.
func (w *world) forgedHost() {
	config := rest.CopyConfig(w.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:node:a1", Groups: []string{"system:nodes", "system:authenticated"}}
	kubelet, err := client.New(config, client.Options{Scheme: w.Scheme()})
	w.check(err)
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a1"}}
	for label, refused := range map[string]bool{splitpod.HostLabel: true, "unnest.io/other": false} {
		err := kubelet.Patch(w.t.Context(), n, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"`+label+`":"b"}}}`)))
		if refused != (err != nil) {
			w.t.Errorf("a kubelet sets the label %s of its node: %v", label, err)
		}
	}
}

// Without webhook, pods without the annotation are created as ever.
func (w *world) down() {
	w.create(pod("shop", "whole", "", "a", "b"))
	w.running("whole")
	w.wantRefused(pod("shop", "web", "a;b", "a", "b"), `failed calling webhook "split.unnest.io"`)
	w.check(w.evict("whole"))
	w.check(w.DeleteAllOf(w.t.Context(), &corev1.Pod{}, client.InNamespace("shop"), client.GracePeriodSeconds(0)))
	w.end()
}

// The controller is killed after each of its changes of pods. The next one goes on: prepare, create,
// release both, not ready.
func (w *world) killed() {
	for changes := int32(1); changes <= 5; changes++ {
		stop := w.controller(changes)
		p := pod("shop", "web", "a;b", "a", "b")
		w.create(p)
		w.eventually("the controller does something", func() error {
			p, err := w.get("web")
			if err == nil && p.Labels[splitpod.PodLabel] == "" {
				err = errors.New("it does not")
			}
			return err
		})
		stop()
		stop = w.controller(0)
		w.running("web", "web-f1")
		w.wantReady("web", corev1.ConditionFalse)
		w.check(w.Delete(w.t.Context(), p, client.GracePeriodSeconds(0)))
		w.end()
		stop()
	}
}
