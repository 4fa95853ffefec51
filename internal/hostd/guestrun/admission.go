package guestrun

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"unnest.io/unnest/internal/hostapi/hostdpb"
	"unnest.io/unnest/internal/hostapi/segment"
	"unnest.io/unnest/internal/hostd/attachment"
	"unnest.io/unnest/internal/hostd/hotplug"
	"unnest.io/unnest/internal/hostd/ipam"
	"unnest.io/unnest/internal/hostd/segments"
	"unnest.io/unnest/internal/hostd/tenant"
)

// This file decides whether a guest gets a NIC or an endpoint, and has it plugged: the
// tenant's limits and addresses first, then a slot (package hotplug). All of it runs
// in the guest's run goroutine, in one round trip of a request.

// WantedNIC is the NIC that a request asks for.
type WantedNIC struct {
	Key      attachment.Key
	Record   attachment.Record
	Allocate bool // choose the addresses
	Services bool // choose service addresses
	Cold     bool // plug a new NIC
	Trunk    bool // a VLAN on the trunk instead of a NIC
}

// Attached is what an attachment has got.
type Attached struct {
	NIC       *hostdpb.NIC
	Endpoint  *hostdpb.Endpoint
	Addresses []ipam.Address // that the daemon has chosen
	Warm      bool           // the NIC was in the pool
	Steps     []slog.Attr    // how long each step took
}

// ErrNoQueues is the error of a guest whose VMM cannot have endpoints of segments.
var ErrNoQueues = errors.New("the guest's VMM opens TAPs by name, and the queue of a segment has no name: run the guest in QEMU with a QMP socket for the daemon")

// attach gives an attachment a NIC. An attachment that asks for no address keeps those
// that it has.
func (n *nics) attach(ctx context.Context, w WantedNIC, answer func(Attached, error)) {
	had := n.had(w.Key)
	chosen, err := n.admit(&w, had)
	for _, a := range chosen {
		w.Record.Addresses = append(w.Record.Addresses, a.Prefix)
	}
	record := withAddresses(w.Record, had)
	record.Since = cmp.Or(had.Since, time.Now().Unix())
	if err == nil && w.Services {
		record.Services, err = n.admitServices(w.Key, record)
	}
	if err != nil {
		n.releaseUnused(w.Key)
		answer(Attached{}, err)
		return
	}
	var waits *trunkWait
	if w.Trunk {
		waits = n.trunk.wait(w.Key)
	}
	event := func(id hotplug.RequestID) hotplug.Event {
		if w.Trunk {
			return hotplug.Attach{Request: id, Key: attachment.TrunkKey}
		}
		return hotplug.Attach{Request: id, Key: w.Key, Record: record, Cold: w.Cold}
	}
	n.request(ctx, event, func(r hotplug.Reply) {
		done := Attached{Addresses: chosen, Warm: n.plug.warm(), Steps: n.plug.steps}
		err := n.explain(r.Err)
		if w.Trunk {
			n.trunk.waited(w.Key, waits)
		}
		switch {
		case err != nil:
		case w.Trunk && waits.detached:
			err = hotplug.ErrDetached
		case w.Trunk:
			done.NIC, err = n.trunk.add(ctx, w.Key, record)
		default:
			done.NIC = n.describe(n.state.Slots()[r.Attachment.Slot-1])
		}
		if err != nil {
			n.releaseUnused(w.Key)
		}
		answer(done, err)
	})
}

// admit checks the request and the limits, and claims the addresses after that. It
// returns those that it has chosen.
func (n *nics) admit(w *WantedNIC, had attachment.Record) (_ []ipam.Address, err error) {
	if w.Record.PodUID, err = podOf(w.Record.PodUID, had.PodUID); err != nil {
		return nil, fmt.Errorf("attach %s: %w", w.Key, err)
	}
	if node := n.host.Ports.Policies.BoundElsewhere(n.Tenant.Name, w.Record.PodUID, n.Record.NodeName()); node != "" {
		return nil, fmt.Errorf("attach %s: %w: its node is %s, and this guest is node %s; if that is wrong, set the guest's key node in hostd.yaml",
			w.Key, tenant.ErrPod, node, n.Record.NodeName())
	}
	if err := attachment.Check(w.Key, w.Record); err != nil {
		return nil, fmt.Errorf("attach: %w", err)
	}
	if err := n.Tenant.Admit(n.owner(w.Key), w.Record); err != nil {
		return nil, err
	}
	if !w.Allocate && len(w.Record.Addresses) == 0 {
		return nil, nil
	}
	return n.Tenant.Take(n.owner(w.Key), w.Record.Addresses, w.Allocate)
}

