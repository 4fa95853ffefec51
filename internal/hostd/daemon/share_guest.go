package daemon

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"unnest/internal/hostd/hotplug"
	"unnest/internal/netdev/share"
	"unnest/internal/vmm"
)

// sharing is a guest's part in volumes and shared memory: devices in ports of their
// own, or mounts in its 9p export. It belongs to the guest's run. What is there is
// read from the VMM, where devices have the IDs of what they are for.
type sharing struct {
	vmm     vmm.Sharer // nil: it can do nothing of that
	places  []vmm.SharePort
	ports   *share.Ports
	maps    bool // the guest's memory can be mapped by a virtiofsd
	servers map[share.ID]*share.Server
	leaving map[share.ID]*leave
}

// leave is the unplug of one device.
type leave struct {
	waiting []chan<- error
	asking  bool // else the guest has let all tries pass
}

// observeShares brings what we know in line with what the guest has. What an
// earlier daemon has left half done is taken away.
func (g *guest) observeShares(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, vmmTime)
	defer cancel()
	s := &g.sharing
	sharer, ok := g.vmm.(vmm.Sharer)
	if !ok {
		return nil
	}
	if s.vmm == nil {
		s.vmm, s.places = sharer, sharer.SharePorts()
		s.servers, s.leaving = map[share.ID]*share.Server{}, map[share.ID]*leave{}
	}
	has, devices, err := g.lookAtShares(ctx)
	if err != nil {
		return err
	}
	s.ports = share.NewPorts(len(s.places), slotRest, devices, time.Now())
	for id := range s.leaving {
		if !s.ports.Leave(id.String()) {
			g.gone(id)
		}
	}
	return g.host.shares.adopt(g.record.Tenant, g.record.Name, has)
}

// lookAtShares lists what the guest has, and what is in its ports, by their numbers.
func (g *guest) lookAtShares(ctx context.Context) (has map[share.ID]bool, devices map[int]string, err error) {
	s := &g.sharing
	if s.maps, err = s.vmm.MapsMemory(ctx); err != nil {
		return nil, nil, err
	}
	left, err := s.vmm.OrphanedBackends(ctx)
	for _, id := range left {
		if _, ours := share.ParseID(id); ours {
			err = errors.Join(err, s.vmm.DeleteBackend(ctx, id))
		}
	}
	if err != nil {
		return nil, nil, err
	}
	found, err := s.vmm.Shared(ctx)
	if err != nil {
		return nil, nil, err
	}
	has, devices = map[share.ID]bool{}, map[int]string{}
	for _, o := range found {
		devices[o.Slot] = o.ID
		if id, ours := share.ParseID(o.ID); ours {
			has[id] = true
		}
	}
	bound, err := g.bound()
	for id := range bound {
		has[id] = true
	}
	return has, devices, err
}

// bound are the volumes in the guest's export.
func (g *guest) bound() (map[share.ID]bool, error) {
	if g.record.Export == "" {
		return nil, nil
	}
	return g.export().Bound()
}

func (g *guest) export() share.Export { return share.Export{Dir: g.record.Export} }

// shared is something that the guest has, and how it gets there.
type shared struct {
	ID     share.ID
	Port   int    // 0: it is in the export
	Place  string // of the port, as the guest's kernel writes it
	Tag    string // of a volume's file system
	Path   string // in the file system; empty: all of it
	Memory int64  // bytes
}

// attachVolume gives the guest a volume, whose directory is dir. With
// share.ErrResting it says when to try again.
func (g *guest) attachVolume(ctx context.Context, id share.ID, dir string) (*shared, time.Duration, error) {
	s := &g.sharing
	if has, err := g.findShared(id); has != nil || err != nil {
		return has, 0, err
	}
	switch {
	case s.vmm == nil || len(s.places) == 0 && g.record.Export == "":
		return nil, 0, errNoShares
	case s.maps && len(s.places) > 0:
		return g.plugShare(ctx, id, func(ctx context.Context, port int) error { return g.addFiles(ctx, id, port, dir) })
	case g.record.Export == "":
		return nil, 0, errPrivate
	}
	has, err := g.bindVolume(id, dir)
	return has, 0, err
}

