package machines

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"unnest.io/unnest/internal/measure/machines/machine"
	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/stack"
	"unnest.io/unnest/internal/testbed/fleet"
	"unnest.io/unnest/internal/testbed/guest"
	"unnest.io/unnest/internal/testbed/image"
	"unnest.io/unnest/internal/testbed/place"
)

// launch starts a guest for a configuration. If its level is 2, it is the outer guest.
func (b *Set) launch(ctx context.Context, c stack.Configuration, n Needs) (*fleet.Node, error) {
	sizes, err := b.Spec.Machines(c)
	if err != nil {
		return nil, err
	}
	b.booted++
	o := fleet.Options{
		Name: nodeName(b.booted), Image: b.Images.Of(c), Accel: b.Options.Accel,
		VCPUs: sizes[1].VCPUs, Memory: sizes[1].Memory, Slots: n.Slots, Pool: n.Pool, Nesting: b.nests, VHostPoll: c.VHostPoll, Queues: c.Queues,
	}
	if c.Start == stack.Restored || c.Start == "" && b.Options.Restore {
		o.Snapshots = b.Snapshots()
	}
	if image, ok := b.Images.Foreign[c.Architecture()]; ok {
		choice, err := guest.ChooseAccelFor(image.Arch, guest.AccelAuto)
		if err != nil {
			return nil, err
		}
		o.Image, o.Accel, o.Nesting = image, choice.Accel, false
		o.Slots, o.Pool = 0, 0 // NICs cannot be plugged into it
		b.Note(fmt.Sprintf(
			"The guest of %s has another architecture, %s, and is emulated (%s): its figures show the speed of QEMU, not of such a machine.", c.Name, c.Architecture(), choice.Accel))
	}
	if c.Level() > 1 {
		o.Image, o.Nested = b.Images.Outer, &b.Images.Inner
	}
	node, err := b.launchNode(ctx, o)
	if err != nil {
		return nil, err
	}
	return node, checkStart(c, node.Guest)
}

// launchNode starts a guest that Down ends. Guests start one at a time.
func (b *Set) launchNode(ctx context.Context, o fleet.Options) (*fleet.Node, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	node, err := b.Fleet.Launch(ctx, o)
	if err == nil {
		b.nodes = append(b.nodes, node)
	}
	return node, err
}

// BootGuest brings up a guest that is not of one configuration, under a key of its own.
func (b *Set) BootGuest(ctx context.Context, key string, o fleet.Options) (*machine.Machine, error) {
	node, err := b.launchNode(ctx, o)
	if err != nil {
		return nil, err
	}
	m, err := newGuest(ctx, b.Fleet, node, node.Err, node)
	if err != nil {
		return nil, err
	}
	if m.Facts, m.Boot, err = machine.Describe(ctx, m.Place, key); err != nil {
		return nil, m.Explain(err)
	}
	m.Facts.Start = startOf(node)
	b.Add(key, m)
	return m, nil
}

// startOf says how a guest began.
func startOf(node *fleet.Node) string {
	if node.Restored() {
		return result.Restored
	}
	return result.Booted
}

// Add records a machine that is up.
func (b *Set) Add(key string, m *machine.Machine) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.running[key] = m
	if !slices.Contains(b.facts.Guests, m.Facts) {
		b.facts.Guests = append(b.facts.Guests, m.Facts)
	}
}

// checkStart refuses a guest that has booted in place of the restored one that is to be measured.
func checkStart(c stack.Configuration, g *guest.Guest) error {
	if c.Start == stack.Restored && !g.Restored() {
		return fmt.Errorf("restore guest %s: %w", g.Name, g.NotRestored)
	}
	return nil
}

// Snapshots restores guests from the cache. It is the same at each call: a freeze that fails is not tried again.
func (b *Set) Snapshots() *guest.Snapshots {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.frozen == nil {
		b.frozen = &guest.Snapshots{Cache: b.Images.Builder.Cache, Progress: b.Options.Progress.Phase}
	}
	return b.frozen
}

// nodeName is the name of guest n, from 1.
func nodeName(n int) string { return "node" + strconv.Itoa(n) }

// guest logs in to the guest of a configuration, as soon as it is ready. Of a
// configuration of level 2, it boots the inner guest first.
func (b *Set) guest(ctx context.Context, c stack.Configuration, node *fleet.Node) (*machine.Machine, error) {
	if c.Level() == 1 {
		m, err := newGuest(ctx, b.Fleet, node, node.Err, node)
		if err == nil {
			m.Runs, _ = c.Stack.Engine()
		}
		return m, err
	}
	if err := b.prepareOuter(ctx, node); err != nil {
		return nil, err
	}
	size, err := b.Spec.Resources(c)
	if err != nil {
		return nil, err
	}
	inner, err := b.Fleet.LaunchNested(ctx, node, fleet.Options{Name: node.Name + "-l2", VCPUs: size.VCPUs, Memory: size.Memory})
	if err != nil {
		return nil, err
	}
	b.Note(fmt.Sprintf("The guest of %s runs on %s in its own hypervisor: %s.", c.Name, inner.Choice.Accel, inner.Choice.Reason))
	return newGuest(ctx, b.Fleet, inner.Node, inner.Err, node)
}

// prepareOuter lets a guest promise another guest as much memory as it has itself.
// Its kernel refuses that unless overcommit is on.
func (b *Set) prepareOuter(ctx context.Context, outer *fleet.Node) error {
	in, _, err := b.Fleet.Login(ctx, outer)
	if err != nil {
		return err
	}
	return errors.Join(place.Run(ctx, in, "sysctl", "-qw", "vm.overcommit_memory=1"), in.Close())
}

// newGuest logs in to a guest, as soon as it is ready. died says why it is gone, and
// outer is the guest on this host: n itself, or the one that n is in.
func newGuest(ctx context.Context, f *fleet.Fleet, n *fleet.Node, died func() error, outer *fleet.Node) (*machine.Machine, error) {
	in, _, err := f.Login(ctx, n)
	if err != nil {
		return nil, err
	}
	inside := place.Within{Place: in, Env: []string{"LC_ALL=C", "HOME=/tmp"}, Name: in.String()}
	var m *machine.Machine
	m = &machine.Machine{
		Place: inside, Address: n.TenantIP, Work: "/var/lib/unnest/work", Gone: n.Done(), Node: outer,
		Died: func() error {
			if err := died(); err != nil {
				return err
			}
			if in.Lost() {
				return fmt.Errorf("guest %s no longer answers", n.Name)
			}
			return nil
		},
		Close:       func() error { _ = in.Close(); return nil }, // the guest is killed anyway
		StartEngine: func(ctx context.Context) error { return f.StartEngine(ctx, n, in) },
		StartContainer: func(ctx context.Context, name string, options ...string) (place.Place, error) {
			args := slices.Concat([]string{m.Engine(), "run", "--detach", "--name", name}, options, []string{image.ContainerImage})
			if err := place.Run(ctx, in, args...); err != nil {
				return nil, err
			}
			return place.Container{Place: inside, Engine: m.Engine(), Name: name}, nil
		},
	}
	return m, nil
}
