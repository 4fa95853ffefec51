package cni

import (
	"errors"
	"fmt"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"unnest.io/unnest/internal/check"
)

// checkCases check that CHECK reports what is missing.
var checkCases = []testCase{
	{"check", "CHECK", Must, "0.4.0", checkGood},
	{"check-address-removed", "CHECK", Must, "0.4.0", checkReports(removeAddress)},
	{"check-route-removed", "CHECK", Must, "0.4.0", checkReports(removeRoute)},
	{"check-link-removed", "CHECK", Must, "0.4.0", checkReports(func(t *trial, p *pod, _ *types100.Result) { t.takeLink(p, eth0) })},
	{"check-netns-gone", "CHECK", Must, "0.4.0", checkReports(func(_ *trial, p *pod, _ *types100.Result) { check.Must(p.remove()) })},
}

func checkGood(t *trial) {
	p, _ := t.up(eth0)
	for range 2 {
		check.Must(t.check(t.ctx, attachment(p, eth0)))
	}
}

// checkReports breaks a pod. CHECK must then fail, and DEL must succeed.
func checkReports(breakPod func(*trial, *pod, *types100.Result)) func(*trial) {
	return func(t *trial) {
		p, r := t.up(eth0)
		check.Within("before", func() { check.Must(t.check(t.ctx, attachment(p, eth0))) })
		breakPod(t, p, r)
		mustFail("CHECK", t.check(t.ctx, attachment(p, eth0)))
		t.delFrom(p, eth0)
	}
}

func removeAddress(_ *trial, p *pod, r *types100.Result) {
	if len(r.IPs) == 0 {
		check.Skip("the result has no addresses")
	}
	check.Must(p.inside(func(h *netlink.Handle) error {
		l, err := linkIn(h, eth0)
		if err != nil {
			return err
		}
		return h.AddrDel(l, &netlink.Addr{IPNet: &r.IPs[0].Address})
	}))
}

func removeRoute(_ *trial, p *pod, r *types100.Result) {
	if len(r.Routes) == 0 {
		check.Skip("the result has no routes")
	}
	check.Must(p.inside(func(h *netlink.Handle) error {
		routes, err := routesTo(h, r.Routes[0])
		if err == nil && len(routes) == 0 {
			err = fmt.Errorf("the pod has no route %s", r.Routes[0])
		}
		for _, found := range routes {
			err = errors.Join(err, h.RouteDel(&found))
		}
		return err
	}))
}

// takeLink moves a link from the pod into another pod, because some kinds of links cannot
// be deleted from inside.
func (t *trial) takeLink(p *pod, name string) {
	fd := check.Get(netns.GetFromPath(t.pod().path))
	defer fd.Close()
	err := p.inside(func(h *netlink.Handle) error {
		l, err := linkIn(h, name)
		if err != nil {
			return err
		}
		return h.LinkSetNsFd(l, int(fd))
	})
	if err != nil {
		check.Failf("move %s out of the pod: %w", name, err)
	}
}
