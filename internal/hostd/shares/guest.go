package shares

import (
	"context"
	"errors"
	"log/slog"
	"slices"

	"unnest.io/unnest/internal/hostd/attachment"
	"unnest.io/unnest/internal/hostd/hotplug"
	"unnest.io/unnest/internal/hostd/quota"
	"unnest.io/unnest/internal/netdev/share"
	"unnest.io/unnest/internal/vmm"
)

// Guest is one guest's volumes and shared memory: devices in ports of their own, or
// mounts in its 9p export. The VMM tells what is there, because a device's ID is the
// share's. A Guest is used by one goroutine.
type Guest struct {
	name     string
	tenant   func() quota.Tenant // its present policy
	export   string              // directory, "" without one
	registry *Registry
	log      *slog.Logger

	vmm       vmm.Sharer // nil if the VMM cannot plug shares
	ports     []vmm.SharePort
	memory    int64                      // bytes, if a virtiofsd can map them
	asked     map[attachment.Key]Request // for the volumes to plug
	servers   map[attachment.Key]*share.Server
	undeleted map[string]bool // IDs of devices whose backend was still in use
}

// Guest returns the shares of a guest of a tenant, whose present policy tenant returns. v
// is nil if the VMM cannot plug any.
func (r *Registry) Guest(name string, tenant func() quota.Tenant, export string, v vmm.Sharer, log *slog.Logger) *Guest {
	g := &Guest{
		name: name, tenant: tenant, export: export, registry: r, log: log, vmm: v, undeleted: map[string]bool{},
		asked: map[attachment.Key]Request{}, servers: map[attachment.Key]*share.Server{},
	}
	if v != nil {
		g.ports = v.SharePorts()
	}
	if export != "" {
		if err := r.mounts.Do(r.export(export).Check); err != nil {
			log.Warn("refuse volumes by 9p", "error", err)
		}
	}
	return g
}

// Ports is how many ports the guest has.
func (g *Guest) Ports() int { return len(g.ports) }

// Key returns the key of a volume or shared memory.
func Key(id share.ID) attachment.Key {
	kind := attachment.Volume
	if id.Kind == share.Memory {
		kind = attachment.Memory
	}
	return attachment.Key{Kind: kind, Owner: id.Pod, Name: id.Name}
}

func idOf(k attachment.Key) share.ID {
	id := share.ID{Kind: share.Volume, Pod: k.Owner, Name: k.Name}
	if k.Kind == attachment.Memory {
		id.Kind = share.Memory
	}
	return id
}

// Observe returns what is in the guest's ports, after it has removed what an earlier
// daemon left unfinished. It makes the registry agree with that; keep reports whether a
// share has a claim although the guest does not have it yet.
func (g *Guest) Observe(ctx context.Context, keep func(attachment.Key) bool) (seen hotplug.Observed, err error) {
	if g.vmm == nil {
		return seen, nil
	}
	if g.memory, err = g.vmm.MappedMemory(ctx); err != nil {
		return seen, err
	}
	if err := g.deleteOrphanedBackends(ctx); err != nil {
		return seen, err
	}
	found, err := g.vmm.Shared(ctx)
	if err != nil {
		return seen, err
	}
	has, err := g.bound()
	if err != nil {
		return seen, err
	}
	for _, id := range g.registry.of(g.tenant().Name, g.name) {
		if keep(Key(id)) {
			has[id] = true
		}
	}
	for _, o := range found {
		d := hotplug.ObservedDevice{ID: o.ID, Slot: o.Slot}
		if id, ours := share.ParseID(o.ID); ours {
			d.Key, has[id] = Key(id), true
		}
		seen.Devices = append(seen.Devices, d)
	}
	err = g.registry.set(g.tenant().Name, g.name, has)
	if endErr := g.registry.endUnused(g.tenant(), g.name); endErr != nil {
		g.log.Warn("leave volumes as they are", "error", endErr)
	}
	return seen, err
}

func (g *Guest) deleteOrphanedBackends(ctx context.Context) error {
	left, err := g.vmm.OrphanedBackends(ctx)
	for _, id := range left {
		if _, ours := share.ParseID(id); ours {
			err = errors.Join(err, g.vmm.DeleteBackend(ctx, id))
		}
	}
	return err
}

