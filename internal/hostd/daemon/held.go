package daemon

import (
	"fmt"

	"github.com/containernetworking/plugins/pkg/netlinksafe"

	"unnest/internal/hostd/attachment"
)

// holdAttachments counts the attachments of all guests and keeps their addresses. It reads
// them from the records and from the aliases of ports. It runs before the first request,
// because a guest is only taken over when its VMM answers. Until then, another guest could
// get the addresses of its pods.
func (d *daemon) holdAttachments(records []GuestRecord) error {
	links, err := netlinksafe.LinkList()
	if err != nil {
		return fmt.Errorf("list ports: %w", err)
	}
	for _, r := range records {
		t := d.tenant(r.Tenant)
		if t == nil {
			continue
		}
		for _, n := range r.NICs {
			for _, a := range n.Addresses {
				t.reserve(a, r.Name)
			}
		}
		for _, l := range links {
			if !isPort(l.Attrs().Name, r.tapPrefix(), r.vlanPrefix()) {
				continue
			}
			key, record, ok := attachment.ParseAlias(l.Attrs().Alias)
			if !ok || key.Kind == attachment.Trunk {
				continue
			}
			if err := t.hold(r.owner(key), record); err != nil {
				d.config.Logger.Error("keep the addresses of an attachment", "guest", r.Name, "container", key.Owner, "interface", key.Name, "error", err)
			}
		}
	}
	return nil
}

// releaseEnded releases what was kept for attachments that have ended without a daemon. It
// releases nothing as long as the guest has attachments that cannot be taken over.
func (g *guest) releaseEnded() {
	if len(g.nics.unadopted) > 0 {
		return
	}
	there := map[string]bool{}
	for key := range g.nics.trunk.ports {
		there[g.owner(key)] = true
	}
	for _, s := range g.nics.state.Slots() {
		there[g.owner(s.Key)] = true
	}
	for _, o := range g.tenant.of(g.record.Name) {
		if !there[o] {
			g.tenant.release(o)
		}
	}
}

// owner names an attachment of the guest for the tenant's addresses.
func (r GuestRecord) owner(key attachment.Key) string { return r.Name + "/" + key.String() }
