package daemon

import (
	"fmt"

	"unnest.io/unnest/internal/hostd/attachment"
	"unnest.io/unnest/internal/hostd/ports"
	"unnest.io/unnest/internal/hostd/record"
	"unnest.io/unnest/internal/netdev/link"
)

// holdAttachments counts the attachments of all guests and keeps their addresses. It reads
// them from the records and from the aliases of ports. It runs before the first request,
// because a guest is only taken over when its VMM answers. Until then, another guest could
// get the addresses of its pods.
func (d *daemon) holdAttachments(records []record.Guest) error {
	links, err := link.List()
	if err != nil {
		return fmt.Errorf("list ports: %w", err)
	}
	for _, r := range records {
		t := d.tenant(r.Tenant)
		if t == nil {
			continue
		}
		t.Reserve(r.Name, r.Addresses()...)
		for _, l := range links {
			if !ports.IsPort(l.Name, r.TAPPrefix(), r.VLANPrefix()) {
				continue
			}
			key, record, ok := attachment.ParseAlias(l.Alias)
			if !ok || key.Kind == attachment.Trunk {
				continue
			}
			if err := t.Hold(r.Owner(key), record); err != nil {
				d.config.Logger.Error("keep the addresses of an attachment", "guest", r.Name, "container", key.Owner, "interface", key.Name, "error", err)
			}
		}
	}
	return nil
}
