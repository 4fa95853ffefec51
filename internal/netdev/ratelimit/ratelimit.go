// Package ratelimit limits the bandwidth of a pod at its TAP on the host, by a token
// bucket (tc-tbf(8)) for each direction. As in CNI's bandwidth plugin, frames from
// the pod go through an ifb device for that.
//
// It works in the network namespace of the calling thread, and keeps all state in
// the kernel. Choosing the limits does not belong here.
package ratelimit

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Limits are seen from the pod, as in CNI's conventions: ingress is what it
// receives, egress what it sends. Rates are in bit/s, 0 for no limit; bursts in bit,
// 0 for a default. A burst below 80 KiB is raised to that, so that the bucket holds
// a frame that is not segmented yet (TSO). Frames of 100 ms may wait, but at most
// 1 MiB, and always a frame.
type Limits struct {
	IngressRate, IngressBurst, EgressRate, EgressBurst uint64
}

// Set replaces the limits of the TAP. When a step fails, it has none.
func Set(iface string, l Limits) (err error) {
	tap, err := netlink.LinkByName(iface)
	if err != nil {
		return fmt.Errorf("limit bandwidth of %s: %w", iface, err)
	}
	ingress, err := newBucket(l.IngressRate, l.IngressBurst)
	if err != nil {
		return fmt.Errorf("limit bandwidth to %s: %w", iface, err)
	}
	egress, err := newBucket(l.EgressRate, l.EgressBurst)
	if err != nil {
		return fmt.Errorf("limit bandwidth from %s: %w", iface, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("limit bandwidth of %s: %w", iface, err), Clear(iface))
		}
	}()
	if ingress == nil {
		err = clearRoot(tap)
	} else {
		err = ingress.install(tap)
	}
	if err != nil {
		return err
	}
	if egress == nil {
		return errors.Join(clearIngress(tap), deleteIfb(ifbName(iface)))
	}
	return setEgress(tap, egress)
}

// Queue returns how many bytes of frames may wait at a port with these limits. It is 0 for
// limits that Set refuses.
func Queue(l Limits) (bytes int64) {
	for _, one := range [][2]uint64{{l.IngressRate, l.IngressBurst}, {l.EgressRate, l.EgressBurst}} {
		if b, err := newBucket(one[0], one[1]); err == nil && b != nil {
			bytes += int64(b.limit())
		}
	}
	return bytes
}

// Clear removes all limits from the TAP. It is not an error if the TAP has none, or
// does not exist.
func Clear(iface string) error {
	var errs []error
	tap, err := netlink.LinkByName(iface)
	switch {
	case err == nil:
		errs = append(errs, clearRoot(tap), clearIngress(tap))
	case !gone(err):
		errs = append(errs, err)
	}
	if err := errors.Join(append(errs, deleteIfb(ifbName(iface)))...); err != nil {
		return fmt.Errorf("clear bandwidth limits of %s: %w", iface, err)
	}
	return nil
}

// Reap removes the ifb devices whose TAP does not exist or does not use them. It
// continues after errors. It must not run at the same time as Set.
func Reap() error {
	links, err := netlinksafe.LinkList()
	if err != nil {
		return fmt.Errorf("list interfaces: %w", err)
	}
	used := map[string]bool{}
	var errs []error
	for _, l := range links {
		if !slices.ContainsFunc(links, func(other netlink.Link) bool { return other.Attrs().Name == ifbName(l.Attrs().Name) }) {
			continue
		}
		redirected, _, err := redirectsTo(l)
		errs = append(errs, err)
		used[ifbName(l.Attrs().Name)] = redirected != 0 || err != nil
	}
	for _, l := range links {
		name := l.Attrs().Name
		if l.Type() == "ifb" && strings.HasPrefix(name, ifbPrefix) && !used[name] {
			errs = append(errs, deleteIfb(name))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove unused ifb devices: %w", err)
	}
	return nil
}

// gone reports whether an error means that a device or its setting no longer
// exists: a TAP disappears with its last holder.
func gone(err error) bool {
	return errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENOENT) || errors.As(err, new(netlink.LinkNotFoundError))
}
