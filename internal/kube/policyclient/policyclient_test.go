package policyclient

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"unnest.io/unnest/internal/hostapi/hostdpb"
	"unnest.io/unnest/internal/hostapi/policylimit"
	"unnest.io/unnest/internal/kube/splitpod"
)

// patience is for what must happen, on any machine.
const patience = 5 * time.Minute

func newPod(name, address string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{"app": name}}}
	p.Spec.NodeName = "node1"
	if address != "" {
		p.Status.PodIP, p.Status.PodIPs = address, []corev1.PodIP{{IP: address}}
	}
	return p
}

// denyExcept lets one pod of the namespace connect to the pods.
func denyExcept(app string) *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "deny"},
		Spec: networkingv1.NetworkPolicySpec{Ingress: []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{
			PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}},
		}}}}},
	}
}

// start runs a client until the test ends.
func start(t *testing.T, config *rest.Config, daemon hostdpb.HostPolicyClient) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- Run(ctx, config, daemon, slog.New(slog.NewTextHandler(t.Output(), nil))) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// next waits for commits until one is as wanted. The changes of a test may come in several.
func next(t *testing.T, d *hostDaemon, what string, wanted func(commit) bool) {
	t.Helper()
	for end := time.After(patience); ; {
		select {
		case c := <-d.commits:
			if c.both {
				t.Errorf("%s: the daemon has what ends and what begins at once", what)
			}
			if wanted(c) {
				return
			}
			t.Logf("%s: another commit: %d pods, %d removed, first %t", what, len(c.pods), len(c.removed), c.first)
		case <-end:
			t.Fatalf("%s: no such commit", what)
		}
	}
}

// peers returns the addresses that may connect to a pod; nil if all may.
func peers(p *hostdpb.PodPolicy) []string {
	if p.GetIngress() == nil {
		return nil
	}
	all := []string{}
	for _, r := range p.GetIngress().GetAllow() {
		all = append(all, r.GetPeers()...)
	}
	return all
}

// The daemon gets everything first, then what changes, and everything again on a new stream.
func TestRun(t *testing.T) {
	api := newAPIServer(t)
	api.set(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "web"}}, newPod("a", "10.0.0.1"), newPod("b", ""))
	d, daemon := newHostDaemon(t)
	start(t, api.config(), daemon)
	next(t, d, "at first", func(c commit) bool {
		return c.first && len(c.pods) == 2 && peers(c.pods["web/a"]) == nil && slices.Equal(c.pods["web/a"].GetAddresses(), []string{"10.0.0.1"})
	})
	api.set(denyExcept("b"))
	next(t, d, "policy", func(c commit) bool {
		return !c.first && len(c.pods) == 2 && len(peers(c.pods["web/a"])) == 0 && peers(c.pods["web/a"]) != nil
	})
	api.set(newPod("b", "10.0.0.2"))
	both := func(c commit) bool {
		return len(c.pods) == 2 && slices.Equal(peers(c.pods["web/a"]), []string{"10.0.0.2/32"}) && slices.Equal(peers(c.pods["web/b"]), []string{"10.0.0.2/32"})
	}
	next(t, d, "address of a peer", both)
	own := func(addresses ...string) *hostdpb.Ownership {
		return &hostdpb.Ownership{Pods: []*hostdpb.AttachedPod{{Uid: "uid-b", Addresses: addresses}}}
	}
	d.owned <- own("10.0.0.7") // whatever its status says
	next(t, d, "a NIC of its own", func(c commit) bool {
		return slices.Equal(peers(c.pods["web/a"]), []string{"10.0.0.7/32"}) && c.pods["web/b"].GetUid() == "uid-b"
	})
	d.owned <- own()
	next(t, d, "no NIC any more", both)
	d.ended <- []string{"web/a", "web/gone"}
	next(t, d, "forgotten by the daemon", func(c commit) bool { return len(c.pods) == 1 && c.pods["web/a"] != nil && c.removed == nil })
	d.fail <- struct{}{}
	next(t, d, "new stream", func(c commit) bool { return c.first && both(c) })
	api.remove(newPod("b", "10.0.0.2"))
	next(t, d, "removed", func(c commit) bool {
		return slices.Equal(c.removed, []string{"web/b"}) && len(peers(c.pods["web/a"])) == 0 && peers(c.pods["web/a"]) != nil
	})
}

// A cluster with more pods than a client may name has policies: the client names those with a NIC on the host, and others as far as there is
// room. A pod that comes next has its policy once it has its NIC.
func TestAttackManyPods(t *testing.T) {
	api := newAPIServer(t)
	all := []any{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "web"}}, denyExcept("none"), newPod("z", "")}
	for i := range policylimit.Pods {
		p := newPod(fmt.Sprint(i), "")
		p.Labels = nil
		all = append(all, p)
	}
	api.set(all...)
	d, daemon := newHostDaemon(t)
	start(t, api.config(), daemon)
	next(t, d, "at first", func(c commit) bool { return len(c.pods) == policylimit.Pods && c.pods["web/z"] == nil })
	d.owned <- &hostdpb.Ownership{Pods: []*hostdpb.AttachedPod{{Uid: "uid-z", Addresses: []string{"10.0.0.7"}, Node: "node1"}}}
	next(t, d, "a NIC", func(c commit) bool {
		return len(c.pods) == 1 && c.pods["web/z"].GetIngress() != nil && len(c.removed) == 1
	})
}

