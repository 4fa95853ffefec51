// Package podnic is the guest's side of a pod's network: it finds a NIC that the
// VMM has just plugged, moves it into the pod's network namespace under the
// pod's name for it, gives it addresses, and takes each step back.
//
// Where the NIC comes from and which addresses it gets do not belong here. Its
// functions work on the network namespace of the calling thread, unless they are
// given another.
package podnic

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Await returns the link with the given MAC and waits for it to appear. When ctx
// ends first, the error wraps its cause.
func Await(ctx context.Context, mac net.HardwareAddr) (netlink.Link, error) {
	link, err := await(ctx, func(l netlink.Link) bool { return hasMAC(l, mac) })
	if err != nil {
		return nil, fmt.Errorf("wait for NIC %s: %w", mac, err)
	}
	return link, nil
}

// rescanTime is after how long the guest's kernel is asked to look by itself. It
// misses a NIC at times when many come and go at once; as a rule it finds one
// within 0.1 s.
const rescanTime = 3 * time.Second

// AwaitPlugged waits, as Await does, for a NIC that the VMM has just plugged.
func AwaitPlugged(ctx context.Context, mac net.HardwareAddr) (netlink.Link, error) {
	soon, cancel := context.WithTimeout(ctx, rescanTime)
	defer cancel()
	l, err := Await(soon, mac)
	if err == nil || ctx.Err() != nil {
		return l, err
	}
	if err := RescanPCI(); err != nil {
		return nil, err
	}
	return Await(ctx, mac)
}

func hasMAC(l netlink.Link, mac net.HardwareAddr) bool {
	return bytes.Equal(l.Attrs().HardwareAddr, mac)
}

// errNewsLost says that link events may have been dropped, by a full socket
// buffer above all. The links have to be listed anew.
var errNewsLost = errors.New("link events lost")

// await returns the first link that matches, among those that exist and those
// that come or change until ctx ends.
func await(ctx context.Context, match func(netlink.Link) bool) (netlink.Link, error) {
	for {
		link, err := awaitOnce(ctx, match)
		if !errors.Is(err, errNewsLost) {
			return link, err
		}
	}
}

// awaitOnce subscribes before it lists, so that no link can appear in between.
func awaitOnce(ctx context.Context, match func(netlink.Link) bool) (netlink.Link, error) {
	updates, done := make(chan netlink.LinkUpdate, 64), make(chan struct{})
	if err := netlink.LinkSubscribe(updates, done); err != nil {
		return nil, fmt.Errorf("subscribe to link events: %w", err)
	}
	defer func() {
		close(done)
		for range updates { // the sender closes it when it has seen done
		}
	}()
	links, err := netlinksafe.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	for _, l := range links {
		if match(l) {
			return l, nil
		}
	}
	for {
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case u, ok := <-updates:
			if !ok {
				return nil, errNewsLost
			}
			if u.Header.Type != unix.RTM_DELLINK && match(u.Link) {
				return u.Link, nil
			}
		}
	}
}
