package daemon

import (
	"context"
	"sync/atomic"
	"time"

	systemd "github.com/coreos/go-systemd/v22/daemon"
)

// scanTime bounds the wait of a scan for one guest, whose VMM may delay each answer.
const scanTime = 15 * time.Second

// beat is when a loop of the daemon has last gone round, as nanoseconds since the daemon
// was made.
type beat struct{ last atomic.Int64 }

func (d *daemon) beat(b *beat) { b.last.Store(int64(time.Since(d.since))) }

// keepAlive calls ping three times in each interval, as long as the daemon serves all
// guests: the loops that look for guests and that announce segments go round, and no lock
// is held for ever. A guest whose VMM does not answer does not count, because a restart
// of the daemon would not change that, and would let a guest cut the others off.
func (d *daemon) keepAlive(ctx context.Context, interval time.Duration, ping func() error) {
	for wait(ctx, interval/3) {
		now := time.Since(d.since)
		scan, announce := now-time.Duration(d.scanned.last.Load()), now-time.Duration(d.announced.last.Load())
		if max(scan, announce) > interval/2 {
			d.config.Logger.Error("the daemon hangs: systemd will restart it", "last scan", scan, "last announcement", announce)
			continue
		}
		d.tryLocks()
		if err := ping(); err != nil {
			d.config.Logger.Warn("notify systemd", "error", err)
		}
	}
}

// tryLocks returns when it has had each lock that serves more than one guest.
func (d *daemon) tryLocks() {
	d.all()
	d.host.Segments.Left()
	d.host.Shares.Count()
	d.host.Ports.Opened()
	for _, t := range d.allTenants() {
		t.Stats()
	}
}

// notifySystemd tells systemd that the daemon is ready: it has taken over the running
// guests, or has waited long enough for them. After that it keeps the watchdog of the
// unit quiet, if there is one.
func (d *daemon) notifySystemd(ctx context.Context, scanned <-chan struct{}) {
	select {
	case <-scanned:
	case <-time.After(takeOverTime):
	case <-ctx.Done():
		return
	}
	if _, err := systemd.SdNotify(false, systemd.SdNotifyReady); err != nil {
		d.config.Logger.Warn("notify systemd", "error", err)
	}
	interval, err := systemd.SdWatchdogEnabled(false)
	if err != nil {
		d.config.Logger.Warn("read the interval of systemd's watchdog", "error", err)
	}
	if interval > 0 {
		d.keepAlive(ctx, interval, func() error {
			_, err := systemd.SdNotify(false, systemd.SdNotifyWatchdog)
			return err
		})
	}
}
