package report

import (
	"errors"
	"fmt"
	"io/fs"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"unnest.io/unnest/internal/cli/document"
	"unnest.io/unnest/internal/cli/terminal"
	"unnest.io/unnest/internal/cli/usage"
)

// NewRunsCmd returns the command "unnest runs".
func NewRunsCmd(streams terminal.Streams) *cobra.Command {
	return &cobra.Command{
		Use:     "runs [DIR]",
		Short:   "List the runs that were measured here",
		Long:    "List the runs in DIR, or in " + document.RunsDir + ", the newest first.",
		Example: "  unnest runs",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return usage.Args("DIR")(cmd, args)
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				args = []string{document.RunsDir}
			}
			return list(streams, args[0])
		},
	}
}

func list(streams terminal.Streams, parent string) error {
	runs, unreadable, err := document.FindRuns(parent)
	if err != nil && !(errors.Is(err, fs.ErrNotExist) && parent == document.RunsDir) {
		return err
	}
	for _, dir := range unreadable {
		fmt.Fprintf(streams.Err, "warning: %s: this version of unnest cannot read it\n", dir)
	}
	if len(runs) == 0 {
		fmt.Fprintf(streams.Err, "no runs in %s; measure one by `unnest bench quickstart`\n", parent)
		return nil
	}
	w := tabwriter.NewWriter(streams.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "RUN\tEXPERIMENT\tSTATE\tACCEL\tBEGUN")
	for _, r := range runs {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", r.Dir, r.Run.Experiment, r.Run.State, r.Run.Accelerator, r.Run.Started.Local().Format("2006-01-02 15:04"))
	}
	return w.Flush()
}
