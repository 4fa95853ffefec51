package scheduler

import (
	"fmt"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// example is a small cluster whose plan must be legal, and not claim more than is true.
type example struct {
	name    string
	objects []runtime.Object
	legal   float64 // $/h that a legal plan costs; 0: not stated
}

// hostPort publishes a port of the node.
func hostPort(port int32) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Spec.Containers[0].Ports = []v1.ContainerPort{{ContainerPort: port, HostPort: port}}
	}
}

// ssd is the CSI driver of the examples' volumes.
const ssd = "ebs.csi.aws.com"

// newVolume returns a bound claim of the namespace shop with its volume.
func newVolume(claim string) (*v1.PersistentVolumeClaim, *v1.PersistentVolume) {
	size := v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}
	modes := []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}
	return &v1.PersistentVolumeClaim{ObjectMeta: meta.ObjectMeta{Name: claim, Namespace: "shop", UID: "shop", Annotations: map[string]string{"pv.kubernetes.io/bind-completed": "yes"}},
			Spec:   v1.PersistentVolumeClaimSpec{VolumeName: "pv-" + claim, AccessModes: modes, StorageClassName: new(""), Resources: v1.VolumeResourceRequirements{Requests: size}},
			Status: v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound}},
		&v1.PersistentVolume{ObjectMeta: meta.ObjectMeta{Name: "pv-" + claim},
			Spec: v1.PersistentVolumeSpec{Capacity: size, AccessModes: modes, ClaimRef: &v1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: "shop", Name: claim, UID: "shop"},
				PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: ssd, VolumeHandle: "vol-" + claim}}},
			Status: v1.PersistentVolumeStatus{Phase: v1.VolumeBound}}
}

// mounts gives the first container the volume of a claim.
func mounts(p *v1.Pod, claim string) {
	p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: claim, VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}})
	p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts, v1.VolumeMount{Name: claim, MountPath: "/" + claim})
}

// tied makes a volume usable on the nodes with a label only.
func tied(v *v1.PersistentVolume, key, value string) {
	v.Spec.NodeAffinity = &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
		MatchExpressions: []v1.NodeSelectorRequirement{{Key: key, Operator: v1.NodeSelectorOpIn, Values: []string{value}}}}}}}
}

// newCSINode says how many volumes a node takes.
func newCSINode(name string, volumes int32) *storage.CSINode {
	return &storage.CSINode{ObjectMeta: meta.ObjectMeta{Name: name}, Spec: storage.CSINodeSpec{Drivers: []storage.CSINodeDriver{{Name: ssd, NodeID: name, Allocatable: &storage.VolumeNodeResources{Count: &volumes}}}}}
}

// manyVolumes returns 60 pods with a volume each on 6 nodes that take 25.
func manyVolumes() []runtime.Object {
	all := newNodes(6, 1)
	for i := range 6 {
		all = append(all, newCSINode(fmt.Sprintf("n%d", i), 25))
	}
	pods := newPods("db", 60, 6, 0, "20m", "64Mi", func(p *v1.Pod) {
		claim, volume := newVolume("data-" + p.Name)
		all = append(all, claim, volume)
		mounts(p, claim.Name)
	})
	return slices.Concat(all, pods)
}

// localVolumes returns pods whose volumes are disks of their nodes.
func localVolumes() []runtime.Object {
	all := newNodes(4, 1)
	pods := newPods("db", 4, 4, 0, "200m", "256Mi", func(p *v1.Pod) {
		claim, volume := newVolume("data-" + p.Name)
		volume.Spec.PersistentVolumeSource = v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: "/disk"}}
		tied(volume, v1.LabelHostname, p.Spec.NodeName)
		all = append(all, claim, volume)
		mounts(p, claim.Name)
	})
	return slices.Concat(all, pods)
}

// sharedDirectory returns pods with two containers that exchange files, too large for one small VM.
func sharedDirectory() []runtime.Object {
	return slices.Concat(newNodes(6, 2), newPods("web", 6, 6, 0, "3800m", "13Gi", func(p *v1.Pod) {
		second := *p.Spec.Containers[0].DeepCopy()
		second.Name = "second"
		second.Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse("1900m"), v1.ResourceMemory: resource.MustParse("6Gi")}
		p.Spec.Containers = append(p.Spec.Containers, second)
		for i := range p.Spec.Containers {
			p.Spec.Containers[i].VolumeMounts = []v1.VolumeMount{{Name: "files", MountPath: "/files"}}
		}
		p.Spec.Volumes = []v1.Volume{{Name: "files", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}}
	}))
}

