package attachment

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/vishvananda/netlink"
	"golang.org/x/sync/semaphore"

	"unnest.io/unnest/internal/cni/hostclient"
	"unnest.io/unnest/internal/cni/podnic"
)

// Reclaimer gives back the NICs, VLANs and endpoints of pods that ended without a DEL. When a network namespace ends, the kernel
// moves its NICs into the guest's own, and deletes its VLANs. A namespace that lives on, whoever holds it, keeps both.
//
// The file of an attachment says which NIC it has. An ADD and a DEL hold the attachment's lock as long as its NIC may be in the guest's own
// namespace for them. If the NIC is there while Reclaimer holds the lock, the pod has ended or the ADD was killed.
type Reclaimer struct {
	Log *slog.Logger
	// Clean removes what an ADD of a NIC has left in the guest, outside of the pod. The configuration is empty if no IPAM plugin
	// of the guest has leased an address.
	Clean func(ctx context.Context, network string, args *skel.CmdArgs) error

	running sync.WaitGroup
	again   chan struct{} // an attachment may have to be compared again

	turns *semaphore.Weighted
	mu    sync.Mutex
	busy  map[string]bool // attachments that a goroutine gives back, or waits for
}

// atOnce bounds how many attachments are given back at a time: a guest may have few connections to the daemon, and its slots
// are unplugged one after another.
const atOnce = 4

// The pauses between two tries to give an attachment back, which double.
const firstPause, maxPause = time.Second, time.Minute

// Run compares the attachments with the links of this process's network namespace, now and when a link changes, until ctx ends.
func (r *Reclaimer) Run(ctx context.Context) error {
	r.again, r.busy, r.turns = make(chan struct{}, 1), map[string]bool{}, semaphore.NewWeighted(atOnce)
	defer r.running.Wait()
	return podnic.Follow(ctx, r.again, func() {
		links, err := netlinksafe.LinkList()
		for _, k := range []Kind{NIC, Endpoint} {
			all, allErr := k.all("")
			if err == nil {
				err = allErr
			}
			for _, m := range all {
				if m.mayHaveEnded(links) {
					r.begin(ctx, k, m)
				}
			}
		}
		if err != nil {
			r.Log.Error("look for NICs of pods that have ended", "error", err)
		}
	})
}

// begin gives an attachment back in a goroutine, unless one does so.
func (r *Reclaimer) begin(ctx context.Context, k Kind, m made) {
	id := k.madeFile(m.Container, m.Interface)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.busy[id] {
		return
	}
	r.busy[id] = true
	r.running.Go(func() {
		r.giveBack(ctx, k, m)
		r.mu.Lock()
		delete(r.busy, id)
		r.mu.Unlock()
		select {
		case r.again <- struct{}{}: // what has changed meanwhile was passed over
		default:
		}
	})
}

// giveBack tries until it succeeds, the attachment is in use, or ctx ends.
func (r *Reclaimer) giveBack(ctx context.Context, k Kind, m made) {
	logged := ""
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		given, err := r.try(ctx, k, m.Container, m.Interface)
		log := r.Log.With("container", m.Container, "interface", m.Interface)
		switch {
		case given:
			log.Info("gave back the " + k.name + " of a pod that ended without a DEL")
			return
		case err == nil || ctx.Err() != nil:
			return
		case err.Error() != logged:
			logged = err.Error()
			log.Warn("give back the "+k.name+" of a pod that ended without a DEL; trying again", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// try gives an attachment back if nobody uses it when ADDs and DELs under way have ended.
func (r *Reclaimer) try(ctx context.Context, k Kind, container, iface string) (given bool, err error) {
	if err := r.turns.Acquire(ctx, 1); err != nil {
		return false, err
	}
	defer r.turns.Release(1)
	_, unlock, err := lockAlone(ctx, container, iface)
	if err != nil {
		return false, err
	}
	defer unlock()
	m, ok := readMade(k.madeFile(container, iface))
	if !ok { // a DEL or a rollback has removed it
		return false, nil
	}
	links, err := netlinksafe.LinkList()
	if err != nil || !m.mayHaveEnded(links) {
		return false, err
	}
	d, err := hostclient.Dial(m.Server, m.Credentials)
	if err != nil {
		return false, err
	}
	defer d.Close()
	m.Asked = true // once the NIC is gone, only this says that the rest is still to do
	if err := k.remember(m); err != nil {
		return false, err
	}
	if err := k.release(ctx, d, container, iface, m.MAC); err != nil {
		return false, err
	}
	if k.name == NIC.name {
		if err := r.Clean(ctx, m.Network, m.args()); err != nil {
			return false, fmt.Errorf("clean the guest: %w", err)
		}
	}
	return true, k.forget(container, iface)
}

// mayHaveEnded reports whether nobody uses the attachment unless an ADD or a DEL is under way: links are those of the guest's own
// network namespace.
func (m made) mayHaveEnded(links []netlink.Link) bool {
	if m.VLAN == 0 {
		return m.Asked || find(links, m.MAC) != nil
	}
	trunk := find(links, m.Trunk)
	if trunk == nil { // the daemon has taken it away, with its VLANs
		return false
	}
	exists, err := podnic.HasVLAN(trunk, m.VLAN)
	return err == nil && !exists
}

// find returns the link that was plugged with a MAC, nil if there is none. A pod may have given its NIC another one.
func find(links []netlink.Link, mac string) netlink.Link {
	i := slices.IndexFunc(links, func(l netlink.Link) bool {
		own := l.Attrs().PermHWAddr
		if len(own) == 0 { // a link without a device
			own = l.Attrs().HardwareAddr
		}
		return mac != "" && own.String() == mac
	})
	if i < 0 {
		return nil
	}
	return links[i]
}
