// Package hostd is the command "unnest hostd". What the daemon does belongs to
// the package of the same name in internal.
package hostd

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"

	"github.com/spf13/cobra"

	"unnest/internal/cli/terminal"
	"unnest/internal/cli/usage"
	"unnest/internal/hostd"
)

// DefaultListen is the gateway of the guests' management network.
const DefaultListen = "10.200.0.1:7443"

// Options are what the command line asks for.
type Options struct {
	Streams terminal.Streams
	State   string // directory of the lab
	Listen  string // ADDRESS:PORT
	Verbose bool
}

// NewCmd returns the command. A runF that is not nil runs in place of the
// command, with the options that it would have had.
func NewCmd(streams terminal.Streams, runF func(context.Context, Options) error) *cobra.Command {
	if runF == nil {
		runF = run
	}
	opts := Options{Streams: streams}
	cmd := &cobra.Command{
		Use:   "hostd --state DIR",
		Short: "Give NICs to the guests of a lab",
		Long: `Run the daemon beside the VMM: guests ask it for a NIC for each of their pods,
and it plugs and unplugs them (BrFusion). It runs in the network namespace with
the lab's bridges, until SIGINT or SIGTERM. The NICs stay when it ends, and the
next daemon takes them over.

Guests show the certificate that the lab's authority, authority.pem in the state
directory, has issued to them.`,
		Example: `  unnest hostd --state /run/unnest/lab
  unnest hostd --state /run/unnest/lab --listen 10.200.0.1:7443`,
		Args: usage.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if opts.State == "" {
				return usage.Errorf("missing flag --state: want the state directory of the lab")
			}
			return runF(cmd.Context(), opts)
		},
	}
	cmd.Flags().StringVar(&opts.State, "state", "", "state `directory` of the lab")
	cmd.Flags().StringVar(&opts.Listen, "listen", DefaultListen, "`address:port` to listen on, as the guests see it")
	cmd.Flags().BoolVarP(&opts.Verbose, "verbose", "v", false, "log each step of each attach and detach")
	return cmd
}

// run serves until ctx ends.
func run(ctx context.Context, opts Options) error {
	if info, err := os.Stat(opts.State); err != nil {
		return fmt.Errorf("open state directory: %w", err)
	} else if !info.IsDir() {
		return fmt.Errorf("open state directory: %s is a file", opts.State)
	}
	level := slog.LevelInfo
	if opts.Verbose {
		level = slog.LevelDebug
	}
	log := opts.Streams.Err
	return hostd.Serve(ctx, hostd.Config{
		StateDir: opts.State,
		Listen:   opts.Listen,
		Logger:   slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: level})),
		Ready:    func(a net.Addr) { _, _ = fmt.Fprintf(log, "hostd: serving on %s\n", a) },
	})
}
