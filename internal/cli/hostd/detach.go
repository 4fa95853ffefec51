package hostd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"unnest.io/unnest/internal/cli/usage"
	"unnest.io/unnest/internal/hostd/status"
)

func newDetachCmd(opts *Options) *cobra.Command {
	yes := false
	cmd := &cobra.Command{
		Use:   "detach GUEST NIC [--yes]",
		Short: "Detach a NIC that no container runtime gives back",
		Long: `Detach a NIC that no container runtime gives back: its DEL has never reached the plugin, for
example because another plugin of the chain is not installed any more. Until then the NIC stays in
"unnest hostd status", and takes a slot of the guest.

NIC is the ID of the container, or at least its first 4 characters, with /INTERFACE if the container
has several NICs; or the NIC's MAC; or the number of its slot. A pod that still runs loses the
interface at once, with its addresses and all connections over it, and its runtime does not notice:
compare the ID with those of the guest's containers first. The command asks, except with --yes.`,
		Example: `  unnest hostd detach node1 6f9d1f/eth0
  unnest hostd detach node1 0a:00:01:01:00:03 --yes`,
		Args: usage.Args("GUEST", "NIC"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return opts.detach(cmd.Context(), args[0], args[1], yes)
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

func (o Options) detach(ctx context.Context, guest, name string, yes bool) error {
	s, err := status.Ask(ctx, o.State)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(s.Guests, func(g status.Guest) bool { return g.Name == guest })
	switch {
	case i < 0:
		return fmt.Errorf("detach: the daemon has no guest %q; unnest hostd guest list shows them", guest)
	case s.Guests[i].Error != "":
		return fmt.Errorf("detach: guest %s does not answer: %s", guest, s.Guests[i].Error)
	}
	nic, err := findNIC(s.Guests[i].NICs, name)
	if err != nil {
		return fmt.Errorf("detach %q from %s: %w", name, guest, err)
	}
	if !yes {
		if err := o.confirmDetach(ctx, guest, nic); err != nil {
			return err
		}
	}
	fmt.Fprintf(o.Streams.Err, "detaching %s/%s from %s: the guest has up to 30 s to give it up\n", nic.Container, nic.Interface, guest)
	return status.Detach(ctx, o.State, status.Detachment{
		Guest: guest, Container: nic.Container, Interface: nic.Interface, Endpoint: nic.Pod != "",
	})
}

// findNIC returns the only NIC of a pod that a name stands for.
func findNIC(nics []status.NIC, name string) (found status.NIC, err error) {
	container, iface, _ := strings.Cut(name, "/")
	slot, slotErr := strconv.Atoi(name)
	var all []string
	for _, n := range nics {
		whole := n.Container == container
		byID := (whole || len(container) >= 4 && strings.HasPrefix(n.Container, container)) && (iface == "" || n.Interface == iface)
		if n.Container != "" && (byID || strings.EqualFold(n.MAC, name) || slotErr == nil && n.Slot == slot && n.VLAN == 0) {
			found = n
			all = append(all, fmt.Sprintf("%s/%s with MAC %s", n.Container, n.Interface, n.MAC))
		}
	}
	switch len(all) {
	case 0:
		return found, errors.New("no pod has such a NIC; unnest hostd status lists them by container, MAC and slot")
	case 1:
		return found, nil
	}
	return found, fmt.Errorf("%d NICs match: %s; name one by its MAC", len(all), strings.Join(all, ", "))
}

// confirmDetach asks before a pod loses its NIC.
func (o Options) confirmDetach(ctx context.Context, guest string, n status.NIC) error {
	what := fmt.Sprintf("container %s of %s loses %s", n.Container, guest, n.Interface)
	if len(n.Addresses) > 0 {
		what += " with " + strings.Join(n.Addresses, ", ")
	}
	if n.Pod != "" {
		what += ", the localhost of the pod " + n.Pod
	}
	if a := age(n, time.Now()); a != "" {
		what += fmt.Sprintf(", which it has had for %s", a)
	}
	what += ", and all connections over it; its runtime does not notice"
	return o.ask(ctx, what, "Detach it?", "detach", "make sure that the container has ended, and use --yes")
}
