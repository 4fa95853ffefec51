package cluster

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"unnest.io/unnest/internal/cli/terminal"
	"unnest.io/unnest/internal/cli/usage"
	"unnest.io/unnest/internal/measure/machines/guestimage"
	"unnest.io/unnest/internal/measure/stack"
	"unnest.io/unnest/internal/testbed/cluster"
	"unnest.io/unnest/internal/testbed/doctor"
	"unnest.io/unnest/internal/testbed/guest"
	"unnest.io/unnest/internal/testbed/image"
)

// maxNodes is the largest number of nodes: each takes a gigabyte of memory and more.
const maxNodes = 50

// upOptions are what the command line asks for.
type upOptions struct {
	cluster.Options
	accel    string
	programs string
	cold     bool
}

func newUpCmd(streams terminal.Streams) *cobra.Command {
	o := upOptions{Options: cluster.Options{Network: cluster.BrFusion, ProxyMode: "iptables", IPFamilies: cluster.IPv4, Memory: 1536 << 20}}
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start a cluster and wait until its nodes are ready",
		Long: `Start a cluster and wait until its nodes are ready. A pod gets the network of
--network, unless it has the RuntimeClass brfusion or bridge.`,
		Args: usage.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}
			return up(cmd.Context(), streams, o)
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&o.Nodes, "nodes", 2, "number `N` of nodes")
	flags.IntVar(&o.VCPUs, "vcpus", 2, "`N` virtual processors of each node")
	flags.Var(usage.Memory(&o.Memory), "memory", "memory of each node, such as 512MiB or 2GiB")
	flags.IntVar(&o.Slots, "slots", 32, "`N` pods on each node at most; as many NICs can be plugged into it")
	flags.IntVar(&o.Pool, "pool", 4, "`N` of the slots of each node have a NIC plugged in advance, for the next pods")
	flags.Var(usage.Choice(&o.Network, cluster.BrFusion, cluster.Bridge), "network", "network of pods without a RuntimeClass")
	flags.Var(usage.Choice(&o.SplitPods, cluster.SpanHost, cluster.SpanNetwork), "split-pods", "split pods that have the annotation unnest.io/split over the nodes; the host or the network of the nodes connects them")
	flags.Lookup("split-pods").NoOptDefVal = cluster.SpanHost
	flags.IntVar(&o.Shares, "shares", 0, "`N` volumes that fractions of split pods can have on each node at the same time")
	flags.Var(usage.Choice(&o.ProxyMode, "iptables", "nftables"), "proxy-mode", "how kube-proxy translates addresses of Services")
	flags.Var(usage.Choice(&o.IPFamilies, cluster.IPv4, cluster.IPv6, cluster.DualStack), "ip-families", "families of the addresses of pods and Services")
	flags.IntVar(&o.Port, "port", 0, "`PORT` of the API server on 127.0.0.1 (default a free one)")
	flags.StringVar(&o.programs, "kubernetes", "", "`DIR` with the programs of Kubernetes (default kubernetes next to unnest)")
	o.Wait = 5 * time.Minute
	flags.Var(usage.Time(&o.Wait), "wait", "give the nodes `TIME` to become ready")
	flags.BoolVar(&o.cold, "cold", false, "boot the nodes, do not restore them from a snapshot")
	flags.Var(usage.Choice(&o.accel, "auto", "kvm", "tcg"), "accel", "accelerator (default auto: kvm where it works)")
	return cmd
}

func (o upOptions) check() error {
	switch {
	case o.Nodes < 1 || o.Nodes > maxNodes:
		return usage.Errorf("--nodes %d: want 1 to %d", o.Nodes, maxNodes)
	case o.VCPUs < 1 || o.VCPUs > 255:
		return usage.Errorf("--vcpus %d: want 1 to 255", o.VCPUs)
	case o.Memory < 768<<20:
		return usage.Errorf("--memory %s: want at least 768MiB", stack.FormatBytes(o.Memory))
	case o.Slots < 1 || o.Slots > guest.MaxSlots:
		return usage.Errorf("--slots %d: want 1 to %d", o.Slots, guest.MaxSlots)
	case o.Pool < 0:
		return usage.Errorf("--pool %d: want 0 or more", o.Pool)
	case o.Shares < 0 || o.Shares > guest.MaxShares:
		return usage.Errorf("--shares %d: want 0 to %d", o.Shares, guest.MaxShares)
	case o.Port < 0 || o.Port > 65535:
		return usage.Errorf("--port %d: want 0 to 65535", o.Port)
	}
	return nil
}

// findController returns the path of unnest-kube. `make kubernetes` puts it next to the directory of Kubernetes' programs.
func findController(binaries, programs string) (string, error) {
	for _, dir := range []string{binaries, programs, filepath.Join(programs, "..")} {
		path := filepath.Join(dir, "unnest-kube")
		if _, err := os.Stat(path); err == nil {
			return filepath.Abs(path)
		}
	}
	return "", fmt.Errorf("--split-pods: no unnest-kube in %s, in %s or next to it: run `make kubernetes`, and give its bin/kubernetes as --kubernetes DIR", binaries, programs)
}

func up(ctx context.Context, streams terminal.Streams, o upOptions) error {
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
	o.programs = cmp.Or(o.programs, filepath.Join(binaries, "kubernetes"))
	if o.Programs, err = cluster.FindPrograms(o.programs); err != nil {
		return err
	}
	if o.Controller, err = findController(binaries, o.programs); err != nil && o.SplitPods != "" {
		return err
	}
	o.Progress = func(step string) { fmt.Fprintln(streams.Err, step) }
	o.MakeImage = func(ctx context.Context) (image.Image, error) {
		return cluster.BuildImage(ctx, binaries, o.Programs, o.Progress)
	}
	o.Accel, o.Unnest = accel.Accel, filepath.Join(binaries, "unnest")
	if !o.cold {
		o.Snapshots = &guest.Snapshots{Cache: image.CacheDir(), Progress: o.Progress}
	}
	c, err := cluster.Up(ctx, o.Options)
	if err != nil {
		return err
	}
	if err := c.Lab.Release(); err != nil {
		return err
	}
	fmt.Fprintf(streams.Err, "accelerator %s (%s); `unnest cluster kubeconfig` prints the credentials\n", accel.Accel, accel.Reason)
	return nil
}
