// Package vm is the command "unnest vm": guests for people, outside any experiment.
// They share one lab, which stays until its last guest is down.
package vm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"unnest.io/unnest/internal/cli/terminal"
	"unnest.io/unnest/internal/cli/usage"
	"unnest.io/unnest/internal/hostapi/identity"
	"unnest.io/unnest/internal/testbed/fleet"
	"unnest.io/unnest/internal/testbed/guest"
	"unnest.io/unnest/internal/testbed/lab"
)

// labName is the name of the lab of all guests that people start.
const labName = "vms"

// NewCmd returns the command with its subcommands.
func NewCmd(streams terminal.Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "vm",
		Short: "Start, enter and stop guests",
		Long: `Start, enter and stop guests: Debian with containerd, in a network of their own,
each with room for NICs that the host daemon plugs in while they run. That network ends
at this machine: guests reach it and each other, and no internet. "unnest vm load" gives
them container images. The first guest of
its size is booted and frozen; all are restored from it, with containerd running.`,
		Example: `  unnest vm up node1 node2
  unnest vm ssh node1
  unnest vm ssh node1 nerdctl run --network brfusion --rm \
    localhost/unnest/tools:1 busybox ip addr
  unnest vm load nginx.tar
  unnest vm down --all`,
	}
	cmd.AddCommand(newUpCmd(streams), newLsCmd(streams), newSSHCmd(streams), newLoadCmd(streams), newRepairCmd(streams), newDownCmd(streams))
	return cmd
}

func newLsCmd(streams terminal.Streams) *cobra.Command {
	return &cobra.Command{
		Use:   "ls",
		Short: "List the guests",
		Args:  usage.Args(),
		RunE:  func(cmd *cobra.Command, _ []string) error { return ls(cmd.Context(), streams) },
	}
}

