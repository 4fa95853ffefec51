package shares

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"unnest.io/unnest/internal/hostd/attachment"
	"unnest.io/unnest/internal/hostd/hotplug"
	"unnest.io/unnest/internal/hostd/quota"
	"unnest.io/unnest/internal/netdev/share"
	"unnest.io/unnest/internal/vmm"
)

// refusingVMM maps memory and plugs no volume.
type refusingVMM struct {
	vmm.Sharer
	err error
}

func (refusingVMM) SharePorts() []vmm.SharePort { return make([]vmm.SharePort, 1) }

func (refusingVMM) MappedMemory(context.Context) (int64, error)            { return 64 << 20, nil }
func (refusingVMM) OrphanedBackends(context.Context) ([]string, error)     { return nil, nil }
func (refusingVMM) Shared(context.Context) (found []vmm.Occupied, _ error) { return nil, nil }
func (v refusingVMM) AddFiles(_ context.Context, _ string, _ int, _ string, _ *os.File) error {
	return v.err
}

// A volume that the VMM refuses leaves no directory and no key, unless another guest has
// it, or the guest may have it.
func TestRefusedVolume(t *testing.T) {
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		t.Skip("needs root: set UNNEST_PRIVILEGED=1")
	}
	refused := &vmm.RefusedError{Err: errors.New("no room")}
	for name, c := range map[string]struct {
		err   error
		other bool
		want  bool // that the directory exists
	}{
		"refused":             {err: refused},
		"another guest's too": {err: refused, other: true, want: true},
		"uncertain":           {err: errors.New("timeout"), want: true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "volumes")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			r, tenant := newRegistry(t), quota.Tenant{Name: "a", Volumes: dir, VolumesUnbounded: true}
			id := share.ID{Kind: share.Volume, Pod: "web", Name: "data"}
			g := r.Guest("g1", func() quota.Tenant { return tenant }, "", refusingVMM{err: c.err}, r.log)
			if _, err := g.Observe(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			if plug, err := g.Reserve(Request{ID: id, Key: share.Digest{1}}); err != nil || !plug {
				t.Fatalf("got %t, %v", plug, err)
			}
			if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
				t.Errorf("before it has a port there is %v, %v", entries, err)
			}
			if c.other {
				if _, err := r.reserveVolume(tenant, "g2", id); err != nil {
					t.Fatal(err)
				}
			}
			event, err := g.Perform(t.Context(), hotplug.AddShare{Occupant: hotplug.Occupant{Slot: 1}, Key: Key(id)})
			if _, failed := event.(hotplug.PlugFailed); err != nil || !failed {
				t.Fatalf("got %v, %v", event, err)
			}
			if _, err := os.Stat(dir + "/web/data"); (err == nil) != c.want {
				t.Errorf("the directory: %v", err)
			}
			if _, err := os.Stat(dir + "/web"); (err == nil) != c.want {
				t.Errorf("the pod's directory: %v", err)
			}
		})
	}
}

// A tenant without a file system of its own gets no volume, unless the configuration
// allows that.
func TestFileSystemOfTenant(t *testing.T) {
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		t.Skip("needs root: set UNNEST_PRIVILEGED=1")
	}
	dir := filepath.Join(t.TempDir(), "volumes")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	id := share.ID{Kind: share.Volume, Pod: "web", Name: "data"}
	for unbounded, want := range map[bool]error{false: share.ErrDirectory, true: nil} {
		r := newRegistry(t)
		tenant := func() quota.Tenant {
			return quota.Tenant{Name: "a", Volumes: dir, VolumesUnbounded: unbounded}
		}
		g := r.Guest("g1", tenant, "", refusingVMM{}, r.log)
		if _, err := g.Observe(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if _, err := g.Reserve(Request{ID: id, Key: share.Digest{1}}); !errors.Is(err, want) || (err == nil) != (want == nil) {
			t.Errorf("unbounded %t: got %v, want %v", unbounded, err, want)
		}
		if counted := len(r.of("a", "g1")); (counted == 0) != (want != nil) {
			t.Errorf("unbounded %t: the guest has %d volumes", unbounded, counted)
		}
	}
}

// An ephemeral volume ends when the last guest releases it, is removed or does not have it at the start of
// the daemon; and with its guest, if that is gone by then.
func TestEphemeralVolume(t *testing.T) {
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		t.Skip("needs root: set UNNEST_PRIVILEGED=1")
	}
	id := share.ID{Kind: share.Volume, Pod: "web", Name: "data"}
	for name, end := range map[string]func(r *Registry, g *Guest, t quota.Tenant) error{
		"released": func(_ *Registry, g *Guest, _ quota.Tenant) error { return g.Release(id) },
		"unplugged": func(_ *Registry, g *Guest, _ quota.Tenant) error {
			_, err := g.Perform(context.Background(), hotplug.Released{Key: Key(id)})
			return err
		},
		"guest removed": func(r *Registry, _ *Guest, tenant quota.Tenant) error { return r.RemoveGuest(tenant, "g1", "") },
		"not there": func(_ *Registry, g *Guest, _ quota.Tenant) error {
			_, err := g.Observe(context.Background(), func(attachment.Key) bool { return false })
			return err
		},
		"guest gone": func(r *Registry, _ *Guest, tenant quota.Tenant) error {
			next := New(r.log, "", "")
			err := next.EndOthers(tenant, []string{"g2"})
			next.removals.Wait()
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "volumes")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			r, tenant := newRegistry(t), quota.Tenant{Name: "a", Volumes: dir, VolumesUnbounded: true}
			g := r.Guest("g1", func() quota.Tenant { return tenant }, "", refusingVMM{err: errors.New("timeout")}, r.log)
			if _, err := g.Observe(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			if _, err := g.Reserve(Request{ID: id, Ephemeral: true}); err != nil {
				t.Fatal(err)
			}
			if _, err := g.Perform(t.Context(), hotplug.AddShare{Occupant: hotplug.Occupant{Slot: 1}, Key: Key(id)}); err != nil {
				t.Fatal(err)
			}
			if all, err := g.Ephemeral(); err != nil || len(all) != 1 || all[0] != id {
				t.Errorf("the guest has %v, %v", all, err)
			}
			if err := r.EndOthers(tenant, []string{"g1"}); err != nil {
				t.Error(err)
			}
			r.removals.Wait()
			if _, err := os.Stat(dir + "/web/data"); err != nil {
				t.Errorf("while the guest has it: %v", err)
			}
			if err := end(r, g, tenant); err != nil {
				t.Error(err)
			}
			r.removals.Wait()
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("left: %v, %v", left, err)
			}
		})
	}
}
