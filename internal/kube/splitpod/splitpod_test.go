package splitpod

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"unnest.io/unnest/internal/plan/cluster"
	"unnest.io/unnest/internal/plan/manifest"
)

// newPod returns a pod with a container for each name.
func newPod(split string, containers ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: "web-0", UID: "f00", Labels: map[string]string{"app": "web"}, Annotations: map[string]string{SplitAnnotation: split},
	}}
	for _, name := range containers {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: name, Image: "none"})
	}
	return p
}

// with mounts a volume into containers.
func with(p *corev1.Pod, v corev1.VolumeSource, containers ...string) *corev1.Pod {
	name := "v" + string(rune('0'+len(p.Spec.Volumes)))
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: v})
	for i, c := range p.Spec.Containers {
		if slices.Contains(containers, c.Name) {
			p.Spec.Containers[i].VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: "/" + name})
		}
	}
	return p
}

// initialize gives the pod an init container i with volumes.
func initialize(p *corev1.Pod, volumes ...string) *corev1.Pod {
	c := corev1.Container{Name: "i"}
	for _, name := range volumes {
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: "/" + name})
	}
	p.Spec.InitContainers = append(p.Spec.InitContainers, c)
	return p
}

func admit(t *testing.T, p *corev1.Pod) *corev1.Pod {
	t.Helper()
	if err := Admit(p, testOptions); err != nil {
		t.Fatal(err)
	}
	return p
}

func companions(t *testing.T, p *corev1.Pod) []*corev1.Pod {
	t.Helper()
	all, err := Companions(p)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// fractionsOf returns the containers of an admitted pod and its companions as in the annotation.
func fractionsOf(t *testing.T, p *corev1.Pod) string {
	t.Helper()
	var all []string
	for _, f := range append([]*corev1.Pod{p}, companions(t, p)...) {
		var names []string
		for _, c := range f.Spec.Containers {
			names = append(names, c.Name)
		}
		all = append(all, strings.Join(names, ","))
	}
	return strings.Join(all, ";")
}

// claims are the access modes of the claims in the namespace.
var claims = map[string][]corev1.PersistentVolumeAccessMode{
	"rwx": {corev1.ReadWriteOnce, corev1.ReadWriteMany}, "rox": {corev1.ReadOnlyMany},
	"rwo": {corev1.ReadWriteOnce}, "rwop": {corev1.ReadWriteOncePod}, "either": {corev1.ReadWriteOnce, corev1.ReadOnlyMany}, "none": nil,
}

var testOptions = Options{Key: "new-key", Claim: func(name string) ([]corev1.PersistentVolumeAccessMode, error) {
	if modes, ok := claims[name]; ok {
		return modes, nil
	}
	return nil, fmt.Errorf("persistentvolumeclaims %q not found", name)
}}

func claim(name string) corev1.VolumeSource {
	return corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}
}

var emptyDir = corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}

func TestFractions(t *testing.T) {
	many := strings.Split("abcdefghijklmnopqrs", "")
	for _, tt := range []struct {
		pod  *corev1.Pod
		want string // fractions, or a part of the error
	}{
		{newPod("a;b", "a", "b"), "a;b"},
		{newPod(" c , a ; b ", "a", "b", "c"), "a,c;b"},
		{newPod("auto", "a", "b", "c"), "a;b;c"},
		{with(newPod("auto", "a", "b", "c"), emptyDir, "a", "c"), "a,c;b"},
		{with(with(newPod("auto", "a", "b", "c", "d"), emptyDir, "a", "d"), emptyDir, "c", "d"), "a,c,d;b"},
		{with(newPod("auto", "a", "b"), corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}}, "a", "b"), "a;b"},
		{initialize(with(newPod("auto", "a", "b", "c"), emptyDir, "c"), "v0"), "c;a;b"},
		{initialize(with(with(newPod("auto", "a", "b", "c"), emptyDir, "b"), emptyDir, "c"), "v0", "v1"), "b,c;a"},
		{initialize(with(newPod("a;b", "a", "b"), emptyDir, "a"), "v0"), "a;b"},
		{newPod("auto", many...), "a;b;c;d;e;f;g;h;i;j;k;l;m;n;o;p,q,r,s"},
		{newPod("auto", "a"), "nothing to split"},
		{with(newPod("auto", "a", "b"), emptyDir, "a", "b"), "nothing to split"},
		{newPod("", "a", "b"), "fraction 1 is empty"},
		{newPod("a;;b", "a", "b"), "fraction 2 is empty"},
		{newPod("a;b;", "a", "b"), "fraction 3 is empty"},
		{newPod("a,;b", "a", "b"), "fraction 1 is empty, or has an empty name"},
		{newPod("a;x", "a", "b"), `no container "x"; its containers are a, b`},
		{newPod("a;a,b", "a", "b"), `container "a" is named twice`},
		{newPod("a;b", "a", "b", "c"), `container "c" is in no fraction`},
		{newPod("a,b", "a", "b"), "one fraction is a whole pod"},
		{newPod(strings.Join(many, ";"), many...), "19 fractions; want at most 16"},
	} {
		text := tt.pod.Annotations[SplitAnnotation]
		if err := Admit(tt.pod, testOptions); err != nil {
			if !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), SplitAnnotation) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%q: error %q, want %q", text, err, tt.want)
			}
			continue
		}
		if got := fractionsOf(t, tt.pod); got != tt.want {
			t.Errorf("%q: got %q, want %q", text, got, tt.want)
		}
	}
}

