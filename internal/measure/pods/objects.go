package pods

import (
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"unnest.io/unnest/internal/measure/stack"
	"unnest.io/unnest/internal/measure/workload"
)

// Labels of what a run makes.
const (
	runLabel  = "unnest.io/run"
	roleLabel = "unnest.io/role"
	ownLabel  = "unnest.io/bench" // of namespaces, too
)

// port is that of the servers. It is not among the ports that Linux or Kubernetes give out.
const port = 17799

// side is what a pod is for.
type side string

const (
	clientSide side = "client"
	serverSide side = "server"
)

// role identifies a pod of a run.
type role struct {
	network stack.Network // PodNetwork for Service, too
	side    side
	node    string
}

// plan is what the objects of a run have in common.
type plan struct {
	run       string // name of the run in the cluster
	namespace string
	image     string
	life      time.Duration // of pods at most
	owner     []metav1.OwnerReference
	names     map[role]string
}

// newPlan names the pods.
func newPlan(run, namespace, image string, life time.Duration, roles []role) plan {
	p := plan{run: run, namespace: namespace, image: image, life: life, names: map[role]string{}}
	for i, r := range roles {
		p.names[r] = fmt.Sprintf("%s-%s-%s-%d", run, r.network, r.side, i+1)
	}
	return p
}

func (p plan) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: p.namespace, OwnerReferences: p.owner, Labels: map[string]string{runLabel: p.run, ownLabel: "true"}}
}

// namespaceObject allows pods on the network of their node.
func (p plan) namespaceObject() *corev1.Namespace {
	m := p.meta(p.namespace)
	m.Namespace, m.OwnerReferences = "", nil
	m.Labels["pod-security.kubernetes.io/enforce"] = "privileged"
	return &corev1.Namespace{ObjectMeta: m}
}

// leaseObject is a job without pods. It owns everything else, fails when nobody has renewed its
// deadline, and is then removed with all it owns.
func (p plan) leaseObject(deadline time.Duration) *batchv1.Job {
	return &batchv1.Job{ObjectMeta: p.meta(p.run), Spec: batchv1.JobSpec{
		Parallelism: new(int32(0)), Completions: new(int32(1)), ActiveDeadlineSeconds: new(seconds(deadline)), TTLSecondsAfterFinished: new(int32(0)),
		Template: corev1.PodTemplateSpec{Spec: p.podSpec()},
	}}
}

func seconds(d time.Duration) int64 { return int64(d / time.Second) }

const containerName = "load"

// podSpec is allowed in namespaces with the level restricted.
func (p plan) podSpec() corev1.PodSpec {
	return corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever, ActiveDeadlineSeconds: new(seconds(p.life)), TerminationGracePeriodSeconds: new(int64(1)),
		AutomountServiceAccountToken: new(false), EnableServiceLinks: new(false),
		SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: new(true), RunAsUser: new(int64(65534)), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
		Containers: []corev1.Container{{
			Name: containerName, Image: p.image, Command: []string{workload.Generator, "hold"}, ImagePullPolicy: corev1.PullIfNotPresent,
			SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
			Resources:       corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("32Mi")}},
		}},
	}
}

// pod is a pod on a node. The scheduler places it, so that the node's resources count.
func (p plan) pod(r role) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: p.meta(p.names[r]), Spec: p.podSpec()}
	pod.Labels[roleLabel] = p.names[r]
	pod.Spec.HostNetwork = r.network == stack.HostNetwork
	if r.network == stack.BrFusion {
		pod.Spec.RuntimeClassName = new(runtimeClass)
	}
	pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{r.node}}}}},
	}}}
	pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}}
	return pod
}

// service leads to the pod of a server.
func (p plan) service(r role) *corev1.Service {
	s := &corev1.Service{ObjectMeta: p.meta(p.names[r]), Spec: corev1.ServiceSpec{Selector: map[string]string{roleLabel: p.names[r]}}}
	for _, protocol := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP} {
		name := map[corev1.Protocol]string{corev1.ProtocolTCP: "tcp", corev1.ProtocolUDP: "udp"}[protocol]
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: name, Protocol: protocol, Port: port, TargetPort: intstr.FromInt32(port)})
	}
	return s
}
