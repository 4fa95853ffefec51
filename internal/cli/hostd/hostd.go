// Package hostd is the command "unnest hostd": it turns flags into options of package
// internal/hostd/daemon, and prints the daemon's status.
package hostd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"unnest.io/unnest/internal/cli/terminal"
	"unnest.io/unnest/internal/cli/usage"
	"unnest.io/unnest/internal/cli/version"
	"unnest.io/unnest/internal/hostd/configfile"
	"unnest.io/unnest/internal/hostd/credentials"
	"unnest.io/unnest/internal/hostd/daemon"
	"unnest.io/unnest/internal/hostd/metrics"
	"unnest.io/unnest/internal/hostd/quota"
	"unnest.io/unnest/internal/hostd/record"
	"unnest.io/unnest/internal/netdev/share"
)

// The default paths of the daemon's files.
const (
	defaultConfig = "/etc/unnest/hostd.yaml"
	defaultState  = "/var/lib/unnest"
)

// mountsVariable is the default of --mount-namespace, for units that confine the daemon.
const mountsVariable = "UNNEST_MOUNT_NAMESPACE"

// Options are the flags.
type Options struct {
	Streams terminal.Streams
	Config  string // file
	State   string // directory
	Listen  string // ADDRESS:PORT; empty: as the configuration says
	JSON    bool   // log, or status, as JSON
	Verbose bool
	Mounts  string // file of the mount namespace of the VMMs; empty: this process's
}

// NewCmd returns the command, which calls run.
func NewCmd(streams terminal.Streams, run func(context.Context, Options) error) *cobra.Command {
	opts := Options{Streams: streams}
	cmd := &cobra.Command{
		Use:   "hostd",
		Short: "Give NICs to guests, one for each of their pods",
		Long: `Run the host daemon. Guests ask it for a NIC for each of their pods, and it plugs
and unplugs the NICs (BrFusion). Run it on the VMM's host, in the network namespace
with the tenants' bridges. It ends on SIGINT or SIGTERM. The pods' NICs stay when it
ends, and the next daemon takes them over.

The daemon follows its configuration file: it takes over a change within a second, and at
SIGHUP. A file with a mistake changes nothing; the log and "unnest hostd status" show the
mistake, and which keys take effect at the next start only.

The configuration lists the tenants, their limits, and the guests that "unnest vm"
has not started. A guest identifies itself by a certificate, which
"unnest hostd enroll" issues.`,
		Example: `  unnest hostd
  unnest hostd --config /etc/unnest/hostd.yaml --state /var/lib/unnest
  unnest hostd guest add node1 --qmp /run/qemu/node1.hostd.qmp
  unnest hostd enroll node1 --output node1.credentials
  unnest hostd revoke node1
  unnest hostd status
  unnest hostd detach node1 6f9d1f/eth0`,
		Args: usage.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), opts) },
	}
	cmd.PersistentFlags().StringVar(&opts.Config, "config", defaultConfig, "configuration `FILE`")
	cmd.PersistentFlags().StringVar(&opts.State, "state", defaultState, "state `DIR`")
	cmd.Flags().StringVar(&opts.Listen, "listen", "", "`ADDRESS:PORT` to listen on, as the guests see it, instead of the configuration's")
	cmd.Flags().BoolVar(&opts.JSON, "log-json", false, "log as JSON")
	cmd.Flags().StringVar(&opts.Mounts, "mount-namespace", os.Getenv(mountsVariable), "`FILE` with the mount namespace of the VMMs, for volumes by 9p (default: $"+mountsVariable+", else the daemon's own)")
	cmd.Flags().BoolVarP(&opts.Verbose, "verbose", "v", false, "log each step of each attach and detach")
	cmd.AddCommand(newStatusCmd(&opts), newEnrollCmd(&opts), newRevokeCmd(&opts), newGuestCmd(&opts), newDetachCmd(&opts), newPolicyCmd(&opts))
	return cmd
}

func (o Options) load() (quota.Config, error) {
	p, err := configfile.Read(o.Config)
	if err != nil {
		return p, err
	}
	if o.Listen != "" {
		if p.Listen, err = netip.ParseAddrPort(o.Listen); err != nil {
			return p, usage.Errorf("--listen %q: want IP-ADDRESS:PORT, such as 10.200.0.1:7443", o.Listen)
		}
	}
	return p, nil
}

