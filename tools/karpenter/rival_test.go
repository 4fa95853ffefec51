package karpenter

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpenter "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/cloudprovider/fake"
	"sigs.k8s.io/karpenter/pkg/controllers/disruption"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/options"
	requirements "sigs.k8s.io/karpenter/pkg/scheduling"
	"sigs.k8s.io/karpenter/pkg/test"
)

// rival is a pool of a cluster as Karpenter manages it: one NodePool, with the instance types that
// unnest plan may buy for the pool.
type rival struct {
	objects
	provider *fake.CloudProvider
	prices   map[string]float64 // $/h
	nodes    map[string]*v1.Node
	claims   map[string]*karpenter.NodeClaim // by the name of their nodes
	zone     string
	bought   int // nodes
	evicted  int // pods
	cut      bool
}

// newRival returns a pool with its nodes and pods of today. Pods that request what no model has are
// left out, as in the plan.
func newRival(c cluster, p pool, models []model) *rival {
	r := &rival{provider: fake.NewCloudProvider(), prices: map[string]float64{}, nodes: map[string]*v1.Node{}, claims: map[string]*karpenter.NodeClaim{}, zone: p.Zone}
	r.single = map[client.ObjectKey][]client.Object{}
	onDemand := map[string]string{karpenter.CapacityTypeLabelKey: karpenter.CapacityTypeOnDemand, v1.LabelTopologyZone: p.Zone}
	for _, m := range models {
		instance := fake.NewInstanceType(m.Name, fake.WithResources(m.resources()), fake.WithOperatingSystems("linux"),
			fake.WithOfferings(cloudprovider.Offering{Available: true, Price: m.Price, Requirements: requirements.NewLabelRequirements(onDemand)}))
		instance.Overhead = &cloudprovider.InstanceTypeOverhead{} // the plan's models are without it
		r.provider.InstanceTypes = append(r.provider.InstanceTypes, instance)
		r.prices[m.Name] = m.Price
	}
	nodes := c.in(p)
	r.nodePool(p, nodes)
	for name, n := range nodes {
		r.node(name, n.Labels[v1.LabelInstanceTypeStable], n.Status.Allocatable)
	}
	daemons := map[string]bool{}
	for _, pod := range c.pods {
		owner := pod.OwnerReferences[0]
		switch {
		case owner.Kind == "DaemonSet" && !daemons[owner.Name]:
			daemons[owner.Name] = true
			r.daemons = append(r.daemons, daemonSet(owner.Name, pod))
		case owner.Kind != "DaemonSet" && nodes[pod.Spec.NodeName] != nil:
			r.pods = append(r.pods, inItsZone(pod))
		}
	}
	for _, volume := range c.volumes {
		r.put(volume)
		r.put(claimOf(volume))
	}
	for _, pod := range r.pods {
		namespace := &v1.Namespace{ObjectMeta: meta.ObjectMeta{Name: pod.Namespace}}
		if len(r.single[client.ObjectKeyFromObject(namespace)]) == 0 {
			r.put(namespace)
		}
	}
	r.index()
	return r
}

func (m model) resources() v1.ResourceList {
	return v1.ResourceList{v1.ResourceCPU: *resource.NewMilliQuantity(int64(math.Round(m.VCPU*1e3)), resource.DecimalSI),
		v1.ResourceMemory: *resource.NewQuantity(int64(m.GiB*(1<<30)), resource.BinarySI), v1.ResourcePods: *resource.NewQuantity(int64(m.Pods), resource.DecimalSI)}
}

// nodePool makes the NodePool of a pool: it consolidates at once, and without a limit.
func (r *rival) nodePool(p pool, nodes map[string]*v1.Node) {
	np := karpenter.NodePool{ObjectMeta: meta.ObjectMeta{Name: "pool"}}
	np.Spec.Limits = karpenter.Limits{}
	np.Spec.Disruption = karpenter.Disruption{ConsolidationPolicy: karpenter.ConsolidationPolicyWhenEmptyOrUnderutilized, ConsolidateAfter: karpenter.MustParseNillableDuration("0s")}
	np.Spec.Template.Labels = p.Labels
	for _, n := range nodes {
		np.Spec.Template.Spec.Taints = n.Spec.Taints
	}
	for key, value := range map[string]string{v1.LabelTopologyZone: p.Zone, karpenter.CapacityTypeLabelKey: karpenter.CapacityTypeOnDemand} {
		np.Spec.Template.Spec.Requirements = append(np.Spec.Template.Spec.Requirements,
			karpenter.NodeSelectorRequirementWithMinValues{Key: key, Operator: v1.NodeSelectorOpIn, Values: []string{value}})
	}
	r.pool = test.NodePool(np)
	r.put(r.pool)
}

