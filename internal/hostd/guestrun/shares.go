package guestrun

import (
	"context"
	"errors"
	"slices"

	"unnest.io/unnest/internal/hostd/attachment"
	"unnest.io/unnest/internal/hostd/hotplug"
	"unnest.io/unnest/internal/hostd/shares"
	"unnest.io/unnest/internal/netdev/share"
	"unnest.io/unnest/internal/vmm"
)

// shareSlots are the volumes and the shared memory of one guest: the state of its ports
// for them, which package shares acts on.
type shareSlots struct {
	*Guest
	slots
	devices *shares.Guest
}

func newShareSlots(g *Guest) (*shareSlots, error) {
	sharer, _ := g.vmm.(vmm.Sharer)
	s := &shareSlots{Guest: g, devices: g.host.Shares.Guest(g.Record.Name, g.Tenant.Now, g.Record.Export, sharer, g.log)}
	s.slots = slots{perform: s.performAction}
	if s.devices.Ports() == 0 {
		return s, nil // the zero State has no ports
	}
	var err error
	s.state, err = hotplug.New(hotplug.Config{
		Slots: s.devices.Ports(), Shares: true, UnplugTimeout: g.unplugTime, UnplugTries: unplugTries, Cooldown: slotCooldown,
	})
	return s, err
}

// claimed reports whether a share is in a port, or waits for one.
func (s *shareSlots) claimed(key attachment.Key) bool {
	return s.state.Holds(key) || s.state.Waits(key)
}

// performAction performs one action. The guest scans its NIC slots as well when a share
// is plugged or unplugged.
func (s *shareSlots) performAction(ctx context.Context, action hotplug.Action) hotplug.Event {
	if s.performCommon(ctx, &s.slots, action) {
		return nil
	}
	bound, cancel := context.WithTimeout(ctx, vmmTime)
	defer cancel()
	switch a := action.(type) {
	case hotplug.DeviceDel:
		s.nics.feed(ctx, hotplug.Rescan{})
		return s.deleteDevice(bound, a)
	case hotplug.AddShare:
		s.nics.feed(ctx, hotplug.Rescan{})
	}
	event, err := s.devices.Perform(bound, action)
	s.checkRemoved(ctx, action, err)
	return event
}

// attach gives the guest a volume or shared memory.
func (s *shareSlots) attach(ctx context.Context, q shares.Request, answer func(shares.Shared, error)) {
	id, key := q.ID, shares.Key(q.ID)
	plug, err := s.devices.Reserve(q)
	if err != nil || !plug {
		answer(s.devices.Describe(id, 0), err)
		return
	}
	event := func(request hotplug.RequestID) hotplug.Event { return hotplug.Attach{Request: request, Key: key} }
	s.request(ctx, &s.slots, event, func(r hotplug.Reply) {
		s.releaseUnused(id, r.Err)
		if r.Err != nil {
			answer(shares.Shared{}, r.Err)
			return
		}
		answer(s.devices.Describe(id, r.Attachment.Slot), nil)
	})
}

// releaseUnused ends the claim of an attach that has failed with err, unless the guest
// has the share or still waits for it.
func (s *shareSlots) releaseUnused(id share.ID, err error) {
	if err == nil || s.claimed(shares.Key(id)) {
		return
	}
	if err := s.devices.Release(id); err != nil {
		s.log.Warn("release share", "shared", id, "error", err)
	}
}

// ephemeral returns the ephemeral volumes that the guest has, or waits for.
func (s *shareSlots) ephemeral() (all []shares.Shared, err error) {
	ids, err := s.devices.Ephemeral()
	for _, id := range ids {
		i := slices.IndexFunc(s.state.Slots(), func(p hotplug.Slot) bool { return p.Key == shares.Key(id) })
		all = append(all, s.devices.Describe(id, i+1)) // without a port it is in the export
	}
	return all, err
}

// endEphemeral takes the ephemeral volumes away from a guest that was reset: the pods that had them are gone. Other volumes stay.
func (s *shareSlots) endEphemeral(ctx context.Context) {
	all, err := s.devices.Ephemeral()
	if err != nil {
		s.log.Warn("ephemeral volumes of a guest that was reset stay", "error", err)
	}
	for _, id := range all {
		s.detach(ctx, id, func(_ struct{}, err error) {
			if err != nil {
				s.log.Warn("detach the ephemeral volume of a guest that was reset", "shared", id, "error", err)
			}
		})
	}
}

func (s *shareSlots) detach(ctx context.Context, id share.ID, answer func(struct{}, error)) {
	event := func(request hotplug.RequestID) hotplug.Event {
		return hotplug.Detach{Request: request, Key: shares.Key(id)}
	}
	s.request(ctx, &s.slots, event, func(r hotplug.Reply) {
		err := r.Err
		if err == nil {
			err = errors.Join(err, s.devices.Release(id)) // if it is in the export
		}
		answer(struct{}{}, err)
	})
}
