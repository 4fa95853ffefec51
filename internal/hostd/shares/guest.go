package shares

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strconv"

	"unnest/internal/hostd/attachment"
	"unnest/internal/hostd/hotplug"
	"unnest/internal/hostd/policy"
	"unnest/internal/netdev/share"
	"unnest/internal/vmm"
)

// Guest is one guest's volumes and shared memory: devices in ports of their own, or
// mounts in its 9p export. The VMM tells what is there, because a device's ID is the
// share's. A Guest is used by one goroutine.
type Guest struct {
	name     string
	tenant   policy.Tenant
	export   string // directory, "" without one
	registry *Registry
	log      *slog.Logger

	vmm        vmm.Sharer // nil if the VMM cannot plug shares
	ports      []vmm.SharePort
	mapsMemory bool // a virtiofsd can map the guest's memory
	servers    map[attachment.Key]*share.Server
	undeleted  map[string]bool // IDs of devices whose backend was still in use
}

// Guest returns the shares of a guest of a tenant. v is nil if the VMM cannot plug any.
func (r *Registry) Guest(name string, t policy.Tenant, export string, v vmm.Sharer, log *slog.Logger) *Guest {
	g := &Guest{name: name, tenant: t, export: export, registry: r, log: log, vmm: v, servers: map[attachment.Key]*share.Server{}, undeleted: map[string]bool{}}
	if v != nil {
		g.ports = v.SharePorts()
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
	if g.mapsMemory, err = g.vmm.MapsMemory(ctx); err != nil {
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
	for _, id := range g.registry.of(g.tenant.Name, g.name) {
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
	return seen, g.registry.set(g.tenant.Name, g.name, has)
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

// bound returns the volumes in the guest's export.
func (g *Guest) bound() (map[share.ID]bool, error) {
	if g.export == "" {
		return map[share.ID]bool{}, nil
	}
	return share.Export{Dir: g.export}.Bound()
}

// Reserve claims a volume or shared memory of a pod for the guest, for the pod's key.
// size is the memory's in bytes. With plug, the share has to be plugged into a port;
// otherwise it is in the guest's export now. Release ends the claim.
func (g *Guest) Reserve(id share.ID, key share.Digest, size uint64) (plug bool, err error) {
	if id.Kind == share.Memory {
		if err := g.registry.reserveMemory(g.tenant, g.name, id, key, size); err != nil {
			return false, err
		}
		if len(g.ports) == 0 {
			return false, ErrNoPorts
		}
		return true, nil
	}
	root, err := g.tenant.VolumesIn()
	if err != nil {
		return false, err
	}
	dir, err := share.OpenVolume(root, id, key)
	if err != nil {
		return false, err
	}
	if err := g.registry.reserveVolume(g.tenant, g.name, id); err != nil {
		return false, err
	}
	switch {
	case g.vmm == nil || len(g.ports) == 0 && g.export == "":
		return false, ErrNoPorts
	case g.mapsMemory && len(g.ports) > 0:
		return true, nil
	case g.export == "":
		return false, ErrPrivate
	}
	return false, g.bind(id, dir)
}

// bind mounts a volume in the guest's export.
func (g *Guest) bind(id share.ID, dir string) error {
	pid, err := g.vmm.PID()
	if err == nil {
		err = share.CheckMounts(pid)
	}
	if err == nil {
		_, err = share.Export{Dir: g.export}.Bind(id, dir)
	}
	if err == nil {
		g.log.Info("attach", "shared", id, "export", g.export)
	}
	return err
}

// Release ends the claim to a share that has no port. A volume leaves the export.
func (g *Guest) Release(id share.ID) error {
	bound, err := g.bound()
	if err == nil && bound[id] {
		err = share.Export{Dir: g.export}.Unbind(id)
		g.log.Info("detach", "shared", id, "export", g.export)
	}
	return errors.Join(err, g.registry.release(g.tenant.Name, g.name, id))
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
		return nil, g.registry.release(g.tenant.Name, g.name, idOf(a.Key))
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
		size, file := g.registry.memory(g.tenant.Name, id)
		if file == nil {
			return &vmm.RefusedError{Err: ErrLost}
		}
		return g.vmm.AddMemory(ctx, key.String(), port, size, file)
	}
	root, err := g.tenant.VolumesIn()
	if err == nil {
		err = g.registry.recheckVolumes(g.tenant)
	}
	if err != nil {
		return &vmm.RefusedError{Err: err} // the VMM has not been asked
	}
	server, conn, err := share.Serve(filepath.Join(root, id.Pod, id.Name))
	if err != nil {
		return &vmm.RefusedError{Err: err}
	}
	err = errors.Join(g.vmm.AddFiles(ctx, key.String(), port, tag(port), conn), conn.Close())
	if err != nil {
		if said := server.Err(); said != nil {
			err = fmt.Errorf("%w: %w", err, said)
		}
		go server.Stop()
		return err
	}
	g.servers[key] = server
	return nil
}

// tag names the file system in a port for the guest's mount.
func tag(port int) string { return "vp" + strconv.Itoa(port) }

// exportTag names the guest's export for its mount.
const exportTag = "volumes"