// attachMemory gives the guest memory, in the same way.
func (g *guest) attachMemory(ctx context.Context, id share.ID, r *region) (*shared, time.Duration, error) {
	s := &g.sharing
	if has, err := g.findShared(id); has != nil || err != nil {
		return has, 0, err
	}
	if s.vmm == nil || len(s.places) == 0 {
		return nil, 0, errNoShares
	}
	return g.plugShare(ctx, id, func(ctx context.Context, port int) error {
		return s.vmm.AddMemory(ctx, id.String(), port, r.Size, r.File)
	})
}

// plugShare plugs a device into a free port.
func (g *guest) plugShare(ctx context.Context, id share.ID, plug func(context.Context, int) error) (*shared, time.Duration, error) {
	s := &g.sharing
	port, pause, err := s.ports.Take(id.String(), time.Now())
	if err != nil {
		return nil, pause, err
	}
	g.feed(ctx, hotplug.Crowded{})
	bound, cancel := context.WithTimeout(ctx, vmmTime)
	defer cancel()
	if err := plug(bound, port); err != nil {
		s.ports.Untake(port)
		if !errors.As(err, new(*vmm.RefusedError)) {
			g.mendSharesLater(ctx) // it may have been done all the same
		}
		return nil, 0, err
	}
	g.log.Info("attach", "shared", id, "port", port)
	has, err := g.findShared(id)
	return has, 0, err
}

// addFiles starts a server for the volume and plugs its file system.
func (g *guest) addFiles(ctx context.Context, id share.ID, port int, dir string) error {
	server, conn, err := share.Serve(dir)
	if err != nil {
		return &vmm.RefusedError{Err: err} // the VMM has not been asked
	}
	err = errors.Join(g.sharing.vmm.AddFiles(ctx, id.String(), port, shareTag(port), conn), conn.Close())
	if err != nil {
		if said := server.Err(); said != nil {
			err = fmt.Errorf("%w: %w", err, said)
		}
		go server.Stop()
		return err
	}
	g.sharing.servers[id] = server
	return nil
}

// shareTag is by what a guest mounts the file system in a port.
func shareTag(port int) string { return "vp" + strconv.Itoa(port) }

// exportTag is by what a guest mounts its export.
const exportTag = "volumes"

// bindVolume puts a volume into the guest's export.
func (g *guest) bindVolume(id share.ID, dir string) (*shared, error) {
	pid, err := g.sharing.vmm.PID()
	if err == nil {
		err = share.CheckMounts(pid)
	}
	if err != nil {
		return nil, err
	}
	if _, err := g.export().Bind(id, dir); err != nil {
		return nil, err
	}
	g.log.Info("attach", "shared", id, "export", g.record.Export)
	return g.findShared(id)
}

// findShared describes what the guest has; nil if it has not.
func (g *guest) findShared(id share.ID) (*shared, error) {
	s := &g.sharing
	if s.vmm == nil {
		return nil, nil
	}
	if port := s.ports.Find(id.String()); port > 0 {
		if s.ports.Leaving(id.String()) {
			return nil, fmt.Errorf("%s %s: %w", id.Kind, id.Name, share.ErrLeaving)
		}
		has := &shared{ID: id, Port: port, Place: s.places[port-1].Address}
		if id.Kind == share.Volume {
			has.Tag = shareTag(port)
		} else {
			has.Memory = g.host.shares.size(g.record.Tenant, id)
		}
		return has, nil
	}
	bound, err := g.bound()
	if err != nil || !bound[id] {
		return nil, err
	}
	return &shared{ID: id, Tag: exportTag, Path: id.String()}, nil
}

// detachShare takes something away from the guest, and tells done when it is gone.
func (g *guest) detachShare(ctx context.Context, id share.ID, done chan<- error) {
	s := &g.sharing
	if s.vmm == nil || !s.ports.Leave(id.String()) {
		done <- g.unbindVolume(id)
		return
	}
	l := s.leaving[id]
	if l == nil {
		l = &leave{}
		s.leaving[id] = l
	}
	l.waiting = append(l.waiting, done)
	if !l.asking {
		l.asking = true
		g.askForShare(ctx, id, l, 1)
	}
}

