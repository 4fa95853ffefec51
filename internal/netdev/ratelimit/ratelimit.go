// Package ratelimit limits the bandwidth of a pod at its TAP on the host, by traffic
// control: a token bucket (tc-tbf(8)) for each direction. What comes from the pod
// goes through an ifb device for that, as the bandwidth plugin of CNI does it.
//
// It works in the calling thread's network namespace, and keeps nothing: what
// there is says the kernel. How much a pod may have is decided elsewhere.
package ratelimit

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Limits are seen from the pod, as in CNI's conventions: ingress is what it gets,
// egress what it sends. Rates are in bit/s, 0 for no limit; bursts in bits, 0 for
// what the rate needs. A burst below 80 KiB is taken as that, so that the bucket
// holds a frame that the guest leaves to be segmented (TSO).
type Limits struct {
	IngressRate, IngressBurst, EgressRate, EgressBurst uint64
}

// Set gives the TAP these limits in place of those that it has. When a step fails
// it has none.
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
		return clearEgress(tap)
	}
	return setEgress(tap, egress)
}

// Clear takes all limits off the TAP. That it has none, or is gone, is no error.
func Clear(iface string) error {
	var errs []error
	tap, err := netlink.LinkByName(iface)
	switch {
	case err == nil:
		errs = append(errs, clearRoot(tap), clearIngress(tap))
	case !errors.As(err, new(netlink.LinkNotFoundError)):
		errs = append(errs, err)
	}
	if err := errors.Join(append(errs, deleteIfb(ifbName(iface)))...); err != nil {
		return fmt.Errorf("clear bandwidth limits of %s: %w", iface, err)
	}
	return nil
}

// Reap removes the ifb devices whose TAP is gone, or has no use for them.
// Everything is tried. It must not run beside Set.
func Reap() error {
	links, err := netlink.LinkList()
	if err != nil {
		return fmt.Errorf("list interfaces: %w", err)
	}
	used := map[string]bool{}
	var errs []error
	for _, l := range links {
		if !slices.ContainsFunc(links, func(other netlink.Link) bool { return other.Attrs().Name == ifbName(l.Attrs().Name) }) {
			continue
		}
		redirected, err := redirectsTo(l)
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
		return fmt.Errorf("remove left ifb devices: %w", err)
	}
	return nil
}

// bucket is a token bucket.
type bucket struct {
	rate  uint64 // byte/s
	burst uint64 // bytes
}

const (
	// leastBurst holds a frame of 64 KiB with the headers of its segments, which
	// the kernel counts.
	leastBurst = 80 << 10
	// leastRate is so that the time of the least burst can be said in ticks.
	leastRate = 8000 // bit/s
	// burstsPerSecond is the default burst: 50 ms, some ticks of the slowest
	// kernel timer (100 Hz).
	burstsPerSecond = 20
	// queuesPerSecond is what may wait beside the burst: 100 ms. With the 25 ms of
	// the bandwidth plugin a whole window is lost at times on a busy host, and TCP
	// then waits for its timeout: it got 4 of 10 Mbit/s.
	queuesPerSecond = 10
)

// newBucket takes bit/s and bits. No rate, no bucket.
func newBucket(rate, burst uint64) (*bucket, error) {
	if rate == 0 {
		if burst != 0 {
			return nil, fmt.Errorf("burst of %d bit without a rate: give both, or none", burst)
		}
		return nil, nil
	}
	if rate < leastRate {
		return nil, fmt.Errorf("rate %d bit/s: want at least %d", rate, leastRate)
	}
	b := &bucket{rate: rate / 8, burst: burst / 8}
	if burst == 0 {
		b.burst = b.rate / burstsPerSecond
	}
	b.burst = max(b.burst, leastBurst)
	if b.ticks() > math.MaxUint32 || b.limit() > math.MaxUint32 {
		return nil, fmt.Errorf("burst of %d bit at %d bit/s: the kernel takes less than 4 GiB and %.0f s", burst, rate, math.MaxUint32/netlink.TickInUsec()/1e6)
	}
	return b, nil
}

// ticks is how long the burst takes, in the unit of the kernel's interface.
func (b *bucket) ticks() float64 {
	return float64(b.burst) / float64(b.rate) * 1e6 * netlink.TickInUsec()
}

// limit is how many bytes may wait: at least the largest frame.
func (b *bucket) limit() uint64 { return b.burst + b.rate/queuesPerSecond }