// admitServices chooses service addresses. Without them the pod's connections to services would have the guest's
// address, past the pod's policy; so a pod whose alias has no room for them is refused.
func (n *nics) admitServices(key attachment.Key, r attachment.Record) (chosen []netip.Addr, err error) {
	if r.Services, err = n.Tenant.TakeServices(n.owner(key)); err != nil {
		return nil, err
	}
	if err := attachment.Check(key, r); err != nil {
		return nil, fmt.Errorf("attach with service addresses: %w", err)
	}
	return r.Services, nil
}

// had returns the record that an attachment has, the zero one if it has no NIC.
func (n *nics) had(key attachment.Key) attachment.Record {
	for _, s := range n.state.Slots() {
		if s.Key == key && s.Status != hotplug.Quarantined { // that one's addresses are released
			return s.Record
		}
	}
	return n.trunk.ports[key].record
}

// withAddresses returns a record with the addresses that its attachment had, if it has none itself.
func withAddresses(r, had attachment.Record) attachment.Record {
	if len(r.Addresses) == 0 {
		r.Addresses = had.Addresses
	}
	if len(r.Services) == 0 {
		r.Services = had.Services
	}
	return r
}

// ErrOtherPod is the error of a request that names another pod than the attachment's.
var ErrOtherPod = errors.New("it is another pod's: detach it first")

// podOf returns whose NIC an attachment is: one that was a pod's stays that pod's.
func podOf(asked, had string) (string, error) {
	switch {
	case had == "" || had == attachment.NoPod || asked == had:
		return asked, nil
	case asked == "" || asked == attachment.NoPod:
		return had, nil
	}
	return "", ErrOtherPod
}

// join gives an attachment an endpoint of a segment.
func (n *nics) join(ctx context.Context, key attachment.Key, s segments.Spec, answer func(Attached, error)) {
	record, err := n.admitEndpoint(key, s)
	if err != nil {
		n.releaseUnused(key)
		answer(Attached{}, err)
		return
	}
	event := func(id hotplug.RequestID) hotplug.Event {
		return hotplug.Attach{Request: id, Key: key, Record: record}
	}
	n.request(ctx, event, func(r hotplug.Reply) {
		done := Attached{Steps: n.plug.steps}
		if r.Err == nil {
			done.Endpoint = n.endpoint(key)
		} else {
			n.releaseUnused(key)
		}
		answer(done, r.Err)
	})
}

func (n *nics) admitEndpoint(key attachment.Key, s segments.Spec) (attachment.Record, error) {
	if n.vmm.PersistentTAPs() {
		return attachment.Record{}, ErrNoQueues
	}
	if err := n.Tenant.Admit(n.owner(key), attachment.Record{}); err != nil {
		return attachment.Record{}, err
	}
	return n.host.Segments.Reserve(n.Tenant.Now(), s, n.Record.Name, key, n.takenFractions())
}

// takenFractions returns the fractions whose MAC a NIC of the guest has. A quarantined NIC
// has no endpoint any more and keeps its MAC.
func (n *nics) takenFractions() (taken segment.Set) {
	for _, s := range n.state.Slots() {
		if r := s.Record; r.Fraction.Valid() && !r.OwnMAC {
			taken = taken.With(r.Fraction)
		}
	}
	return taken
}

// releaseUnused takes back what was reserved for an attachment that has failed, unless
// the attachment still waits for a NIC. One that has a NIC keeps what that has.
func (n *nics) releaseUnused(key attachment.Key) {
	var err error
	switch _, vlan := n.trunk.ports[key]; {
	case vlan || n.state.Holds(key):
		err = n.Tenant.Hold(n.owner(key), n.had(key))
	case !n.state.Waits(key) && n.trunk.waiting[key] == nil:
		err = n.release(key)
	}
	if err != nil {
		n.log.Warn("release what an attachment no longer needs", "key", key, "error", err)
	}
}

// detach takes an attachment's NIC or endpoint away. The answer says whether it was a VLAN.
func (n *nics) detach(ctx context.Context, key attachment.Key, answer func(vlan bool, err error)) {
	if waits := n.trunk.waiting[key]; waits != nil {
		waits.detached = true
		delete(n.trunk.waiting, key)
		n.releaseUnused(key)
	}
	if n.trunk.remove(ctx, key) {
		answer(true, nil)
		return
	}
	event := func(id hotplug.RequestID) hotplug.Event { return hotplug.Detach{Request: id, Key: key} }
	n.request(ctx, event, func(r hotplug.Reply) { answer(false, r.Err) })
}
