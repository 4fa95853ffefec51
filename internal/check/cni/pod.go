package cni

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// pod is a network namespace with a name, and nobody in it.
type pod struct {
	id   string // the container's
	path string // of the network namespace
	// links are those that the kernel puts into every new namespace.
	links map[string]bool
}

var podCount atomic.Uint32

// netnsDir is where package netns names namespaces, as ip netns does.
const netnsDir = "/run/netns/"

// newPod makes a network namespace. Its name tells whose it is.
func newPod() (*pod, error) {
	p := &pod{id: fmt.Sprintf("conformance-%08x-%d", rand.Uint32(), podCount.Add(1))}
	p.path = netnsDir + p.id
	made := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends in the new namespace
		h, err := netns.NewNamed(p.id)
		if err == nil {
			err = h.Close()
		}
		made <- err
	}()
	if err := <-made; err != nil {
		_ = os.Remove(p.path)
		return nil, fmt.Errorf("make network namespace %s: %w", p.id, err)
	}
	links, err := p.linkNames()
	if err != nil {
		return nil, errors.Join(err, p.remove())
	}
	p.links = links
	return p, nil
}

// remove deletes the namespace; it may be gone.
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
		return fmt.Errorf("look into network namespace: %w", err)
	}
	defer h.Close()
	return do(h)
}

// link returns a link of the pod's.
func (p *pod) link(name string) (l netlink.Link, err error) {
	err = p.inside(func(h *netlink.Handle) error {
		l, err = h.LinkByName(name)
		return err
	})
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

// namesOf lists anew as long as the list changes under it.
func namesOf(h *netlink.Handle) (map[string]bool, error) {
	for {
		links, err := h.LinkList()
		if errors.Is(err, netlink.ErrDumpInterrupted) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list links: %w", err)
		}
		names := map[string]bool{}
		for _, l := range links {
			names[l.Attrs().Name] = true
		}
		return names, nil
	}
}

// clean returns an error when the pod has links that were not there when it was
// made.
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

// ground is the network namespace of the runtime, in which plugins run.
type ground struct {
	spare int
	links map[string]bool
}

// settleTime is how long links that go may take to be gone: the kernel removes a
// namespace's some time after the namespace.
const settleTime = 10 * time.Second

func groundLinks() (map[string]bool, error) {
	h, err := netlink.NewHandle()
	if err != nil {
		return nil, err
	}
	defer h.Close()
	return namesOf(h)
}

// settle remembers the links that are there when all pods are gone.
func (g *ground) settle() (err error) {
	g.links, err = groundLinks()
	return err
}

// leak returns an error when there are more links than there were, and takes
// them for given from then on. Their number counts: a plugin that keeps spare
// ones may have others by now.
func (g *ground) leak() error {
	var now map[string]bool
	for end := time.Now().Add(settleTime); ; time.Sleep(100 * time.Millisecond) {
		var err error
		if now, err = groundLinks(); err != nil {
			return err
		}
		if len(now) <= len(g.links)+g.spare {
			return nil
		}
		if time.Now().After(end) {
			break
		}
	}
	more := surplus(now, g.links)
	g.links = now
	return fmt.Errorf("left in the runtime's network namespace: %s", strings.Join(more, ", "))
}
