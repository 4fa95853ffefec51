// Package volumedriver gives containers of several fractions of a pod one volume: it is a node's
// part of a CSI driver, which the kubelet calls for volumes that the webhook of split pods has
// written into fractions. Each is an ephemeral volume of the host, which the host daemon attaches to
// this guest, and which ends with the last fraction that has it.
//
// The daemon's side of volumes does not belong here, nor does the mount itself, package volume.
package volumedriver

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"unnest.io/unnest/internal/cni/attachment"
	"unnest.io/unnest/internal/cni/hostclient"
	"unnest.io/unnest/internal/cni/netconf"
	"unnest.io/unnest/internal/cni/volume"
	"unnest.io/unnest/internal/hostapi/hostdpb"
)

// Name is the driver's, which the CSIDriver object and package splitpod have too.
const Name = "volumes.unnest.io"

// Attributes of a volume. The kubelet writes the first three, over what a pod says of them, and the
// webhook the others.
const (
	isEphemeral  = "csi.storage.k8s.io/ephemeral"
	podNamespace = "csi.storage.k8s.io/pod.namespace"
	podUID       = "csi.storage.k8s.io/pod.uid"
	volumeName   = "name"
	volumeKey    = "key"
	splitPod     = "pod" // UID of the split pod; missing: it is this one
)

// daemon is what the driver asks of the host daemon.
type daemon interface {
	hostdpb.HostDaemonClient
	Close()
}

type driver struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedNodeServer

	node    string
	log     *slog.Logger
	records records
	dial    func() (daemon, error)
	mount   func(ctx context.Context, v *hostdpb.Volume, dir string) error
	uses    func([]*hostdpb.Volume) []volume.Use // by processes of the guest

	retry, interval time.Duration // after a request that has failed, and between two looks for volumes that nobody uses

	mu   sync.Mutex
	busy map[string]bool    // IDs of the volumes of calls under way, and POD/NAME
	said map[[3]string]bool // pod, name, and why the volume stays attached, of what the log says

	stale     sync.Map       // of published: volumes, without a target, that nobody uses
	detaching sync.WaitGroup // of those
}

func newDriver(node string, server netip.AddrPort, credentials, state string, log *slog.Logger) *driver {
	return &driver{
		node: node, log: log, records: records(state), mount: volume.Mount, uses: volume.Uses, busy: map[string]bool{}, said: map[[3]string]bool{},
		retry: 5 * time.Second, interval: 30 * time.Second,
		dial: func() (daemon, error) { return hostclient.Dial(server, credentials) },
	}
}

// ask calls f with a connection to the daemon.
func (d *driver) ask(f func(daemon) error) error {
	c, err := d.dial()
	if err != nil {
		return err
	}
	defer c.Close()
	return f(c)
}

// GetPluginInfo implements csi.IdentityServer.
func (d *driver) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: Name, VendorVersion: "1"}, nil
}

// GetPluginCapabilities implements csi.IdentityServer: there is no controller.
func (d *driver) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	return &csi.GetPluginCapabilitiesResponse{}, nil
}

// Probe implements csi.IdentityServer.
func (d *driver) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{}, nil
}

// NodeGetInfo implements csi.NodeServer.
func (d *driver) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: d.node}, nil
}

// NodeGetCapabilities implements csi.NodeServer: the driver, not the kubelet, gives a volume the pod's
// fsGroup, and so does not change files of other fractions.
func (d *driver) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	return &csi.NodeGetCapabilitiesResponse{Capabilities: []*csi.NodeServiceCapability{{Type: &csi.NodeServiceCapability_Rpc{
		Rpc: &csi.NodeServiceCapability_RPC{Type: csi.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP},
	}}}}, nil
}

// NodePublishVolume implements csi.NodeServer.
func (d *driver) NodePublishVolume(ctx context.Context, r *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	p, err := parse(r)
	if err == nil {
		err = d.exclusively("publish", r.GetVolumeId(), func() error {
			return d.serialize(p.onHost(r.GetVolumeId()), func() error {
				return d.publish(ctx, r.GetVolumeId(), p, r.GetVolumeContext()[volumeKey], r.GetVolumeCapability().GetMount().GetVolumeMountGroup(), r.GetReadonly())
			})
		})
	}
	return &csi.NodePublishVolumeResponse{}, err
}

