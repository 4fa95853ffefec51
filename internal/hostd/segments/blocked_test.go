package segments

import (
	"fmt"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"unnest.io/unnest/internal/hostapi/segment"
	"unnest.io/unnest/internal/hostd/attachment"
	"unnest.io/unnest/internal/hostd/quota"
	"unnest.io/unnest/internal/netdev/reflector"
)

// slowLoopback is one whose next Join waits.
type slowLoopback struct {
	*fakeLoopback
	entered, leave chan struct{}
}

func (l *slowLoopback) Join(f segment.Fraction) (*os.File, error) {
	close(l.entered)
	<-l.leave
	return l.fakeLoopback.Join(f)
}

// While the kernel is slow with a segment of one tenant, the segments of another are made,
// joined, left and announced.
func TestSlowTenant(t *testing.T) {
	s, _ := fakeSegments(t)
	slow := &slowLoopback{&fakeLoopback{names: map[string]bool{}}, make(chan struct{}), make(chan struct{})}
	fake := s.create
	s.create = func(o reflector.Options) (loopback, error) {
		if o.Name == TAP("a", "slow") {
			return slow, nil
		}
		return fake(o)
	}
	a, b := quota.Tenant{Name: "a"}, quota.Tenant{Name: "b"}
	if _, err := s.Reserve(a, asked("slow"), "g1", of("c"), 0); err != nil {
		t.Fatal(err)
	}
	var blocked sync.WaitGroup
	blocked.Go(func() {
		if f, err := s.Open("g1", of("c"), "u1n1-1"); err != nil {
			t.Error(err)
		} else {
			f.Close()
		}
	})
	<-slow.entered
	done := make(chan struct{})
	go func() {
		defer close(done)
		t.Run("b", func(t *testing.T) { liveOnce(t, s, b, "g2", of("c")) })
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Error("the other tenant waits")
	}
	close(slow.leave)
	blocked.Wait()
	<-done
	if err := s.Connect("u1n1-1", of("c")); err != nil {
		t.Error(err)
	}
}

// liveOnce has a guest join a segment and leave it.
func liveOnce(t *testing.T, s *Registry, tenant quota.Tenant, guest string, key attachment.Key) {
	if _, err := s.Reserve(tenant, asked("web"), guest, key, 0); err != nil {
		t.Fatal(err)
	}
	port := "u" + guest + "n1-1"
	f, err := s.Open(guest, key, port)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if err := s.Connect(port, key); err != nil {
		t.Error(err)
	}
	if err := s.RestoreOffloads(port); err != nil {
		t.Error(err)
	}
	if mode, m := s.Membership(port); mode != quota.SegmentUnicast || m.Members == 0 {
		t.Errorf("mode %q, members %v", mode, m.Members)
	}
	if err := s.Check(guest, key); err != nil {
		t.Error(err)
	}
	if _, err := s.Find(tenant.Name, "web", testKey, ""); err != nil {
		t.Error(err)
	}
	if n := s.Count("a") + s.Count(tenant.Name); n < 2 || !s.Has(guest) {
		t.Errorf("%d segments, %s has an endpoint: %v", n, guest, s.Has(guest))
	}
	s.Tick(tenant.Name)
	s.Tick("a") // does nothing
	if _, err := s.Disconnect(port); err != nil {
		t.Error(err)
	}
	if _, err := s.ClosePort(port); err != nil {
		t.Error(err)
	}
	if err := s.Release(guest, key); err != nil || s.RemoveGuest(guest) != nil || s.Has(guest) {
		t.Errorf("%s still has an endpoint, error %v", guest, err)
	}
}

// Guests of several tenants join and leave at the same time, while segments are announced,
// described and lost. The race detector watches.
func TestTenantsAtOnce(t *testing.T) {
	s := New(slog.New(slog.DiscardHandler))
	s.create = func(o reflector.Options) (loopback, error) {
		return &fakeLoopback{options: o, names: map[string]bool{}}, nil
	}
	tenants := []string{"a", "b", "c"}
	var guests, others sync.WaitGroup
	stop := make(chan struct{})
	for _, name := range tenants {
		for g := range 4 {
			guests.Go(func() {
				for range 100 {
					guest, key := fmt.Sprint(name, g), of("c")
					port := fmt.Sprint("u", name, g, "n1-1")
					if _, err := s.Reserve(quota.Tenant{Name: name}, asked("web"), guest, key, 0); err != nil {
						t.Error(err)
						return
					}
					f, err := s.Open(guest, key, port)
					if err != nil {
						t.Error(err)
						return
					}
					f.Close()
					if err := s.Connect(port, key); err != nil {
						t.Error(err)
					}
					if g%2 == 0 {
						if err := s.RemoveGuest(guest); err != nil {
							t.Error(err)
						}
						continue
					}
					_ = s.Release(guest, key)
					if found, err := s.ClosePort(port); !found || err != nil {
						t.Errorf("close %s: %v, %v", port, found, err)
					}
				}
			})
		}
		others.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					s.Tick(name)
					_, _ = s.Tenants(), s.Status()
					_, _ = s.Find(name, "web", testKey, "")
					_ = s.RestoreOffloadsOf(name + "1")
				}
			}
		})
	}
	guests.Wait()
	close(stop)
	others.Wait()
	if len(s.segments)+len(s.endpoints)+len(s.ports) > 0 {
		t.Errorf("left: %v, %v, %v", s.segments, s.endpoints, s.ports)
	}
}