// What a split pod cannot keep is refused, and the error names it.
func TestRefused(t *testing.T) {
	yes := true
	for want, change := range map[string]func(*corev1.Pod){
		"hostNetwork":           func(p *corev1.Pod) { p.Spec.HostNetwork = true },
		"hostPID":               func(p *corev1.Pod) { p.Spec.HostPID = true },
		"hostIPC":               func(p *corev1.Pod) { p.Spec.HostIPC = true },
		"shareProcessNamespace": func(p *corev1.Pod) { p.Spec.ShareProcessNamespace = &yes },
		"resourceClaims":        func(p *corev1.Pod) { p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu"}} },
		"resources":             func(p *corev1.Pod) { p.Spec.Resources = &corev1.ResourceRequirements{} },
		"nodeName":              func(p *corev1.Pod) { p.Spec.NodeName = "node1" },
		"a pod of a DaemonSet": func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Name: "d", Controller: &yes}}
		},
		"static pod":                         func(p *corev1.Pod) { p.Annotations[corev1.MirrorPodAnnotationKey] = "x" },
		"annotation unnest.io/c":             func(p *corev1.Pod) { p.Annotations[CompanionsAnnotation] = "[]" },
		"annotation unnest.io/segment: ":     func(p *corev1.Pod) { p.Annotations[SegmentAnnotation] = "x" },
		"annotation unnest.io/segment-key: ": func(p *corev1.Pod) { p.Annotations[KeyAnnotation] = "x" },
		"annotation unnest.io/pod-labels: ":  func(p *corev1.Pod) { p.Annotations[LabelsAnnotation] = "x" },
		"label unnest.io/split-pod: ":        func(p *corev1.Pod) { p.Labels[PodLabel] = "x" },
		"label unnest.io/fraction: ":         func(p *corev1.Pod) { p.Labels[FractionLabel] = "x" },
		"nodeSelector " + HostLabel:          func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{HostLabel: "x"} },
		`volume "v0" is used by the containers "a" and "b" of two fractions, and the runtime cannot map`: func(p *corev1.Pod) {
			no := false
			p.Spec.HostUsers = &no
			*p = *with(p, emptyDir, "a", "b")
		},
		`volume "v0" is used by the containers "a" and "b" of two fractions, and an emptyDir of medium Memory`: func(p *corev1.Pod) {
			with(p, corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}, "a", "b")
		},
		`and its claim "rwo" has the access modes [ReadWriteOnce]`:                func(p *corev1.Pod) { with(p, claim("rwo"), "a", "b") },
		`and its claim "rwop" has the access modes [ReadWriteOncePod]`:            func(p *corev1.Pod) { with(p, claim("rwop"), "a", "b") },
		`and its claim "either" has the access modes [ReadWriteOnce ReadOnlyMany`: func(p *corev1.Pod) { with(p, claim("either"), "a", "b") },
		`and its claim "none" has the access modes []`:                            func(p *corev1.Pod) { with(p, claim("none"), "a", "b") },
		`volume "v0" is used by the containers "i" and "b" of two fractions, and nodes cannot share it`: func(p *corev1.Pod) {
			initialize(with(p, corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/x"}}, "b"), "v0")
		},
		"driver volumes.unnest.io": func(p *corev1.Pod) {
			with(p, corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: VolumeDriver, VolumeAttributes: map[string]string{"key": "x"}}}, "a")
		},
		`"i" is an init container`: func(p *corev1.Pod) {
			initialize(p)
			p.Annotations[SplitAnnotation] = "a,i;b"
		},
		"because it has dots; set hostname, or": func(p *corev1.Pod) { p.Name = "web.0" },
		"companions cannot have its host name":  func(p *corev1.Pod) { p.Name, p.GenerateName = "", "web.v1-" },
		`annotation container.apparmor.security.beta.kubernetes.io/b: "localhsot/x" is no profile`: func(p *corev1.Pod) {
			p.Annotations[appArmorPrefix+"b"] = "localhsot/x"
		},
		`variable "CPU" of container "b" names container "a", which is in another fraction`: func(p *corev1.Pod) {
			of := &corev1.ResourceFieldSelector{ContainerName: "a", Resource: "limits.cpu"}
			p.Spec.Containers[1].Env = []corev1.EnvVar{{Name: "CPU", ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: of}}}
		},
		`file "cpu" of volume "v0" names container "b", which is in another fraction`: func(p *corev1.Pod) {
			of := &corev1.ResourceFieldSelector{ContainerName: "b", Resource: "limits.cpu"}
			with(p, corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: []corev1.DownwardAPIVolumeFile{{Path: "cpu", ResourceFieldRef: of}}}}, "a", "b")
		},
		`container "b" has hostPort 80`: func(p *corev1.Pod) {
			p.Spec.Containers[1].Ports = []corev1.ContainerPort{{HostPort: 80, ContainerPort: 80}}
		},
	} {
		p := newPod("a;b", "a", "b")
		change(p)
		if err := Admit(p, testOptions); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "; ") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error %v", want, err)
		}
	}
}

