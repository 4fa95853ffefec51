package shares

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"unnest/internal/hostd/hotplug"
	"unnest/internal/hostd/quota"
	"unnest/internal/netdev/share"
	"unnest/internal/vmm"
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
			if plug, err := g.Reserve(id, share.Digest{1}, 0); err != nil || !plug {
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
		if _, err := g.Reserve(id, share.Digest{1}, 0); !errors.Is(err, want) || (err == nil) != (want == nil) {
			t.Errorf("unbounded %t: got %v, want %v", unbounded, err, want)
		}
		if counted := len(r.of("a", "g1")); (counted == 0) != (want != nil) {
			t.Errorf("unbounded %t: the guest has %d volumes", unbounded, counted)
		}
	}
}
