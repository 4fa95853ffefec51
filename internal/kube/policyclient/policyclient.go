// Package policyclient keeps a host daemon's filter in step with the network policies of a
// Kubernetes cluster: it watches policies, pods and namespaces, and sends the rules of each
// pod with an address to the daemon.
//
// What the rules are belongs to package networkpolicy, and how they are enforced to the
// daemon.
package policyclient

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"unnest.io/unnest/internal/hostapi/hostdpb"
	"unnest.io/unnest/internal/hostapi/policylimit"
	"unnest.io/unnest/internal/kube/networkpolicy"
)

const (
	// settleTime is what a change may wait for others: a Deployment changes many pods.
	settleTime = 50 * time.Millisecond
	retryTime  = time.Second
	beginTime  = 10 * time.Second // for the daemon's first word
)

// Run keeps the daemon in step until ctx ends. When the daemon or the API server cannot be
// reached, it tries again; what is in force stays meanwhile. It logs an error once until
// there is another. If the daemon refuses the client's credentials, Run returns its error: somebody has
// revoked them or enrolled another client.
func Run(ctx context.Context, config *rest.Config, daemon hostdpb.HostPolicyClient, log *slog.Logger) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := &client{log: log, changed: make(chan struct{}, 1)}
	var err error
	if c.informers, err = newInformers(config, c.change); err != nil {
		return err
	}
	c.refusals = newRefusals(log, c.informers.core)
	c.informers.run(ctx)
	last := ""
	for ctx.Err() == nil {
		err := c.serve(ctx, daemon)
		if grpcstatus.Code(err) == codes.Unauthenticated {
			return err
		}
		if text := fmt.Sprint(err); ctx.Err() == nil && text != last {
			log.Error("the host daemon does not take policies; trying again", "error", err)
			last = text
		}
		select {
		case <-ctx.Done():
		case <-time.After(retryTime):
		}
	}
	return nil
}

type client struct {
	informers  *informers
	log        *slog.Logger
	changed    chan struct{}
	translator networkpolicy.Translator
	refusals   *refusals
	invalid    string // what was logged last
	addresses  networkpolicy.Addresses
	here       map[types.UID]int // 1 for the pods with NICs on the daemon's host
	memory     int               // that the daemon has for the rules; 0: it does not say
	crowded    bool              // there are more pods than the daemon takes
}

func (c *client) change() {
	select {
	case c.changed <- struct{}{}:
	default: // a change is noted already
	}
}

// podState is what the daemon is told of a pod.
type podState struct {
	uid       types.UID
	node      string
	addresses []netip.Addr
	rules     networkpolicy.Rules
}

// answer is what came from the daemon.
type answer struct {
	response *hostdpb.ApplyResponse
	err      error
}

// serve keeps the daemon in step over one stream. The first commit has everything.
func (c *client) serve(ctx context.Context, daemon hostdpb.HostPolicyClient) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := daemon.Apply(ctx)
	if err != nil {
		return err
	}
	answers := make(chan answer)
	go func() {
		for {
			r, err := stream.Recv()
			select {
			case answers <- answer{r, err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	sent := map[types.NamespacedName]podState{}
	c.addresses, c.here, c.memory = networkpolicy.Addresses{Attached: map[types.UID]networkpolicy.Attached{}}, map[types.UID]int{}, 0
	if err := c.begin(ctx, answers); err != nil {
		return err
	}
	c.change() // the daemon has nothing of this stream
	retry := time.NewTicker(eventTime)
	defer retry.Stop()
	for first, changed := true, c.changed; ; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case a := <-answers:
			if a.err != nil {
				return a.err
			}
			if c.answered(ctx, a.response, sent) {
				changed = c.changed
			}
		case <-retry.C:
			c.refusals.send(ctx)
		case <-changed:
			if err := c.settle(ctx); err != nil {
				return err
			}
			committed, err := c.send(ctx, stream, sent, first)
			if err != nil {
				return errors.Join(err, (<-answers).err)
			}
			if committed { // the daemon may make it wait: changes come together until then
				changed = nil
			}
			first = false
		}
	}
}

// begin waits until the daemon has said which addresses are whose. Rules that follow from less
// would end what is allowed.
func (c *client) begin(ctx context.Context, answers <-chan answer) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(beginTime):
		return fmt.Errorf("the host daemon has not said in %s which addresses its pods have: update it, if it is older than this program", beginTime)
	case a := <-answers:
		if a.err == nil {
			c.own(a.response.GetOwnership())
		}
		return a.err
	}
}