// The kubelet leaves dots in the host name that it makes of a pod's name, and the API server takes none for companions.
func TestHostname(t *testing.T) {
	override := "web.shop"
	for want, change := range map[string]func(*corev1.Pod){
		"web-0":                 func(*corev1.Pod) {},
		"db":                    func(p *corev1.Pod) { p.Name, p.Spec.Hostname = "web.0", "db" },
		"":                      func(p *corev1.Pod) { p.Name, p.Spec.HostnameOverride = "web.0", &override },
		strings.Repeat("x", 62): func(p *corev1.Pod) { p.Name = strings.Repeat("x", 62) + "-y.z" },
	} {
		p := newPod("a;b", "a", "b")
		change(p)
		if got := companions(t, admit(t, p))[0].Spec; got.Hostname != want || got.HostnameOverride != p.Spec.HostnameOverride && *got.HostnameOverride != override {
			t.Errorf("the companion of %s has the host name %q, want %q", p.Name, got.Hostname, want)
		}
	}
}

// With the span network, a pod that may change its network devices is refused, and one that may not is admitted.
func TestRefusedByNetwork(t *testing.T) {
	yes, no := true, false
	for _, tt := range []struct {
		context *corev1.SecurityContext
		refused bool
	}{
		{nil, false},
		{&corev1.SecurityContext{Privileged: &no, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{"NET_BIND_SERVICE"}}}, false},
		{&corev1.SecurityContext{Privileged: &yes}, true},
		{&corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"CHOWN", "NET_ADMIN"}}}, true},
		{&corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"cap_net_admin"}}}, true}, // as runtimes read it
		{&corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"ALL"}}}, true},
	} {
		for span, refused := range map[string]bool{SpanNetwork: tt.refused, "": false} {
			p, init := newPod("a;b", "a", "b"), initialize(newPod("a;b", "a", "b"))
			p.Spec.Containers[1].SecurityContext, init.Spec.InitContainers[0].SecurityContext = tt.context, tt.context
			if err := Admit(init, Options{Span: span}); (err != nil) != refused {
				t.Errorf("span %q, an init container with %v: error %v, want one %t", span, tt.context, err, refused)
			}
			if err := Admit(p, Options{Span: span}); (err != nil) != refused || err != nil && !strings.Contains(err.Error(), "NET_ADMIN") {
				t.Errorf("span %q, %v: error %v, want one %t", span, tt.context, err, refused)
			}
		}
	}
}

