// Package pods measures between the pods of an existing Kubernetes cluster: it makes pods on the
// chosen nodes, runs servers and clients in them, and removes everything again. It needs the
// rights to create pods in one namespace, and to run commands in them.
//
// Package experiment decides which case runs when. The servers and clients are those of package
// load. How a cluster of our own comes up belongs to the testbed.
package pods

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"unnest.io/unnest/internal/measure/experiment"
	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/stack"
	"unnest.io/unnest/internal/measure/workload"
)

// serverLimit is how long a server may take to start or to end.
const serverLimit = 2 * time.Minute

// Options say where an experiment comes up in a cluster.
type Options struct {
	Namespace string // empty: a new one
	Image     string
	Wait      time.Duration // for all pods to run
	Progress  experiment.Progress
}

// Facts are what a run records about the cluster.
type Facts struct {
	Nodes []result.Machine
	Tools map[string]string // tool -> version
	Notes []string
}

// Set holds the pods of an experiment that is up in a cluster. It implements experiment.Bench and
// experiment.Renewer.
type Set struct {
	cluster       *Cluster
	spec          *experiment.Spec
	options       Options
	plan          plan
	facts         Facts
	madeNamespace bool
	made          []string // names of pods
	stopLease     context.CancelFunc
	services      map[string]string // name -> address
	addresses     map[string]string // of pods
	servers       map[string]*server
	broken        map[string]error // pods that cannot be used, until Renew
}

// Up makes the pods of spec, which has pairs of nodes, and starts the servers. When a step fails, or
// ctx ends, it removes everything again.
func Up(ctx context.Context, c *Cluster, spec *experiment.Spec, o Options) (_ *Set, err error) {
	run := "unnest-" + strings.ToLower(rand.Text()[:8])
	roles := rolesOf(spec)
	b := &Set{
		cluster: c, spec: spec, options: o,
		facts:    Facts{Tools: map[string]string{"kubernetes": c.Version}},
		services: map[string]string{}, addresses: map[string]string{}, servers: map[string]*server{}, broken: map[string]error{},
	}
	namespace := cmp.Or(o.Namespace, run)
	b.plan = newPlan(run, namespace, o.Image, time.Hour+3*spec.Estimate(), roles)
	leased, stop := context.WithCancel(context.WithoutCancel(ctx))
	b.stopLease = stop
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Down())
		}
	}()
	o.Progress.Phase(fmt.Sprintf("start %d pods in namespace %s", len(roles), namespace))
	c.sweep(ctx)
	if o.Namespace == "" {
		if err := c.namespaces.create(ctx, "", b.plan.namespaceObject()); err != nil {
			return nil, allowed(err, "create namespace "+namespace, "name one in which you may create pods by --namespace")
		}
		b.madeNamespace = true
	}
	if err := b.takeLease(leased); err != nil {
		return nil, err
	}
	if err := b.makePods(ctx, roles); err != nil {
		return nil, err
	}
	if err := b.makeServices(ctx); err != nil {
		return nil, err
	}
	o.Progress.Phase("start the servers")
	if err := b.startServers(ctx); err != nil {
		return nil, err
	}
	return b, b.describe(ctx)
}

// Facts returns where and with what the experiment runs.
func (b *Set) Facts() Facts { return b.facts }

// rolesOf lists the pods that the configurations need on the pairs' nodes.
func rolesOf(spec *experiment.Spec) (roles []role) {
	add := func(r role) {
		if !slices.Contains(roles, r) {
			roles = append(roles, r)
		}
	}
	for _, c := range spec.Configurations {
		for _, p := range spec.Pairs {
			add(role{networkOf(c), clientSide, p.Client})
			add(role{networkOf(c), serverSide, p.Server})
		}
	}
	return roles
}

// networkOf is the network of the pods of a configuration. A Service leads to those of PodNetwork.
func networkOf(c stack.Configuration) stack.Network {
	if c.Network == stack.Service {
		return stack.PodNetwork
	}
	return c.Network
}

