package volumedriver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"unnest.io/unnest/internal/cni/hostclient"
	"unnest.io/unnest/internal/cni/volume"
	"unnest.io/unnest/internal/hostapi/hostdpb"
)

// fake is a host daemon. fail, if it is set, may fail a call.
type fake struct {
	hostdpb.HostDaemonClient
	mu       sync.Mutex
	attached map[string]bool // POD/NAME=KEY of ephemeral volumes
	fail     func(call string) error
}

func (f *fake) Close() {}

func (f *fake) called(call string) error {
	if f.fail != nil {
		return f.fail(call)
	}
	return nil
}

func (f *fake) AttachVolume(_ context.Context, r *hostdpb.AttachVolumeRequest, _ ...grpc.CallOption) (*hostdpb.AttachVolumeResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.called("attach"); err != nil {
		return nil, err
	}
	f.attached[fmt.Sprintf("%s/%s=%s %t", r.GetPod(), r.GetName(), r.GetKey(), r.GetEphemeral())] = true
	return &hostdpb.AttachVolumeResponse{Volume: &hostdpb.Volume{Pod: r.GetPod(), Name: r.GetName()}}, nil
}

func (f *fake) detach(keep func(volume string) bool) {
	for v := range f.attached {
		if name, _, _ := strings.Cut(v, "="); !keep(name) {
			delete(f.attached, v)
		}
	}
}

func (f *fake) DetachVolume(_ context.Context, r *hostdpb.DetachVolumeRequest, _ ...grpc.CallOption) (*hostdpb.DetachVolumeResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.called("detach"); err != nil {
		return nil, err
	}
	f.detach(func(v string) bool { return v != r.GetPod()+"/"+r.GetName() })
	return &hostdpb.DetachVolumeResponse{}, nil
}

func (f *fake) CollectVolumes(_ context.Context, r *hostdpb.CollectVolumesRequest, _ ...grpc.CallOption) (*hostdpb.CollectVolumesResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	keep := map[string]bool{}
	for _, v := range r.GetKeep() {
		keep[v.GetPod()+"/"+v.GetName()] = true
	}
	answer := &hostdpb.CollectVolumesResponse{}
	f.detach(func(v string) bool {
		if pod, name, _ := strings.Cut(v, "/"); r.GetList() && !keep[v] {
			answer.Left = append(answer.Left, &hostdpb.Volume{Pod: pod, Name: name})
		}
		return r.GetList() || keep[v]
	})
	return answer, f.called("collect")
}

func (f *fake) has() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []string
	for v := range f.attached {
		all = append(all, v)
	}
	return strings.Join(all, ", ")
}

// node is a driver whose volumes are file systems in memory, in the directory of a kubelet.
type node struct {
	*driver
	t      *testing.T
	host   *fake
	dir    string
	mounts int
	fail   error // of the next mounts

	mu    sync.Mutex
	used  map[string]volume.Use // by POD/NAME: volumes that containers may have mounted elsewhere
	looks int                   // at all processes
}

func (n *node) use(v, why string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.used[v] = volume.Use{Why: why, Process: "4711"}
}

func newNode(t *testing.T) *node {
	t.Helper()
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		t.Skip("needs root: set UNNEST_PRIVILEGED=1")
	}
	n := &node{t: t, host: &fake{attached: map[string]bool{}}, dir: t.TempDir(), used: map[string]volume.Use{}}
	for _, dir := range []string{"/plugins", "/plugins_registry"} {
		if err := os.MkdirAll(n.dir+dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	n.restart()
	return n
}

// restart replaces the driver by another one, as after a kill.
func (n *node) restart() {
	d := newDriver("node1", netip.AddrPort{}, "", n.dir+"/published", slog.New(slog.NewTextHandler(n.t.Output(), nil)))
	d.retry, d.interval = time.Millisecond, time.Millisecond
	d.uses = func(volumes []*hostdpb.Volume) (uses []volume.Use) {
		n.mu.Lock()
		defer n.mu.Unlock()
		if len(volumes) > 0 {
			n.looks++
		}
		for _, v := range volumes {
			uses = append(uses, n.used[v.GetPod()+"/"+v.GetName()])
		}
		return uses
	}
	d.dial = func() (daemon, error) {
		n.host.mu.Lock()
		defer n.host.mu.Unlock()
		return n.host, n.host.called("dial")
	}
	d.mount = func(_ context.Context, _ *hostdpb.Volume, dir string) error {
		err := os.MkdirAll(dir, 0o755)
		if err == nil {
			err = n.fail
		}
		if err == nil {
			n.mounts++
			n.t.Cleanup(func() { _ = volume.Unmount(dir) })
			err = unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=755,size=1M")
		}
		return err
	}
	n.driver = d
}

// request asks for the volume of a pod at its path.
func (n *node) request(namespace, uid string, more map[string]string) *csi.NodePublishVolumeRequest {
	a := map[string]string{isEphemeral: "true", podNamespace: namespace, podUID: uid, volumeName: "data", volumeKey: "secret"}
	for key, value := range more {
		a[key] = value
	}
	target := filepath.Join(n.dir, "pods", uid, "volumes/kubernetes.io~csi/data/mount")
	return &csi.NodePublishVolumeRequest{VolumeId: "csi-" + uid, TargetPath: target, VolumeContext: a, VolumeCapability: &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
	}}
}

