// Package servicepath gives a pod with a NIC of its own a second path, through the
// guest, for the functions of the guest's packet filter: cluster services
// (kube-proxy's destination NAT), host ports (the plugin portmap's) and probes by the
// node's agent. The pod's own NIC bypasses the guest, and so those rules.
//
// The path is a veth, svc0 in the pod. The pod has routes over it to the service
// ranges, with its own addresses as source; the guest has a host route to each of
// the pod's addresses. Both have a permanent neighbour entry for the other, so
// neither has to answer ARP for other addresses.
//
// A table of the guest's packet filter, unnest-services, has two rules for packets
// from the pods' paths. A connection to a service whose backend is elsewhere gets the
// guest's address as source: otherwise the backend would answer to the pod's own NIC,
// past the NAT. A connection that no rule has translated is rejected: the path is for
// services, and must not bypass the host's checks. A connection between two pods of
// the guest keeps its source, as the answer returns over the other's svc0. For that,
// each pod has a table too: it marks the connections that came in over svc0, and a
// routing rule sends their answers out there. Therefore the pod's kernel tracks
// connections, which slows its NIC down; a pod without service ranges has no table.
//
// The path needs Linux 5.7, for input interfaces in the postrouting hook. It makes the
// guest forward packets: it sets the sysctls ip_forward, all.send_redirects = 0 and,
// for IPv6, all.forwarding, and leaves them set. It does not serve proxies that
// translate outside the packet filter's prerouting hook, such as those in eBPF and
// IPVS. An answer to a client to which the pod has no route at all is lost, because
// routing fails before the mark is set.
//
// The ranges, and whether there is a path, belong to package netconf; the pod's own
// NIC to package podnic.
package servicepath

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"

	"unnest.io/unnest/internal/cni/podnic"
)

// Owner is the attachment that a path belongs to.
type Owner struct{ Network, Container, Interface string }

// Path is one pod's path through the guest. Its methods, and Del and Reap, work in
// the calling thread's network namespace, which is the guest's.
type Path struct {
	Owner     Owner
	Addresses []netip.Addr   // the pod's, on its own NIC
	Ranges    []netip.Prefix // destinations that the pod reaches over the path
	MTU       int            // bytes; 0: the kernel's default
	// Sources are addresses that only this pod's connections to services have outside the
	// guest. In a family without one they have the guest's.
	Sources []netip.Addr
}

// Ends are both ends of a path's veth.
type Ends struct{ Guest, Pod *netlink.LinkAttrs }

// ErrOtherPath is wrapped when the pod has a path of another attachment.
var ErrOtherPath = errors.New("the pod has a service path of another network; give services to only one of its networks")

// Add makes the path, in place of one of the same owner. On an error nothing of it is
// left.
func (p Path) Add(pod ns.NetNS) (Ends, error) {
	if err := Del(p.Owner, pod); err != nil {
		return Ends{}, err
	}
	ends, err := p.add(pod)
	if err != nil {
		err = fmt.Errorf("add service path %s: %w", p.Owner.guestEnd(), err)
		return Ends{}, errors.Join(err, Del(p.Owner, pod))
	}
	return ends, nil
}

func (p Path) add(pod ns.NetNS) (Ends, error) {
	err := pod.Do(func(ns.NetNS) error {
		l, err := podnic.FindLink(podEnd)
		if l != nil {
			err = ErrOtherPath
		}
		return err
	})
	if err != nil {
		return Ends{}, err
	}
	ends, err := p.addVeth(pod)
	if err != nil {
		return Ends{}, err
	}
	inGuest, inPod := p.layout(ends)
	if err := inGuest.apply(); err != nil {
		return Ends{}, fmt.Errorf("in the guest: %w", err)
	}
	if err := filterGuest(ends.Guest.Name); err != nil {
		return Ends{}, err
	}
	if err := p.addSources(ends.Guest); err != nil {
		return Ends{}, err
	}
	err = pod.Do(func(ns.NetNS) error {
		if err := inPod.apply(); err != nil {
			return err
		}
		return filterPod()
	})
	if err != nil {
		return Ends{}, fmt.Errorf("in the pod: %w", err)
	}
	return ends, nil
}