func ls(ctx context.Context, streams terminal.Streams) error {
	f, err := view()
	if errors.Is(err, lab.ErrNoLab) {
		fmt.Fprintln(streams.Err, "no guest runs; start one by `unnest vm up NAME`")
		return nil
	}
	if err != nil {
		return err
	}
	names, err := f.Lab.Guests()
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(streams.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tSTATE\tACCEL\tVCPUS\tMEMORY\tADDRESS\tPID")
	for _, name := range names {
		n, err := f.Find(name)
		switch {
		case errors.Is(err, fleet.ErrStarting):
			fmt.Fprintf(w, "%s\tstarting\t\t\t\t\t\n", name)
		case errors.Is(err, guest.ErrDied):
			fmt.Fprintf(w, "%s\tdead\t\t\t\t\t\n", name)
		case err != nil:
			return err
		default:
			fmt.Fprintf(w, "%s\trunning\t%s\t%d\t%d MiB\t%s\t%d\n", name, n.Accel, n.VCPUs, n.Memory>>20, n.TenantIP, n.PID)
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if err := f.AskDaemon(ctx); err != nil {
		fmt.Fprintf(streams.Err, "warning: the host daemon of the guests: %v: containers get no NICs until `unnest vm repair`\n", err)
	}
	return nil
}

func newRepairCmd(streams terminal.Streams) *cobra.Command {
	return &cobra.Command{
		Use:   "repair",
		Short: "Start the guests' host daemon again if it has ended",
		Args:  usage.Args(),
		RunE:  func(cmd *cobra.Command, _ []string) error { return repair(cmd.Context(), streams) },
	}
}

func repair(ctx context.Context, streams terminal.Streams) (err error) {
	unnest, err := os.Executable()
	if err != nil {
		return err
	}
	f, repaired, err := reopen(ctx, unnest)
	if err != nil {
		return explain(err, "NAME")
	}
	defer func() { err = errors.Join(err, leave(f.Lab)) }()
	again := ""
	if repaired {
		again = " again"
	}
	fmt.Fprintln(streams.Err, "the host daemon runs"+again)
	return nil
}

func newLoadCmd(streams terminal.Streams) *cobra.Command {
	var only []string
	cmd := &cobra.Command{
		Use:   "load ARCHIVE...",
		Short: "Give the guests the container images of archives",
		Long: `Give the guests the container images of archives: OCI archives, or those of "docker
save". Guests reach no registry: their network ends at this machine.`,
		Example: `  docker save nginx:1.27 -o nginx.tar
  unnest vm load nginx.tar
  unnest vm ssh node1 nerdctl run --network brfusion --detach nginx:1.27`,
		Args: usage.Some("ARCHIVE"),
		RunE: func(cmd *cobra.Command, archives []string) error {
			return load(cmd.Context(), streams, only, archives)
		},
	}
	cmd.Flags().StringArrayVar(&only, "guest", nil, "load into guest `NAME` only; may be repeated")
	usage.Complete(cmd, "guest", completeGuests)
	return cmd
}

// load loads archives into the guests named, or into all.
func load(ctx context.Context, streams terminal.Streams, names, archives []string) error {
	f, err := view()
	if err == nil && len(names) == 0 {
		names, err = f.Lab.Guests()
	}
	if err != nil {
		return explain(err, "NAME")
	}
	for _, path := range archives {
		if err := f.Load(ctx, names, "default", func() (io.ReadCloser, error) { return os.Open(path) }); err != nil {
			return err
		}
		fmt.Fprintf(streams.Err, "%s: the images of %s are there\n", strings.Join(names, ", "), path)
	}
	return nil
}

// explain says how to start a guest, called name, if there is no lab.
func explain(err error, name string) error {
	if errors.Is(err, lab.ErrNoLab) {
		return fmt.Errorf("no guest runs: start one by `unnest vm up %s`", name)
	}
	return err
}

// view returns the fleet without taking the lab.
func view() (*fleet.Fleet, error) {
	l, err := lab.View(labName)
	if err != nil {
		return nil, err
	}
	return fleet.Open(l)
}

// completeGuests completes the names of the guests that run.
func completeGuests(_ *cobra.Command, given []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var names []string
	if f, err := view(); err == nil {
		names, _ = f.Lab.Guests()
	}
	return slices.DeleteFunc(names, func(name string) bool { return slices.Contains(given, name) }), cobra.ShellCompDirectiveNoFileComp
}

func newDownCmd(streams terminal.Streams) *cobra.Command {
	all := false
	cmd := &cobra.Command{
		Use:   "down NAME... | --all",
		Short: "Power guests down and remove them",
		RunE: func(cmd *cobra.Command, names []string) error {
			if all == (len(names) > 0) {
				return usage.Errorf("name the guests to stop, or give --all")
			}
			for _, name := range names {
				if err := identity.CheckGuestName(name); err != nil {
					return usage.Wrap(err)
				}
			}
			return down(cmd.Context(), streams, names)
		},
	}
	cmd.ValidArgsFunction = completeGuests
	cmd.Flags().BoolVar(&all, "all", false, "stop every guest, and remove what killed commands left of guests")
	return cmd
}

// down stops the guests named, or all, and removes the lab after the last.
func down(ctx context.Context, streams terminal.Streams, names []string) (err error) {
	l, err := lab.Open(labName)
	switch {
	case errors.Is(err, lab.ErrNoLab) && len(names) == 0:
		return clean(ctx, streams)
	case errors.Is(err, lab.ErrNoLab):
		return fmt.Errorf("stop guests: %w: %s: no guest runs", fleet.ErrNoGuest, names[0])
	case err != nil:
		return fmt.Errorf("stop guests: %w", err)
	}
	if len(names) == 0 {
		return downAll(ctx, streams, l)
	}
	f, err := fleet.Open(l)
	for _, name := range names {
		if err == nil {
			err = stop(ctx, streams, f, name)
		}
	}
	return errors.Join(err, leave(l))
}

// downAll stops all guests and removes the lab, also when a guest cannot be stopped:
// that ends its processes.
func downAll(ctx context.Context, streams terminal.Streams, l *lab.Lab) error {
	names, err := l.Guests()
	f, openErr := fleet.Open(l)
	if err = errors.Join(err, openErr); err == nil {
		for _, name := range names {
			err = errors.Join(err, stop(ctx, streams, f, name))
		}
	}
	return errors.Join(err, l.Close(), clean(ctx, streams))
}

// clean removes what killed commands left of guests: processes and network namespaces
// whose state directory is gone.
func clean(ctx context.Context, streams terminal.Streams) error {
	removed, err := lab.Clean(ctx, false, labName)
	for _, dir := range removed {
		fmt.Fprintf(streams.Err, "removed what a killed command left in %s\n", dir)
	}
	return err
}

func stop(ctx context.Context, streams terminal.Streams, f *fleet.Fleet, name string) error {
	n, err := f.Find(name)
	if err == nil {
		err = n.PowerDown(ctx)
	}
	if err != nil && !errors.Is(err, guest.ErrDied) {
		return err
	}
	if err := f.Lab.RemoveGuest(name); err != nil {
		return err
	}
	fmt.Fprintf(streams.Err, "%s is down\n", name)
	return nil
}

// leave removes the lab if it has no guest, and otherwise keeps it for later commands.
func leave(l *lab.Lab) error {
	names, err := l.Guests()
	if err != nil {
		return err
	}
	if len(names) == 0 {
		return l.Close()
	}
	return l.Release()
}
