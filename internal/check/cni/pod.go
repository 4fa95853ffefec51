package cni

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/testbed/place"
)

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// pod is a named network namespace without processes.
type pod struct {
	id   string // container ID
	path string // of the network namespace
	// links are those that the kernel creates in every new namespace.
	links map[string]bool
}

var podCount atomic.Uint32

// netnsDir is where package netns and ip netns keep named namespaces.
const netnsDir = "/run/netns/"

// newPod creates a network namespace with a unique name.
func newPod() (*pod, error) {
	p := &pod{id: fmt.Sprintf("conformance-%08x-%d", rand.Uint32(), podCount.Add(1))}
	p.path = netnsDir + p.id
	made := place.InNetNS("/proc/thread-self/ns/net", func() error { // NewNamed moves the thread
		h, err := netns.NewNamed(p.id)
		if err == nil {
			err = h.Close()
		}
		return err
	})
	if made != nil {
		_ = os.Remove(p.path)
		return nil, fmt.Errorf("create network namespace %s: %w", p.id, made)
	}
	links, err := p.linkNames()
	if err != nil {
		return nil, errors.Join(err, p.remove())
	}
	p.links = links
	return p, nil
}

// remove deletes the namespace, if it still exists.
func (p *pod) remove() error {
	if _, err := os.Stat(p.path); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err := netns.DeleteNamed(filepath.Base(p.path)); err != nil {
		return fmt.Errorf("remove network namespace %s: %w", p.path, err)
	}
	return nil
}

// inside calls do with a netlink handle on the pod's namespace.
func (p *pod) inside(do func(*netlink.Handle) error) error {
	fd, err := netns.GetFromPath(p.path)
	if err != nil {
		return fmt.Errorf("open network namespace: %w", err)
	}
	defer fd.Close()
	h, err := netlink.NewHandleAt(fd, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open netlink socket in network namespace: %w", err)
	}
	defer h.Close()
	return do(h)
}

func (p *pod) link(name string) (l netlink.Link, err error) {
	return l, p.inside(func(h *netlink.Handle) error {
		l, err = linkIn(h, name)
		return err
	})
}

func linkIn(h *netlink.Handle, name string) (netlink.Link, error) {
	l, err := h.LinkByName(name)
	if err != nil {
		return nil, fmt.Errorf("find %s in the pod: %w", name, err)
	}
	return l, nil
}

func (p *pod) linkNames() (names map[string]bool, err error) {
	return names, p.inside(func(h *netlink.Handle) error {
		names, err = namesOf(h)
		return err
	})
}

// listed returns a list of the kernel. It asks again if the list has changed meanwhile.
func listed[T any](list func() ([]T, error)) ([]T, error) {
	for {
		all, err := list()
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			return all, err
		}
	}
}

func namesOf(h *netlink.Handle) (map[string]bool, error) {
	links, err := listed(h.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	names := map[string]bool{}
	for _, l := range links {
		names[l.Attrs().Name] = true
	}
	return names, nil
}

// clean returns an error if the pod has links that it did not have when it was created.
func (p *pod) clean() error {
	names, err := p.linkNames()
	if err != nil {
		return err
	}
	if more := surplus(names, p.links); len(more) > 0 {
		return fmt.Errorf("left in the pod: %s", strings.Join(more, ", "))
	}
	return nil
}

func surplus(have, had map[string]bool) []string {
	return slices.DeleteFunc(sortedKeys(have), func(name string) bool { return had[name] })
}

// hostLinks watches the links of the runtime's network namespace, in which plugins run.
type hostLinks struct {
	spare int // number of additional links that are not a leak
	// wait bounds the removal of links: the kernel removes those of a namespace some time
	// after the namespace.
	wait  time.Duration
	links map[string]bool
}

func currentLinks() (map[string]bool, error) {
	h, err := netlink.NewHandle()
	if err != nil {
		return nil, err
	}
	defer h.Close()
	return namesOf(h)
}

// record stores the links that exist while there are no pods.
func (h *hostLinks) record() (err error) {
	h.links, err = currentLinks()
	return err
}

// leak returns an error if there are more links than recorded, and records them. It
// compares numbers, because a plugin may replace the spare links that it keeps.
func (h *hostLinks) leak() error {
	var now map[string]bool
	for end := time.Now().Add(h.wait); ; time.Sleep(100 * time.Millisecond) {
		var err error
		if now, err = currentLinks(); err != nil {
			return err
		}
		if len(now) <= len(h.links)+h.spare {
			return nil
		}
		if time.Now().After(end) {
			break
		}
	}
	more := surplus(now, h.links)
	h.links = now
	return fmt.Errorf("left in the runtime's network namespace: %s", strings.Join(more, ", "))
}