func (p Path) addVeth(pod ns.NetNS) (Ends, error) {
	a := netlink.NewLinkAttrs()
	a.Name, a.MTU = p.Owner.guestEnd(), p.MTU
	v := &netlink.Veth{LinkAttrs: a, PeerName: podEnd, PeerMTU: uint32(max(p.MTU, 0)), PeerNamespace: netlink.NsFd(int(pod.Fd()))}
	if err := netlink.LinkAdd(v); err != nil {
		return Ends{}, fmt.Errorf("add veth: %w", err)
	}
	if err := netlink.LinkSetAlias(v, p.Owner.alias()); err != nil {
		return Ends{}, fmt.Errorf("set alias of veth: %w", err)
	}
	return p.ends(pod)
}

// ends finds the veth.
func (p Path) ends(pod ns.NetNS) (e Ends, err error) {
	guest, err := netlinksafe.LinkByName(p.Owner.guestEnd())
	if err != nil {
		return Ends{}, fmt.Errorf("find veth: %w", err)
	}
	err = pod.Do(func(ns.NetNS) error {
		l, err := netlinksafe.LinkByName(podEnd)
		if err != nil {
			return fmt.Errorf("find %s in the pod: %w", podEnd, err)
		}
		if l.Attrs().ParentIndex != guest.Attrs().Index {
			return fmt.Errorf("%s in the pod is not the other end of %s", podEnd, guest.Attrs().Name)
		}
		e = Ends{Guest: guest.Attrs(), Pod: l.Attrs()}
		return nil
	})
	return e, err
}

// Check returns an error unless the path is as Add has made it.
func (p Path) Check(pod ns.NetNS) error {
	if err := p.check(pod); err != nil {
		return fmt.Errorf("check service path %s: %w", p.Owner.guestEnd(), err)
	}
	return nil
}

func (p Path) check(pod ns.NetNS) error {
	ends, err := p.ends(pod)
	if err != nil {
		return err
	}
	t := table()
	inGuest, inPod := p.layout(ends)
	err = inGuest.check()
	if err == nil {
		err = errors.Join(checkChains(guestChains(t, hairpins(t))), checkHairpin(ends.Guest.Name), checkSources(ends.Guest))
	}
	if err != nil {
		return fmt.Errorf("in the guest: %w", err)
	}
	err = pod.Do(func(ns.NetNS) error {
		if err := inPod.check(); err != nil {
			return err
		}
		return checkChains(podChains(t))
	})
	if err != nil {
		return fmt.Errorf("in the pod: %w", err)
	}
	return nil
}

// Del removes the owner's path, or the rest of it; it is not an error when there is
// none. The routes of both sides end with the veth. Pod may be nil when its network
// namespace is gone or unknown.
func Del(o Owner, pod ns.NetNS) error {
	err := errors.Join(delLink(o.guestEnd()), unfilterGuest(o.guestEnd()), delSources(func(path string) bool { return path == o.guestEnd() }))
	if pod != nil {
		err = errors.Join(err, pod.Do(func(ns.NetNS) error {
			l, err := podnic.FindLink(podEnd)
			if l != nil || err != nil { // a path that is left is another attachment's
				return err
			}
			return errors.Join(delRules(answers), dropTable())
		}))
	}
	if err != nil {
		return fmt.Errorf("delete service path %s: %w", o.guestEnd(), err)
	}
	return nil
}

func delLink(name string) error {
	l, err := podnic.FindLink(name)
	if l == nil || err != nil {
		return err
	}
	err = netlink.LinkDel(l)
	if again, findErr := podnic.FindLink(name); again == nil && findErr == nil {
		return nil // the pod's end may go at the same time
	}
	return err
}

// Reap removes the network's paths whose owners are not valid. A veth ends with its
// pod's namespace, so mostly entries in the guest's table are left. Reap also removes
// the table when no path is left, and so must not run at the same time as an Add.
func Reap(network string, valid func(Owner) bool) error {
	links, err := netlinksafe.LinkList()
	if err != nil {
		return fmt.Errorf("list links: %w", err)
	}
	var failed error
	left := map[string]bool{}
	for _, l := range links {
		o, ok := ownerOf(l.Attrs().Alias)
		switch {
		case !ok || o.guestEnd() != l.Attrs().Name:
		case o.Network == network && !valid(o):
			failed = errors.Join(failed, Del(o, nil))
		default:
			left[o.guestEnd()] = true
		}
	}
	if len(left) == 0 {
		return errors.Join(failed, delSources(func(string) bool { return true }), delRules(outside), dropTable())
	}
	failed = errors.Join(failed, delSources(func(path string) bool { return !left[path] }))
	entries, err := listHairpins()
	failed = errors.Join(failed, err)
	for _, link := range entries {
		if !left[link] {
			failed = errors.Join(failed, unfilterGuest(link))
		}
	}
	return failed
}
