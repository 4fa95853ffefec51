package vm

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"unnest.io/unnest/internal/cli/terminal"
	"unnest.io/unnest/internal/cli/usage"
	"unnest.io/unnest/internal/hostapi/identity"
	"unnest.io/unnest/internal/hostd/quota"
	"unnest.io/unnest/internal/measure/machines/guestimage"
	"unnest.io/unnest/internal/measure/stack"
	"unnest.io/unnest/internal/testbed/doctor"
	"unnest.io/unnest/internal/testbed/fleet"
	"unnest.io/unnest/internal/testbed/guest"
	"unnest.io/unnest/internal/testbed/image"
	"unnest.io/unnest/internal/testbed/lab"
)

// upOptions are what the command line asks for.
type upOptions struct {
	names  []string
	accel  string
	vcpus  int
	memory int64 // bytes
	slots  int
	shares int
	pool   int
	poll   time.Duration
	wait   time.Duration
	cold   bool
}

func newUpCmd(streams terminal.Streams) *cobra.Command {
	o := upOptions{memory: 1 << 30}
	cmd := &cobra.Command{
		Use:   "up NAME...",
		Short: "Start guests and wait until they are ready",
		Args:  usage.Some("NAME"),
		RunE: func(cmd *cobra.Command, names []string) error {
			o.names = names
			if err := o.check(); err != nil {
				return err
			}
			return up(cmd.Context(), streams, o)
		},
	}
	_, longest := guest.Config{Accel: guest.TCG}.Patience()
	flags := cmd.Flags()
	flags.IntVar(&o.vcpus, "vcpus", 1, "`N` virtual processors of each guest")
	flags.Var(usage.Memory(&o.memory), "memory", "memory of each guest, such as 512MiB or 2GiB")
	flags.IntVar(&o.slots, "slots", 8, "`N` NICs that can be plugged into each running guest")
	flags.IntVar(&o.shares, "shares", 0, "`N` volumes and pieces of shared memory that can be plugged into each running guest")
	flags.IntVar(&o.pool, "pool", quota.DefaultPool, "`N` of the slots of each guest have a NIC plugged in advance, for the next pods")
	flags.DurationVar(&o.poll, "vhost-poll", 0, "`TIME` for which vhost-net polls for the next frame of each NIC, in whole microseconds (default 0: it does not poll)")
	o.wait = longest
	flags.Var(usage.Time(&o.wait), "wait", "stop waiting for a boot after `TIME`; earlier for a guest that hangs")
	flags.BoolVar(&o.cold, "cold", false, "boot the guests, do not restore them from a snapshot")
	flags.Var(usage.Choice(&o.accel, "auto", "kvm", "tcg"), "accel", "accelerator (default auto: kvm where it works)")
	return cmd
}

func (o upOptions) check() error {
	for i, name := range o.names {
		if slices.Contains(o.names[:i], name) {
			return usage.Errorf("NAME %s is there twice: name each guest once", name)
		}
		if err := identity.CheckGuestName(name); err != nil {
			return usage.Wrap(err)
		}
	}
	switch {
	case o.vcpus < 1 || o.vcpus > 255:
		return usage.Errorf("--vcpus %d: want 1 to 255", o.vcpus)
	case o.memory < 256<<20:
		return usage.Errorf("--memory %s: want at least 256MiB", stack.FormatBytes(o.memory))
	case o.slots < 0 || o.slots > guest.MaxSlots:
		return usage.Errorf("--slots %d: want 0 to %d", o.slots, guest.MaxSlots)
	case o.shares < 0 || o.shares > guest.MaxShares:
		return usage.Errorf("--shares %d: want 0 to %d", o.shares, guest.MaxShares)
	case o.pool < 0:
		return usage.Errorf("--pool %d: want 0 or more", o.pool)
	case o.poll < 0 || o.poll > quota.MaxVHostPoll || o.poll%time.Microsecond != 0:
		return usage.Errorf("--vhost-poll %v: want whole microseconds from 0 to %v", o.poll, quota.MaxVHostPoll)
	}
	return nil
}

