package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"unnest/internal/measure/stack"
	"unnest/internal/testbed/fleet"
	"unnest/internal/testbed/guest"
	"unnest/internal/testbed/place"
)

// launch starts a guest for a configuration. If its level is 2, it is the outer guest.
func (b *Bench) launch(ctx context.Context, c stack.Configuration, n needs) (*fleet.Node, error) {
	sizes, err := b.spec.Machines(c)
	if err != nil {
		return nil, err
	}
	b.booted++
	o := fleet.Options{
		Name: nodeName(b.booted), Image: b.images.inner, Accel: b.options.Accel,
		VCPUs: sizes[1].VCPUs, Memory: sizes[1].Memory, Slots: n.slots, Pool: n.pool, Nesting: b.nests, VHostPoll: c.VHostPoll,
	}
	if c.Start == stack.Restored || c.Start == "" && b.options.Restore {
		o.Snapshots = b.snapshots()
	}
	if image, ok := b.images.foreign[c.Architecture()]; ok {
		choice, err := image.Arch.ChooseAccel(guest.AccelAuto)
		if err != nil {
			return nil, err
		}
		o.Image, o.Accel, o.Nesting = image, choice.Accel, false
		o.Slots, o.Pool = 0, 0 // NICs cannot be plugged into it
		b.facts.Notes = append(b.facts.Notes, fmt.Sprintf(
			"The guest of %s has another architecture, %s, and is emulated (%s): its figures show the speed of QEMU, not of such a machine.", c.Name, c.Architecture(), choice.Accel))
	}
	if c.Level() > 1 {
		o.Image, o.Nested = b.images.outer, &b.images.inner
	}
	node, err := b.fleet.Launch(ctx, o)
	if err != nil {
		return nil, err
	}
	b.nodes = append(b.nodes, node)
	return node, checkStart(c, node.Guest)
}

// checkStart refuses a guest that has booted in place of the restored one that is to be measured.
func checkStart(c stack.Configuration, g *guest.Guest) error {
	if c.Start == stack.Restored && !g.Restored() {
		return fmt.Errorf("restore guest %s: %w", g.Name, g.NotRestored)
	}
	return nil
}

// snapshots restores guests from the cache.
func (b *Bench) snapshots() *guest.Snapshots {
	return &guest.Snapshots{Cache: b.images.builder.Cache, Progress: b.options.Progress.Phase}
}

// nodeName is the name of guest n, from 1.
func nodeName(n int) string { return "node" + strconv.Itoa(n) }

// guest logs in to the guest of a configuration, as soon as it is ready. Of a
// configuration of level 2, it boots the inner guest first.
func (b *Bench) guest(ctx context.Context, c stack.Configuration, node *fleet.Node) (*machine, error) {
	if c.Level() == 1 {
		return newGuest(ctx, b.fleet, node, node.Err, node)
	}
	if err := b.prepareOuter(ctx, node); err != nil {
		return nil, err
	}
	size, err := b.spec.Resources(c)
	if err != nil {
		return nil, err
	}
	inner, err := b.fleet.LaunchNested(ctx, node, fleet.Options{Name: node.Name + "-l2", VCPUs: size.VCPUs, Memory: size.Memory})
	if err != nil {
		return nil, err
	}
	b.facts.Notes = append(b.facts.Notes, fmt.Sprintf("The guest of %s runs on %s in its own hypervisor: %s.", c.Name, inner.Choice.Accel, inner.Choice.Reason))
	return newGuest(ctx, b.fleet, inner.Node, inner.Err, node)
}

// prepareOuter lets a guest promise another guest as much memory as it has itself.
// Its kernel refuses that unless overcommit is on.
func (b *Bench) prepareOuter(ctx context.Context, outer *fleet.Node) error {
	in, _, err := b.fleet.Login(ctx, outer)
	if err != nil {
		return err
	}
	return errors.Join(place.Run(ctx, in, "sysctl", "-qw", "vm.overcommit_memory=1"), in.Close())
}

// newGuest logs in to a guest, as soon as it is ready. died says why it is gone, and
// outer is the guest on this host: n itself, or the one that n is in.
func newGuest(ctx context.Context, f *fleet.Fleet, n *fleet.Node, died func() error, outer *fleet.Node) (*machine, error) {
	in, _, err := f.Login(ctx, n)
	if err != nil {
		return nil, err
	}
	inside := place.Within{Place: in, Env: []string{"LC_ALL=C", "HOME=/tmp"}, Name: in.String()}
	return &machine{
		place: inside, address: n.TenantIP, work: "/var/lib/unnest/work", gone: n.Done(), node: outer,
		died: func() error {
			if err := died(); err != nil {
				return err
			}
			if in.Lost() {
				return fmt.Errorf("guest %s no longer answers", n.Name)
			}
			return nil
		},
		close:       func() error { _ = in.Close(); return nil }, // the guest is killed anyway
		startEngine: func(ctx context.Context) error { return place.Run(ctx, in, "/etc/unnest/engine") },
		container: func(ctx context.Context, name string, options ...string) (place.Place, error) {
			args := append([]string{engine, "run", "--detach", "--name", name}, options...)
			if err := place.Run(ctx, in, append(args, guest.ContainerImage)...); err != nil {
				return nil, err
			}
			return place.Container{Place: inside, Engine: engine, Name: name}, nil
		},
	}, nil
}
