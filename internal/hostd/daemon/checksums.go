package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"unnest/internal/netdev/checksum"
)

// checksums has the frames of ports checked by package checksum.
type checksums struct {
	mu     sync.Mutex
	filter *checksum.Filter // nil until it is loaded
}

// load loads the program, unless it is loaded. If that fails, the next call tries again.
func (c *checksums) load() (*checksum.Filter, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.filter == nil {
		f, err := checksum.Load()
		if err != nil {
			return nil, fmt.Errorf("%w; it needs CAP_BPF, CAP_PERFMON and a kernel with /sys/kernel/btf/vmlinux", err)
		}
		c.filter = f
	}
	return c.filter, nil
}

func (c *checksums) attach(l netlink.Link) error {
	f, err := c.load()
	if err != nil {
		return err
	}
	return f.Attach(l)
}

// drops returns how many frames were dropped since the program was loaded.
func (c *checksums) drops() (uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.filter == nil {
		return 0, nil
	}
	return c.filter.Drops()
}

// attachOwn has the frames of a guest's own NIC checked. If its TAP does not exist yet, followLinks
// does it.
func (c *checksums) attachOwn(tap string) error {
	link, err := netlinksafe.LinkByName(tap)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find %s: %w", tap, err)
	}
	if err := c.attach(link); err != nil && !errors.Is(err, unix.ENODEV) { // it has just gone
		return err
	}
	return nil
}

// detachOwn ends that.
func (c *checksums) detachOwn(tap string) error {
	link, err := netlinksafe.LinkByName(tap)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find %s: %w", tap, err)
	}
	return checksum.Detach(link)
}

// linksInterval is the time until followLinks follows again after an error.
const linksInterval = time.Second

// followLinks has the frames of own NICs of guests checked whose TAPs appear, until ctx ends: those of
// a guest appear each time it starts.
func (p *ports) followLinks(ctx context.Context) {
	for first := true; first || wait(ctx, linksInterval); first = false {
		if err := p.followLinksOnce(ctx); err != nil {
			p.log.Warn("follow the links of the host: frames of guests that start now may be checked a second late", "error", err)
		}
	}
}

func (p *ports) followLinksOnce(ctx context.Context) error {
	done := make(chan struct{})
	defer close(done)
	updates, failures := make(chan netlink.LinkUpdate, 64), make(chan error, 1)
	err := netlink.LinkSubscribeWithOptions(updates, done, netlink.LinkSubscribeOptions{
		ListExisting: true,
		ErrorCallback: func(err error) { // before it closes updates, and when done is closed
			select {
			case failures <- err:
			default: // the first one says why
			}
		},
	})
	if err != nil {
		return err
	}
	checked := map[int32]bool{} // by index
	for {
		select {
		case <-ctx.Done():
			return nil
		case u, ok := <-updates:
			if !ok {
				select {
				case err := <-failures:
					return err
				default:
					return errors.New("the kernel sends no more events")
				}
			}
			name := u.Attrs().Name
			switch {
			case u.Header.Type == unix.RTM_DELLINK:
				delete(checked, u.Index)
			case p.services.isOwn(name) && !checked[u.Index]:
				err := p.checksums.attachOwn(name)
				if checked[u.Index] = err == nil; err != nil {
					p.log.Error("check frames of a guest's own NIC: it could change addresses behind the packet filter", "tap", name, slog.Any("error", err))
				}
			}
		}
	}
}