// A pod with a NIC on the host is named first, also if the daemon knows no address of the NIC, as with DHCP.
func TestManyPodsByDHCP(t *testing.T) {
	c := &client{log: slog.New(slog.NewTextHandler(t.Output(), nil)), here: map[types.UID]int{}}
	z := newPod("z", "")
	for _, node := range []string{"node1", ""} {
		c.own(&hostdpb.Ownership{Pods: []*hostdpb.AttachedPod{{Uid: "uid-z", Node: node}}})
		pods := []*corev1.Pod{z}
		for i := range policylimit.Pods {
			pods = append(pods, newPod(fmt.Sprint(i), ""))
		}
		if got := slices.Contains(c.within(pods), z); got != (node != "") {
			t.Errorf("a pod with a NIC of node %q is named: %t", node, got)
		}
	}
}

// While the daemon has a commit wait, changes come together in the next one: else each would wait for those before.
func TestChangesOfUnansweredCommitComeTogether(t *testing.T) {
	const changes = 5
	api := newAPIServer(t)
	api.set(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "web"}}, newPod("a", "10.0.0.1"))
	d, daemon := newHostDaemon(t)
	d.answer = make(chan struct{})
	start(t, api.config(), daemon)
	next(t, d, "at first", func(c commit) bool { return c.first && len(c.pods) == 1 })
	for i := range changes {
		api.set(newPod("a", fmt.Sprint("10.0.1.", i)))
		time.Sleep(4 * settleTime)
	}
	close(d.answer)
	commits := 0
	next(t, d, "the last change", func(c commit) bool {
		commits++
		return slices.Equal(c.pods["web/a"].GetAddresses(), []string{fmt.Sprint("10.0.1.", changes-1)})
	})
	if commits == changes {
		t.Errorf("%d changes took as many commits", changes)
	}
}

// Nothing is sent before everything is listed: a part of the policies or pods would allow
// too much, or too little.
func TestRunWaitsForAll(t *testing.T) {
	api := newAPIServer(t)
	api.set(newPod("a", "10.0.0.1"))
	config := api.config()
	config.Host = "http://127.0.0.1:1" // no API server
	d, daemon := newHostDaemon(t)
	start(t, config, daemon)
	select {
	case c := <-d.commits:
		t.Errorf("without API server it sends %+v", c)
	case <-time.After(10 * settleTime):
	}
}

// The runtime knows a static pod by the UID that its mirror has as an annotation. No annotation
// gives a pod the UID of another pod.
func TestAttackAnnotatedUID(t *testing.T) {
	const hash, uid = "0123456789abcdef0123456789abcdef", "9a3f0a7c-5f0e-4b0b-9d55-0d9c1a3f1b11"
	for want, annotations := range map[types.UID]map[string]string{
		hash:    {corev1.MirrorPodAnnotationKey: hash, configHash: hash},
		"uid-a": {corev1.MirrorPodAnnotationKey: uid, configHash: uid},
		"uid-b": {configHash: hash},
	} {
		p := newPod(strings.TrimPrefix(string(want), "uid-"), "")
		p.Annotations = annotations
		if got, err := strip(p); err != nil || got.(*corev1.Pod).UID != want || len(got.(*corev1.Pod).Annotations) > 0 {
			t.Errorf("%v: UID %q, %v, want %q", annotations, got.(*corev1.Pod).UID, err, want)
		}
	}
}

// The policies for a split pod are for its companions, which do not have its labels in the API. A pod
// that belongs to no pod gets no labels by the annotation.
func TestLabelsOfCompanion(t *testing.T) {
	yes := true
	for want, owner := range map[string]string{"web": "Pod", "": "ReplicaSet"} {
		p := newPod("web-0-f1", "")
		p.Labels = map[string]string{splitpod.PodLabel: "f00"}
		p.Annotations = map[string]string{splitpod.LabelsAnnotation: `{"app":"web","unnest.io/split-pod":"other"}`}
		p.OwnerReferences = []metav1.OwnerReference{{Kind: owner, Name: "web-0", UID: "f00", Controller: &yes}}
		if _, err := strip(p); err != nil || p.Labels["app"] != want || p.Labels[splitpod.PodLabel] != "f00" {
			t.Errorf("a pod of a %s has the labels %v, %v", owner, p.Labels, err)
		}
	}
}

// refusing is a daemon that has revoked the client's certificate.
type refusing struct{ hostdpb.HostPolicyClient }

func (refusing) Apply(context.Context, ...grpc.CallOption) (hostdpb.HostPolicy_ApplyClient, error) {
	return nil, grpcstatus.Error(codes.Unauthenticated, "the certificate is not that of the present policy client")
}

// A client whose certificate is not valid any more ends, so that who starts it again sees it, and with new
// credentials it is in step.
func TestRunEndsWhenRevoked(t *testing.T) {
	err := Run(t.Context(), newAPIServer(t).config(), refusing{}, slog.New(slog.NewTextHandler(t.Output(), nil)))
	if grpcstatus.Code(err) != codes.Unauthenticated {
		t.Errorf("Run returns %v", err)
	}
}
