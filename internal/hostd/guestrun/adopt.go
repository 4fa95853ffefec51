package guestrun

import (
	"context"
	"errors"
	"strings"
	"unnest.io/unnest/internal/hostd/attachment"
	"unnest.io/unnest/internal/hostd/hotplug"
)

// tryAdopt takes over an attachment of an earlier daemon. If that fails, the attachment is
// left as it is, and repair tries again.
func (n *nics) tryAdopt(ctx context.Context, key attachment.Key) {
	delete(n.unadopted, key)
	a, ok := n.state.Lookup(key)
	if !ok { // it has ended
		return
	}
	if err := n.adopt(a); err != nil {
		n.unadopted[key] = true
		n.log.Error("take over NIC: it is left as it is", "container", key.Owner, "interface", key.Name, "slot", a.Slot, "error", err)
		n.repairLater(ctx)
	}
}

// adopt takes over an attachment of an earlier daemon, which may have died in the
// middle of a change.
func (n *nics) adopt(a hotplug.Attachment) error {
	switch a.Key.Kind {
	case attachment.Trunk:
		return n.trunk.adopt(a.TAP, a.MAC)
	case attachment.Endpoint:
		return errors.Join(n.Tenant.Hold(n.owner(a.Key), attachment.Record{}), n.host.Segments.Connect(a.TAP, a.Key))
	}
	return n.adoptPort(a.Key, a.Record, a.TAP, a.MAC)
}

// adoptPort counts an attachment, claims its addresses, and connects its port as the
// record says. If another attachment has one of the addresses by now, the port may send
// from none; the alias keeps them.
func (g *Guest) adoptPort(key attachment.Key, r attachment.Record, port, mac string) error {
	alias := attachment.Alias(key, r)
	if err := g.Tenant.Hold(g.owner(key), r); err != nil {
		g.log.Error("take over addresses", "container", key.Owner, "interface", key.Name, "error", err)
		r.Addresses = nil
	}
	turn := g.turn()
	defer turn.Done()
	return g.host.Ports.Correct(turn, port, mac, r, alias, g.Tenant.Multicasts())
}

// releaseEnded releases what was kept for attachments that have ended without a daemon, or with an earlier run. It
// releases nothing as long as the guest has attachments that cannot be taken over.
func (g *Guest) releaseEnded() {
	if len(g.nics.unadopted) > 0 {
		return
	}
	for _, o := range g.Tenant.Of(g.Record.Name) {
		key := attachment.ParseKey(strings.TrimPrefix(o, g.Record.Name+"/"))
		if _, vlan := g.nics.trunk.ports[key]; !vlan && !g.nics.state.Holds(key) {
			g.nics.releaseUnused(key)
		}
	}
}
