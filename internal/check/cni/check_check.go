package cni

import (
	"errors"
	"fmt"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// checkChecks ask whether CHECK sees what is missing.
var checkChecks = []check{
	{"check", "CHECK", Must, "0.4.0", checkGood},
	{"check-address-removed", "CHECK", Must, "0.4.0", func(t *trial) error { return t.notices(removeAddress) }},
	{"check-route-removed", "CHECK", Must, "0.4.0", func(t *trial) error { return t.notices(removeRoute) }},
	{"check-link-removed", "CHECK", Must, "0.4.0", func(t *trial) error {
		return t.notices(func(t *trial, p *pod, _ *types100.Result) error { return t.takeLink(p, eth0) })
	}},
	{"check-netns-gone", "CHECK", Must, "0.4.0", func(t *trial) error {
		return t.notices(func(_ *trial, p *pod, _ *types100.Result) error { return p.remove() })
	}},
}

func checkGood(t *trial) error {
	p, _, err := t.up(eth0)
	if err != nil {
		return err
	}
	for range 2 {
		if err := t.check(t.ctx, attachment(p, eth0)); err != nil {
			return err
		}
	}
	return nil
}

// notices breaks a pod: CHECK has to fail then, and DEL to succeed.
func (t *trial) notices(breakIt func(*trial, *pod, *types100.Result) error) error {
	p, r, err := t.up(eth0)
	if err != nil {
		return err
	}
	if err := t.check(t.ctx, attachment(p, eth0)); err != nil {
		return fmt.Errorf("before: %w", err)
	}
	if err := breakIt(t, p, r); err != nil {
		return err
	}
	if err := failed("CHECK", t.check(t.ctx, attachment(p, eth0))); err != nil {
		return err
	}
	return t.delFrom(p, eth0)
}

func removeAddress(_ *trial, p *pod, r *types100.Result) error {
	if len(r.IPs) == 0 {
		return notApplicable("the result has no addresses")
	}
	return p.inside(func(h *netlink.Handle) error {
		l, err := h.LinkByName(eth0)
		if err != nil {
			return err
		}
		return h.AddrDel(l, &netlink.Addr{IPNet: &r.IPs[0].Address})
	})
}

func removeRoute(_ *trial, p *pod, r *types100.Result) error {
	if len(r.Routes) == 0 {
		return notApplicable("the result has no routes")
	}
	return p.inside(func(h *netlink.Handle) error {
		routes, err := routesTo(h, r.Routes[0])
		if err != nil {
			return err
		}
		if len(routes) == 0 {
			return fmt.Errorf("the pod has no route %s", r.Routes[0])
		}
		for _, found := range routes {
			err = errors.Join(err, h.RouteDel(&found))
		}
		return err
	})
}

// takeLink moves a link out of the pod into another: not every kind can be
// deleted from within.
func (t *trial) takeLink(p *pod, name string) error {
	other, err := t.pod()
	if err != nil {
		return err
	}
	fd, err := netns.GetFromPath(other.path)
	if err != nil {
		return err
	}
	defer fd.Close()
	return p.inside(func(h *netlink.Handle) error {
		l, err := h.LinkByName(name)
		if err != nil {
			return err
		}
		if err := h.LinkSetNsFd(l, int(fd)); err != nil {
			return fmt.Errorf("take %s out of the pod: %w", name, err)
		}
		return nil
	})
}
