package shares

import (
	"slices"

	"unnest.io/unnest/internal/hostd/hotplug"
	"unnest.io/unnest/internal/hostd/status"
	"unnest.io/unnest/internal/netdev/share"
)

// Shared is a volume or shared memory of a guest, and how the guest reaches it.
type Shared struct {
	ID     share.ID
	Port   int    // 0: it is in the export
	Place  string // address of the port, as the guest's kernel writes it
	Tag    string // of a volume's file system
	Path   string // in the file system; empty: all of it
	Memory int64  // bytes
}

// Describe returns how the guest reaches a share in a port, or in its export if port
// is 0.
func (g *Guest) Describe(id share.ID, port int) Shared {
	if port == 0 {
		return Shared{ID: id, Tag: exportTag, Path: id.String()}
	}
	s := Shared{ID: id, Port: port, Place: g.ports[port-1].Address}
	if id.Kind == share.Volume {
		s.Tag = tag(port)
	} else {
		s.Memory, _ = g.registry.memory(g.tenant().Name, id)
	}
	return s
}

// Status lists the guest's shares, given the state of its ports.
func (g *Guest) Status(ports hotplug.State) (all []status.Share) {
	for _, id := range g.registry.of(g.tenant().Name, g.name) {
		s := status.Share{Kind: string(id.Kind), Pod: id.Pod, Name: id.Name}
		if a, ok := ports.Lookup(Key(id)); ok {
			s.Port, s.Bytes = a.Slot, g.Describe(id, a.Slot).Memory
		}
		s.Kept = slices.ContainsFunc(ports.Slots(), func(p hotplug.Slot) bool { return p.Status == hotplug.Quarantined && p.Key == Key(id) })
		all = append(all, s)
	}
	return all
}