func up(ctx context.Context, streams terminal.Streams, o upOptions) (err error) {
	if err := doctor.Preflight(ctx, doctor.System(image.CacheDir()), doctor.ForGuests); err != nil {
		return err
	}
	accel, err := guest.ChooseAccel(guest.Accel(o.accel))
	if err != nil {
		return err
	}
	binaries, err := guestimage.BinariesDir()
	if err != nil {
		return err
	}
	report := func(step string) { fmt.Fprintln(streams.Err, step) }
	built, err := guestimage.Build(ctx, binaries, report)
	if err != nil {
		return err
	}
	f, err := await(ctx, streams, func() (*fleet.Fleet, error) { return enter(ctx, report, filepath.Join(binaries, "unnest")) })
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, leave(f.Lab)) }()
	f.Progress = report
	var snapshots *guest.Snapshots
	if !o.cold {
		snapshots = &guest.Snapshots{Cache: image.CacheDir(), Progress: report}
	}
	var guests []fleet.Options
	for _, name := range o.names {
		guests = append(guests, fleet.Options{
			Name: name, Image: built, Accel: accel.Accel, VCPUs: o.vcpus, Memory: o.memory, Slots: o.slots, Pool: o.pool,
			Shares: o.shares, VHostPoll: o.poll, Snapshots: snapshots,
		})
	}
	if err := f.LaunchAll(ctx, guests, func(_ int, n *fleet.Node) error { return awaitReady(ctx, streams, f, n, o.wait) }); err != nil {
		return err
	}
	fmt.Fprintf(streams.Err, "accelerator %s (%s); enter by `unnest vm ssh %s`\n", accel.Accel, accel.Reason, o.names[0])
	return nil
}

// enter opens the lab, or makes it with its host daemon, in place of one whose start was killed.
func enter(ctx context.Context, report func(string), unnest string) (*fleet.Fleet, error) {
	f, _, err := reopen(ctx, unnest)
	if !errors.Is(err, lab.ErrNoLab) {
		return f, err
	}
	removed, failed := lab.Clean(ctx, false, labName)
	for _, dir := range removed {
		report("removed what a killed command had left of guests in " + dir)
	}
	l, err := lab.Create(labName)
	switch {
	case errors.Is(err, lab.ErrExists) && failed != nil:
		return nil, failed
	case errors.Is(err, lab.ErrExists): // another command has made it meanwhile
		return enter(ctx, report, unnest)
	case failed != nil:
		report("some of what a killed command has left stays: " + failed.Error())
	}
	if err != nil {
		return nil, err
	}
	f, err = fleet.Open(l)
	if err == nil {
		err = f.StartDaemon(ctx, unnest)
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return f, nil
}

// reopen opens the lab that is there, and starts its host daemon again if it has ended. It reports
// whether it has started it.
func reopen(ctx context.Context, unnest string) (f *fleet.Fleet, repaired bool, err error) {
	l, err := lab.Open(labName)
	if err != nil {
		return nil, false, err
	}
	f, err = fleet.Open(l)
	if err == nil {
		repaired, err = f.RepairDaemon(ctx, unnest)
	}
	if err != nil {
		return nil, false, errors.Join(err, l.Release())
	}
	return f, repaired, nil
}

// retryInterval is how often a lab is tried that another process has.
const retryInterval = 200 * time.Millisecond

// await calls open until no other process works with the lab, and says that it waits.
func await(ctx context.Context, streams terminal.Streams, open func() (*fleet.Fleet, error)) (*fleet.Fleet, error) {
	for said := false; ; said = true {
		f, err := open()
		if !errors.Is(err, lab.ErrInUse) {
			return f, err
		}
		if !said {
			fmt.Fprintln(streams.Err, "waiting for another unnest that works with the guests")
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(retryInterval):
		}
	}
}

// awaitReady waits until the guest is ready, or removes it.
func awaitReady(ctx context.Context, streams terminal.Streams, f *fleet.Fleet, n *fleet.Node, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	ssh, boot, err := f.Login(ctx, n)
	if err != nil {
		return errors.Join(err, n.Kill(), f.Lab.RemoveGuest(n.Name))
	}
	fmt.Fprintf(streams.Err, "%s is ready after %.1f s at %s\n", n.Name, boot.Total.Seconds(), n.TenantIP)
	return ssh.Close()
}