func (n *node) publish(r *csi.NodePublishVolumeRequest) error {
	_, err := n.NodePublishVolume(n.t.Context(), r)
	return err
}

func (n *node) unpublish(r *csi.NodePublishVolumeRequest) error {
	_, err := n.NodeUnpublishVolume(n.t.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: r.GetVolumeId(), TargetPath: r.GetTargetPath()})
	return err
}

// wantNothing checks that nothing is left of a request.
func (n *node) wantNothing(r *csi.NodePublishVolumeRequest) {
	n.t.Helper()
	if _, err := os.Stat(r.GetTargetPath()); !errors.Is(err, os.ErrNotExist) {
		n.t.Errorf("the path is left: %v", err)
	}
	if got := n.host.has(); got != "" {
		n.t.Errorf("attached: %s", got)
	}
	if entries, err := os.ReadDir(n.dir + "/published"); err == nil && len(entries) > 0 {
		n.t.Errorf("records: %v", entries)
	}
}

// Calls may come twice, and to another driver.
func TestPublish(t *testing.T) {
	n := newNode(t)
	r := n.request("shop", "u1", nil)
	r.VolumeCapability.GetMount().VolumeMountGroup = "1234"
	for range 2 {
		if err := n.publish(r); err != nil {
			t.Fatal(err)
		}
		n.restart()
		if err := n.reclaim(t.Context()); err != nil {
			t.Error(err)
		}
	}
	var s unix.Stat_t
	if err := unix.Stat(r.GetTargetPath(), &s); err != nil || s.Mode&0o7777 != 0o2777 || s.Gid != 1234 || n.mounts != 1 {
		t.Errorf("mode %o, group %d, %d mounts, %v", s.Mode, s.Gid, n.mounts, err)
	}
	if got := n.host.has(); got != "shop.u1/data=secret true" {
		t.Errorf("attached: %s", got)
	}
	other := n.request("shop", "u1", map[string]string{volumeName: "other"})
	if err := n.publish(other); status.Code(err) != codes.AlreadyExists {
		t.Errorf("another volume of the same ID: %v", err)
	}
	for range 2 {
		if err := n.unpublish(r); err != nil {
			t.Error(err)
		}
		n.wantNothing(r)
	}
	r.Readonly = true
	if err := n.publish(r); err != nil || os.WriteFile(r.GetTargetPath()+"/file", nil, 0o600) == nil {
		t.Errorf("a read-only volume: %v, or it can be written", err)
	}
	if err := n.unpublish(r); err != nil {
		t.Error(err)
	}
}