// install makes b the root queueing discipline, in place of what is there.
func (b *bucket) install(link netlink.Link) error {
	err := netlink.QdiscReplace(&netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: link.Attrs().Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT},
		Rate:       b.rate, Buffer: uint32(b.ticks()), Limit: uint32(b.limit()),
	})
	if err != nil {
		return fmt.Errorf("set token bucket of %s: %w", link.Attrs().Name, err)
	}
	return nil
}

// clearRoot deletes the token bucket of a TAP.
func clearRoot(tap netlink.Link) error {
	return clearQdiscs(tap, func(q netlink.Qdisc) bool { return q.Type() == "tbf" && q.Attrs().Parent == netlink.HANDLE_ROOT })
}

func clearIngress(tap netlink.Link) error {
	return clearQdiscs(tap, func(q netlink.Qdisc) bool { return q.Type() == "ingress" })
}

func clearQdiscs(link netlink.Link, ours func(netlink.Qdisc) bool) error {
	all, err := netlink.QdiscList(link)
	if err != nil {
		return fmt.Errorf("list queueing disciplines of %s: %w", link.Attrs().Name, err)
	}
	for _, q := range all {
		if !ours(q) {
			continue
		}
		if err := netlink.QdiscDel(q); err != nil && !gone(err) {
			return fmt.Errorf("delete %s of %s: %w", q.Type(), link.Attrs().Name, err)
		}
	}
	return nil
}

// gone says that something else was faster: the TAP goes with its last holder.
func gone(err error) bool {
	return errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENOENT) || errors.As(err, new(netlink.LinkNotFoundError))
}

func clearEgress(tap netlink.Link) error {
	return errors.Join(clearIngress(tap), deleteIfb(ifbName(tap.Attrs().Name)))
}

// setEgress limits what comes from the TAP. The bucket is there before the frames
// are sent to it.
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
	there, err := redirectsTo(tap)
	if err != nil || there == ifb.Attrs().Index {
		return err
	}
	return redirect(tap, ifb)
}

func ensureIfb(tap netlink.Link) (netlink.Link, error) {
	name := ifbName(tap.Attrs().Name)
	// One queue: with more the bucket would be one queue's, not the device's.
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
		return nil, fmt.Errorf("interface %s is of type %s, not ifb: rename it", name, ifb.Type())
	}
	if err := netlink.LinkSetAlias(ifb, tap.Attrs().Name); err != nil { // for people
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

const ifbPrefix = "shape-"

// ifbName is the name of a TAP's ifb device. A TAP's own name may be as long as a
// name can be.
func ifbName(tap string) string {
	sum := sha256.Sum256([]byte(tap))
	return fmt.Sprintf("%s%x", ifbPrefix, sum)[:unix.IFNAMSIZ-1]
}

var ingressHandle = netlink.MakeHandle(0xffff, 0)

// redirectsTo is the index of the ifb device that frames from the TAP are sent to,
// 0 for none.
func redirectsTo(tap netlink.Link) (int, error) {
	filters, err := netlink.FilterList(tap, ingressHandle)
	if gone(err) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("list filters of %s: %w", tap.Attrs().Name, err)
	}
	for _, f := range filters {
		u32, ok := f.(*netlink.U32)
		if !ok {
			continue
		}
		for _, a := range u32.Actions {
			if m, ok := a.(*netlink.MirredAction); ok {
				return m.Ifindex, nil
			}
		}
	}
	return 0, nil
}

// redirect sends what comes from the TAP to the ifb device, which gives it back.
func redirect(tap, ifb netlink.Link) error {
	if err := clearIngress(tap); err != nil { // to another ifb device, or to none
		return err
	}
	index := tap.Attrs().Index
	err := netlink.QdiscAdd(&netlink.Ingress{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index, Handle: ingressHandle, Parent: netlink.HANDLE_INGRESS}})
	if err == nil {
		err = netlink.FilterAdd(&netlink.U32{
			FilterAttrs: netlink.FilterAttrs{LinkIndex: index, Parent: ingressHandle, Priority: 1, Protocol: unix.ETH_P_ALL},
			ClassId:     netlink.MakeHandle(1, 1),
			Actions:     []netlink.Action{netlink.NewMirredAction(ifb.Attrs().Index)},
		})
	}
	if err != nil {
		return fmt.Errorf("send frames of %s through %s: %w", tap.Attrs().Name, ifb.Attrs().Name, err)
	}
	return nil
}