// own notes which pods have NICs here, which addresses are whose, and how much memory there is for the rules.
func (c *client) own(o *hostdpb.Ownership) {
	for _, p := range o.GetPods() {
		uid, all := types.UID(p.GetUid()), parse(p.GetAddresses(), netip.ParseAddr)
		delete(c.addresses.Attached, uid)
		delete(c.here, uid)
		if len(all) > 0 {
			c.addresses.Attached[uid] = networkpolicy.Attached{Node: p.GetNode(), Addresses: all}
		}
		if len(all) > 0 || p.GetNode() != "" { // with DHCP, the daemon knows no address
			c.here[uid] = 1
		}
	}
	if r := o.GetRanges(); r != nil {
		c.addresses.Pods, c.addresses.Nodes = parse(r.GetPods(), netip.ParsePrefix), parse(r.GetNodes(), netip.ParsePrefix)
	}
	if m := o.GetMemory(); m > 0 {
		c.memory = int(m)
	}
}

func parse[T any](texts []string, as func(string) (T, error)) (all []T) {
	for _, text := range texts {
		if t, err := as(text); err == nil {
			all = append(all, t)
		}
	}
	return all
}

// settle waits until everything is listed, and for changes that come together.
func (c *client) settle(ctx context.Context) error {
	for wait := true; wait; wait = !c.informers.synced() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(settleTime):
		}
	}
	return nil
}

// answered logs the answer to a commit, or notes what else the daemon says. Pods whose policy the daemon has
// forgotten are sent again if they exist.
func (c *client) answered(ctx context.Context, r *hostdpb.ApplyResponse, sent map[types.NamespacedName]podState) (commit bool) {
	if r.GetOwnership() == nil && len(r.GetEnded()) == 0 {
		c.log.Info("policies are in force", "pods", r.GetPods(), "nics", r.GetNics())
		c.refusals.say(ctx, "the host daemon", r.GetRefused())
		return true
	}
	c.own(r.GetOwnership())
	ended := map[string]bool{}
	for _, name := range r.GetEnded() {
		ended[name] = true
	}
	for name := range sent {
		if ended[name.String()] {
			delete(sent, name)
		}
	}
	c.change()
	return false
}

// send sends what differs from what was sent, and commits it, if anything does. Removals come first, also of pods that change: the
// daemon need not have room for old and new rules at once.
func (c *client) send(ctx context.Context, stream hostdpb.HostPolicy_ApplyClient, sent map[types.NamespacedName]podState, first bool) (committed bool, err error) {
	now := c.states(ctx)
	var all []*hostdpb.ApplyRequest
	for name, was := range sent {
		if state, ok := now[name]; !ok || !reflect.DeepEqual(was, state) {
			all = append(all, &hostdpb.ApplyRequest{Remove: name.String()})
			delete(sent, name)
		}
	}
	for name, state := range now {
		if _, ok := sent[name]; !ok {
			all = append(all, requests(name.String(), state)...)
			sent[name] = state
		}
	}
	if len(all) == 0 && !first {
		return false, nil
	}
	for _, r := range append(all, &hostdpb.ApplyRequest{Commit: true}) {
		if err := stream.Send(r); err != nil {
			return false, err
		}
	}
	return true, nil
}

// states returns the rules of all pods, also of those that have no NIC yet: the daemon has them
// when it comes.
func (c *client) states(ctx context.Context) map[types.NamespacedName]podState {
	cluster := c.informers.cluster()
	cluster.Addresses, cluster.Memory = c.addresses, c.memory
	t := c.translator.Translate(cluster)
	if text := fmt.Sprint(t.Invalid); t.Invalid != nil && text != c.invalid {
		c.log.Warn("policies are invalid in part", "error", t.Invalid)
		c.invalid = text
	}
	c.refusals.say(ctx, "the policy client", t.Refused)
	bound := slices.DeleteFunc(cluster.Pods, func(p *corev1.Pod) bool { // one that is not bound has no NIC
		_, ok := t.Rules[nameOf(p)]
		return !ok || p.Spec.NodeName == ""
	})
	states := map[types.NamespacedName]podState{}
	for _, p := range c.within(bound) {
		states[nameOf(p)] = podState{p.UID, p.Spec.NodeName, addresses(p), t.Rules[nameOf(p)]}
	}
	return states
}

// within returns as many pods as the daemon takes: those with a NIC here, and others in the order of their names. When another one gets a NIC, the
// daemon says so, and it is among them. Until then its NIC is closed.
func (c *client) within(pods []*corev1.Pod) []*corev1.Pod {
	crowded := len(pods) > policylimit.Pods
	if crowded && !c.crowded {
		c.log.Warn("the cluster has more pods on nodes than the host daemon takes: pods without a NIC here wait for their policies when they get one", "pods", len(pods), "most", policylimit.Pods)
	}
	if c.crowded = crowded; !crowded {
		return pods
	}
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(c.here[b.UID]-c.here[a.UID], cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return pods[:policylimit.Pods]
}

func nameOf(p *corev1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
}

func addresses(p *corev1.Pod) (all []netip.Addr) {
	for _, ip := range p.Status.PodIPs {
		if a, err := netip.ParseAddr(ip.IP); err == nil {
			all = append(all, a.Unmap())
		}
	}
	return all
}
