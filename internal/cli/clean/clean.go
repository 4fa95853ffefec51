// Package clean is the command "unnest clean": it removes what killed runs left on this
// machine.
package clean

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"unnest/internal/cli/terminal"
	"unnest/internal/cli/usage"
	"unnest/internal/measure/bench"
	"unnest/internal/testbed/guest"
	"unnest/internal/testbed/lab"
)

// Options are what the command line asks for.
type Options struct {
	Streams terminal.Streams
	DryRun  bool // list what would be removed, and remove nothing
}

// NewCmd returns the command. A runF that is not nil runs in place of the command,
// with the options that it would have had.
func NewCmd(streams terminal.Streams, runF func(context.Context, Options) error) *cobra.Command {
	if runF == nil {
		runF = run
	}
	o := Options{Streams: streams}
	cmd := &cobra.Command{
		Use:   "clean",
		Short: "Remove what killed runs left on this machine",
		Long: `Remove what killed runs left on this machine: processes (QEMU, host daemons,
clients), network namespaces with their bridges, TAPs and rules, state directories,
work directories and control groups. It prints each of them.

Active runs are not touched, nor are guests of "unnest vm up": stop these with
"unnest vm down". Run directories, guest images and the rest of the cache stay, too.
"unnest bench" cleans its own state directory before each run.`,
		Example: `  unnest clean --dry-run
  unnest clean`,
		Args: usage.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error { return runF(cmd.Context(), o) },
	}
	cmd.Flags().BoolVar(&o.DryRun, "dry-run", false, "list what would be removed, and remove nothing")
	return cmd
}

func run(ctx context.Context, o Options) error {
	labs, err := lab.Clean(ctx, o.DryRun)
	work, workErr := bench.CleanWork(guest.CacheDir(), o.DryRun)
	return errors.Join(err, workErr, list(o, labs, work))
}

// list prints what was removed, or would be.
func list(o Options, labs, work []string) error {
	verb := "removed"
	if o.DryRun {
		verb = "would remove"
	}
	var text strings.Builder
	for _, dir := range labs {
		fmt.Fprintf(&text, "%s lab %s with its processes and network namespaces\n", verb, dir)
	}
	for _, dir := range work {
		fmt.Fprintf(&text, "%s work directory %s with its control groups\n", verb, dir)
	}
	if text.Len() == 0 {
		text.WriteString("nothing to remove\n")
	}
	_, err := io.WriteString(o.Streams.Out, text.String())
	return err
}