// Whatever a pod says of its volumes, they are of its namespace.
func TestNamespace(t *testing.T) {
	n := newNode(t)
	long := strings.Repeat("n", 63)
	for _, tt := range []struct {
		namespace, pod string
		want           string
	}{
		{"shop", "", "shop.u1/"},
		{"shop", "u0", "shop.u0/"}, // a companion
		{"thief", "u0", "thief.u0/"},
		{"thief", "shop.u0", "thief.shop.u0/"},
		{"thief", "../shop.u0", "thief.../shop.u0/"}, // the daemon refuses the name
		{long, "u0", "N"},
	} {
		r := n.request(tt.namespace, "u1", map[string]string{splitPod: tt.pod})
		if err := n.publish(r); err != nil {
			t.Fatal(err)
		}
		if got := n.host.has(); !strings.HasPrefix(got, tt.want) {
			t.Errorf("%s, %q: got %s, want %s", tt.namespace, tt.pod, got, tt.want)
		}
		if err := n.unpublish(r); err != nil {
			t.Error(err)
		}
	}
	for what, change := range map[string]func(*csi.NodePublishVolumeRequest){
		"no word of the kubelet":    func(r *csi.NodePublishVolumeRequest) { delete(r.VolumeContext, podNamespace) },
		"a pod's word":              func(r *csi.NodePublishVolumeRequest) { r.VolumeContext[podUID] = "guessed" },
		"persistent":                func(r *csi.NodePublishVolumeRequest) { delete(r.VolumeContext, isEphemeral) },
		"written by hand":           func(r *csi.NodePublishVolumeRequest) { delete(r.VolumeContext, volumeKey) },
		"without a name":            func(r *csi.NodePublishVolumeRequest) { delete(r.VolumeContext, volumeName) },
		"without an ID":             func(r *csi.NodePublishVolumeRequest) { r.VolumeId = "" },
		"a block device":            func(r *csi.NodePublishVolumeRequest) { r.VolumeCapability.AccessType = nil },
		"a group that is no number": func(r *csi.NodePublishVolumeRequest) { r.VolumeCapability.GetMount().VolumeMountGroup = "wheel" },
	} {
		r := n.request("shop", "u1", nil)
		change(r)
		if err := n.publish(r); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", what, err)
		}
		n.wantNothing(r)
	}
}

// What fails leaves nothing, or what the next call removes.
func TestFailures(t *testing.T) {
	refused := &hostclient.Refusal{Status: status.New(codes.ResourceExhausted, "no free port"), Reached: true}
	for _, call := range []string{"dial", "attach", "mount"} {
		n := newNode(t)
		r := n.request("shop", "u1", nil)
		left := 1
		n.host.fail = func(c string) error {
			if c == call && left > 0 {
				left--
				return refused
			}
			return nil
		}
		if call == "mount" {
			n.fail = refused
		}
		if err := n.publish(r); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("%s: %v", call, err)
		}
		n.wantNothing(r)
	}
	n := newNode(t)
	r := n.request("shop", "u1", nil)
	if err := n.publish(r); err != nil {
		t.Fatal(err)
	}
	busy, err := os.Create(r.GetTargetPath() + "/file")
	if err != nil {
		t.Fatal(err)
	}
	if err := n.unpublish(r); status.Code(err) != codes.Internal || n.host.has() == "" {
		t.Errorf("while it is in use: %v, attached %q", err, n.host.has())
	}
	busy.Close()
	n.host.fail = func(string) error { return refused }
	if err := n.unpublish(r); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("without the daemon: %v", err)
	}
	n.host.fail = nil
	n.restart()
	if err := n.unpublish(r); err != nil {
		t.Error(err)
	}
	n.wantNothing(r)
}

// After a restart of the guest nothing is mounted, and the daemon detaches what it still has. What is
// mounted stays. One that the daemon cannot detach holds up no other, and is tried again.
func TestRecover(t *testing.T) {
	n := newNode(t)
	lost, kept, later := n.request("shop", "u1", nil), n.request("shop", "u2", nil), n.request("shop", "u3", nil)
	if err := errors.Join(n.publish(lost), n.publish(kept), volume.Unmount(lost.GetTargetPath())); err != nil {
		t.Fatal(err)
	}
	n.restart()
	stuck, tries := true, make(chan struct{})
	n.host.fail = func(call string) error {
		if call != "detach" || !stuck {
			return nil
		}
		select {
		case tries <- struct{}{}:
		default:
		}
		return &hostclient.Refusal{Status: status.New(codes.DeadlineExceeded, "the guest did not give it up"), Reached: true}
	}
	socket, _ := n.serve()
	client := csi.NewNodeClient(n.connect(socket))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range 2 {
		select {
		case <-tries:
		case <-ctx.Done():
			t.Fatal("the driver does not try again")
		}
	}
	if _, err := client.NodePublishVolume(ctx, later); err != nil {
		t.Errorf("another volume: %v", err)
	}
	if _, err := client.NodePublishVolume(ctx, lost); status.Code(err) != codes.Unavailable {
		t.Errorf("the volume that is not detached yet: %v", err)
	}
	n.host.mu.Lock()
	stuck = false
	n.host.mu.Unlock()
	for _, err := client.NodePublishVolume(ctx, lost); err != nil; _, err = client.NodePublishVolume(ctx, lost) {
		if status.Code(err) != codes.Unavailable {
			t.Fatal(err)
		}
	}
	if got := n.host.has(); strings.Count(got, "shop.") != 3 {
		t.Errorf("attached %s", got)
	}
	if err := errors.Join(n.unpublish(lost), n.unpublish(kept), n.unpublish(later)); err != nil {
		t.Error(err)
	}
	n.wantNothing(kept)
}

