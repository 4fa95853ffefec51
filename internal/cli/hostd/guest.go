package hostd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"unnest.io/unnest/internal/cli/usage"
	"unnest.io/unnest/internal/hostd/bundle"
	"unnest.io/unnest/internal/hostd/configfile"
	"unnest.io/unnest/internal/hostd/credentials"
	"unnest.io/unnest/internal/hostd/quota"
	"unnest.io/unnest/internal/hostd/record"
	"unnest.io/unnest/internal/hostd/status"
	"unnest.io/unnest/internal/vmm"
)

// takeOverTime bounds the wait for a running daemon to follow a change.
const takeOverTime = 10 * time.Second

func newGuestCmd(opts *Options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "guest",
		Short: "Add, remove and list guests of the configuration",
		Args:  usage.Args(),
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newGuestAddCmd(opts), newGuestRemoveCmd(opts), newGuestListCmd(opts))
	return cmd
}

// guestOptions are the flags of "guest add".
type guestOptions struct {
	*Options
	quota.Guest
	domain, socket string
	addresses      []string
	out, server    string
	plugin         string
	pluginDir      string
}

func newGuestAddCmd(opts *Options) *cobra.Command {
	o := guestOptions{Options: opts}
	cmd := &cobra.Command{
		Use:   "add GUEST (--qmp SOCKET | --libvirt DOMAIN)",
		Short: "Add a guest and pack what it needs",
		Long: `Add a guest to the configuration file, issue its certificate, and write an archive with
the credentials, a CNI network configuration, and the plugin if unnest-cni is next to
unnest. The command prints the line that copies the archive into the guest. A daemon that
runs takes over the guest at once. The rest of the file stays as it is, with its comments.

With --credentials vmm the archive has no credentials: the daemon hands them to the guest in
its CD-ROM drive unnest-credentials, and unnest-cni credentials installs them there.

The key addresses lets the daemon guard the guest's own NIC: give the guest's addresses on
the tenant's network with --address.`,
		Example: `  unnest hostd guest add node1 --qmp /run/qemu/node1.hostd.qmp \
    --address 10.201.0.8
  unnest hostd guest add node2 --libvirt node2 --address 10.201.0.9
  unnest hostd guest add node3 --qmp /run/qemu/node3.hostd.qmp \
    --address 10.201.0.10 --credentials vmm
  unnest hostd guest add node4 --tenant shop \
    --qmp /run/qemu/node4.hostd.qmp --tap node4 \
    --mac 52:54:00:12:34:56 --address 10.202.0.8`,
		Args: usage.Args("GUEST"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Name = args[0]
			if !cmd.Flags().Changed("pool") {
				o.Pool = -1
			}
			return o.add(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Tenant, "tenant", "", "`TENANT` of the guest (default: the only one)")
	f.StringVar(&o.QMP, "qmp", "", "unix `SOCKET` of a QEMU monitor that only the daemon uses")
	f.StringVar(&o.domain, "libvirt", "", "libvirt `DOMAIN` of the guest, instead of --qmp")
	f.StringVar(&o.socket, "libvirt-socket", quota.DefaultSocket, "`SOCKET` of libvirtd")
	f.IntVar(&o.Index, "index", 0, "number `N` in the names of its TAPs and MACs (default: the lowest that is free)")
	f.IntVar(&o.Pool, "pool", 0, "`N` warm NICs (default: that of the configuration)")
	f.StringSliceVar(&o.addresses, "address", nil, "own `ADDRESS` of the guest on the tenant's network; can be repeated")
	f.StringVar(&o.TAP, "tap", "", "`INTERFACE` of the host that is the guest's own NIC (default: the daemon asks the VMM)")
	f.StringVar(&o.MAC, "mac", "", "`MAC` of the guest's own NIC")
	f.StringVar(&o.Guest.Credentials, "credentials", "", "`SOURCE` of the credentials: \"vmm\" for the guest's drive (default: the archive)")
	f.StringVarP(&o.out, "output", "o", "", "`FILE` for the archive (default: GUEST.tar)")
	f.StringVar(&o.server, "server", "", "`ADDRESS:PORT` of the daemon, as the guest sees it (default: the key listen)")
	f.StringVar(&o.plugin, "plugin", "", "`FILE` with the program unnest-cni for the guest (default: next to unnest)")
	f.StringVar(&o.pluginDir, "plugin-dir", "/opt/cni/bin", "`DIR` of CNI plugins in the guest")
	return cmd
}

// add packs the archive first: the configuration changes last, and only if all else has
// succeeded.
func (o guestOptions) add(ctx context.Context) error {
	p, err := o.load()
	if err != nil {
		return err
	}
	b, err := o.complete(&p)
	if err != nil {
		return err
	}
	if record.Has(o.State, o.Name) {
		return fmt.Errorf("add guest %s: %s has a guest of that name: choose another", o.Name, o.State)
	}
	packed := false
	err = configfile.Edit(o.Config, func(content []byte) ([]byte, error) {
		next, err := quota.AddGuest(o.Config, content, o.Guest)
		if err != nil {
			return nil, err
		}
		p.Guests = append(p.Guests, o.Guest)
		if err := o.pack(p, b); err != nil {
			return nil, err
		}
		packed = true
		return next, nil
	})
	if err != nil {
		if packed {
			err = errors.Join(err, os.Remove(o.out), credentials.Unenroll(ctx, o.State, o.Name))
		}
		return err
	}
	fmt.Fprintf(o.Streams.Err, "added %s to %s, and wrote its files to %s; copy them into the guest:\n", o.Name, o.Config, o.out)
	if b.Plugin == "" {
		fmt.Fprintf(o.Streams.Err, "(without the plugin: install bin/unnest-cni as %s/brfusion in the guest)\n", o.pluginDir)
	}
	if _, err := fmt.Fprintf(o.Streams.Out, "ssh root@%s tar -C / -xf - < %s\n", o.Name, o.out); err != nil {
		return err
	}
	return o.await(ctx, "takes over the guest", func(s status.Status) bool {
		return slices.ContainsFunc(s.Guests, func(g status.Guest) bool { return g.Name == o.Name })
	})
}

// complete fills in what the flags leave out.
func (o *guestOptions) complete(p *quota.Config) (b bundle.Bundle, err error) {
	if o.Tenant == "" && len(p.Tenants) == 1 {
		o.Tenant = p.Tenants[0].Name
	}
	if o.Tenant == "" {
		return b, usage.Errorf("missing flag --tenant: the configuration has %d tenants", len(p.Tenants))
	}
	if o.Index == 0 {
		if o.Index, err = record.FreeIndex(o.State, *p); err != nil {
			return b, err
		}
	}
	if o.Pool < 0 {
		o.Pool = p.Pool
	}
	if o.domain != "" {
		o.Libvirt = &quota.Domain{Socket: o.socket, Domain: o.domain}
	}
	for _, text := range o.addresses {
		a, err := netip.ParseAddr(text)
		if err != nil {
			return b, usage.Errorf("--address %q: want an IP address, such as 10.201.0.8", text)
		}
		o.Addresses = append(o.Addresses, a)
	}
	if o.Guest.Credentials != "" && o.Guest.Credentials != quota.CredentialsVMM {
		return b, usage.Errorf("--credentials %q: want vmm", o.Guest.Credentials)
	}
	o.out = cmp.Or(o.out, o.Name+".tar")
	b = bundle.Bundle{Server: p.Listen, Plugin: cmp.Or(o.plugin, findPlugin()), PluginDir: o.pluginDir}
	if o.server != "" {
		if b.Server, err = netip.ParseAddrPort(o.server); err != nil {
			return b, usage.Errorf("--server %q: want IP-ADDRESS:PORT, such as 10.200.0.1:7443", o.server)
		}
	}
	if !b.Server.IsValid() {
		return b, usage.Errorf("missing flag --server: the configuration has no listen address")
	}
	return b, nil
}

func findPlugin() string {
	exe, err := os.Executable()
	plugin := filepath.Join(filepath.Dir(exe), "unnest-cni")
	if _, none := os.Stat(plugin); err != nil || none != nil {
		return ""
	}
	return plugin
}

// pack enrols the guest, unless the daemon does, and writes the archive.
func (o *guestOptions) pack(p quota.Config, b bundle.Bundle) (err error) {
	if o.Guest.Credentials == quota.CredentialsVMM {
		return b.Create(o.out)
	}
	if err := os.MkdirAll(o.State, 0o700); err != nil {
		return fmt.Errorf("open state directory: %w", err)
	}
	if b.Credentials, err = os.MkdirTemp(o.State, "enroll"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.Credentials)) }()
	if err := credentials.Enroll(o.State, p, o.Name, b.Credentials); err != nil {
		return err
	}
	if err := b.Create(o.out); err != nil {
		return errors.Join(err, credentials.Unenroll(context.Background(), o.State, o.Name))
	}
	return nil
}