// unbindVolume takes a volume out of the export, if it is there.
func (g *guest) unbindVolume(id share.ID) error {
	bound, err := g.bound()
	if err == nil && bound[id] {
		err = g.export().Unbind(id)
		g.log.Info("detach", "shared", id, "export", g.record.Export)
	}
	return errors.Join(err, g.host.shares.release(g.record.Tenant, g.record.Name, id))
}

// askForShare asks the guest to give a device up, a few times.
func (g *guest) askForShare(ctx context.Context, id share.ID, l *leave, try int) {
	g.feed(ctx, hotplug.Crowded{})
	bound, cancel := context.WithTimeout(ctx, vmmTime)
	defer cancel()
	err := g.sharing.vmm.DeleteDevice(bound, id.String())
	if errors.Is(err, vmm.ErrNotFound) {
		g.gone(id)
		return
	}
	if err != nil {
		g.log.Warn("ask for device", "shared", id, "error", err)
	}
	g.after(ctx, g.unplugTime, func(ctx context.Context) {
		switch {
		case g.sharing.leaving[id] != l:
		case try < unplugTries:
			g.askForShare(ctx, id, l, try+1)
		default:
			l.asking = false
			l.answer(fmt.Errorf("%s %s: %w: it was asked %d times", id.Kind, id.Name, errKept, unplugTries))
		}
	})
}

func (l *leave) answer(err error) {
	for _, done := range l.waiting {
		done <- err
	}
	l.waiting = nil
}

// shareDeleted notes that a device is gone, if it was one of what is shared.
func (g *guest) shareDeleted(ctx context.Context, device string) {
	id, ours := share.ParseID(device)
	if !ours || g.sharing.vmm == nil {
		return
	}
	if g.sharing.leaving[id] == nil {
		g.log.Warn("lost: the guest has given it up unasked", "shared", id)
	}
	ctx, cancel := context.WithTimeout(ctx, vmmTime)
	defer cancel()
	if err := g.sharing.vmm.DeleteBackend(ctx, device); err != nil {
		g.log.Warn("leave behind", "shared", id, "error", err)
	}
	g.gone(id)
}

// gone notes that a device is gone with all that was behind it.
func (g *guest) gone(id share.ID) {
	s := &g.sharing
	s.ports.Gone(id.String(), time.Now())
	if server := s.servers[id]; server != nil {
		delete(s.servers, id)
		go server.Stop()
	}
	err := g.host.shares.release(g.record.Tenant, g.record.Name, id)
	if l := s.leaving[id]; l != nil {
		delete(s.leaving, id)
		l.answer(err)
	}
	g.log.Info("detach", "shared", id)
}

// mendShares looks at what is there, and if that fails once more after a while.
func (g *guest) mendShares(ctx context.Context) {
	if err := g.observeShares(ctx); err != nil {
		g.log.Warn("observe what is shared", "error", err)
		g.mendSharesLater(ctx)
	}
}

func (g *guest) mendSharesLater(ctx context.Context) { g.after(ctx, mendTime, g.mendShares) }

// ShareStatus is a volume or shared memory of a guest.
type ShareStatus struct {
	Kind  string `json:"kind"`
	Pod   string `json:"pod"`
	Name  string `json:"name"`
	Port  int    `json:"port,omitempty"` // 0: in the guest's export, or on its way out
	Bytes int64  `json:"bytes,omitempty"`
}

// shareStatus lists what the guest has of what is shared.
func (g *guest) shareStatus() (all []ShareStatus) {
	for _, id := range g.host.shares.of(g.record.Tenant, g.record.Name) {
		s := ShareStatus{Kind: string(id.Kind), Pod: id.Pod, Name: id.Name}
		if has, err := g.findShared(id); err == nil && has != nil {
			s.Port, s.Bytes = has.Port, has.Memory
		}
		all = append(all, s)
	}
	return all
}