// A container that moves takes the AppArmor profile of its annotation along, because a pod must not have that of a container that it does not
// have. The mode of the segment is all fractions'.
func TestAnnotationsMove(t *testing.T) {
	p := newPod("a;b", "a", "b")
	for key, value := range map[string]string{appArmorPrefix + "a": "runtime/default", appArmorPrefix + "b": "localhost/strict", ModeAnnotation: "plain"} {
		p.Annotations[key] = value
	}
	admit(t, p)
	Prepare(p, Placement{Host: "host-a"})
	all, err := Companions(p)
	if err != nil || len(all) != 1 {
		t.Fatalf("companions %v, error %v", all, err)
	}
	c := all[0]
	profile := c.Spec.Containers[0].SecurityContext.AppArmorProfile
	if profile == nil || profile.Type != corev1.AppArmorProfileTypeLocalhost || *profile.LocalhostProfile != "strict" || c.Annotations[ModeAnnotation] != "plain" {
		t.Errorf("the companion has profile %+v and annotations %v", profile, c.Annotations)
	}
	_, moved := p.Annotations[appArmorPrefix+"b"]
	_, copied := c.Annotations[appArmorPrefix+"a"]
	if moved || copied || p.Annotations[appArmorPrefix+"a"] != "runtime/default" {
		t.Errorf("the pod has annotations %v, the companion %v", p.Annotations, c.Annotations)
	}
}

// An emptyDir that several fractions use becomes a volume of the host in each of them, of the first one's UID,
// and a claim that nodes can share stays.
func TestSharedVolumes(t *testing.T) {
	long := strings.Repeat("x", 40)
	p := with(with(with(newPod("a;b;c", "a", "b", "c"), emptyDir, "a", "b"), claim("rwx"), "a", "c"), claim("rox"), "b", "c")
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: long, VolumeSource: emptyDir})
	for i := range p.Spec.Containers[1:] {
		p.Spec.Containers[i+1].VolumeMounts = append(p.Spec.Containers[i+1].VolumeMounts, corev1.VolumeMount{Name: long, MountPath: "/x"})
	}
	initialize(p, "v0")
	admit(t, p)
	if p.Annotations[KeyAnnotation] != "new-key" {
		t.Errorf("the pod's key is %q", p.Annotations[KeyAnnotation])
	}
	Prepare(p, Placement{Host: "host-a"})
	shared := func(name, pod string) corev1.VolumeSource {
		attributes := map[string]string{"name": name, "key": "new-key", "pod": pod}
		if pod == "" {
			delete(attributes, "pod")
		}
		return corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: VolumeDriver, VolumeAttributes: attributes}}
	}
	digest := ""
	for i, f := range append([]*corev1.Pod{p}, companions(t, p)...) {
		for _, v := range f.Spec.Volumes {
			if v.Name == long {
				digest = v.CSI.VolumeAttributes["name"]
			}
		}
		want := [][]corev1.Volume{
			{{Name: "v0", VolumeSource: shared("v0", "")}, {Name: "v1", VolumeSource: claim("rwx")}},
			{{Name: "v0", VolumeSource: shared("v0", "f00")}, {Name: "v2", VolumeSource: claim("rox")}, {Name: long, VolumeSource: shared(digest, "f00")}},
			{{Name: "v1", VolumeSource: claim("rwx")}, {Name: "v2", VolumeSource: claim("rox")}, {Name: long, VolumeSource: shared(digest, "f00")}},
		}[i]
		if diff := cmp.Diff(want, f.Spec.Volumes); diff != "" || f.Annotations[KeyAnnotation] != "new-key" {
			t.Errorf("fraction %d has the key %q, and volumes (-want +got):\n%s", i, f.Annotations[KeyAnnotation], diff)
		}
	}
	if len(digest) != maxVolumeName {
		t.Errorf("a long name becomes %q", digest)
	}
	err := Admit(with(newPod("a;b", "a", "b"), claim("missing"), "a", "b"), testOptions)
	if err == nil || !strings.Contains(err.Error(), `its claim cannot be read (persistentvolumeclaims "missing" not found): create the claim before the pod`) {
		t.Errorf("of a claim that cannot be read: %v", err)
	}
	err = Admit(with(newPod("a;b", "a", "b"), emptyDir, "a", "b"), Options{Span: SpanNetwork})
	if err == nil || !strings.Contains(err.Error(), "of two fractions, and an emptyDir is on one host") {
		t.Errorf("with the span network: %v", err)
	}
}

