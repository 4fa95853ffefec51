package servicepath

import (
	"errors"
	"fmt"

	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/containernetworking/plugins/pkg/ns"
)

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
	plan := p.plan(ends)
	if err := plan.guest.check(); err != nil {
		return fmt.Errorf("in the guest: %w", err)
	}
	t := table()
	if err := errors.Join(checkChains(guestChains(t, hairpins(t))), checkHairpin(ends.Guest.Name)); err != nil {
		return fmt.Errorf("in the guest: %w", err)
	}
	err = pod.Do(func(ns.NetNS) error {
		if err := plan.pod.check(); err != nil {
			return err
		}
		return checkChains(podChains(t))
	})
	if err != nil {
		return fmt.Errorf("in the pod: %w", err)
	}
	return nil
}

// ends finds the veth.
func (p Path) ends(pod ns.NetNS) (e Ends, err error) {
	guest, err := netlinksafe.LinkByName(p.Owner.guestEnd())
	if err != nil {
		return Ends{}, fmt.Errorf("find veth: %w", err)
	}
	e.Guest = endOf(guest)
	err = pod.Do(func(ns.NetNS) error {
		l, err := netlinksafe.LinkByName(podEnd)
		if err != nil {
			return fmt.Errorf("find %s in the pod: %w", podEnd, err)
		}
		if l.Attrs().ParentIndex != guest.Attrs().Index {
			return fmt.Errorf("%s in the pod is not the other end of %s", podEnd, e.Guest.Name)
		}
		e.Pod = endOf(l)
		return nil
	})
	return e, err
}

// Reap removes the network's paths whose owners are not valid, from the calling
// thread's network namespace. A path goes with its pod's namespace by itself, so
// what is left is mostly entries in the guest's table. It removes the table too
// when no path is left, and so must not run beside an Add.
func Reap(network string, valid func(Owner) bool) error {
	links, err := netlinksafe.LinkList()
	if err != nil {
		return fmt.Errorf("list links: %w", err)
	}
	var all error
	left := map[string]bool{}
	for _, l := range links {
		o, ok := ownerOf(l.Attrs().Alias)
		switch {
		case !ok || o.guestEnd() != l.Attrs().Name:
		case o.Network == network && !valid(o):
			all = errors.Join(all, Del(o, nil))
		default:
			left[o.guestEnd()] = true
		}
	}
	if len(left) == 0 {
		return errors.Join(all, dropTable())
	}
	return errors.Join(all, reapHairpins(left))
}

// reapHairpins removes the entries of links that are gone.
func reapHairpins(left map[string]bool) error {
	have, err := listHairpins()
	if err != nil {
		return err
	}
	for _, link := range have {
		if !left[link] {
			err = errors.Join(err, unfilterGuest(link))
		}
	}
	return err
}