// Run serves until ctx ends.
func Run(ctx context.Context, opts Options) error {
	opts.Streams = opts.Streams.Unwatched()
	log, level := opts.logger()
	if _, err := opts.load(); err != nil { // before a warning that it cannot be watched
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	signals, stop := hangUps()
	defer stop()
	changes := make(chan daemon.Change)
	watching.Go(func() { // before the file is read, so that no change is missed
		configfile.Watch(ctx, opts.Config, signals, log, func() {
			p, err := opts.load()
			if err == nil {
				level.Set(opts.level(p))
			}
			select {
			case changes <- daemon.Change{Quotas: p, Err: err}:
			case <-ctx.Done():
			}
		})
	})
	p, err := opts.load()
	if err != nil {
		return err
	}
	level.Set(opts.level(p))
	if err := os.MkdirAll(opts.State, 0o700); err != nil {
		return fmt.Errorf("open state directory: %w", err)
	}
	ready := func(a net.Addr) { _, _ = fmt.Fprintf(opts.Streams.Err, "hostd: serving on %s\n", a) }
	if opts.JSON {
		ready = func(a net.Addr) { log.Info("serve", "address", a.String()) }
	}
	build := version.Get()
	return daemon.Serve(ctx, daemon.Config{
		StateDir: opts.State,
		Quotas:   p,
		Logger:   log,
		Changes:  changes,
		Ready:    ready,
		Mounts:   share.Namespace(opts.Mounts),
		Build:    metrics.Build{Version: build.Version, Revision: build.Revision},
	})
}

// hangUps returns a channel of SIGHUP, which ends other commands. A daemon that was told
// to ignore it, as by nohup, does.
func hangUps() (signals chan os.Signal, stop func()) {
	signals = make(chan os.Signal, 1)
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Reset(syscall.SIGHUP)
		signal.Notify(signals, syscall.SIGHUP)
	}
	return signals, func() { signal.Stop(signals) }
}

// logger returns the log and its level, which can be changed.
func (o Options) logger() (*slog.Logger, *slog.LevelVar) {
	level := new(slog.LevelVar)
	h := &slog.HandlerOptions{Level: level}
	if o.JSON {
		return slog.New(slog.NewJSONHandler(o.Streams.Err, h)), level
	}
	return slog.New(slog.NewTextHandler(o.Streams.Err, h)), level
}

func (o Options) level(p quota.Config) slog.Level {
	if o.Verbose || p.LogLevel == quota.LogDebug {
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

func newEnrollCmd(opts *Options) *cobra.Command {
	out := ""
	cmd := &cobra.Command{
		Use:   "enroll GUEST --output DIR",
		Short: "Issue the credentials of a guest",
		Long: `Issue a certificate that identifies a guest of the configuration, or a guest of
"unnest vm" whose lab has the state directory, and write it to a directory (ca.crt,
client.crt, client.key). Copy the files to /etc/unnest in the guest; only root may read
the key. Earlier certificates of the guest become invalid.

A guest renews its certificate itself. Enroll it when it is new, when its certificate has
expired, or after "unnest hostd revoke".`,
		Args: usage.Args("GUEST"),
		RunE: func(_ *cobra.Command, args []string) error {
			if out == "" {
				return usage.Errorf("missing flag --output: name the directory to write the credentials to")
			}
			p, err := opts.load()
			if err == nil || errors.Is(err, fs.ErrNotExist) { // guests of unnest vm need no configuration
				enrolled := credentials.Enroll(opts.State, p, args[0], out)
				if err == nil || !errors.Is(enrolled, record.ErrNoRecord) {
					err = enrolled
				}
			}
			if err != nil {
				return err
			}
			fmt.Fprintf(opts.Streams.Err, "wrote the credentials of %s to %s: copy them to /etc/unnest in the guest\n", args[0], out)
			return nil
		},
	}
	cmd.Flags().StringVarP(&out, "output", "o", "", "write to the directory `DIR`")
	return cmd
}

func newRevokeCmd(opts *Options) *cobra.Command {
	serial := ""
	cmd := &cobra.Command{
		Use:   "revoke GUEST [--serial SERIAL]",
		Short: "Revoke the certificates of a guest",
		Long: `Revoke all certificates of a guest, or one of them. The daemon ends the guest's
connections at once and refuses its requests until the guest is enrolled again. The NICs
of its pods stay.`,
		Example: `  unnest hostd revoke node1
  unnest hostd revoke node1 --serial 5c17a90e`,
		Args: usage.Args("GUEST"),
		RunE: func(cmd *cobra.Command, args []string) error {
			revoked, err := credentials.Revoke(cmd.Context(), opts.State, args[0], serial)
			for _, c := range revoked {
				_, printErr := fmt.Fprintf(opts.Streams.Out, "revoked the certificate of %s with serial number %s, valid until %s\n",
					args[0], cmp.Or(c.Serial, "unknown"), c.Expires.Format(time.DateOnly))
				err = errors.Join(err, printErr)
			}
			if err == nil && len(revoked) == 0 {
				fmt.Fprintf(opts.Streams.Err, "%s has no valid certificate to revoke\n", args[0])
			}
			return err
		},
	}
	cmd.Flags().StringVar(&serial, "serial", "", "revoke the certificate with this `SERIAL` number only, in hex as \"hostd status\" shows it")
	return cmd
}
