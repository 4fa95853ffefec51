package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"unnest/internal/hostapi/segment"
	"unnest/internal/hostd/hotplug"
	"unnest/internal/vmm/qemu"
)

// recoverSegments takes over the segments of an earlier daemon, before any guest
// is: their TAPs live as long as a VMM has a queue. It needs each VMM's process, of
// which it takes the queue's descriptor, but no answer of it. A segment that cannot
// be taken over is destroyed: nobody could say any more whose its queues are.
func (d *daemon) recoverSegments(ctx context.Context) error {
	links, err := netlinksafe.LinkList()
	if err != nil {
		return fmt.Errorf("look for segments: %w", err)
	}
	var records []GuestRecord
	for _, l := range links {
		t, ok := parseTitle(l.Attrs().Alias)
		if _, tap := l.(*netlink.Tuntap); !ok || !tap || l.Attrs().Name != segmentTAP(t.id()) {
			continue
		}
		if records == nil {
			records = d.records()
		}
		if err := d.recoverSegment(ctx, t, tickets(l.Attrs().AltNames), l.Attrs().AltNames, records); err != nil {
			d.config.Logger.Error("take over segment", "tenant", t.tenant, "pod", t.pod, "error", err)
			if err := netlink.LinkDel(l); err != nil {
				return fmt.Errorf("delete segment that cannot be taken over: %w", err)
			}
		}
	}
	return nil
}

// records are those of all guests.
func (d *daemon) records() (all []GuestRecord) {
	names, err := guestNames(d.config.StateDir)
	if err != nil {
		d.config.Logger.Warn("look for guests", "error", err)
	}
	for _, name := range names {
		if r, err := readRecord(d.config.StateDir, name, d.config.Policy.Guests); err == nil {
			all = append(all, r)
		}
	}
	return all
}

// recoverSegment takes over one segment, with those endpoints whose VMM still has
// the queue.
func (d *daemon) recoverSegment(ctx context.Context, t title, held map[string]ticket, names []string, records []GuestRecord) error {
	tenant := d.tenants[t.tenant]
	if tenant == nil {
		return fmt.Errorf("the configuration has no tenant %s any more", t.tenant)
	}
	holders, seats := map[int]segment.Fraction{}, map[segment.Fraction]*seat{}
	for _, tk := range held {
		i := slices.IndexFunc(records, func(r GuestRecord) bool { return r.Tenant == t.tenant && isPort(tk.port, r.tapPrefix()) })
		if i < 0 {
			continue
		}
		pid, err := vmmProcess(ctx, records[i])
		if notListening(err) {
			continue
		}
		if err != nil {
			return err
		}
		if other, twice := holders[pid]; twice {
			return fmt.Errorf("guest %s is both fraction %d and %d", records[i].Name, other, tk.fraction)
		}
		holders[pid], seats[tk.fraction] = tk.fraction, d.host.segments.former(tk, records[i])
	}
	if len(holders) == 0 {
		return errors.New("none of its guests runs")
	}
	loop, err := recoverLoopback(loopbackOptions(tenant.Tenant, t), holders)
	if err != nil {
		return err
	}
	d.host.segments.takeOver(&podSegment{title: t, loop: loop, seats: seats}, names)
	return nil
}

// How often, and after which pauses, to ask for the process of a VMM that has not yet
// taken note of the connections of the daemon before.
const (
	processTries = 20
	processPause = 50 * time.Millisecond
)

// vmmProcess is the process of a guest's VMM. One that hangs, and has no room for a
// connection more, is the one that the record names.
func vmmProcess(ctx context.Context, r GuestRecord) (pid int, err error) {
	for range processTries {
		pid, err = qemu.PID(ctx, r.QMP)
		if !errors.Is(err, unix.EAGAIN) || !wait(ctx, processPause) {
			break
		}
	}
	if err != nil && !notListening(err) && r.PID > 0 {
		return r.PID, nil
	}
	return pid, err
}

// former is the seat that a ticket of an earlier daemon stands for.
func (s *segments) former(t ticket, r GuestRecord) *seat {
	st := &seat{guest: r.Name, fraction: t.fraction, ownMAC: t.ownMAC, port: t.port, name: t.String()}
	if t.key != (hotplug.Key{}) {
		st.owner = owner(r.Name, endpointKey(t.key))
	}
	return st
}

// takeOver adds a segment that is there. Members are the endpoints that had been
// finished; what has no queue any more goes, and all names that are nobody's.
func (s *segments) takeOver(p *podSegment, names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept := map[string]bool{}
	for f, st := range p.seats {
		if !p.loop.Members().Has(f) {
			delete(p.seats, f)
			continue
		}
		st.segment, kept[st.name] = p, true
		s.ports[st.port] = st
		if st.owner != "" {
			s.seats[st.owner] = st
			p.members = p.members.With(f)
		}
	}
	for _, name := range names {
		if _, ours := parseTicket(name); ours && !kept[name] {
			if err := p.loop.deleteName(name); err != nil {
				s.log.Warn("leave behind", "error", err)
			}
		}
	}
	s.all[p.id()] = p
	s.log.Info("take over segment", "tenant", p.tenant, "pod", p.pod, "members", p.members)
	s.renew(p)
}

// followSegments announces who is in the segments until ctx ends.
func (d *daemon) followSegments(ctx context.Context) {
	for wait(ctx, announceTime) {
		for _, name := range d.host.segments.tick() {
			for _, g := range d.all() {
				if g.record.Name == name {
					_ = g.submit(ctx, g.mend) // else it has ended
				}
			}
		}
	}
}

// wait reports false when ctx has ended before the time was over.
func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
