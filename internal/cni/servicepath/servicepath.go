// Package servicepath gives a pod with a NIC of its own a second way, through the
// guest, for what only the guest's packet filter can do: cluster services
// (kube-proxy's destination NAT), host ports (the plugin portmap's) and probes
// by the node's agent. The pod's own NIC bypasses the guest, and with it those
// rules.
//
// The way is a veth, svc0 in the pod. The pod has routes over it to the service
// ranges, with its own addresses as source; the guest has a host route to each of
// the pod's addresses. Both know the other's MAC from the start, so nobody has to
// answer ARP for another.
//
// A table of the guest's packet filter, unnest-services, does two things with
// what comes from the pods this way. A connection to a service whose backend is
// elsewhere gets the guest's address as source: else the backend would answer the
// pod's own NIC, past the NAT. A connection that no rule has translated is
// rejected: the way is for services, not round the host's checks. A connection
// between two pods of the guest keeps its source, as the answer comes back by the
// other's svc0. For that, each pod has a table too: it marks the connections that
// came in by svc0, and a routing rule sends their answers out there. That makes
// the pod's kernel track connections, which costs some of its NIC's speed; a pod
// without service ranges does not pay it.
//
// The guest forwards packets (the sysctls ip_forward, all.send_redirects = 0, and
// all.forwarding for IPv6 are set and left), and needs Linux 5.7 for input interfaces in the
// postrouting hook. Proxies that translate nothing in the packet filter's
// prerouting hook, such as those in eBPF and IPVS, are not served. An answer to a
// client that the pod has no route to at all is lost before the mark is looked at.
//
// What the ranges are, and when there is such a way, belongs to the
// configuration; the pod's own NIC to package podnet.
package servicepath

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
)

// Owner is the attachment that a path belongs to.
type Owner struct{ Network, Container, Interface string }

// Path is one pod's way through the guest.
type Path struct {
	Owner     Owner
	Addresses []netip.Addr   // the pod's, on its own NIC
	Ranges    []netip.Prefix // what the pod reaches by it
	MTU       int            // bytes; 0: the kernel's choice
}

// End is one end of a path's veth.
type End struct {
	Name string
	MAC  net.HardwareAddr
	MTU  int
}

// Ends are both ends of a path's veth.
type Ends struct{ Guest, Pod End }

// ErrOtherPath is wrapped when the pod has a path of another attachment.
var ErrOtherPath = errors.New("the pod has a service path of another network: give services to one of its networks only")

// Add makes the path between the calling thread's network namespace, the guest's,
// and the pod's. One of the same owner that is there is made anew. On an error
// nothing of it is left.
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
	if err := podIsFree(pod); err != nil {
		return Ends{}, err
	}
	ends, err := p.addVeth(pod)
	if err != nil {
		return Ends{}, err
	}
	plan := p.plan(ends)
	if err := plan.guest.apply(); err != nil {
		return Ends{}, fmt.Errorf("in the guest: %w", err)
	}
	if err := filterGuest(ends.Guest.Name); err != nil {
		return Ends{}, err
	}
	err = pod.Do(func(ns.NetNS) error {
		if err := plan.pod.apply(); err != nil {
			return err
		}
		return filterPod()
	})
	if err != nil {
		return Ends{}, fmt.Errorf("in the pod: %w", err)
	}
	return ends, nil
}

func podIsFree(pod ns.NetNS) error {
	return pod.Do(func(ns.NetNS) error {
		l, err := findLink(podEnd)
		if err == nil && l != nil {
			return ErrOtherPath
		}
		return err
	})
}

func (p Path) addVeth(pod ns.NetNS) (Ends, error) {
	a := netlink.NewLinkAttrs()
	a.Name, a.MTU = p.Owner.guestEnd(), p.MTU
	v := &netlink.Veth{LinkAttrs: a, PeerName: podEnd, PeerNamespace: netlink.NsFd(int(pod.Fd()))}
	if p.MTU > 0 {
		v.PeerMTU = uint32(p.MTU)
	}
	if err := netlink.LinkAdd(v); err != nil {
		return Ends{}, fmt.Errorf("add veth: %w", err)
	}
	guest, err := netlinksafe.LinkByName(a.Name)
	if err != nil {
		return Ends{}, fmt.Errorf("find veth: %w", err)
	}
	if err := netlink.LinkSetAlias(guest, p.Owner.alias()); err != nil {
		return Ends{}, fmt.Errorf("set alias of veth: %w", err)
	}
	ends := Ends{Guest: endOf(guest)}
	err = pod.Do(func(ns.NetNS) error {
		l, err := netlinksafe.LinkByName(podEnd)
		if err == nil {
			ends.Pod = endOf(l)
		}
		return err
	})
	if err != nil {
		return Ends{}, fmt.Errorf("find %s in the pod: %w", podEnd, err)
	}
	return ends, nil
}

func endOf(l netlink.Link) End {
	a := l.Attrs()
	return End{Name: a.Name, MAC: a.HardwareAddr, MTU: a.MTU}
}

// Del removes the owner's path, or what is left of it; there may be nothing. The
// veth takes both sides' routes with it. Pod may be nil when its network
// namespace is gone or unknown, and with it the pod's side.
func Del(o Owner, pod ns.NetNS) error {
	err := errors.Join(delLink(o.guestEnd()), unfilterGuest(o.guestEnd()))
	if pod != nil {
		err = errors.Join(err, pod.Do(func(ns.NetNS) error { return delPodSide() }))
	}
	if err != nil {
		return fmt.Errorf("delete service path %s: %w", o.guestEnd(), err)
	}
	return nil
}

// delPodSide leaves a pod alone that has a path: it is another attachment's.
func delPodSide() error {
	l, err := findLink(podEnd)
	if l != nil || err != nil {
		return err
	}
	return errors.Join(delRules(), dropTable())
}

func delLink(name string) error {
	l, err := findLink(name)
	if l == nil || err != nil {
		return err
	}
	err = netlink.LinkDel(l)
	if again, findErr := findLink(name); again == nil && findErr == nil {
		return nil // it may go with its pod at the same time
	}
	return err
}

// findLink returns nil when there is none of the name.
func findLink(name string) (netlink.Link, error) {
	l, err := netlinksafe.LinkByName(name)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("find link %s: %w", name, err)
	}
	return l, nil
}
