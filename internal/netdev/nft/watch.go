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
)

// EventBuffer is the size of the buffer for the kernel's events, in bytes. Those of a transaction
// with two hundred thousand elements fit into it.
const EventBuffer = 64 << 20

// watch follows the transactions of a network namespace.
type watch struct {
	owner    *Owner
	buffer   int     // bytes for events
	ledger   *ledger // nil: every loss of events may hide a change of others
	restore  func() error
	report   func(Generation, error)
	events   *netlink.Conn
	requests *netlink.Conn

	last     uint32     // the generation seen last
	behind   uint32     // the generation whose event should have arrived; 0: none
	ours     bool       // the transaction under way has a mark
	touched  bool       // it changes our tables
	known    *state     // one in which no event was lost; nil: none
	asked    time.Time  // when known was asked for
	doubt    bool       // events were lost since
	partial  bool       // of the transaction under way
	pending  bool       // tables have to be restored
	cause    Generation // why
	restored time.Time
}

// state is a generation and the transactions of this process up to it.
type state struct{ generation, own uint32 }

// Watch restores the tables when others have changed them, until ctx ends. It calls
// restore at its start, and within a second of each such change; after that it calls
// report with the change and the error of restore. When events were lost and others have made
// a generation meanwhile, it restores as well; the change then has no process. It works on the network namespace ns.
func (o *Owner) Watch(ctx context.Context, ns netns.NsHandle, restore func() error, report func(Generation, error)) error {
	w := &watch{owner: o, buffer: EventBuffer, ledger: ledgerOf(ns), restore: restore, report: report}
	return w.watch(ctx, ns)
}

func (w *watch) watch(ctx context.Context, ns netns.NsHandle) error {
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
	_ = w.events.SetReadBuffer(w.buffer) // a smaller one loses events, which run notices
	if err := w.events.JoinGroup(unix.NFNLGRP_NFTABLES); err != nil {
		return err
	}
	var err error
	if w.last, err = w.generation(); err != nil {
		return err
	}
	if w.known, err = w.state(); err != nil {
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
		if err == nil {
			err = w.account()
		}
		if err == nil {
			err = w.act()
		}
		if err != nil {
			return err
		}
	}
}

// patience is how long to wait for events.
func (w *watch) patience() time.Duration {
	switch {
	case w.pending:
		return max(0, restoreInterval-time.Since(w.restored))
	case w.behind != 0, w.doubt:
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
		switch {
		case w.partial || e.generation.ID != w.last+1:
			w.miss()
		case w.touched && !w.ours:
			w.pending, w.cause = true, e.generation
		}
		w.last, w.touched, w.ours, w.partial = e.generation.ID, false, false, false
	}
	return nil
}

// check compares the generation with that of the last event.
func (w *watch) check() error {
	if w.pending || w.doubt {
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

// miss notes that events were lost.
func (w *watch) miss() {
	w.touched, w.ours, w.partial = false, false, true
	if w.ledger == nil {
		w.pending = true
	}
	w.doubt = !w.pending
}

// account decides, after events were lost, whether they can hide a change of others: not if
// this process has made every generation since. Else the events of one large transaction of ours, which
// overflow the buffer, would have the tables restored, by another large transaction.
func (w *watch) account() error {
	if w.ledger == nil || w.pending || w.known != nil && !w.doubt && time.Since(w.asked) < settleTime {
		return nil // to ask after each event costs as much as the events
	}
	w.asked = time.Now()
	now, err := w.state()
	switch {
	case err != nil || now == nil:
		return err
	case w.doubt:
		w.pending = w.known == nil || now.generation-w.known.generation != now.own-w.known.own
		w.known, w.doubt = now, false
		w.last, w.behind = now.generation, 0
	case now.generation == w.last:
		w.known = now
	}
	return nil
}

// state returns the present state, nil while a transaction of this process is under way.
func (w *watch) state() (*state, error) {
	before, idle := w.ledger.counted()
	now, err := w.generation()
	if after, still := w.ledger.counted(); err != nil || !idle || !still || before != after {
		return nil, err
	}
	return &state{now, before}, nil
}

// act restores the tables, if that is due.
func (w *watch) act() error {
	if !w.pending || time.Since(w.restored) < restoreInterval {
		return nil
	}
	if w.ledger != nil { // what others have done before, restore undoes
		now, err := w.state()
		if err != nil {
			return err
		}
		w.known = now
	}
	err := w.restore()
	w.report(w.cause, err)
	w.pending, w.cause, w.restored = err != nil, Generation{}, time.Now()
	return nil
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