// await waits until the daemon follows a change of the configuration, and says how it goes
// on otherwise.
func (o Options) await(ctx context.Context, what string, done func(status.Status) bool) error {
	ctx, cancel := context.WithTimeout(ctx, takeOverTime)
	defer cancel()
	for {
		s, err := status.Ask(ctx, o.State)
		switch {
		case status.Absent(err):
			fmt.Fprintf(o.Streams.Err, "the daemon does not run: it %s when it starts\n", what)
			return nil
		case err == nil && s.Configuration.Error != "":
			return fmt.Errorf("the daemon does not use the configuration: %s", s.Configuration.Error)
		case err == nil && done(s):
			return nil
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("the daemon has not followed the configuration %s within %v: see its log; if it uses another file, name that with --config", o.Config, takeOverTime)
		}
	}
}

func newGuestRemoveCmd(opts *Options) *cobra.Command {
	force := false
	cmd := &cobra.Command{
		Use:   "remove GUEST [--force]",
		Short: "Remove a guest with its certificates and NICs",
		Long: `Remove a guest from the configuration file and revoke its certificates. A daemon that
runs refuses the guest's requests at once and removes the host's ends of its pods' NICs.
If pods of the guest have NICs, or may have some, the command asks first.`,
		Args: usage.Args("GUEST"),
		RunE: func(cmd *cobra.Command, args []string) error { return opts.remove(cmd.Context(), args[0], force) },
	}
	cmd.Flags().BoolVar(&force, "force", false, "remove the guest even if its pods have NICs")
	return cmd
}

