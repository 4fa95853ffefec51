package nft

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/mdlayher/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

const (
	// checkInterval is the time between two checks that no event was missed, while
	// there are none.
	checkInterval = 10 * time.Second
	// settleTime is what an event may take to arrive.
	settleTime = 100 * time.Millisecond
	// restoreInterval bounds how often tables are restored, should another program
	// change them again and again.
	restoreInterval = 500 * time.Millisecond
	// eventBuffer holds the events of a transaction with ten thousand elements.
	eventBuffer = 16 << 20
)

// watch follows the transactions of a network namespace.
type watch struct {
	owner    *Owner
	restore  func() error
	report   func(Generation, error)
	events   *netlink.Conn
	requests *netlink.Conn

	last     uint32     // the generation seen last
	behind   uint32     // the generation whose event should have arrived; 0: none
	ours     bool       // the transaction under way has a mark
	touched  bool       // it changes our tables
	pending  bool       // tables have to be restored
	cause    Generation // why
	restored time.Time
}

// Watch restores the tables when others have changed them, until ctx ends. It calls
// restore at its start, and within a second of each such change; after that it calls
// report with the change and the error of restore. When events were lost, it restores as
// well; the change then has no process. It works on the network namespace ns.
func (o *Owner) Watch(ctx context.Context, ns netns.NsHandle, restore func() error, report func(Generation, error)) error {
	w := &watch{owner: o, restore: restore, report: report}
	var err error
	if w.events, err = dial(ns); err != nil {
		return fmt.Errorf("watch nftables: %w", err)
	}
	defer w.events.Close()
	if w.requests, err = dial(ns); err != nil {
		return fmt.Errorf("watch nftables: %w", err)
	}
	defer w.requests.Close()
	defer context.AfterFunc(ctx, func() { _ = w.events.Close() })()
	if err = w.run(); ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("watch nftables: %w", err)
}

// run returns with an error when it cannot go on.
func (w *watch) run() error {
	_ = w.events.SetReadBuffer(eventBuffer) // a smaller one loses events, which run notices
	if err := w.events.JoinGroup(unix.NFNLGRP_NFTABLES); err != nil {
		return err
	}
	var err error
	if w.last, err = w.generation(); err != nil {
		return err
	}
	if err := w.restore(); err != nil {
		return err
	}
	for {
		if err := w.events.SetReadDeadline(time.Now().Add(w.patience())); err != nil {
			return err
		}
		messages, err := w.events.Receive()
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			err = w.check()
		case errors.Is(err, unix.ENOBUFS):
			w.miss()
			err = nil
		}
		if err == nil {
			err = w.follow(messages)
		}
		if err != nil {
			return err
		}
		w.act()
	}
}

// patience is how long to wait for events.
func (w *watch) patience() time.Duration {
	switch {
	case w.pending:
		return max(0, restoreInterval-time.Since(w.restored))
	case w.behind != 0:
		return settleTime
	}
	return checkInterval
}

// follow looks for transactions of others in events.
func (w *watch) follow(messages []netlink.Message) error {
	for _, m := range messages {
		e, err := parseEvent(m)
		if err != nil {
			return err
		}
		if e.kind != unix.NFT_MSG_NEWGEN {
			w.touched = w.touched || w.owner.owns(e)
			w.ours = w.owner.marked(e) || w.ours
			continue
		}
		if w.touched && !w.ours {
			w.pending, w.cause = true, e.generation
		}
		if e.generation.ID != w.last+1 {
			w.miss()
		}
		w.last, w.touched, w.ours = e.generation.ID, false, false
	}
	return nil
}

// check compares the generation with that of the last event.
func (w *watch) check() error {
	if w.pending {
		return nil
	}
	now, err := w.generation()
	switch {
	case err != nil:
		return err
	case w.behind != 0 && int32(w.behind-w.last) > 0:
		w.miss()
		w.last, w.behind = now, 0
	case now != w.last:
		w.behind = now
	default:
		w.behind = 0
	}
	return nil
}

func (w *watch) miss() {
	w.pending, w.touched, w.ours = true, false, false
}

// act restores the tables, if that is due.
func (w *watch) act() {
	if !w.pending || time.Since(w.restored) < restoreInterval {
		return
	}
	err := w.restore()
	w.report(w.cause, err)
	w.pending, w.cause, w.restored = err != nil, Generation{}, time.Now()
}

// generation asks the kernel for the ID of the present generation.
func (w *watch) generation() (uint32, error) {
	replies, err := w.requests.Execute(netlink.Message{
		Header: netlink.Header{Type: unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETGEN, Flags: netlink.Request},
		Data:   make([]byte, 4),
	})
	if err != nil {
		return 0, err
	}
	for _, m := range replies {
		if e, err := parseEvent(m); err == nil && e.kind == unix.NFT_MSG_NEWGEN {
			return e.generation.ID, nil
		}
	}
	return 0, errors.New("the kernel does not tell its generation")
}

func dial(ns netns.NsHandle) (c *netlink.Conn, err error) {
	err = WithNS(ns, func(fd int) error {
		c, err = netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: fd})
		return err
	})
	return c, err
}

// WithNS calls f with the descriptor of ns, or with 0 if the thread is in that network
// namespace: entering one, even its own, takes CAP_SYS_ADMIN.
func WithNS(ns netns.NsHandle, f func(fd int) error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	here, err := netns.Get()
	if err != nil {
		return fmt.Errorf("open network namespace: %w", err)
	}
	defer here.Close()
	if here.Equal(ns) {
		return f(0)
	}
	return f(int(ns))
}