// parse returns which volume of the host is asked for. The namespace is the kubelet's word, so a pod has
// volumes of its own namespace only, whatever it says.
func parse(r *csi.NodePublishVolumeRequest) (published, error) {
	refuse := func(why string) (published, error) { return published{}, status.Error(codes.InvalidArgument, why) }
	a, target := r.GetVolumeContext(), r.GetTargetPath()
	switch {
	case r.GetVolumeId() == "" || target == "":
		return refuse("volume_id or target_path is missing")
	case r.GetVolumeCapability().GetMount() == nil:
		return refuse("volume_capability: want one with mount; a volume of the host is no block device")
	case a[isEphemeral] != "true":
		return refuse("the volume is not ephemeral: write it into a pod, not into a PersistentVolume")
	case a[podNamespace] == "" || a[podUID] == "" || !strings.Contains(target, "/pods/"+a[podUID]+"/"): // a pod does not know its UID before it exists
		return refuse("the kubelet does not say whose the volume is: set podInfoOnMount in the CSIDriver " + Name)
	case a[volumeName] == "" || a[volumeKey] == "":
		return refuse("volumeAttributes: name or key is missing; use an emptyDir in a pod with the annotation unnest.io/split, whose webhook writes them")
	}
	return published{Pod: netconf.InNamespace(a[podNamespace], cmp.Or(a[splitPod], a[podUID])), Name: a[volumeName], Target: target}, nil
}

// publish attaches a volume, unless it is attached, and mounts it. What has failed leaves nothing.
func (d *driver) publish(ctx context.Context, id string, p published, key, group string, readOnly bool) (err error) {
	_, stale := d.stale.Load(p.volume())
	switch was, err := d.records.read(id); {
	case err == nil && was != p:
		return status.Errorf(codes.AlreadyExists, "volume %s is published as %s/%s at %s", id, was.Pod, was.Name, was.Target)
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return err
	case stale:
		return status.Errorf(codes.Unavailable, "volume %s/%s is still attached, and nobody has used it: it is detached first", p.Pod, p.Name)
	}
	mounted, err := volume.Mounted(p.Target)
	if err != nil {
		return err
	}
	if err := attachment.WriteFile(d.records.path(id), p); err != nil {
		return err
	}
	defer func() {
		if err != nil && !mounted { // containers use one that an earlier call has mounted
			undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
			defer cancel()
			err = errors.Join(err, d.withdraw(undo, id, p))
		}
	}()
	if !mounted {
		err = d.attach(ctx, p, key)
	}
	if err == nil {
		err = open(p.Target, group)
	}
	if err == nil && readOnly {
		err = unix.Mount("", p.Target, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, "")
	}
	return err
}

func (d *driver) attach(ctx context.Context, p published, key string) error {
	return d.ask(func(c daemon) error {
		answer, err := c.AttachVolume(ctx, &hostdpb.AttachVolumeRequest{Pod: p.Pod, Name: p.Name, Key: key, Ephemeral: true})
		if err != nil {
			return err
		}
		return d.mount(ctx, answer.GetVolume(), p.Target)
	})
}

// open gives a volume that is as the host has made it the mode that an emptyDir has, and its group.
func open(dir, group string) error {
	var s unix.Stat_t
	if err := unix.Stat(dir, &s); err != nil || s.Uid != 0 || s.Mode&0o7777 != 0o755 {
		return err
	}
	mode := os.FileMode(0o777)
	if group != "" {
		gid, err := strconv.ParseUint(group, 10, 31)
		if err != nil {
			return status.Errorf(codes.InvalidArgument, "volume_mount_group %q: want a number", group)
		}
		if err := os.Chown(dir, -1, int(gid)); err != nil {
			return err
		}
		mode |= os.ModeSetgid
	}
	return os.Chmod(dir, mode)
}

// NodeUnpublishVolume implements csi.NodeServer.
func (d *driver) NodeUnpublishVolume(ctx context.Context, r *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	id, target := r.GetVolumeId(), r.GetTargetPath()
	if id == "" || target == "" {
		return nil, status.Error(codes.InvalidArgument, "volume_id or target_path is missing")
	}
	return &csi.NodeUnpublishVolumeResponse{}, d.exclusively("unpublish", id, func() error {
		p, err := d.records.read(id)
		if errors.Is(err, os.ErrNotExist) { // it is done, or was never published
			p, err = published{}, nil
		}
		if err != nil {
			return err
		}
		p.Target = target
		return d.serialize(p.onHost(id), func() error { return d.withdraw(ctx, id, p) })
	})
}

// withdraw undoes publish. It may be called again after a failure.
func (d *driver) withdraw(ctx context.Context, id string, p published) error {
	if err := volume.Unmount(p.Target); err != nil {
		return err
	}
	used, err := d.records.use(p, id)
	if err == nil && p.Pod != "" && !used {
		err = d.detach(ctx, p)
	}
	if err != nil {
		return err
	}
	for _, path := range []string{p.Target, d.records.path(id)} {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// onHost names the volume of the host, which several pods of the guest may have; that of an ID without a record is none.
func (p published) onHost(id string) string { return cmp.Or(p.Pod, id) + "/" + p.Name }

// serialize calls f unless a call for the key is under way.
func (d *driver) serialize(key string, f func() error) error {
	d.mu.Lock()
	taken := d.busy[key]
	d.busy[key] = true
	d.mu.Unlock()
	if taken {
		return status.Errorf(codes.Aborted, "volume %s: another call is under way", key)
	}
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.busy, key)
	}()
	return f()
}

