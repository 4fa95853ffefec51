package machines

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"unnest.io/unnest/internal/measure/experiment"
	"unnest.io/unnest/internal/measure/machines/machine"
	"unnest.io/unnest/internal/measure/machines/sshhost"
	"unnest.io/unnest/internal/measure/stack"
	"unnest.io/unnest/internal/testbed/place"
	"unnest.io/unnest/internal/testbed/xen"
)

// xenDomain creates the domain of a configuration on its Xen host.
func (b *Set) xenDomain(ctx context.Context, c stack.Configuration) (*machine.Machine, error) {
	h, err := b.XenHost(ctx, c)
	if err != nil {
		return nil, err
	}
	size, err := b.Spec.Resources(c)
	if err != nil {
		return nil, err
	}
	config := xen.Config{Name: machine.ContainerName(c), Kind: KindOf(c.Stack), VCPUs: size.VCPUs, Memory: size.Memory}
	return h.BringUp(ctx, config, b.Options.Progress)
}

// KindOf is the kind of the domain of a stack.
func KindOf(s stack.Stack) xen.Kind { return xen.Kind(strings.TrimPrefix(string(s[0]), "xen-")) }

// create creates a domain. If there was one of its name, it gets the number of that one.
func (h *XenHost) create(ctx context.Context, c xen.Config) (*xen.Domain, error) {
	i := slices.IndexFunc(h.domains, func(d *xen.Domain) bool { return d.Name == c.Name })
	if c.Number = i + 1; i < 0 {
		c.Number = len(h.domains) + 1
	}
	d, err := h.Create(ctx, c)
	if err != nil {
		return nil, h.Machine.Explain(err)
	}
	if i < 0 {
		h.domains = append(h.domains, d)
	} else {
		h.domains[i] = d
	}
	return d, nil
}

// Creations is how often a run creates a domain that is gone before it is ready, and how often it tries
// to start a configuration. On two emulated processors, 4 of 15 PVH and HVM domains were gone that early.
const Creations = 4

// BringUp creates a domain and logs in to it. If the domain is gone before, it creates it again.
func (h *XenHost) BringUp(ctx context.Context, c xen.Config, progress experiment.Progress) (*machine.Machine, error) {
	for n := 1; ; n++ {
		progress.Phase("create domain " + c.Name)
		m, err := h.tryBringUp(ctx, c)
		if !errors.Is(err, xen.ErrGone) || n == Creations {
			return m, err
		}
		progress.Phase(err.Error())
	}
}

func (h *XenHost) tryBringUp(ctx context.Context, c xen.Config) (*machine.Machine, error) {
	d, err := h.create(ctx, c)
	if err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeoutCause(ctx, domainTimeout, fmt.Errorf("it is not ready after %v", domainTimeout))
	defer cancel()
	in, err := d.Login(limited)
	if err != nil {
		if err = h.Machine.Explain(err); errors.Is(err, xen.ErrGone) {
			err = errors.Join(err, d.Destroy(ctx)) // its files, for the next one
		}
		return nil, err
	}
	m := &machine.Machine{
		Domain: d,
		Place:  place.Within{Place: in, Env: []string{"LC_ALL=C", "HOME=/tmp"}, Name: in.String()},
		Work:   "/var/lib/unnest/work", Gone: in.Done(),
		Died: func() error {
			if !in.Lost() {
				return nil
			}
			ctx, cancel := context.WithTimeout(context.Background(), sshhost.LeaveTimeout)
			defer cancel()
			if err := h.Machine.Explain(d.Err(ctx)); err != nil {
				return err
			}
			return fmt.Errorf("domain %s no longer answers", c.Name)
		},
	}
	watched, stop := context.WithCancel(context.Background())
	m.Close = func() error { // the domain is destroyed with the others
		stop()
		_ = in.Close()
		return nil
	}
	go func() {
		ctx, done := machine.WhileAlive(watched, h.Machine)
		defer done()
		if d.Watch(ctx) == nil || ctx.Err() != nil {
			_ = in.Close() // a connection does not notice that the machine is gone
		}
	}()
	if h.Reached {
		m.Address = d.Address
	}
	return m, nil
}

// domainTimeout is how long a domain may take until it is ready. In an emulated Xen host it takes
// half a minute, and on a machine that is busy with other things seven minutes were seen.
const domainTimeout = 15 * time.Minute
