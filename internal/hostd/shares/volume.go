package shares

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"os/exec"
	"strconv"

	"unnest.io/unnest/internal/hostd/attachment"
	"unnest.io/unnest/internal/hostd/quota"
	"unnest.io/unnest/internal/netdev/share"
	"unnest.io/unnest/internal/vmm"
)

// reserveVolume is Reserve for a volume. Its directory is made once the volume has a port
// or can be in the export.
func (g *Guest) reserveVolume(q Request) (plug bool, err error) {
	plug, err = g.plugs()
	if err == nil {
		err = checkVolume(g.tenant(), g.name, q)
	}
	if err != nil {
		return false, err
	}
	added, err := g.registry.reserveVolume(g.tenant(), g.name, q.ID)
	if err != nil {
		return false, err
	}
	if plug {
		g.asked[Key(q.ID)] = q
		return true, nil
	}
	if err := g.bind(q); err != nil {
		if added {
			err = errors.Join(err, g.release(q.ID))
		}
		return false, err
	}
	return false, nil
}

// plugs reports whether volumes are plugged into ports; otherwise they are in the export.
func (g *Guest) plugs() (bool, error) {
	switch {
	case g.vmm == nil || len(g.ports) == 0 && g.export == "":
		return false, ErrNoPorts
	case g.memory > 0 && len(g.ports) > 0:
		return true, nil
	case g.export == "":
		return false, ErrPrivate
	}
	return false, nil
}

// checkVolume returns an error unless a tenant can have a volume that a guest asks for.
func checkVolume(t quota.Tenant, guest string, q Request) error {
	root, err := t.VolumesIn()
	if err == nil && !t.VolumesUnbounded {
		err = share.CheckFileSystem(root)
	}
	if err == nil {
		err = share.CheckVolume(root, q.ID, q.Key, maker(t, guest, q.Ephemeral))
	}
	return err
}

// plugVolume plugs a volume that Reserve has claimed.
func (g *Guest) plugVolume(ctx context.Context, port int, key attachment.Key) error {
	if err := g.registry.recheckVolumes(g.tenant()); err != nil {
		return &vmm.RefusedError{Err: err} // the VMM has not been asked
	}
	id := idOf(key)
	volume, err := g.registry.openVolume(g.tenant(), g.name, g.asked[key])
	if err != nil {
		return &vmm.RefusedError{Err: err}
	}
	defer volume.Close()
	err = g.serve(ctx, port, key, volume)
	if errors.As(err, new(*vmm.RefusedError)) { // else the guest may have it
		err = errors.Join(err, g.registry.discard(g.tenant().Name, g.name, id, volume))
	}
	return err
}

// serve starts a server of a volume, and plugs it into a port.
func (g *Guest) serve(ctx context.Context, port int, key attachment.Key, volume *share.Directory) error {
	server, conn, err := share.Serve(volume.Name(), g.startServer)
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
	if p := server.Program; !p.HostLocks {
		g.registry.warnLocks.Do(func() {
			g.registry.log.Warn("locks of files in volumes do not hold between guests: this virtiofsd has no locks of the host", "virtiofsd", p.Path)
		})
	}
	return nil
}

// The limits of a guest's servers. Memory is in addition to the guest's own: what a
// server is the first to use of that counts as the server's.
const (
	serverMemory = 512 << 20 // bytes, of all
	serverTasks  = 64        // of each
)

// startServer starts a server with the limits of the guest.
func (g *Guest) startServer(cmd *exec.Cmd) error {
	groups := g.registry.openGroups()
	if groups == nil {
		return cmd.Start()
	}
	// Guests of other daemons can have the same name, but not the same directory.
	name := fmt.Sprintf("%s-%08x", g.name, crc32.ChecksumIEEE([]byte(g.tenant().Volumes)))
	return groups.Start(cmd, name, share.Limits{Memory: g.memory + serverMemory, Tasks: serverTasks * len(g.ports)})
}

// tag names the file system in a port for the guest's mount.
func tag(port int) string { return "vp" + strconv.Itoa(port) }

// exportTag names the guest's export for its mount.
const exportTag = "volumes"