// exclusively calls f unless a call for the ID is under way, logs it, and gives the error a code.
func (d *driver) exclusively(what, id string, f func() error) error {
	begin, err := time.Now(), d.serialize(id, f)
	d.log.Info(what, "volume", id, "time", time.Since(begin), "error", err)
	refusal := (*hostclient.Refusal)(nil)
	switch _, coded := status.FromError(err); {
	case coded: // also nil
		return err
	case errors.As(err, &refusal):
		return status.Error(refusal.Status.Code(), err.Error())
	}
	return status.Error(codes.Internal, err.Error())
}

// reclaim forgets what is published no more, and begins to detach what the guest has and nobody uses: of an earlier system of the guest,
// or of pods that the kubelet has forgotten. ctx bounds that. While a call is under way, which may be about to mount one, it does nothing
// and returns errBusy. A daemon that cannot list volumes detaches them.
func (d *driver) reclaim(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.busy) > 0 {
		return errBusy
	}
	all, err := d.records.all()
	if err != nil {
		return err
	}
	r, kept := &hostdpb.CollectVolumesRequest{List: true}, map[published]bool{}
	for file, p := range all {
		mounted, err := volume.Mounted(p.Target)
		if err != nil {
			return err
		}
		if mounted {
			r.Keep, kept[p.volume()] = append(r.Keep, &hostdpb.Volume{Pod: p.Pod, Name: p.Name}), true
			delete(all, file)
		}
	}
	err = d.ask(func(c daemon) error {
		limited, cancel := context.WithTimeout(ctx, listLimit) // calls wait
		defer cancel()
		answer, err := c.CollectVolumes(limited, r)
		left := answer.GetLeft()
		for i, use := range d.uses(left) {
			p := published{Pod: left[i].GetPod(), Name: left[i].GetName()}
			if kept[p] = use.Why != ""; !kept[p] {
				d.detachStale(ctx, p)
			} else if said := [3]string{p.Pod, p.Name, use.Why}; !d.said[said] {
				d.said[said] = true
				d.log.Warn("leave a volume attached that may be in use", "pod", p.Pod, "volume", p.Name, "why", use.Why, "process", use.Process)
			}
		}
		return err
	})
	maps.DeleteFunc(d.said, func(s [3]string, _ bool) bool { return err == nil && !kept[published{Pod: s[0], Name: s[1]}] })
	for file, p := range all {
		if err == nil && !kept[p.volume()] { // else another pod's record would no longer say that this one uses it
			err = os.Remove(filepath.Join(string(d.records), file))
		}
	}
	return err
}

// errBusy says that a call of the kubelet is under way.
var errBusy = errors.New("calls of the kubelet are under way")

// listLimit bounds how long the daemon may take to list the guest's volumes.
const listLimit = 10 * time.Second

// detachStale has a volume detached that nobody uses, unless that is under way.
func (d *driver) detachStale(ctx context.Context, v published) {
	if _, known := d.stale.LoadOrStore(v, nil); known {
		return
	}
	d.detaching.Go(func() {
		switch err := d.again(ctx, "detach the volume "+v.Pod+"/"+v.Name+", which nobody uses", func() error { return d.detach(ctx, v) }); {
		case err == nil:
			d.stale.Delete(v)
			d.log.Info("detached a volume that nobody uses", "pod", v.Pod, "volume", v.Name)
		case ctx.Err() == nil:
			d.log.Error("the host daemon knows no ephemeral volumes any more: update it, and restart this driver", "error", err)
		}
	})
}

// keepReclaiming reclaims at each interval until ctx ends. It logs busyLooks in which calls were under way.
func (d *driver) keepReclaiming(ctx context.Context) {
	for busy := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(d.interval):
		}
		err := d.reclaim(ctx)
		if busy++; !errors.Is(err, errBusy) {
			busy = 0
		}
		if err != nil && ctx.Err() == nil && busy%busyLooks == 0 {
			d.log.Warn("find volumes that nobody uses; trying again", "error", err)
		}
	}
}

// busyLooks is how often calls are under way, one after another, until that is worth a line: ten minutes.
const busyLooks = 20

func (d *driver) detach(ctx context.Context, p published) error {
	return d.ask(func(c daemon) error {
		_, err := c.DetachVolume(ctx, &hostdpb.DetachVolumeRequest{Pod: p.Pod, Name: p.Name})
		return err
	})
}

// again calls f until it succeeds, ctx ends, or the daemon does not know the request. It logs each new error.
func (d *driver) again(ctx context.Context, what string, f func() error) error {
	for last := ""; ; {
		err := f()
		if err == nil || hostclient.Unknown(err) {
			return err
		}
		if text := err.Error(); text != last {
			d.log.Warn(what+"; trying again", "error", err)
			last = text
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(d.retry):
		}
	}
}