// node adds a node of a model, with its claim.
func (r *rival) node(name, of string, allocatable v1.ResourceList) {
	labels := map[string]string{karpenter.NodePoolLabelKey: r.pool.Name, karpenter.CapacityTypeLabelKey: karpenter.CapacityTypeOnDemand, karpenter.NodeRegisteredLabelKey: "true",
		karpenter.NodeInitializedLabelKey: "true", v1.LabelHostname: name, v1.LabelInstanceTypeStable: of, v1.LabelTopologyZone: r.zone, v1.LabelArchStable: "amd64", v1.LabelOSStable: "linux"}
	maps.Copy(labels, r.pool.Spec.Template.Labels)
	status := v1.NodeStatus{Capacity: allocatable, Allocatable: allocatable, Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}}
	n := &v1.Node{ObjectMeta: meta.ObjectMeta{Name: name, Labels: labels}, Spec: v1.NodeSpec{ProviderID: "fake:///" + name, Taints: r.pool.Spec.Template.Spec.Taints}, Status: status}
	claim := test.NodeClaim(karpenter.NodeClaim{ObjectMeta: meta.ObjectMeta{Name: name, Labels: labels},
		Status: karpenter.NodeClaimStatus{ProviderID: n.Spec.ProviderID, NodeName: name, Capacity: allocatable, Allocatable: allocatable}})
	for _, condition := range []string{karpenter.ConditionTypeLaunched, karpenter.ConditionTypeRegistered, karpenter.ConditionTypeInitialized, karpenter.ConditionTypeConsolidatable} {
		claim.StatusConditions().SetTrue(condition)
	}
	r.nodes[name], r.claims[name] = n, claim
	r.put(n)
}

// daemonSet returns the DaemonSet of a pod, which runs on every node, as the plan counts it.
func daemonSet(name string, pod *v1.Pod) (d apps.DaemonSet) {
	d.Name, d.Namespace = name, pod.Namespace
	d.Spec.Template.Spec = *pod.Spec.DeepCopy()
	d.Spec.Template.Spec.NodeName = ""
	d.Spec.Template.Spec.Tolerations = []v1.Toleration{{Operator: v1.TolerationOpExists}}
	return d
}

// inItsZone returns a pod without spreads over zones: as in the plan, it stays in its pool, so it
// stays in its zone.
func inItsZone(pod *v1.Pod) *v1.Pod {
	pod = pod.DeepCopy()
	pod.Spec.TopologySpreadConstraints = slices.DeleteFunc(pod.Spec.TopologySpreadConstraints, func(c v1.TopologySpreadConstraint) bool { return c.TopologyKey == v1.LabelTopologyZone })
	return pod
}

// claimOf returns the claim that a volume is bound to.
func claimOf(volume *v1.PersistentVolume) *v1.PersistentVolumeClaim {
	ref := volume.Spec.ClaimRef
	return &v1.PersistentVolumeClaim{ObjectMeta: meta.ObjectMeta{Namespace: ref.Namespace, Name: ref.Name, Annotations: map[string]string{"pv.kubernetes.io/bind-completed": "yes"}},
		Spec: v1.PersistentVolumeClaimSpec{VolumeName: volume.Name}, Status: v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound}}
}

// cost returns what the nodes cost, $/h.
func (r *rival) cost() (sum float64) {
	for _, n := range r.nodes {
		sum += r.prices[n.Labels[v1.LabelInstanceTypeStable]]
	}
	return sum
}

// settings are Karpenter's defaults.
func settings() context.Context { return options.ToContext(context.Background(), test.Options()) }

// fresh replaces the nodes by those that Karpenter buys for the pods in an empty cluster.
func (r *rival) fresh() error {
	for name := range r.nodes {
		r.remove(name)
	}
	var pods []*v1.Pod
	for _, p := range r.pods {
		p.Spec.NodeName, p.Status = "", v1.PodStatus{Phase: v1.PodPending}
		pods = append(pods, p)
	}
	r.index()
	ctx := settings()
	s := state.NewCluster(clock.RealClock{}, r, r.provider)
	scheduler, err := provisioning.NewProvisioner(r, silent{}, r.provider, s, clock.RealClock{}, nil).NewScheduler(ctx, pods, nil, sets.New[types.UID]())
	if err != nil {
		return err
	}
	results, err := scheduler.Solve(ctx, pods)
	if err != nil {
		return err
	}
	return r.follow(results)
}