// fewPods returns small nodes and a large one, whose kubelets take 8 pods each.
func fewPods() (all []runtime.Object) {
	for i := range 5 {
		n := newNode(fmt.Sprintf("n%d", i), i/4*2, zone)
		n.Status.Allocatable[v1.ResourcePods] = resource.MustParse("8")
		all = append(all, n)
	}
	return append(all, newPods("web", 32, 4, 0, "20m", "64Mi", func(*v1.Pod) {})...)
}

// examples returns the clusters. Their nodes are m6i.xlarge unless said otherwise.
func examples() []example {
	plain := func(*v1.Pod) {}
	tier := func(p *v1.Pod) { p.Labels["tier"] = "data" }
	spreadOf := func(edit func(*v1.TopologySpreadConstraint)) func(*v1.Pod) {
		return func(p *v1.Pod) {
			p.Spec.TopologySpreadConstraints = spread(v1.LabelHostname, 1, label("app", "web"))
			edit(&p.Spec.TopologySpreadConstraints[0])
		}
	}
	even := spreadOf(func(*v1.TopologySpreadConstraint) {})
	forbids := func(s *meta.LabelSelector, edit func(*v1.PodAffinityTerm)) func(*v1.Pod) {
		return func(p *v1.Pod) {
			p.Labels["tier"] = "data"
			p.Spec.Affinity = antiAffinity(v1.LabelHostname, s)
			edit(&p.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0])
		}
	}
	alone := func(*v1.PodAffinityTerm) {}
	in := func(namespace string, edit func(*v1.Pod)) func(*v1.Pod) {
		return func(p *v1.Pod) {
			p.Namespace = namespace
			edit(p)
		}
	}
	everywhere := func(term *v1.PodAffinityTerm) { term.NamespaceSelector = &meta.LabelSelector{} }
	listed := func(term *v1.PodAffinityTerm) { term.Namespaces = []string{"a", "b"} }
	xlarge := func(count int) []runtime.Object { return newNodes(count, 1) }
	revision := func(hash string) func(*v1.Pod) {
		return func(p *v1.Pod) {
			spreadOf(func(c *v1.TopologySpreadConstraint) { c.MatchLabelKeys = []string{"pod-template-hash"} })(p)
			p.Name, p.Labels["pod-template-hash"] = "web-"+hash+"-"+p.Name, hash
		}
	}
	return []example{
		{"two Deployments with one host port", slices.Concat(xlarge(6), newPods("in", 3, 3, 0, "200m", "256Mi", hostPort(8080)), newPods("out", 3, 3, 3, "200m", "256Mi", hostPort(8080))), 0},
		{"a pod that selects models", slices.Concat(xlarge(2), newPods("api", 1, 1, 0, "800m", "256Mi", func(p *v1.Pod) {
			p.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
				MatchExpressions: []v1.NodeSelectorRequirement{{Key: v1.LabelInstanceTypeStable, Operator: v1.NodeSelectorOpNotIn, Values: []string{models[0].name}}}}}}}}
		}), newPods("in", 2, 2, 0, "900m", "2Gi", hostPort(8080))), 0.288},
		{"the host port of a DaemonSet", slices.Concat(xlarge(6), newPods("exporter", 3, 3, 0, "50m", "64Mi", func(p *v1.Pod) { daemonized(p); hostPort(9100)(p) }),
			newPods("web", 3, 3, 3, "200m", "256Mi", hostPort(9100))), 0},
		{"ports of pods in the node's network", slices.Concat(xlarge(6), newPods("web", 6, 6, 0, "200m", "256Mi", func(p *v1.Pod) { p.Spec.HostNetwork = true; hostPort(8443)(p) })), 0},
		{"11 replicas spread evenly over 10 nodes", slices.Concat(xlarge(10), newPods("web", 11, 10, 0, "900m", "1Gi", even)), 0.576},
		{"20 replicas, two on each node", slices.Concat(xlarge(10), newPods("web", 20, 10, 0, "900m", "1Gi", even)), 0.960},
		{"two revisions spread on their own", slices.Concat(xlarge(5), newPods("web", 5, 5, 0, "900m", "1Gi", revision("a")), newPods("web", 5, 5, 0, "900m", "1Gi", revision("b"))), 0.480},
		{"a spread over at least 6 nodes", slices.Concat(xlarge(6), newPods("web", 6, 6, 0, "200m", "256Mi", spreadOf(func(c *v1.TopologySpreadConstraint) { c.MinDomains = new(int32(6)) }))), 0},
		{"anti-affinity to pods without a rule", slices.Concat(xlarge(6), newPods("db", 3, 3, 0, "500m", "1Gi", forbids(label("tier", "data"), alone)), newPods("cache", 3, 3, 3, "500m", "1Gi", tier)), 0},
		{"anti-affinity in all namespaces", slices.Concat(xlarge(6), newPods("db", 3, 3, 0, "500m", "1Gi", in("a", forbids(label("app", "db"), everywhere))), newPods("db", 3, 3, 3, "500m", "1Gi", in("b", forbids(label("app", "db"), everywhere)))), 0},
		{"anti-affinity in listed namespaces", slices.Concat(xlarge(6), newPods("db", 3, 3, 0, "500m", "1Gi", in("a", forbids(label("app", "cache"), listed))), newPods("cache", 3, 3, 3, "500m", "1Gi", in("b", plain))), 0},
		{"affinity to pods on the same node", slices.Concat(xlarge(4), newPods("db", 2, 2, 0, "3", "1Gi", tier), newPods("web", 2, 2, 0, "500m", "1Gi", func(p *v1.Pod) {
			p.Spec.Affinity = &v1.Affinity{PodAffinity: &v1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{{TopologyKey: v1.LabelHostname, LabelSelector: label("app", "db")}}}}
		}), newPods("other", 4, 4, 0, "400m", "256Mi", plain)), 0},
		{"60 GiB of ephemeral storage", slices.Concat(xlarge(6), newPods("web", 6, 6, 0, "200m", "256Mi", func(p *v1.Pod) {
			p.Spec.Containers[0].Resources.Requests[v1.ResourceEphemeralStorage] = resource.MustParse("10Gi")
		})), 0},
		{"58 volumes on VMs that take 25", manyVolumes(), 0},
		{"databases on disks of nodes", localVolumes(), 0},
		{"containers that share a directory", sharedDirectory(), 0},
		{"host ports of containers with restart rules", slices.Concat(xlarge(3), newPods("web", 3, 3, 0, "200m", "256Mi", func(p *v1.Pod) {
			hostPort(8080)(p)
			p.Spec.Containers[0].RestartPolicy = new(v1.ContainerRestartPolicyOnFailure)
		})), 0},
		{"init containers that need more than the first container", slices.Concat(newNodes(3, 2), newPods("web", 3, 3, 0, "1", "1Gi", func(p *v1.Pod) {
			second := *p.Spec.Containers[0].DeepCopy()
			second.Name, second.Resources.Requests = "second", v1.ResourceList{v1.ResourceCPU: resource.MustParse("3200m")}
			p.Spec.Containers = append(p.Spec.Containers, second)
			p.Spec.InitContainers = []v1.Container{{Name: "init", Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("4200m")}}}}
		})), 0},
		{"nodes that take 8 pods", fewPods(), 0},
	}
}

// Plans of small clusters, each with a rule that plans once broke, are accepted by the scheduler,
// and no bound is above what a legal plan costs.
func TestExamples(t *testing.T) {
	for _, e := range examples() {
		t.Run(e.name, func(t *testing.T) {
			text := dump(t, e.objects...)
			p, err := planned(text)
			if err != nil {
				t.Fatal(err)
			}
			refused, err := judged(text, p)
			if err != nil {
				t.Fatal(err)
			}
			if len(refused) > 0 {
				t.Errorf("%d are wrong, such as %s", len(refused), refused[0])
			}
			if e.legal > 0 && p.Cluster.Bound > e.legal+1e-9 {
				t.Errorf("the bound is %.3f $/h: %.3f are legal", p.Cluster.Bound, e.legal)
			}
		})
	}
}