// Request asks for a volume or shared memory.
type Request struct {
	ID        share.ID
	Key       share.Digest // of the pod's key
	Size      uint64       // of memory, in bytes; 0: that of what exists
	Ephemeral bool         // a volume ends when no guest has it any more
}

// Reserve claims a volume or shared memory of a pod for the guest. With plug, the share has to be plugged into a port;
// otherwise it is in the guest's export now. Release ends the claim. A call that fails
// changes nothing, on the host's disk neither.
func (g *Guest) Reserve(q Request) (plug bool, err error) {
	if q.ID.Kind == share.Volume {
		return g.reserveVolume(q)
	}
	if len(g.ports) == 0 {
		return false, ErrNoPorts
	}
	return true, g.registry.reserveMemory(g.tenant(), g.name, q.ID, q.Key, q.Size)
}

// Release ends the claim to a share that has no port. A volume leaves the export.
func (g *Guest) Release(id share.ID) error {
	if err := g.unbind(id); err != nil {
		return err // the guest has it
	}
	return g.release(id)
}

func (g *Guest) release(id share.ID) error {
	delete(g.asked, Key(id))
	return errors.Join(g.registry.release(g.tenant().Name, g.name, id), g.registry.endUnused(g.tenant(), g.name))
}

// Ephemeral returns the ephemeral volumes that the guest has, or waits for.
func (g *Guest) Ephemeral() ([]share.ID, error) {
	dir, err := g.tenant().VolumesIn()
	if err != nil {
		return nil, nil
	}
	all, err := share.Ephemeral(dir, g.name)
	for _, q := range g.asked {
		if q.Ephemeral && !slices.Contains(all, q.ID) {
			all = append(all, q.ID)
		}
	}
	return all, err
}

// Perform performs an action of the state of the guest's ports. It returns the event
// that follows, if one does. An error says what could not be removed.
func (g *Guest) Perform(ctx context.Context, action hotplug.Action) (hotplug.Event, error) {
	switch a := action.(type) {
	case hotplug.AddShare:
		if err := g.plug(ctx, a.Slot, a.Key); err != nil {
			uncertain := !errors.As(err, new(*vmm.RefusedError))
			return hotplug.PlugFailed{Occupant: a.Occupant, Step: hotplug.StepDevice, Err: err, Uncertain: uncertain}, nil
		}
		g.log.Info("attach", "shared", a.Key, "port", a.Slot)
		return hotplug.PlugSucceeded{Occupant: a.Occupant}, nil
	case hotplug.DeleteBackend:
		g.log.Info("detach", "shared", a.Key)
		if server := g.servers[a.Key]; server != nil {
			delete(g.servers, a.Key)
			go server.Stop()
		}
		g.undeleted[a.Key.String()] = true
		return nil, g.RetryDelete(ctx, a.Key.String())
	case hotplug.Released:
		return nil, g.release(idOf(a.Key))
	case hotplug.Lost:
		g.log.Warn("share is lost: the guest has given it up unasked", "shared", a.Attachment.Key)
	}
	return nil, nil
}

// RetryDelete deletes what was behind a device, unless that is done. QEMU answers that it
// has no such device a moment before it lets go of the backend; its event that the
// device is deleted comes after that.
func (g *Guest) RetryDelete(ctx context.Context, device string) error {
	if !g.undeleted[device] {
		return nil
	}
	err := g.vmm.DeleteBackend(ctx, device)
	if err == nil {
		delete(g.undeleted, device)
	}
	return err
}

// plug plugs a share that Reserve has claimed.
func (g *Guest) plug(ctx context.Context, port int, key attachment.Key) error {
	id := idOf(key)
	if id.Kind == share.Memory {
		size, file := g.registry.memory(g.tenant().Name, id)
		if file == nil {
			return &vmm.RefusedError{Err: ErrLost}
		}
		return g.vmm.AddMemory(ctx, key.String(), port, size, file)
	}
	return g.plugVolume(ctx, port, key)
}
