package api

import (
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"unnest.io/unnest/internal/hostd/guestrun"
	"unnest.io/unnest/internal/hostd/quota"
	"unnest.io/unnest/internal/hostd/record"
	"unnest.io/unnest/internal/hostd/tenant"
	"unnest.io/unnest/internal/hostd/turns"
)

// Four guests that attach without a pause have as many attaches at once as each may have NICs, and after that the rate of their
// tenant, of which none has more than its part. A fifth that attaches a few does not wait, nor does another tenant, and none
// waits for longer than there is time.
func TestAttackAttachesAboveTheRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a Handler
		var served [5]int
		var wg sync.WaitGroup
		end := time.Now().Add(100 * time.Second)
		loop := func(guest int, until time.Time, pause time.Duration) {
			wg.Go(func() {
				for time.Now().Before(until) {
					wait, ok := a.reserveAttach("busy", fmt.Sprint(guest), 2, 16)
					if guest == 4 && (wait > 0 || !ok) {
						t.Errorf("a guest below its burst waits %v", wait)
					}
					if ok {
						served[guest]++
					}
					time.Sleep(wait + pause)
				}
			})
		}
		for guest := range 4 {
			loop(guest, end, 0)
		}
		loop(4, end, 20*time.Second)
		wg.Wait()
		sum := 0
		for guest, n := range served[:4] {
			if sum += n; n < 16+40 || n > 16+52 {
				t.Errorf("guest %d has attached %d in 100 s, want about 64", guest, n)
			}
		}
		if most := 4*16 + 200 + 5; sum > most {
			t.Errorf("%d in 100 s, want at most %d", sum, most)
		}
		if wait, ok := a.reserveAttach("calm", "0", 2, 16); wait > 0 || !ok {
			t.Errorf("another tenant waits %v", wait)
		}
		for range 1000 {
			wait, _ := a.reserveAttach("busy", "0", 2, 16)
			if wait > attachWait {
				t.Fatalf("an attach waits %v", wait)
			}
		}
		time.Sleep(10 * time.Minute)
		if wait, ok := a.reserveAttach("busy", "0", 2, 16); wait > 0 || !ok {
			t.Errorf("after ten minutes an attach waits %v", wait)
		}
		if n := len(a.attaches["busy"].limits); n != 1 {
			t.Errorf("after ten minutes %d guests count, want one", n)
		}
		if a.Forget("0"); len(a.attaches["busy"].limits) != 0 {
			t.Error("a guest that is gone counts")
		}
		for i := range 100 {
			if wait, _ := a.reserveAttach("default", fmt.Sprint(i%4), quota.DefaultLimits.AttachesPerSecond, quota.DefaultLimits.NICs); wait > 0 {
				t.Errorf("a hundred pods at once on four guests: one waits %v", wait)
			}
		}
	})
}

// Attaches of a guest above the rate change the host's network after those of a tenant that is within its rate, though that has had
// more time. Those of the tenant's other guests do not.
func TestAttackAttachesAboveTheRateAreLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		order := &turns.Turns{}
		busy, err := tenant.New(quota.Tenant{Name: "busy", Limits: quota.Limits{NICs: 1, AttachesPerSecond: 1}}, t.TempDir(), slog.New(slog.DiscardHandler), func(_ string, f func()) { f() })
		if err != nil {
			t.Fatal(err)
		}
		h := &Handler{Host: &guestrun.Host{Turns: order}, Quotas: func() quota.Config { return quota.Config{Tenants: make([]quota.Tenant, 2)} }}
		for _, step := range []struct{ guest, want string }{{"node1", "busy"}, {"node1", "calm"}, {"node2", "busy"}} {
			if err := h.admitAttach(t.Context(), "/unnest/AttachNIC", Client{Record: record.Guest{Name: step.guest}, Tenant: busy}); err != nil {
				t.Fatal(err)
			}
			turn := order.Take("calm", "node3")
			time.Sleep(10 * time.Millisecond)
			var first string
			var all sync.WaitGroup
			for name, guest := range map[string]string{"busy": step.guest, "calm": "node3"} {
				all.Go(func() {
					defer order.Take(name, guest).Done()
					if first == "" {
						first = name
					}
				})
				synctest.Wait()
			}
			turn.Done()
			if all.Wait(); first != step.want {
				t.Errorf("%s of %s is first, want %s", first, step.guest, step.want)
			}
		}
	})
}

// A guest that asks above its rate, as fast as it can, has its requests wait rather than refused at once: on one connection
// none is refused, and on many connections few are.
func TestAttackRequestsAboveTheRate(t *testing.T) {
	for _, tt := range []struct {
		connections  int
		most, refuse int64 // in 10 s and the second that the last ones wait, at 50 a second, and one at once
	}{{1, 510, 0}, {32, 551, 0}, {2000, 551, 2000 * 11}} {
		synctest.Test(t, func(t *testing.T) {
			h := &Handler{serving: t.Context()}
			h.holds.of("node1", 50, 1)
			var served, refused atomic.Int64
			var wg sync.WaitGroup
			end := time.Now().Add(10 * time.Second)
			for range tt.connections {
				wg.Go(func() {
					for time.Now().Before(end) {
						h.hold(t.Context(), "node1")
						if h.rates.of("node1", 50, 1).Allow() {
							served.Add(1)
						} else {
							refused.Add(1)
							time.Sleep(time.Millisecond) // the answer
						}
					}
				})
			}
			wg.Wait()
			if n := served.Load(); n < 490 || n > tt.most {
				t.Errorf("%d connections: %d requests are served, want 500", tt.connections, n)
			}
			if n := refused.Load(); n > tt.refuse+int64(tt.connections) {
				t.Errorf("%d connections: %d requests are refused, want at most %d", tt.connections, n, tt.refuse)
			}
		})
	}
}
