package shares

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"unnest.io/unnest/internal/hostd/attachment"
	"unnest.io/unnest/internal/hostd/hotplug"
	"unnest.io/unnest/internal/hostd/quota"
	"unnest.io/unnest/internal/netdev/share"
	"unnest.io/unnest/internal/vmm"
)

// memory is shared memory of the pod web.
func memory(name string) share.ID { return share.ID{Kind: share.Memory, Pod: "web", Name: name} }

func newRegistry(t *testing.T) *Registry {
	return New(slog.New(slog.NewTextHandler(t.Output(), nil)), "", "")
}

// Memory exists as long as a guest has it, with one size and one key.
func TestMemory(t *testing.T) {
	r, tenant := newRegistry(t), quota.Tenant{Name: "a", Limits: quota.Limits{SharedMemory: 1}}
	key, other := share.Digest{1}, share.Digest{2}
	for i, c := range []struct {
		guest string
		name  string
		key   share.Digest
		size  uint64
		want  error
	}{
		{"g1", "ring", key, 0, share.ErrSize}, // there is none yet
		{"g1", "ring", key, 512 << 10, nil},
		{"g1", "ring", key, 0, nil},
		{"g2", "ring", other, 0, share.ErrKey},
		{"g2", "ring", key, 4096, ErrSize},
		{"g2", "ring", key, 512 << 10, nil},
		{"g2", "more", key, 1 << 20, quota.ErrLimit},
	} {
		err := r.reserveMemory(tenant, c.guest, memory(c.name), c.key, c.size)
		if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%d: %s asks for %s of %d bytes: got %v, want %v", i, c.guest, c.name, c.size, err, c.want)
		}
	}
	for _, guest := range []string{"g1", "g2"} {
		if size, file := r.memory("a", memory("ring")); size != 512<<10 || file == nil {
			t.Errorf("before %s releases it: %d bytes, file %v", guest, size, file)
		}
		if err := r.release("a", guest, memory("ring")); err != nil {
			t.Error(err)
		}
	}
	if size, _ := r.memory("a", memory("ring")); size != 0 || len(r.items) > 0 {
		t.Errorf("at the end: %d bytes, items %v", size, r.items)
	}
}

// Memory that guests have and the daemon does not is never created again.
func TestLostMemory(t *testing.T) {
	r, tenant := newRegistry(t), quota.Tenant{Name: "a"}
	if err := r.set("a", "g1", map[share.ID]bool{memory("ring"): true}); err != nil {
		t.Fatal(err)
	}
	if err := r.reserveMemory(tenant, "g2", memory("ring"), share.Digest{}, 4096); !errors.Is(err, ErrLost) {
		t.Errorf("got %v, want ErrLost", err)
	}
	if err := r.RemoveGuest(tenant, "g1", ""); err != nil || len(r.items) > 0 {
		t.Errorf("got %v, items %v", err, r.items)
	}
	if err := r.reserveMemory(tenant, "g2", memory("ring"), share.Digest{}, 4096); err != nil {
		t.Error(err)
	}
}

// A volume counts once for each guest that has it.
func TestVolumeLimit(t *testing.T) {
	r, tenant := newRegistry(t), quota.Tenant{Name: "a", Limits: quota.Limits{Volumes: 2}}
	volume := share.ID{Kind: share.Volume, Pod: "web", Name: "data"}
	for i, c := range []struct {
		guest string
		want  error
	}{{"g1", nil}, {"g1", nil}, {"g2", nil}, {"g3", quota.ErrLimit}} {
		if _, err := r.reserveVolume(tenant, c.guest, volume); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%d: %s: got %v, want %v", i, c.guest, err, c.want)
		}
	}
	if err := r.recheckVolumes(tenant); err != nil {
		t.Errorf("at the limit: %v", err)
	}
	// After a restart, the volumes of a guest may be found after a request is admitted.
	if err := r.set("a", "g4", map[share.ID]bool{volume: true}); err != nil {
		t.Fatal(err)
	}
	if err := r.recheckVolumes(tenant); !errors.Is(err, quota.ErrLimit) {
		t.Errorf("above the limit: got %v", err)
	}
}

// busyVMM still uses the backend of a device when it is deleted for the first time.
type busyVMM struct {
	vmm.Sharer
	deletions int
}

func (v *busyVMM) SharePorts() []vmm.SharePort { return make([]vmm.SharePort, 1) }

func (v *busyVMM) DeleteBackend(context.Context, string) error {
	if v.deletions++; v.deletions == 1 {
		return errors.New("busy")
	}
	return nil
}

func TestRetryDelete(t *testing.T) {
	v := &busyVMM{}
	r := newRegistry(t)
	g := r.Guest("g1", func() quota.Tenant { return quota.Tenant{Name: "a"} }, "", v, r.log)
	key := attachment.Key{Kind: attachment.Memory, Owner: "web", Name: "ring"}
	if _, err := g.Perform(t.Context(), hotplug.DeleteBackend{Key: key}); err == nil {
		t.Error("a busy backend is no error")
	}
	for range 2 { // the second has nothing to do
		if err := g.RetryDelete(t.Context(), key.String()); err != nil || v.deletions != 2 {
			t.Errorf("got %v after %d deletions, want 2", err, v.deletions)
		}
	}
}