// While the driver runs, a volume that the kubelet never unpublishes is detached when its mount is gone and no container has it any more.
// The kubelet may publish it again, and its late call takes nothing.
func TestReclaim(t *testing.T) {
	n := newNode(t)
	lost, kept := n.request("shop", "u1", nil), n.request("shop", "u2", nil)
	socket, _ := n.serve()
	client := csi.NewNodeClient(n.connect(socket))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	publish := func(r *csi.NodePublishVolumeRequest) {
		t.Helper()
		_, err := client.NodePublishVolume(ctx, r)
		for ; status.Code(err) == codes.Unavailable; _, err = client.NodePublishVolume(ctx, r) { // it is being detached
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	lists := make(chan struct{})
	n.host.mu.Lock()
	n.host.fail = func(call string) error {
		if call == "collect" {
			select {
			case lists <- struct{}{}:
			default:
			}
		}
		return nil
	}
	n.host.mu.Unlock()
	wantAttached := func(what string, want bool) {
		t.Helper()
		for range 3 { // one may have begun before
			select {
			case <-lists:
			case <-ctx.Done():
				t.Fatal("the driver does not look for volumes that nobody uses")
			}
		}
		has := func() bool { return strings.Contains(n.host.has(), "shop.u1/data") }
		for !want && has() && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		if has() != want || !strings.Contains(n.host.has(), "shop.u2/data") {
			t.Errorf("%s: attached %q", what, n.host.has())
		}
	}
	publish(lost)
	publish(kept)
	wantAttached("both are mounted", true)
	n.use("shop.u1/data", "mnt:[1] /data")
	if err := volume.Unmount(lost.GetTargetPath()); err != nil {
		t.Fatal(err)
	}
	wantAttached("a container has it", true)
	n.use("shop.u1/data", "")
	wantAttached("nobody has it", false)
	publish(lost)
	wantAttached("it is published again", true)
	for _, r := range []*csi.NodePublishVolumeRequest{lost, kept} {
		if _, err := client.NodeUnpublishVolume(ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: r.GetVolumeId(), TargetPath: r.GetTargetPath()}); err != nil {
			t.Error(err)
		}
	}
	n.wantNothing(kept)
}

// While a call is under way, no volume is taken: that may be about to mount it.
func TestReclaimWaits(t *testing.T) {
	n := newNode(t)
	r := n.request("shop", "u1", nil)
	mount, reclaimed := n.driver.mount, false
	n.driver.mount = func(ctx context.Context, v *hostdpb.Volume, dir string) error {
		n.host.fail = func(call string) error { reclaimed = reclaimed || call == "collect"; return nil }
		if err := n.reclaim(ctx); !errors.Is(err, errBusy) || n.host.has() == "" {
			t.Errorf("while it is being mounted: %v, attached %q", err, n.host.has())
		}
		return mount(ctx, v, dir)
	}
	if err := n.publish(r); err != nil || reclaimed || n.host.has() == "" {
		t.Errorf("%v, the daemon was asked: %t, attached %q", err, reclaimed, n.host.has())
	}
	if err := errors.Join(volume.Unmount(r.GetTargetPath()), n.reclaim(t.Context())); err != nil {
		t.Error(err)
	}
	n.detaching.Wait()
	if err := n.unpublish(r); err != nil { // late
		t.Error(err)
	}
	n.wantNothing(r)
}

// Two pods of a guest that have one volume of the host keep it until both have gone.
func TestTwice(t *testing.T) {
	n := newNode(t)
	one, two := n.request("shop", "u1", nil), n.request("shop", "u2", map[string]string{splitPod: "u1"})
	if err := errors.Join(n.publish(one), n.publish(two), n.unpublish(one)); err != nil || n.host.has() == "" {
		t.Errorf("%v, attached %q", err, n.host.has())
	}
	if err := n.unpublish(two); err != nil {
		t.Error(err)
	}
	n.wantNothing(two)
}

// A pod that comes while a volume is being detached, because the one before has gone, does not lose it.
func TestTwiceAtOnce(t *testing.T) {
	n := newNode(t)
	one, two := n.request("shop", "u1", nil), n.request("shop", "u2", map[string]string{splitPod: "u1"})
	if err := n.publish(one); err != nil {
		t.Fatal(err)
	}
	dial := n.driver.dial
	n.driver.dial = func() (daemon, error) {
		n.driver.dial = dial
		if err := n.publish(two); status.Code(err) != codes.Aborted {
			t.Errorf("while it is being detached: %v", err)
		}
		return dial()
	}
	if err := errors.Join(n.unpublish(one), n.publish(two)); err != nil || n.host.has() == "" {
		t.Errorf("%v, attached %q", err, n.host.has())
	}
	if err := n.unpublish(two); err != nil {
		t.Error(err)
	}
	n.wantNothing(two)
}

// The container of a pod whose mount is gone keeps the volume, also when the other pod that has it ends.
func TestReclaimTwice(t *testing.T) {
	n := newNode(t)
	one, two := n.request("shop", "u1", nil), n.request("shop", "u2", map[string]string{splitPod: "u1"})
	look := func(why string) {
		t.Helper()
		n.use("shop.u1/data", why)
		err := n.reclaim(t.Context())
		if n.detaching.Wait(); err != nil || (n.host.has() == "") != (why == "") {
			t.Errorf("used %q: %v, attached %q", why, err, n.host.has())
		}
	}
	if err := errors.Join(n.publish(one), n.publish(two), volume.Unmount(one.GetTargetPath())); err != nil {
		t.Fatal(err)
	}
	look("mnt:[1] /data")
	if err := n.unpublish(two); err != nil || n.host.has() == "" {
		t.Errorf("when the other pod has ended: %v, attached %q", err, n.host.has())
	}
	look("mnt:[1] /data")
	look("")
	n.wantNothing(two)
}

// A driver that leaves volumes attached says of each why, and again if the reason is another one, but not at each look. It looks once at
// the processes for all volumes, and not at all if there are none.
func TestReclaimSaysWhy(t *testing.T) {
	n := newNode(t)
	var said bytes.Buffer
	n.log = slog.New(slog.NewTextHandler(&said, nil))
	look := func(scans int, want ...string) {
		t.Helper()
		before := n.looks
		said.Reset()
		if err := n.reclaim(t.Context()); err != nil {
			t.Error(err)
		}
		n.detaching.Wait()
		if n.looks-before != scans {
			t.Errorf("%d scans of the processes, want %d", n.looks-before, scans)
		}
		if lines := strings.Count(said.String(), "leave a volume attached"); lines != len(want) {
			t.Errorf("%d lines, want %d: %s", lines, len(want), said.String())
		}
		for _, text := range want {
			if !strings.Contains(said.String(), text) {
				t.Errorf("the log does not say %s: %s", text, said.String())
			}
		}
	}
	look(0)
	for _, uid := range []string{"u1", "u2", "u3"} {
		r := n.request("shop", uid, nil)
		n.use("shop."+uid+"/data", "mnt:[1] /"+uid)
		if err := errors.Join(n.publish(r), volume.Unmount(r.GetTargetPath())); err != nil {
			t.Fatal(err)
		}
	}
	why := func(uid, why string) string {
		return fmt.Sprintf("pod=shop.%s volume=data why=%q process=4711", uid, why)
	}
	look(1, why("u1", "mnt:[1] /u1"), why("u2", "mnt:[1] /u2"), why("u3", "mnt:[1] /u3"))
	look(1)
	n.use("shop.u2/data", "mnt:[2] /other")
	look(1, why("u2", "mnt:[2] /other"))
	n.use("shop.u2/data", "mnt:[1] /u2") // of two containers that have it, one is seen first, or the other
	look(1)
	n.use("shop.u3/data", "")
	look(1)
	if got := n.host.has(); strings.Count(got, "shop.") != 2 || strings.Contains(got, "u3") {
		t.Errorf("attached %q", got)
	}
	n.use("shop.u1/data", "")
	n.use("shop.u2/data", "")
	look(1)
	look(0)
	if len(n.said) > 0 {
		t.Errorf("of volumes that are gone the driver keeps %v", n.said)
	}
}

// A call for a volume that another one is at is refused.
func TestConcurrent(t *testing.T) {
	n := newNode(t)
	r := n.request("shop", "u1", nil)
	entered, leave := make(chan struct{}), make(chan struct{})
	n.host.fail = func(call string) error {
		if call == "attach" {
			close(entered)
			<-leave
		}
		return nil
	}
	done := make(chan error, 1)
	go func() { done <- n.publish(r) }()
	<-entered
	if err := n.publish(r); status.Code(err) != codes.Aborted {
		t.Errorf("at the same time: %v", err)
	}
	close(leave)
	if err := errors.Join(<-done, n.unpublish(r)); err != nil {
		t.Error(err)
	}
}

// serve runs the driver at its sockets until the test ends, and returns a connection to one of them.
func (n *node) serve() (sockets, registry string) {
	sockets, registry = n.dir+"/plugins/csi.sock", n.dir+"/plugins_registry/reg.sock"
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- n.run(ctx, sockets, registry) }()
	n.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			n.t.Error(err)
		}
	})
	return sockets, registry
}

