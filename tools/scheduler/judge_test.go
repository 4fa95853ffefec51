package scheduler

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/volumebinding"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
)

// judge is kube-scheduler's default profile over nodes with pods.
type judge struct {
	scheduler framework.Framework
	nodes     []fwk.NodeInfo
	byName    map[string]*framework.NodeInfo
	stop      context.CancelFunc
}

// verdict is why the scheduler refuses a pod.
type verdict struct {
	Pod, Node, Plugin, Why string
}

func (v verdict) String() string {
	return fmt.Sprintf("%s: pod %s on %s: %s", v.Plugin, v.Pod, v.Node, v.Why)
}

// orderless is the plugin of verdicts on pods that no order of scheduling brings to their nodes.
const orderless = "order"

func init() { metrics.Register() }

// newJudge returns a judge of nodes without pods. The objects are what plugins look up, such as
// volumes. Close it after use.
func newJudge(nodes []*v1.Node, objects []runtime.Object) (*judge, error) {
	ctx, stop := context.WithCancel(klog.NewContext(context.Background(), klog.Logger{}))
	j := &judge{stop: stop}
	j.reset(nodes)
	client := fake.NewClientset(objects...)
	factory := informers.NewSharedInformerFactory(client, 0)
	configuration, err := latest.Default()
	if err != nil {
		return nil, err
	}
	profile := configuration.Profiles[0]
	// Pods with ResourceClaims are planned nowhere.
	profile.Plugins.MultiPoint.Enabled = slices.DeleteFunc(profile.Plugins.MultiPoint.Enabled, func(p config.Plugin) bool { return p.Name == "DynamicResources" })
	if j.scheduler, err = frameworkruntime.NewFramework(ctx, plugins.NewInTreeRegistry(), &profile, frameworkruntime.WithClientSet(client),
		frameworkruntime.WithInformerFactory(factory), frameworkruntime.WithSnapshotSharedLister(j)); err != nil {
		return nil, err
	}
	return j, j.look(ctx, factory, objects)
}