// Init containers and sidecars run in the first fraction, in their order, with their volumes.
func TestInitContainersStay(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	p := newPod("a;b", "a", "b")
	initialize(initialize(with(with(p, emptyDir), corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}}, "b"), "v0", "v1"))
	p.Spec.InitContainers[1].Name, p.Spec.InitContainers[1].RestartPolicy = "sidecar", &always
	want := slices.Clone(p.Spec.InitContainers)
	admit(t, p)
	if diff := cmp.Diff(want, p.Spec.InitContainers); diff != "" || len(p.Spec.Volumes) != 2 {
		t.Errorf("the pod has %d volumes and other init containers (-want +got):\n%s", len(p.Spec.Volumes), diff)
	}
	if c := companions(t, p)[0]; len(c.Spec.InitContainers) != 0 || len(c.Spec.Volumes) != 1 {
		t.Errorf("the companion has %d init containers and %d volumes, want none and v1", len(c.Spec.InitContainers), len(c.Spec.Volumes))
	}
}

// The pod keeps its first fraction, and says where the others are.
func TestAdmit(t *testing.T) {
	p := newPod("a;b,c", "a", "b", "c")
	config := corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}}
	with(with(with(with(p, config, "a", "b"), emptyDir, "b", "c"), emptyDir, "a"), emptyDir)
	p.Spec.Containers[1].Ports = []corev1.ContainerPort{{Name: "db", ContainerPort: 5432}, {ContainerPort: 1}}
	p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "other"}}
	admit(t, p)
	volumes := func(p *corev1.Pod) (names string) {
		for _, v := range p.Spec.Volumes {
			names += v.Name
		}
		return names
	}
	c := companions(t, p)
	for _, tt := range []struct{ what, got, want string }{
		{"volumes of the pod", volumes(p), "v0v2v3"},
		{"volumes of the companion", volumes(c[0]), "v0v1"},
		{"port by which Services find the companion's", p.Spec.Containers[0].Ports[0].Name, "db"},
		{"gates", p.Spec.SchedulingGates[0].Name + " " + p.Spec.SchedulingGates[1].Name, "other " + Gate},
		{"readiness gate", string(p.Spec.ReadinessGates[0].ConditionType), ReadyCondition},
	} {
		if tt.got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.what, tt.got, tt.want)
		}
	}
	if len(p.Spec.Containers[0].Ports) != 1 {
		t.Errorf("ports %v, want the named one only", p.Spec.Containers[0].Ports)
	}
}

func byName(node string) *corev1.NodeAffinity {
	return &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{Weight: 100, Preference: corev1.NodeSelectorTerm{
		MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
	}}}}
}

