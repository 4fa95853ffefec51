package ports

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"unnest.io/unnest/internal/netdev/checksum"
	"unnest.io/unnest/internal/netdev/link"
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

func (c *checksums) attach(port string) error {
	f, err := c.load()
	if err != nil {
		return err
	}
	return f.Attach(port)
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
	_, err := link.Find(tap)
	if err == nil {
		err = c.attach(tap)
	}
	if link.IsGone(err) {
		return nil
	}
	return err
}

// detachOwn ends that.
func (c *checksums) detachOwn(tap string) error {
	err := checksum.Detach(tap)
	if link.IsGone(err) {
		return nil
	}
	return err
}

// linksInterval is the time until followLinks follows again after an error.
const linksInterval = time.Second

// LoadChecksums loads the program ahead of the first port. Who needs it says why it fails.
func (p *Ports) LoadChecksums() { _, _ = p.checksums.load() }

// FollowLinks has the frames of own NICs of guests checked whose TAPs appear, until ctx ends: those of
// a guest appear each time it starts.
func (p *Ports) FollowLinks(ctx context.Context) {
	for ctx.Err() == nil {
		if err := p.followLinksOnce(ctx); err != nil {
			p.log.Warn("follow the links of the host: frames of guests that start now may be checked a second late", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(linksInterval):
		}
	}
}

func (p *Ports) followLinksOnce(ctx context.Context) error {
	checked := map[int]bool{} // by index
	return link.Follow(ctx, func(e link.Event) {
		switch {
		case e.Deleted:
			delete(checked, e.Index)
		case p.services.isOwn(e.Name) && !checked[e.Index]:
			err := p.checksums.attachOwn(e.Name)
			if checked[e.Index] = err == nil; err != nil {
				p.log.Error("check frames of a guest's own NIC: it could change addresses behind the packet filter", "tap", e.Name, slog.Any("error", err))
			}
		}
	})
}
