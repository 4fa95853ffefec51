package ratelimit

import (
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/netdev/tc"
)

const ifbPrefix = "shape-"

// ifbName returns the name of a TAP's ifb device. It has a digest, because the TAP's
// own name may have the greatest length already.
func ifbName(tap string) string {
	sum := sha256.Sum256([]byte(tap))
	return fmt.Sprintf("%s%x", ifbPrefix, sum)[:unix.IFNAMSIZ-1]
}

// setEgress limits the frames from the TAP. The bucket is in place before frames are
// redirected to it.
func setEgress(tap netlink.Link, b *bucket) error {
	ifb, err := ensureIfb(tap)
	if err != nil {
		return err
	}
	if err := b.install(ifb); err != nil {
		return err
	}
	if err := netlink.LinkSetUp(ifb); err != nil {
		return fmt.Errorf("set %s up: %w", ifb.Attrs().Name, err)
	}
	current, priority, err := redirectsTo(tap)
	if err != nil || current == ifb.Attrs().Index && priority == redirectPriority {
		return err
	}
	return redirect(tap, ifb)
}

func ensureIfb(tap netlink.Link) (netlink.Link, error) {
	name := ifbName(tap.Attrs().Name)
	// With more than one queue each would have a bucket.
	attrs := netlink.LinkAttrs{Name: name, MTU: tap.Attrs().MTU, NumTxQueues: 1, NumRxQueues: 1}
	err := netlink.LinkAdd(&netlink.Ifb{LinkAttrs: attrs})
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, fmt.Errorf("add ifb device %s: %w", name, err)
	}
	ifb, err := netlink.LinkByName(name)
	if err != nil {
		return nil, fmt.Errorf("find ifb device %s: %w", name, err)
	}
	if ifb.Type() != "ifb" {
		return nil, fmt.Errorf("add ifb device %s: an interface of type %s has this name; rename it", name, ifb.Type())
	}
	if err := netlink.LinkSetAlias(ifb, tap.Attrs().Name); err != nil { // tells an operator the TAP
		return nil, fmt.Errorf("set alias of %s: %w", name, err)
	}
	return ifb, nil
}

func deleteIfb(name string) error {
	ifb, err := netlink.LinkByName(name)
	if err == nil && ifb.Type() == "ifb" {
		err = netlink.LinkDel(ifb)
	}
	if err != nil && !gone(err) {
		return fmt.Errorf("delete ifb device %s: %w", name, err)
	}
	return nil
}

// redirectPriority is larger than that of package checksum: its program sees the frames first. That of
// earlier versions was 1, in a qdisc ingress.
const redirectPriority = 2

// redirectsTo returns the index of the ifb device to which our filter redirects frames from the TAP, 0 if
// that device is gone, and the filter's priority, 0 without a filter.
func redirectsTo(tap netlink.Link) (index int, priority uint16, err error) {
	filters, err := netlinksafe.FilterList(tap, netlink.HANDLE_MIN_INGRESS)
	if gone(err) {
		return 0, 0, nil
	}
	if err != nil {
		return 0, 0, fmt.Errorf("list filters of %s: %w", tap.Attrs().Name, err)
	}
	own := 0
	if ifb, err := netlink.LinkByName(ifbName(tap.Attrs().Name)); err == nil {
		own = ifb.Attrs().Index
	} else if !gone(err) {
		return 0, 0, err
	}
	for _, f := range filters {
		u32, ok := f.(*netlink.U32)
		if !ok {
			continue
		}
		for _, a := range u32.Actions {
			m, ok := a.(*netlink.MirredAction)
			if !ok || m.MirredAction != netlink.TCA_EGRESS_REDIR {
				continue
			}
			left := m.Ifindex == 0 && (u32.Priority == redirectPriority || u32.Priority == 1) // its device is gone
			if left || own > 0 && m.Ifindex == own {
				return m.Ifindex, u32.Priority, nil
			}
		}
	}
	return 0, 0, nil
}

// redirect sends frames from the TAP through the ifb device, which returns them.
func redirect(tap, ifb netlink.Link) error {
	if err := clearIngress(tap); err != nil {
		return err
	}
	if err := tc.Prepare(tap); err != nil {
		return err
	}
	err := netlink.FilterAdd(&netlink.U32{
		FilterAttrs: netlink.FilterAttrs{LinkIndex: tap.Attrs().Index, Parent: netlink.HANDLE_MIN_INGRESS, Priority: redirectPriority, Protocol: unix.ETH_P_ALL},
		ClassId:     netlink.MakeHandle(1, 1),
		Actions:     []netlink.Action{netlink.NewMirredAction(ifb.Attrs().Index)},
	})
	if err != nil {
		return fmt.Errorf("redirect frames of %s through %s: %w", tap.Attrs().Name, ifb.Attrs().Name, err)
	}
	return nil
}

// clearIngress ends the redirection of frames from a TAP. Other filters stay, unless they are in the
// qdisc of earlier versions.
func clearIngress(tap netlink.Link) error {
	if err := clearQdiscs(tap, func(q netlink.Qdisc) bool { return q.Type() == "ingress" }); err != nil {
		return err
	}
	_, priority, err := redirectsTo(tap)
	if err != nil || priority == 0 {
		return err
	}
	err = netlink.FilterDel(&netlink.U32{FilterAttrs: netlink.FilterAttrs{
		LinkIndex: tap.Attrs().Index, Parent: netlink.HANDLE_MIN_INGRESS, Priority: priority, Protocol: unix.ETH_P_ALL,
	}})
	if err != nil && !gone(err) {
		return fmt.Errorf("end the redirection of frames of %s: %w", tap.Attrs().Name, err)
	}
	return nil
}
