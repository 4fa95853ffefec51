package cni

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"github.com/containernetworking/cni/libcni"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"unnest.io/unnest/internal/check"
)

// eth0 is the usual name of a pod's interface.
const eth0 = "eth0"

// trial is one check running at one version: its pods, and what a container runtime does
// with them. Methods that return no error end the check when they fail, see package check.
type trial struct {
	*network
	ctx  context.Context
	o    *Options
	host *hostLinks
	pods []*pod
	// touched lists, by pod, the interfaces that an ADD was tried for.
	touched map[*pod][]string
}

func newTrial(ctx context.Context, n *network, o *Options, host *hostLinks) *trial {
	return &trial{network: n, ctx: ctx, o: o, host: host, touched: map[*pod][]string{}}
}

// pod creates a pod, which is removed at the end of the trial.
func (t *trial) pod() *pod {
	check.Must(context.Cause(t.ctx))
	p := check.Get(newPod())
	t.pods = append(t.pods, p)
	return p
}

// touch has an interface deleted at the end of the trial. It is not safe for concurrent use.
func (t *trial) touch(p *pod, ifname string) {
	if !slices.Contains(t.touched[p], ifname) {
		t.touched[p] = append(t.touched[p], ifname)
	}
}

func (t *trial) tryAdd(p *pod, ifname string) (*types100.Result, error) {
	check.Must(context.Cause(t.ctx))
	t.touch(p, ifname)
	return t.add(t.ctx, attachment(p, ifname))
}

func (t *trial) addTo(p *pod, ifname string) *types100.Result { return check.Get(t.tryAdd(p, ifname)) }

func (t *trial) delFrom(p *pod, ifname string) { check.Must(t.del(t.ctx, attachment(p, ifname))) }

// up creates a pod and adds it to the network.
func (t *trial) up(ifname string) (*pod, *types100.Result) {
	p := t.pod()
	return p, t.addTo(p, ifname)
}

// works ends the check unless the pod is as the result says, reaches all peers, and
// passes CHECK.
func (t *trial) works(p *pod, ifname string, r *types100.Result) {
	check.Must(verify(p, ifname, r))
	if !older(t.version, "0.4.0") {
		check.Must(t.check(t.ctx, attachment(p, ifname)))
	}
	check.Must(t.reach(t.ctx, p, r))
}

// reach returns an error if the pod does not reach one of the peers.
func (n *network) reach(ctx context.Context, p *pod, r *types100.Result) error {
	for _, peer := range n.peersOf(r) {
		if err := peer.reach(ctx, p.path, n.wait); err != nil {
			return err
		}
	}
	return nil
}

// peersOf returns the peers of the network, or else the gateways of a result.
func (n *network) peersOf(r *types100.Result) []Peer {
	peers := n.peers
	if len(peers) > 0 {
		return peers
	}
	for _, ip := range r.IPs {
		if a, ok := netip.AddrFromSlice(ip.Gateway); ok {
			peers = append(peers, pinged(a.Unmap()))
		}
	}
	return peers
}

// mustBeEmpty ends the check if links are left of a pod without interfaces.
func (t *trial) mustBeEmpty(p *pod) {
	check.Must(p.clean())
	check.Must(t.host.leak())
}

// removePods deletes what the trial has added, and the pods, even if t.ctx has ended.
func (t *trial) removePods() error {
	ctx := context.WithoutCancel(t.ctx)
	var all error
	for _, p := range t.pods {
		for _, ifname := range t.touched[p] {
			all = errors.Join(all, t.del(ctx, attachment(p, ifname)))
		}
		all = errors.Join(all, p.remove())
	}
	return all
}

// mustFail ends the check if a command that a plugin must refuse has succeeded.
func mustFail(what string, err error) {
	if err == nil {
		check.Failf("%s succeeded, but must fail", what)
	}
}

// call is a direct call of the first plugin, without libcni.
type call struct {
	command string
	set     parameters     // replace those of the attachment
	unset   string         // a parameter to leave out
	config  map[string]any // replace keys of the configuration
	stdin   *string        // replaces the configuration
}

func (t *trial) run(p *pod, c call) answer {
	params := t.parameters(c.command, attachment(p, eth0))
	for name, value := range c.set {
		params[name] = value
	}
	delete(params, c.unset)
	stdin := check.Get(t.config(c.config))
	if c.stdin != nil {
		stdin = []byte(*c.stdin)
	}
	return check.Get(t.raw(t.ctx, params, stdin))
}

// attachment names a pod's interface as a runtime does.
func attachment(p *pod, ifname string) *libcni.RuntimeConf {
	return &libcni.RuntimeConf{ContainerID: p.id, NetNS: p.path, IfName: ifname}
}
