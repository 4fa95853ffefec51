package attachment

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/fsnotify/fsnotify"
	"github.com/vishvananda/netlink"
	"golang.org/x/sync/semaphore"

	"unnest.io/unnest/internal/cni/hostclient"
	"unnest.io/unnest/internal/cni/netconf"
	"unnest.io/unnest/internal/cni/podnic"
)

// Reclaimer gives back the NICs, VLANs and endpoints of pods that ended without a DEL. When a network namespace ends, the kernel
// moves its NICs into the guest's own, and deletes its VLANs. A namespace that lives on, whoever holds it, keeps both.
//
// The file of an attachment says which NIC it has. An ADD and a DEL hold the attachment's lock as long as its NIC may be in the guest's own
// namespace for them. If the NIC is there while Reclaimer holds the lock, the pod has ended or the ADD was killed. Reclaimer also ends what
// a DEL has begun, if the host daemon or an IPAM plugin has failed it.
type Reclaimer struct {
	Log *slog.Logger
	// Clean removes what an ADD of a NIC has left in the guest, outside of the pod. The configuration is empty if no IPAM plugin
	// of the guest has leased an address.
	Clean func(ctx context.Context, network string, args *skel.CmdArgs) error
	// NoLeases says that Clean cannot release leases. An attachment whose DEL has left one is kept for the next DEL.
	NoLeases bool

	running sync.WaitGroup
	again   chan struct{} // an attachment may have to be compared again

	scheduled atomic.Bool // compareLater has started a timer

	turns *semaphore.Weighted
	mu    sync.Mutex
	busy  map[string]bool // attachments that a goroutine gives back, or waits for
}

// atOnce bounds how many attachments are given back at a time: a guest may have few connections to the daemon, and its slots
// are unplugged one after another.
const atOnce = 4

// The pauses between two tries to give an attachment back, which double.
const firstPause, maxPause = time.Second, time.Minute

// comparePause is the time from a change of an attachment's file, or from an error, to the next comparison. A killed command may have changed no
// link.
const comparePause = 5 * time.Second

// Run compares the attachments with the links of this process's network namespace: now, when a link changes, and after commands. It ends
// with ctx.
func (r *Reclaimer) Run(ctx context.Context) error {
	r.again, r.busy, r.turns = make(chan struct{}, 1), map[string]bool{}, semaphore.NewWeighted(atOnce)
	defer r.running.Wait()
	if watcher, err := watchMade(); err != nil {
		r.Log.Warn("watch for commands that are killed: they are noticed when a link changes", "error", err)
	} else {
		defer watcher.Close()
		r.running.Go(func() { r.follow(watcher) })
	}
	said := ""
	return podnic.Follow(ctx, r.again, func() {
		err := r.compare(ctx)
		if err == nil {
			said = ""
			return
		}
		if err.Error() != said {
			said = err.Error()
			r.Log.Error("look for NICs of pods that have ended; trying again", "error", err)
		}
		r.compareLater()
	})
}

// follow compares the attachments after changes of their files, until the watcher is closed.
func (r *Reclaimer) follow(watcher *fsnotify.Watcher) {
	for {
		select {
		case e, ok := <-watcher.Events:
			if !ok {
				return
			}
			if e.Has(fsnotify.Create) {
				r.compareLater()
			}
		case _, ok := <-watcher.Errors: // changes were lost
			if !ok {
				return
			}
			r.compareLater()
		}
	}
}

// compareLater compares the attachments after a pause, once for all calls in it.
func (r *Reclaimer) compareLater() {
	if r.scheduled.CompareAndSwap(false, true) {
		time.AfterFunc(comparePause, func() {
			r.scheduled.Store(false)
			r.compareAgain()
		})
	}
}

// watchMade watches the directories of attachments.
func watchMade() (*fsnotify.Watcher, error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	for _, k := range kinds {
		if err := errors.Join(os.MkdirAll(k.madeDir(), 0o700), w.Add(k.madeDir())); err != nil {
			return nil, errors.Join(err, w.Close())
		}
	}
	return w, nil
}