func (n *node) connect(socket string) *grpc.ClientConn {
	n.t.Helper()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { conn.Close() })
	return conn
}

// While a driver runs, another one of the node neither reclaims nor takes the kubelet's calls. It does both once the first one has ended,
// and no reclaim has taken what that one has published.
func TestTwoDrivers(t *testing.T) {
	n := newNode(t)
	first := n.driver
	ctx, end := context.WithCancel(t.Context())
	defer end()
	ended := make(chan error, 1)
	socket, registry := n.dir+"/plugins/csi.sock", n.dir+"/plugins_registry/reg.sock"
	go func() { ended <- first.run(ctx, socket, registry) }()
	limited, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	serving := func() string {
		t.Helper()
		conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		got, err := csi.NewNodeClient(conn).NodeGetInfo(limited, &csi.NodeGetInfoRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return got.GetNodeId()
	}
	if got := serving(); got != "node1" {
		t.Errorf("%s serves", got)
	}
	n.restart()
	second := n.driver
	waits, reclaims := make(chan struct{}), make(chan struct{})
	second.node, second.log = "node2", slog.New(slog.NewTextHandler(writerFunc(func(line []byte) {
		if bytes.Contains(line, []byte("another driver")) {
			close(waits)
		}
	}), nil))
	dial, reclaimed := second.dial, sync.OnceFunc(func() { close(reclaims) })
	second.dial = func() (daemon, error) {
		reclaimed()
		return dial()
	}
	n.serve()
	select {
	case <-waits:
	case <-reclaims:
		t.Error("the second driver reclaims next to the first one")
	case <-limited.Done():
		t.Error("the second driver does not say that it waits")
	}
	r := n.request("shop", "u1", nil)
	if _, err := first.NodePublishVolume(limited, r); err != nil || serving() != "node1" {
		t.Errorf("while another driver waits: %v, or the first one does not serve", err)
	}
	select {
	case <-reclaims:
		t.Error("the second driver reclaims next to the first one")
	default:
	}
	end()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if got := serving(); got != "node2" {
		t.Errorf("%s serves", got)
	}
	if got := n.host.has(); got == "" {
		t.Error("the next driver has taken a volume that is published")
	}
	if err := n.unpublish(r); err != nil {
		t.Error(err)
	}
	n.wantNothing(r)
}

type writerFunc func(line []byte)

func (w writerFunc) Write(line []byte) (int, error) {
	w(line)
	return len(line), nil
}

// The kubelet finds the driver by its registration, also after one that was killed.
func TestRegistration(t *testing.T) {
	n := newNode(t)
	if err := os.WriteFile(n.dir+"/plugins/csi.sock", nil, 0o600); err != nil { // of a driver that was killed
		t.Fatal(err)
	}
	socket, registry := n.serve()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	info, err := registration.NewRegistrationClient(n.connect(registry)).GetInfo(ctx, &registration.InfoRequest{})
	if err != nil || info.GetType() != "CSIPlugin" || info.GetName() != Name || info.GetEndpoint() != socket {
		t.Fatalf("%v, %v", info, err)
	}
	got, err := csi.NewNodeClient(n.connect(info.GetEndpoint())).NodeGetInfo(ctx, &csi.NodeGetInfoRequest{})
	if err != nil || got.GetNodeId() != "node1" {
		t.Errorf("%v, %v", got, err)
	}
	for _, path := range []string{socket, registry} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: %v, %v", path, info, err)
		}
	}
	failed := make(chan error, 1)
	if _, err := (registrar{failed: failed}).NotifyRegistrationStatus(ctx, &registration.RegistrationStatus{Error: "no"}); err != nil || <-failed == nil {
		t.Error("a refused registration is no failure")
	}
}
