// Package advise is the command "unnest advise": it says what a run shows to be worth doing.
package advise

import (
	"context"

	"github.com/spf13/cobra"

	"unnest.io/unnest/internal/cli/document"
	"unnest.io/unnest/internal/cli/terminal"
	"unnest.io/unnest/internal/cli/usage"
	"unnest.io/unnest/internal/report/advice"
)

// Options are the arguments and flags of the command.
type Options struct {
	Streams terminal.Streams
	Dir     string // run directory
	Output  document.Output
}

// NewCmd returns the command, which calls run.
func NewCmd(streams terminal.Streams, run func(context.Context, Options) error) *cobra.Command {
	opts := Options{Streams: streams}
	cmd := &cobra.Command{
		Use:   "advise RUN",
		Short: "Say what a run shows to be worth doing",
		Long: `Say what the run in directory RUN shows to be worth doing: what to change first
on this machine, and which domains to put on one host. Each choice comes with its
expected gain or cost, the interval of that, and the command that does it.

A run advises on what it has measured: the network of the pods, the network
within a pod, the storage of the containers, levels of virtualization,
over-commitment, or neighbours on a host. There is advice only where the verdict
is known, by the rule of all reports. Where it is not, the command says what to
measure.`,
		Example: `  unnest advise runs/20260314-092653-quickstart
  unnest advise runs/20260314-092653-quickstart -o advice.html
  unnest advise runs/20260314-092653-quickstart --json`,
		Args: usage.Args("RUN"),
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.Dir = args[0]
			return run(cmd.Context(), opts)
		},
	}
	opts.Output.AddFlags(cmd)
	cmd.ValidArgsFunction = document.CompleteRuns
	opts.Output.AddJSONFlag(cmd, "the same as --format json")
	return cmd
}

// Run prints the advice on a run.
func Run(_ context.Context, opts Options) error {
	if err := opts.Output.Check(); err != nil {
		return err
	}
	input, notes, err := document.Load(opts.Dir)
	if err != nil {
		return err
	}
	return opts.Output.Print(opts.Streams, advice.Build(input, notes))
}