func (o Options) remove(ctx context.Context, guest string, force bool) error {
	if !force {
		if err := o.confirm(ctx, guest); err != nil {
			return err
		}
	}
	if err := configfile.Edit(o.Config, func(content []byte) ([]byte, error) {
		return quota.RemoveGuest(o.Config, content, guest)
	}); err != nil {
		return err
	}
	if err := credentials.Unenroll(ctx, o.State, guest); err != nil {
		return err
	}
	fmt.Fprintf(o.Streams.Err, "removed %s from %s, and revoked its certificates\n", guest, o.Config)
	return o.await(ctx, "removes the guest's NICs", func(s status.Status) bool {
		return !slices.ContainsFunc(s.Guests, func(g status.Guest) bool { return g.Name == guest })
	})
}

// confirm asks before NICs of pods are removed.
func (o Options) confirm(ctx context.Context, guest string) error {
	s, err := status.Ask(ctx, o.State)
	i := slices.IndexFunc(s.Guests, func(g status.Guest) bool { return g.Name == guest })
	what := fmt.Sprintf("guest %s may have NICs of pods: ", guest)
	switch _, none := os.Stat(record.Path(o.State, guest)); {
	case errors.Is(err, fs.ErrPermission) || err != nil && ctx.Err() != nil:
		return err
	case status.Absent(err) && errors.Is(none, fs.ErrNotExist), // no daemon has given it any
		err == nil && (i < 0 || s.Guests[i].Attachments == 0 && s.Guests[i].Error == "" || strings.Contains(s.Guests[i].Error, vmm.ErrNotRunning.Error())):
		return nil
	case err != nil:
		what += "the daemon does not answer"
	case s.Guests[i].Error != "":
		what += "it does not answer"
	default:
		what = fmt.Sprintf("guest %s has %d NICs of pods", guest, s.Guests[i].Attachments)
	}
	return o.ask(ctx, what, "Remove it and them?", "remove guest", "stop the pods, or use --force")
}

// ask asks before something is lost. Without a terminal the error has the fix.
func (o Options) ask(ctx context.Context, what, question, do, fix string) error {
	if o.Streams.In == nil || o.Streams.ErrWidth == 0 {
		return fmt.Errorf("%s: %s: %s", do, what, fix)
	}
	_, _ = fmt.Fprintf(o.Streams.Ungated().Err, "%s. %s [y/N] ", what, question)
	answers := make(chan string, 1)
	go func() {
		var answer string
		if _, err := fmt.Fscanln(o.Streams.In, &answer); err != nil {
			answer = "" // not one word
		}
		answers <- strings.ToLower(answer)
	}()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case answer := <-answers:
		if answer == "y" || answer == "yes" {
			return nil
		}
	}
	return fmt.Errorf("%s: not confirmed: nothing has changed", do)
}

func newGuestListCmd(opts *Options) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the guests of the configuration",
		Args:  usage.Args(),
		RunE:  func(cmd *cobra.Command, _ []string) error { return opts.list(cmd.Context()) },
	}
}

func (o Options) list(ctx context.Context) error {
	p, err := o.load()
	if err != nil {
		return err
	}
	guests := map[string]status.Guest{}
	s, askErr := status.Ask(ctx, o.State)
	for _, g := range s.Guests {
		guests[g.Name] = g
	}
	w := tabwriter.NewWriter(o.Streams.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "GUEST\tTENANT\tINDEX\tVMM\tADDRESSES\tSTATE")
	for _, g := range p.Guests {
		machine := g.QMP
		if g.Libvirt != nil {
			machine = "libvirt " + g.Libvirt.Domain
		}
		var addresses []string
		for _, a := range g.Addresses {
			addresses = append(addresses, a.String())
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\t%s\n", g.Name, g.Tenant, g.Index, machine, strings.Join(addresses, " "), o.state(g.Name, guests, askErr))
	}
	return w.Flush()
}

// state describes a guest in a few words.
func (o Options) state(name string, running map[string]status.Guest, askErr error) string {
	_, statErr := os.Stat(record.Path(o.State, name))
	g, known := running[name]
	switch {
	case errors.Is(statErr, fs.ErrNotExist):
		return "not enrolled"
	case errors.Is(cmp.Or(statErr, askErr), fs.ErrPermission):
		return "not known: run unnest with sudo"
	case status.Absent(askErr):
		return "the daemon does not run"
	case askErr != nil:
		return "the daemon does not answer"
	case !known:
		return "not taken over yet"
	case strings.Contains(g.Error, vmm.ErrNotRunning.Error()):
		return "does not run"
	case g.Error != "":
		return g.Error
	}
	return fmt.Sprintf("%d NICs of pods", g.Attachments)
}