// A companion belongs to its pod, is not counted as one, and is what the pod is otherwise.
func TestCompanion(t *testing.T) {
	p := newPod("a;b", "a", "b")
	p.Spec.ServiceAccountName, p.Spec.RestartPolicy, p.Spec.PriorityClassName = "web", corev1.RestartPolicyNever, "high"
	p.Spec.NodeSelector = map[string]string{"disk": "ssd"}
	p.Spec.Tolerations = []corev1.Toleration{{Key: "db"}}
	user := int64(1000)
	p.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: &user}
	p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}, PodAffinity: &corev1.PodAffinity{}, PodAntiAffinity: &corev1.PodAntiAffinity{}}
	p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{}}
	p.Spec.Subdomain = "db"
	p.Annotations["kubernetes.io/egress-bandwidth"], p.Annotations["prometheus.io/scrape"] = "1M", "true"
	p.Annotations["note"] = "$(HOME)"
	field := func(path string) *corev1.EnvVarSource {
		return &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}
	}
	p.Spec.Containers[1].Env = []corev1.EnvVar{
		{Name: "NAME", ValueFrom: field("metadata.name")}, {Name: "UID", ValueFrom: field("metadata.uid")}, {Name: "APP", ValueFrom: field("metadata.labels['app']")},
		{Name: "IP", ValueFrom: field("status.podIP")}, {Name: "X", Value: "y"}, {Name: "NOTE", ValueFrom: field("metadata.annotations['note']")},
	}
	admit(t, p)
	Prepare(p, Placement{"host-a", []string{"n1", "n2"}})
	c := companions(t, p)[0]
	yes := true
	meta := metav1.ObjectMeta{
		Namespace: "shop", Name: "web-0-f1", Labels: map[string]string{PodLabel: "f00", FractionLabel: "1"},
		Annotations:     map[string]string{SegmentAnnotation: "f00", KeyAnnotation: "new-key", LabelsAnnotation: `{"app":"web"}`, "kubernetes.io/egress-bandwidth": "1M"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "web-0", UID: "f00", Controller: &yes, BlockOwnerDeletion: &yes}},
	}
	if diff := cmp.Diff(meta, c.ObjectMeta); diff != "" {
		t.Errorf("metadata (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(byName("n1"), p.Spec.Affinity.NodeAffinity); diff != "" {
		t.Errorf("node of the pod (-want +got):\n%s", diff)
	}
	if a := p.Spec.Affinity; a.PodAffinity == nil || a.PodAntiAffinity == nil || len(p.Spec.TopologySpreadConstraints) != 1 {
		t.Errorf("the pod has lost rules of its place: %+v, %v", a, p.Spec.TopologySpreadConstraints)
	}
	spec := corev1.PodSpec{
		Containers: []corev1.Container{{Name: "b", Image: "none", Env: []corev1.EnvVar{
			{Name: "NAME", Value: "web-0"}, {Name: "UID", Value: "f00"}, {Name: "APP", Value: "web"}, {Name: "IP", ValueFrom: field("status.podIP")}, {Name: "X", Value: "y"},
			{Name: "NOTE", Value: "$$(HOME)"},
		}}},
		ServiceAccountName: "web", RestartPolicy: corev1.RestartPolicyNever, PriorityClassName: "high", Hostname: "web-0", Subdomain: "db",
		NodeSelector: map[string]string{"disk": "ssd", HostLabel: "host-a"}, Tolerations: p.Spec.Tolerations, SecurityContext: p.Spec.SecurityContext,
		SchedulingGates: []corev1.PodSchedulingGate{{Name: Gate}},
		Affinity: &corev1.Affinity{NodeAffinity: byName("n2"), PodAntiAffinity: &corev1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
				LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{PodLabel: "f00"}}, TopologyKey: "kubernetes.io/hostname",
			}},
		}},
	}
	if diff := cmp.Diff(spec, c.Spec); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
	if got := EffectiveLabels(c); got["app"] != "web" || got[PodLabel] != "f00" {
		t.Errorf("labels for policies: %v", got)
	}
	c.OwnerReferences[0].UID = "other"
	if got := EffectiveLabels(c); got["app"] != "" {
		t.Errorf("labels of a pod that is not a companion: %v", got)
	}
	p.Annotations[CompanionsAnnotation] = `[{"containers":[{"name":"b"}],"volumes":[{"name":"v","csi":{"driver":"volumes.unnest.io"}}]}]`
	if all := companions(t, p); len(all) != 1 {
		t.Errorf("of a volume without attributes: %v", all)
	}
	if name := companionName(strings.Repeat("x", 249)+"-abc", 12); len(name) != 253 || !strings.HasSuffix(name, "x-f12") {
		t.Errorf("name %q", name)
	}
}

// A pod requests what its fractions do: quotas count nothing twice.
func TestRequestsAreDivided(t *testing.T) {
	p := newPod("a;b;c", "a", "b", "c")
	for i := range p.Spec.Containers {
		p.Spec.Containers[i].Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse([]string{"1", "20", "300"}[i])}
	}
	whole := requests(p)
	admit(t, p)
	sum := resource.Quantity{}
	for _, f := range append([]*corev1.Pod{p}, companions(t, p)...) {
		sum.Add(requests(f)["cpu"])
	}
	if cpu := whole["cpu"]; sum.Cmp(cpu) != 0 || sum.String() != "321" {
		t.Errorf("fractions request %s, the pod %s", sum.String(), cpu.String())
	}
}

// The annotation is what `unnest plan` writes.
func TestPlanFormat(t *testing.T) {
	u := cluster.User{Pods: []cluster.Pod{{Name: "web-1", Origin: &cluster.Origin{Namespace: "shop", Name: "web-1", Kind: "Deployment", Workload: "web"},
		Containers: []cluster.Container{{Name: "a"}, {Name: "b"}, {Name: "c"}}}}}
	plan := cluster.Plan{VMs: []cluster.VM{{ID: 0, Parts: []cluster.Part{{Container: 0}, {Container: 1}}}, {ID: 1, Parts: []cluster.Part{{Container: 2}}}}}
	files := manifest.Files(manifest.Split(u, u.Pods, cluster.Catalogue{{Name: "large"}}, plan))
	_, line, ok := strings.Cut(string(files[0].Text), SplitAnnotation+": ")
	line, _, _ = strings.Cut(line, "\n")
	var text string
	if err := json.Unmarshal([]byte(line), &text); !ok || err != nil {
		t.Fatalf("%v in\n%s", err, files[0].Text)
	}
	if got := fractionsOf(t, admit(t, newPod(text, "a", "b", "c"))); got != "a,b;c" {
		t.Errorf("%q splits into %q", text, got)
	}
}
