package brfusion

import (
	"context"
	"fmt"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"unnest/internal/cni/netconf"
	"unnest/internal/cni/servicepath"
)

// pathOf is the service path that the configuration asks for; ok is false when it
// asks for none.
func pathOf(c netconf.BrFusion, args *skel.CmdArgs, ips []*types100.IPConfig, mtu int) (p servicepath.Path, ok bool) {
	return servicepath.Path{Owner: owner(c, args), Addresses: plain(ips), Ranges: c.Services, MTU: mtu}, len(c.Services) > 0
}

// services completes the result: the pod's interface is its first, and the
// service path's ends follow, which have no addresses that the result would have
// to name.
func (a *addition) services(context.Context) error {
	a.result.Interfaces = []*types100.Interface{&a.eth}
	for _, ip := range a.result.IPs {
		ip.Interface = types100.Int(0)
	}
	if !a.config.DNS.IsEmpty() {
		a.result.DNS = a.config.DNS
	}
	path, ok := pathOf(a.config, a.args, a.result.IPs, a.eth.Mtu)
	if !ok {
		return nil
	}
	ends, err := path.Add(a.pod)
	if err != nil {
		return err
	}
	a.result.Interfaces = append(a.result.Interfaces, interfaceOf(ends.Guest, ""), interfaceOf(ends.Pod, a.args.Netns))
	return nil
}

func interfaceOf(e servicepath.End, sandbox string) *types100.Interface {
	return &types100.Interface{Name: e.Name, Mac: e.MAC.String(), Mtu: e.MTU, Sandbox: sandbox}
}

func (a *addition) undoServices(context.Context) error {
	if len(a.config.Services) == 0 {
		return nil
	}
	return servicepath.Del(owner(a.config, a.args), a.pod)
}

// print ends the ADD. A result from a plugin before us in the chain is handed on
// as the first part of ours (CNI specification, section 2, ADD).
func (a *addition) print(context.Context) error {
	r := a.result
	if a.config.PrevResult != nil {
		before, err := types100.NewResultFromResult(a.config.PrevResult)
		if err != nil {
			return fmt.Errorf("read prevResult: %w", err)
		}
		r = after(before, r)
	}
	return types.PrintResult(r, a.config.CNIVersion)
}

// after joins two results. The second's indexes of interfaces move up.
func after(before, r *types100.Result) *types100.Result {
	all := &types100.Result{
		Interfaces: append(before.Interfaces, r.Interfaces...),
		IPs:        before.IPs,
		Routes:     append(before.Routes, r.Routes...),
		DNS:        r.DNS,
	}
	for _, ip := range r.IPs {
		moved := ip.Copy()
		moved.Interface = types100.Int(*ip.Interface + len(before.Interfaces))
		all.IPs = append(all.IPs, moved)
	}
	if all.DNS.IsEmpty() {
		all.DNS = before.DNS
	}
	return all
}
