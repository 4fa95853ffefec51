package cni

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/containernetworking/cni/libcni"
	types100 "github.com/containernetworking/cni/pkg/types/100"
)

// eth0 is the usual name of a pod's interface.
const eth0 = "eth0"

// trial is one check under way at one version: its pods, and what runtimes do
// with them.
type trial struct {
	*network
	ctx    context.Context
	o      *Options
	ground *ground
	pods   []*pod
	// touched are the interfaces that an ADD was tried for, by pod.
	touched map[*pod][]string
}

func newTrial(ctx context.Context, n *network, o *Options, g *ground) *trial {
	return &trial{network: n, ctx: ctx, o: o, ground: g, touched: map[*pod][]string{}}
}

// pod makes a pod that goes with the trial.
func (t *trial) pod() (*pod, error) {
	if err := t.ctx.Err(); err != nil {
		return nil, context.Cause(t.ctx)
	}
	p, err := newPod()
	if err != nil {
		return nil, err
	}
	t.pods = append(t.pods, p)
	return p, nil
}

// touch notes an interface that is to be deleted in the end. It is not for
// concurrent use.
func (t *trial) touch(p *pod, ifname string) {
	if !slices.Contains(t.touched[p], ifname) {
		t.touched[p] = append(t.touched[p], ifname)
	}
}

func (t *trial) addTo(p *pod, ifname string) (*types100.Result, error) {
	if err := t.ctx.Err(); err != nil {
		return nil, context.Cause(t.ctx)
	}
	t.touch(p, ifname)
	return t.add(t.ctx, attachment(p, ifname))
}

func (t *trial) delFrom(p *pod, ifname string) error { return t.del(t.ctx, attachment(p, ifname)) }

// up makes a pod and adds it to the network.
func (t *trial) up(ifname string) (*pod, *types100.Result, error) {
	p, err := t.pod()
	if err != nil {
		return nil, nil, err
	}
	r, err := t.addTo(p, ifname)
	return p, r, err
}

// works returns an error when the pod is not as the result says or reaches no
// peer, or when CHECK says so.
func (t *trial) works(p *pod, ifname string, r *types100.Result) error {
	if err := verify(p, ifname, r); err != nil {
		return err
	}
	if !older(t.version, "0.4.0") {
		if err := t.check(t.ctx, attachment(p, ifname)); err != nil {
			return err
		}
	}
	return t.reach(p, r)
}

// reach returns nil when there is no peer to be reached.
func (t *trial) reach(p *pod, r *types100.Result) error {
	for _, peer := range t.peers(r) {
		if err := peer.reach(t.ctx, p.path); err != nil {
			return err
		}
	}
	return nil
}

func (t *trial) peers(r *types100.Result) []Peer {
	if len(t.o.Peers) > 0 {
		return t.o.Peers
	}
	return gateways(r)
}

func gateways(r *types100.Result) (peers []Peer) {
	for _, ip := range r.IPs {
		if a, ok := netip.AddrFromSlice(ip.Gateway); ok {
			peers = append(peers, pinged(a.Unmap()))
		}
	}
	return peers
}

// empty returns an error when anything of a pod without interfaces is left.
func (t *trial) empty(p *pod) error {
	if err := p.clean(); err != nil {
		return err
	}
	return t.ground.leak()
}

// call runs the first plugin for a pod by the protocol itself. The edits change
// the configuration.
func (t *trial) call(command string, rt *libcni.RuntimeConf, edits map[string]any) (answer, error) {
	config, err := t.config(edits)
	if err != nil {
		return answer{}, err
	}
	return t.raw(t.ctx, t.parameters(command, rt), config)
}

// removePods deletes what the trial has added, and the pods, whether or not the
// trial's time is over.
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

// failed returns an error unless err is a plugin's refusal.
func failed(what string, err error) error {
	if err == nil {
		return fmt.Errorf("%s: it succeeded", what)
	}
	return nil
}