// makePods makes pods and waits until they run.
func (b *Set) makePods(ctx context.Context, roles []role) error {
	var names []string
	for _, r := range roles {
		pod := b.plan.pod(r)
		if err := b.cluster.pods.create(ctx, b.plan.namespace, pod); err != nil {
			fix := "ask for the rights in docs/bench-cluster.md"
			if r.network == stack.HostNetwork {
				fix = "if the namespace forbids pods on the network of their node, give --leave-out node, or a namespace with the label pod-security.kubernetes.io/enforce=privileged; else " + fix
			}
			return allowed(err, "create pod "+pod.Name, fix)
		}
		names = append(names, pod.Name)
		b.made = append(b.made, pod.Name)
	}
	return b.awaitPods(ctx, names)
}

// list returns the pods of the run by name.
func (b *Set) list(ctx context.Context) (map[string]*corev1.Pod, error) {
	var list corev1.PodList
	if err := b.cluster.pods.list(ctx, b.plan.namespace, metav1.ListOptions{LabelSelector: runLabel + "=" + b.plan.run}, &list); err != nil {
		return nil, allowed(err, "list pods", "ask for the rights in docs/bench-cluster.md")
	}
	pods := map[string]*corev1.Pod{}
	for i := range list.Items {
		pods[list.Items[i].Name] = &list.Items[i]
	}
	return pods, nil
}

// awaitPods waits until pods run, and notes their addresses.
func (b *Set) awaitPods(ctx context.Context, names []string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, b.options.Wait, fmt.Errorf("not within %v", b.options.Wait))
	defer cancel()
	for {
		pods, err := b.list(ctx)
		if err != nil && ctx.Err() == nil {
			return err
		}
		var missing *corev1.Pod
		for _, name := range names {
			switch p := pods[name]; {
			case p == nil:
				missing = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}}
			case ready(p):
				b.addresses[name] = p.Status.PodIP
			default:
				missing = p
				if err := hopeless(p); err != nil {
					return err
				}
			}
		}
		if missing == nil {
			return nil
		}
		if err := pause(ctx); err != nil {
			return fmt.Errorf("start pod %s on %s: %w: %s%s", missing.Name, nodeOf(missing), err, waits(missing), b.lastWarning(missing.Name))
		}
	}
}

// lastWarning is the latest warning about a pod, if the user may see events.
func (b *Set) lastWarning(pod string) string {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var events corev1.EventList
	err := b.cluster.events.list(ctx, b.plan.namespace, metav1.ListOptions{FieldSelector: "type=Warning,involvedObject.name=" + pod}, &events)
	if err != nil || len(events.Items) == 0 {
		return ""
	}
	last := slices.MaxFunc(events.Items, func(a, b corev1.Event) int { return a.LastTimestamp.Compare(b.LastTimestamp.Time) })
	return "; " + inLine(last.Reason+" "+last.Message)
}

// makeServices makes a Service for each server of the configurations that have one.
func (b *Set) makeServices(ctx context.Context) error {
	if !slices.ContainsFunc(b.spec.Configurations, func(c stack.Configuration) bool { return c.Network == stack.Service }) {
		return nil
	}
	for r, name := range b.plan.names {
		if r.network != stack.PodNetwork || r.side != serverSide {
			continue
		}
		s := b.plan.service(r)
		if err := b.cluster.services.create(ctx, b.plan.namespace, s); err != nil {
			return allowed(err, "create service "+name, "ask for the right, or give --leave-out service")
		}
		b.services[name] = s.Spec.ClusterIP
	}
	return nil
}

// describe records the nodes and the image.
func (b *Set) describe(ctx context.Context) error {
	pods, err := b.list(ctx)
	if err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, r := range rolesOf(b.spec) {
		name := b.plan.names[r]
		if seen[r.node] {
			continue
		}
		seen[r.node] = true
		out, err := b.output(ctx, name, workload.Generator, "describe")
		if err != nil {
			return fmt.Errorf("describe node %s: %w", r.node, err)
		}
		m, err := machineOf(r.node, out)
		if err != nil {
			return err
		}
		b.facts.Nodes = append(b.facts.Nodes, m)
		if p := pods[name]; p != nil {
			b.facts.Tools["image "+b.plan.image] = p.Status.ContainerStatuses[0].ImageID
		}
	}
	return nil
}

// machineOf reads the description of a node, which does not know its name in the cluster.
func machineOf(node string, printed []byte) (m result.Machine, _ error) {
	if err := json.Unmarshal(printed, &m); err != nil {
		return m, fmt.Errorf("describe node %s: %w", node, err)
	}
	m.Name = node
	return m, nil
}