// kinds are those of the attachments that Reclaimer gives back.
var kinds = []Kind{NIC, Endpoint}

func (r *Reclaimer) compareAgain() {
	select {
	case r.again <- struct{}{}:
	default: // it is already to come
	}
}

// compare begins to give back what may have ended.
func (r *Reclaimer) compare(ctx context.Context) error {
	links, err := netlinksafe.LinkList()
	if err != nil {
		return err
	}
	for _, k := range kinds {
		all, failed := k.all("")
		err = errors.Join(err, failed)
		for _, m := range all {
			ended, failed := m.mayHaveEnded(links)
			err = errors.Join(err, failed)
			if ended && !(r.keeps(m) && !k.recorded(m.Container, m.Interface)) {
				r.begin(ctx, k, m)
			}
		}
	}
	return err
}

// keeps reports whether an attachment is kept for the next DEL.
func (r *Reclaimer) keeps(m made) bool { return r.NoLeases && m.Ended && m.Config != nil }

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
		r.compareAgain() // what has changed meanwhile was passed over
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
	m, unlock, err := k.lockEnded(ctx, container, iface)
	if unlock == nil {
		return false, err
	}
	if !r.turns.TryAcquire(1) { // who waits for a turn must not hold the lock, and who waits for a command must not hold a turn
		unlock()
		if err := r.turns.Acquire(ctx, 1); err != nil {
			return false, err
		}
		if m, unlock, err = k.lockEnded(ctx, container, iface); unlock == nil {
			r.turns.Release(1)
			return false, err
		}
	}
	defer r.turns.Release(1)
	defer unlock()
	kept := r.keeps(m)
	d, err := hostclient.Dial(m.Server, m.Credentials)
	if err != nil {
		return false, err
	}
	defer d.Close()
	m.Ended = true // once the NIC is gone, only this says that the rest is still to do
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
	// The same release may be pending. It has nothing to do any more.
	if err := k.pendingAt(netconf.Base{Server: m.Server}, d).finishOne(ctx, container, iface); err != nil {
		return false, err
	}
	if kept {
		return true, nil
	}
	return true, k.forget(container, iface)
}

// lockEnded locks an attachment that has ended. unlock is nil if it is in use, or gone, or if there is an error.
func (k Kind) lockEnded(ctx context.Context, container, iface string) (m made, unlock func(), err error) {
	_, unlock, err = lockAlone(ctx, container, iface)
	if err != nil {
		return m, nil, err
	}
	m, ok := readMade(k.madeFile(container, iface))
	links, err := netlinksafe.LinkList()
	ended := false
	if ok && err == nil {
		ended, err = m.mayHaveEnded(links)
	}
	if !ended {
		unlock()
		return m, nil, err
	}
	return m, unlock, nil
}

// mayHaveEnded reports whether nobody uses the attachment unless an ADD or a DEL is under way: links are those of the guest's own
// network namespace.
func (m made) mayHaveEnded(links []netlink.Link) (bool, error) {
	if m.Ended {
		return true, nil
	}
	if m.VLAN == 0 {
		return m.Asked || find(links, m.MAC) != nil, nil
	}
	trunk := find(links, m.Trunk)
	if trunk == nil { // the daemon has taken it away, with its VLANs
		return false, nil
	}
	exists, err := podnic.HasVLAN(trunk, m.VLAN)
	return err == nil && !exists, err
}

// find returns the link that was plugged with a MAC, nil if there is none. A pod may have given its NIC another one.
func find(links []netlink.Link, mac string) netlink.Link {
	i := slices.IndexFunc(links, func(l netlink.Link) bool { return mac != "" && podnic.PluggedMAC(l.Attrs()).String() == mac })
	if i < 0 {
		return nil
	}
	return links[i]
}