// follow buys the new nodes of a result, each the cheapest that it may be, and binds the pods.
func (r *rival) follow(results scheduling.Results) error {
	for pod, err := range results.PodErrors {
		return fmt.Errorf("pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	to := map[client.ObjectKey]string{}
	for _, n := range results.ExistingNodes {
		for _, pod := range n.Pods {
			to[client.ObjectKeyFromObject(pod)] = n.Node.Name
		}
	}
	for _, claim := range results.NewNodeClaims {
		cheapest := claim.InstanceTypeOptions.OrderByPrice(claim.Requirements)[0]
		name := fmt.Sprintf("new-%d", r.bought)
		r.bought++
		r.node(name, cheapest.Name, cheapest.Allocatable())
		for _, pod := range claim.Pods {
			to[client.ObjectKeyFromObject(pod)] = name
		}
	}
	for _, p := range r.pods {
		if node, ok := to[client.ObjectKeyFromObject(p)]; ok {
			if p.Spec.NodeName != "" {
				r.evicted++
			}
			p.Spec.NodeName, p.Status = node, v1.PodStatus{Phase: v1.PodRunning}
		}
		if r.nodes[p.Spec.NodeName] == nil {
			return fmt.Errorf("pod %s/%s has no node", p.Namespace, p.Name)
		}
	}
	r.index()
	return nil
}

func (r *rival) remove(name string) {
	key := client.ObjectKey{Name: name}
	r.single[key] = slices.DeleteFunc(r.single[key], func(o client.Object) bool { _, is := o.(*v1.Node); return is })
	delete(r.nodes, name)
	delete(r.claims, name)
}

// consolidate lets Karpenter remove and replace nodes until it finds nothing more, or the time is
// over, which cut says.
func (r *rival) consolidate(most time.Duration) error {
	for end := time.Now().Add(most); ; {
		done, err := r.disrupt()
		if err != nil || done {
			return err
		}
		if time.Now().After(end) {
			r.cut = true
			return nil
		}
	}
}

// disrupt does what Karpenter's controller of disruptions does at once: the first method that finds
// something to do. It returns whether none did.
func (r *rival) disrupt() (done bool, err error) {
	ctx := settings()
	s := state.NewCluster(clock.RealClock{}, r, r.provider)
	for name, n := range r.nodes {
		s.UpdateNodeClaim(r.claims[name])
		if err := s.UpdateNode(ctx, n); err != nil {
			return false, err
		}
	}
	for _, p := range r.pods {
		if err := s.UpdatePod(ctx, p); err != nil {
			return false, err
		}
	}
	provisioner := provisioning.NewProvisioner(r, silent{}, r.provider, s, clock.RealClock{}, nil)
	queue := disruption.NewQueue(r, silent{}, s, clock.RealClock{}, provisioner)
	c := disruption.MakeConsolidation(clock.RealClock{}, s, r, provisioner, r.provider, silent{}, queue)
	valid := disruption.WithValidator(atOnce{})
	for _, method := range []disruption.Method{disruption.NewEmptiness(c, valid), disruption.NewMultiNodeConsolidation(c, valid), disruption.NewSingleNodeConsolidation(c, valid)} {
		candidates, err := disruption.GetCandidates(ctx, s, r, silent{}, clock.RealClock{}, r.provider, method.ShouldDisrupt, method.Class(), queue)
		if err != nil {
			return false, err
		}
		if len(candidates) == 0 {
			continue
		}
		commands, err := method.ComputeCommands(ctx, map[string]int{r.pool.Name: len(r.nodes)}, candidates...)
		if err != nil {
			return false, err
		}
		for _, command := range commands {
			if command.Decision() == disruption.NoOpDecision {
				continue
			}
			for _, candidate := range command.Candidates {
				r.remove(candidate.Name())
			}
			return false, r.follow(command.Results)
		}
	}
	return true, nil
}

// silent records no events.
type silent struct{}

func (silent) Publish(...events.Event) {}

// atOnce accepts commands without the delay of 15 seconds in which a cluster may change.
type atOnce struct{}

func (atOnce) Validate(_ context.Context, c disruption.Command, _ time.Duration) (disruption.Command, error) {
	if len(c.Candidates) == 0 {
		return c, errors.New("a command without a node")
	}
	return c, nil
}