// look shows the objects to the plugins. Without volumes, no informer needs to start, which takes
// most of the time of a small cluster.
func (j *judge) look(ctx context.Context, factory informers.SharedInformerFactory, objects []runtime.Object) error {
	for _, o := range objects {
		var err error
		switch o := o.(type) {
		case *v1.Namespace:
			err = factory.Core().V1().Namespaces().Informer().GetIndexer().Add(o)
		case *storage.CSINode:
			err = factory.Storage().V1().CSINodes().Informer().GetIndexer().Add(o)
		case *v1.PersistentVolume, *v1.PersistentVolumeClaim, *storage.StorageClass:
			factory.Start(ctx.Done())
			for synced := false; !synced; time.Sleep(time.Millisecond) {
				synced = true
				for _, done := range factory.WaitForCacheSync(closed) {
					synced = synced && done
				}
			}
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// closed makes WaitForCacheSync look once.
var closed = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

func (j *judge) close() { j.stop() }

// reset replaces all nodes by others, without pods.
func (j *judge) reset(nodes []*v1.Node) {
	j.nodes, j.byName = nil, map[string]*framework.NodeInfo{}
	for _, n := range nodes {
		info := framework.NewNodeInfo()
		info.SetNode(n)
		j.byName[n.Name] = info
		j.nodes = append(j.nodes, info)
	}
}

// The lists of nodes that plugins ask for.

func (j *judge) NodeInfos() framework.NodeInfoLister       { return j }
func (j *judge) StorageInfos() framework.StorageInfoLister { return j }
func (j *judge) List() ([]fwk.NodeInfo, error)             { return j.nodes, nil }

func (j *judge) HavePodsWithAffinityList() ([]fwk.NodeInfo, error) {
	return j.having(func(n *framework.NodeInfo) int { return len(n.PodsWithAffinity) }), nil
}

func (j *judge) HavePodsWithRequiredAntiAffinityList() ([]fwk.NodeInfo, error) {
	return j.having(func(n *framework.NodeInfo) int { return len(n.PodsWithRequiredAntiAffinity) }), nil
}

func (j *judge) having(pods func(*framework.NodeInfo) int) (all []fwk.NodeInfo) {
	for _, n := range j.nodes {
		if pods(n.(*framework.NodeInfo)) > 0 {
			all = append(all, n)
		}
	}
	return all
}

func (j *judge) Get(name string) (fwk.NodeInfo, error) {
	if n := j.byName[name]; n != nil {
		return n, nil
	}
	return nil, fmt.Errorf("no node %s", name)
}

func (j *judge) IsPVCUsedByPods(key string) bool {
	for _, n := range j.byName {
		if n.PVCRefCounts[key] > 0 {
			return true
		}
	}
	return false
}

// refuses returns why the pod cannot be scheduled to its node next to the pods there are; nil if it
// can.
func (j *judge) refuses(pod *v1.Pod) *verdict {
	bare := pod.DeepCopy()
	bare.Spec.NodeName = ""
	v := &verdict{Pod: pod.Namespace + "/" + pod.Name, Node: pod.Spec.NodeName}
	ctx := context.Background()
	node := j.byName[pod.Spec.NodeName]
	var status *fwk.Status
	for wait := time.Millisecond; ; wait *= 2 {
		state := framework.NewCycleState()
		var only *framework.PreFilterResult
		if only, status, _ = j.scheduler.RunPreFilterPlugins(ctx, state, bare); status.IsSuccess() {
			if only != nil && !only.AllNodes() && !only.NodeNames.Has(pod.Spec.NodeName) {
				v.Plugin, v.Why = "PreFilter", fmt.Sprintf("only %v", only.NodeNames.UnsortedList())
				return v
			}
			status = j.scheduler.RunFilterPlugins(ctx, state, bare, node)
		}
		if status.IsSuccess() {
			return nil
		}
		// Plugins of volumes learn of objects from informers, so they may not have seen all yet.
		unseen := status.Code() == fwk.Error || strings.Contains(status.Message(), string(volumebinding.ErrReasonPVNotExist))
		if !unseen || wait > time.Second {
			break
		}
		time.Sleep(wait)
	}
	v.Plugin, v.Why = status.Plugin(), status.Message()
	if status.AsError() != nil && v.Plugin == "" {
		v.Plugin = "error"
	}
	return v
}

// refusals judges pods on their nodes: first each one with all others in place, and then whether
// some order of scheduling leads there. Fixed pods are there from the beginning. Fractions of a pod
// are judged without each other, because the pod's rules do not divide it.
func (j *judge) refusals(fixed, pods []*v1.Pod) (all []verdict) {
	for _, p := range slices.Concat(fixed, pods) {
		j.byName[p.Spec.NodeName].AddPod(p)
	}
	fractions, placed := map[string][]*v1.Pod{}, map[*v1.Pod]bool{}
	for _, p := range pods {
		fractions[wholePod(p)], placed[p] = append(fractions[wholePod(p)], p), true
	}
	alone := func(p *v1.Pod) *verdict {
		for _, f := range fractions[wholePod(p)] {
			if placed[f] {
				j.remove(f)
				defer j.byName[f.Spec.NodeName].AddPod(f)
			}
		}
		return j.refuses(p)
	}
	for _, p := range pods {
		if v := alone(p); v != nil {
			all = append(all, *v)
		}
	}
	if len(all) > 0 {
		return all
	}
	for _, p := range pods {
		j.remove(p)
		placed[p] = false
	}
	left := slices.Clone(pods)
	for len(left) > 0 {
		var stuck []*v1.Pod
		all = nil
		for _, p := range left {
			v := alone(p)
			if v == nil {
				j.byName[p.Spec.NodeName].AddPod(p)
				placed[p] = true
				continue
			}
			stuck = append(stuck, p)
			all = append(all, verdict{v.Pod, v.Node, orderless, v.Plugin + ": " + v.Why})
		}
		if len(stuck) == len(left) {
			return all
		}
		left = stuck
	}
	return nil
}

// remove takes a pod off its node.
func (j *judge) remove(p *v1.Pod) {
	if err := j.byName[p.Spec.NodeName].RemovePod(klog.Logger{}, p); err != nil {
		panic(err) // it was added
	}
}
