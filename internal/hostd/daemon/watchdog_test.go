package daemon

import (
	"context"
	"log/slog"
	"reflect"
	"sync"
	"testing"
	"time"
)

// The watchdog is pinged while the daemon's loops go round and its locks are free.
func TestWatchdog(t *testing.T) {
	d, err := newDaemon(Config{StateDir: t.TempDir(), Quotas: testQuotas(), Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	useQuotas(t, d)
	const interval = 300 * time.Millisecond
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var mu sync.Mutex
	beating := []*beat{&d.scanned, &d.announced}
	goRound := func(b ...*beat) {
		mu.Lock()
		defer mu.Unlock()
		beating = b
	}
	go func() {
		for wait(ctx, interval/30) {
			mu.Lock()
			for _, b := range beating {
				d.beat(b)
			}
			mu.Unlock()
		}
	}()
	pings := make(chan time.Time, 1000)
	go d.keepAlive(ctx, interval, func() error { pings <- time.Now(); return nil })
	alive := func(when string) {
		t.Helper()
		select {
		case <-pings:
		case <-time.After(time.Minute):
			t.Fatalf("%s: no ping", when)
		}
	}
	silent := func(when string) {
		t.Helper()
		for begin := time.Now(); ; {
			select {
			case <-pings: // on a busy machine, of a while ago
				if time.Since(begin) > time.Minute {
					t.Fatalf("%s: a ping", when)
				}
			case <-time.After(2 * interval):
				return
			}
		}
	}
	alive("all is well")
	goRound(&d.announced)
	silent("no scan")
	goRound(&d.scanned, &d.announced)
	alive("scans again")
	goRound(&d.scanned)
	silent("no announcement")
	goRound(&d.scanned, &d.announced)
	alive("announces again")
	for name, lock := range map[string]sync.Locker{"daemon": &d.mu, "tenant": lockOf(d.tenants["default"]), "ports": lockOf(d.host.Ports)} {
		lock.Lock()
		silent(name + " is locked")
		lock.Unlock()
		alive(name + " is unlocked")
	}
}

// lockOf returns the lock of a value of another package.
func lockOf(v any) sync.Locker {
	return (*sync.Mutex)(reflect.ValueOf(v).Elem().FieldByName("mu").Addr().UnsafePointer())
}
