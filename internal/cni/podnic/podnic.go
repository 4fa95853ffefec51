// Package podnic is the guest's side of a pod's NIC: it finds a NIC that the VMM has
// just plugged, moves it into the pod's network namespace under the pod's name for
// it, or makes a VLAN of a trunk there, announces its addresses, and undoes each step.
//
// Where the NIC comes from and which addresses it gets do not belong here. Functions
// work in the network namespace of the calling thread, unless they are given another.
package podnic

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"time"

	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// ErrNotPlugged is wrapped when a NIC does not appear in time.
var ErrNotPlugged = errors.New("not found")

// rescanTime is the time after which the guest's kernel is told to rescan its PCI buses. The kernel
// sometimes misses a NIC when many are plugged and unplugged at once. Usually it finds one within
// 0.1 s; on busy processors it takes seconds. There, a rescan of a hundred slots takes most of a
// minute, and the kernel finds no NIC meanwhile.
const rescanTime = 15 * time.Second

// otherRescan is the time between two looks whether the rescan of another command has ended. That
// one may have passed the slot before the NIC was plugged.
const otherRescan = time.Second

// rescanFile tells the kernel to rescan its PCI buses.
const rescanFile = "/sys/bus/pci/rescan"

// AwaitPlugged returns the link with the given MAC, which the VMM has just plugged.
// It waits at most for the given time, and then returns ErrNotPlugged.
func AwaitPlugged(ctx context.Context, mac net.HardwareAddr, wait time.Duration) (netlink.Link, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, wait, ErrNotPlugged)
	defer cancel()
	l, err := awaitMACFor(ctx, min(rescanTime, wait/2), mac)
	for rescanned := false; err != nil && !rescanned && ctx.Err() == nil; {
		if rescanned, err = rescan(rescanFile); err != nil {
			return nil, fmt.Errorf("rescan PCI buses for NIC %s: %w", mac, err)
		}
		if rescanned {
			l, err = awaitMAC(ctx, mac)
		} else {
			l, err = awaitMACFor(ctx, otherRescan, mac)
		}
	}
	if err != nil && ctx.Err() != nil { // also if a part of the time has ended with it
		err = fmt.Errorf("wait for NIC %s: %w", mac, context.Cause(ctx))
	}
	if errors.Is(err, ErrNotPlugged) {
		return nil, fmt.Errorf("%w within %v; check that the guest's kernel has hot-plug (pciehp or acpiphp) and virtio_net", err, wait)
	}
	return l, err
}

// rescan tells the kernel to rescan, unless another command of this guest is doing so. It returns
// when the kernel has done it, and reports whether it has.
func rescan(path string) (done bool, err error) {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return false, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	switch {
	case err == nil:
		done = true
		_, err = f.WriteString("1")
	case errors.Is(err, unix.EWOULDBLOCK):
		err = nil
	}
	return done, errors.Join(err, f.Close())
}

func awaitMACFor(ctx context.Context, part time.Duration, mac net.HardwareAddr) (netlink.Link, error) {
	ctx, cancel := context.WithTimeout(ctx, part)
	defer cancel()
	return awaitMAC(ctx, mac)
}

// awaitMAC returns the link with the given MAC. When ctx ends first, the error wraps
// its cause.
func awaitMAC(ctx context.Context, mac net.HardwareAddr) (netlink.Link, error) {
	link, err := await(ctx, func(l netlink.Link) bool { return hasMAC(l, mac) })
	if err != nil {
		return nil, fmt.Errorf("wait for NIC %s: %w", mac, err)
	}
	return link, nil
}

func hasMAC(l netlink.Link, mac net.HardwareAddr) bool {
	return bytes.Equal(l.Attrs().HardwareAddr, mac)
}

// errEventsLost means that link events may have been dropped, usually by a full
// socket buffer. The links have to be listed again.
var errEventsLost = errors.New("link events lost")

// await returns the first link that matches, among the present ones and those that
// appear or change until ctx ends.
func await(ctx context.Context, match func(netlink.Link) bool) (netlink.Link, error) {
	for {
		link, err := awaitOnce(ctx, match)
		if !errors.Is(err, errEventsLost) {
			return link, err
		}
	}
}

// awaitOnce subscribes before it lists, so that it misses no link.
func awaitOnce(ctx context.Context, match func(netlink.Link) bool) (netlink.Link, error) {
	updates, stop, err := subscribe()
	if err != nil {
		return nil, err
	}
	defer stop()
	links, err := netlinksafe.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	if i := slices.IndexFunc(links, match); i >= 0 {
		return links[i], nil
	}
	for {
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case u, ok := <-updates:
			if !ok {
				return nil, errEventsLost
			}
			if u.Header.Type != unix.RTM_DELLINK && match(u.Link) {
				return u.Link, nil
			}
		}
	}
}

// subscribe passes changes of links to updates until stop, or until it closes updates because changes may be lost.
func subscribe() (updates chan netlink.LinkUpdate, stop func(), err error) {
	updates, done := make(chan netlink.LinkUpdate, 64), make(chan struct{})
	if err := netlink.LinkSubscribe(updates, done); err != nil {
		return nil, nil, fmt.Errorf("subscribe to link events: %w", err)
	}
	return updates, func() {
		close(done)
		for range updates { // until the sender has seen done and closes it
		}
	}, nil
}

// Follow calls changed now, when links of the process's network namespace change, and when again has a value, until ctx ends. It calls it
// once for changes that come at once, and after changes may have been lost.
func Follow(ctx context.Context, again <-chan struct{}, changed func()) error {
	for {
		err := followOnce(ctx, again, changed)
		if !errors.Is(err, errEventsLost) {
			return err
		}
	}
}

func followOnce(ctx context.Context, again <-chan struct{}, changed func()) error {
	updates, stop, err := subscribe()
	if err != nil {
		return err
	}
	defer stop()
	for {
		changed()
		select {
		case <-ctx.Done():
			return nil
		case <-again:
		case _, ok := <-updates:
			if !ok {
				return errEventsLost
			}
			for range len(updates) {
				<-updates
			}
		}
	}
}
