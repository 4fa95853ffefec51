// Package report is the command "unnest report": it prints the results of a run.
package report

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"unnest.io/unnest/internal/cli/document"
	"unnest.io/unnest/internal/cli/terminal"
	"unnest.io/unnest/internal/cli/usage"
	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/rundir"
	"unnest.io/unnest/internal/report/comparison"
	page "unnest.io/unnest/internal/report/document"
	"unnest.io/unnest/internal/report/provenance"
)

// Options are the arguments and flags of the command.
type Options struct {
	Streams terminal.Streams
	Dirs    []string // run directories
	Output  document.Output
	Open    bool // show the report in a browser
}

// NewCmd returns the command, which calls run.
func NewCmd(streams terminal.Streams, run func(context.Context, Options) error) *cobra.Command {
	opts := Options{Streams: streams, Output: document.Output{Samples: true}}
	cmd := &cobra.Command{
		Use:   "report DIR...",
		Short: "Print the results of a run, or of several together",
		Long: `Print the results of the run in DIR: the findings in words, tables of estimates
with their intervals and tests, warnings, and the provenance of the data.

A run that is still running, or was interrupted, is reported up to its last
sample.

The intervals of one run cover that run, or a new one on the machine if each
block had machines of its own. Several runs of one experiment are combined: the
report says how much runs differ, what their mean is, and what a next run on
this machine will report.`,
		Example: `  unnest report runs/20260314-092653-quickstart
  unnest report runs/20260314-092653-quickstart --open
  unnest report runs/20260314-092653-quickstart -o report.html
  unnest report runs/*-quickstart
  unnest report runs/20260314-092653-quickstart --format gobench >run.bench
  benchstat -col /config run.bench`,
		Args: usage.Some("DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.Dirs = args
			return run(cmd.Context(), opts)
		},
	}
	opts.Output.AddFlags(cmd)
	opts.Output.AddJSONFlag(cmd, "the same as --format json")
	cmd.Flags().BoolVar(&opts.Open, "open", false, "write report.html to DIR, or HTML to --output, and open it in a browser")
	cmd.ValidArgsFunction = document.CompleteRuns
	return cmd
}

// Run prints the report of a run, or of several.
func Run(ctx context.Context, opts Options) error {
	if opts.Open {
		if err := opts.page(); err != nil {
			return err
		}
	}
	err := write(opts)
	if err == nil && opts.Open {
		err = show(ctx, opts.Output.File)
	}
	return err
}

// write prints the report.
func write(opts Options) error {
	opts.Output.Samples = len(opts.Dirs) == 1
	if err := opts.Output.Check(); err != nil {
		return err
	}
	var inputs []provenance.Source
	var runs []result.Run
	var notes []string
	for _, dir := range opts.Dirs {
		input, missing, err := document.Load(dir)
		if err != nil {
			return err
		}
		inputs, runs, notes = append(inputs, input), append(runs, input.Run), append(notes, missing...)
	}
	if len(inputs) == 1 {
		return opts.Output.Print(opts.Streams, document.Build(inputs[0], notes))
	}
	if err := comparison.Combinable(runs); err != nil {
		return err
	}
	return opts.Output.Print(opts.Streams, comparison.Combine(inputs, notes))
}

// page completes the options of --open: the report is the HTML file of the run, unless they name another.
func (o *Options) page() error {
	switch {
	case o.Output.JSON || o.Output.Format != "" && o.Output.Format != "html":
		return usage.Errorf("--open shows HTML: leave out --json and --format")
	case o.Output.File == "" && len(o.Dirs) > 1:
		return usage.Errorf("--open with several runs: add --output FILE.html")
	case o.Output.File == "":
		if info, err := os.Stat(o.Dirs[0]); err != nil || !info.IsDir() {
			_, _, err = document.Load(o.Dirs[0]) // says what is wrong with the run, not with the file
			return err
		}
		o.Output.File = filepath.Join(o.Dirs[0], "report.html")
	}
	o.Output.Format = "html"
	return nil
}

// show opens a file with the program that the desktop has for it.
func show(ctx context.Context, path string) error {
	program, err := exec.LookPath("xdg-open")
	if err != nil {
		return fmt.Errorf("open %s: there is no xdg-open: install xdg-utils, or open the file in a browser", path)
	}
	if out, err := exec.CommandContext(ctx, program, path).CombinedOutput(); err != nil {
		return fmt.Errorf("open %s: %w: %s", path, errors.Join(err, context.Cause(ctx)), out)
	}
	return nil
}

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
	if _, err := os.Stat(filepath.Join(parent, rundir.RunFile)); err == nil {
		return fmt.Errorf("list runs: %s is a run: print it by `unnest report %s`", parent, parent)
	}
	for _, why := range unreadable {
		fmt.Fprintf(streams.Err, "warning: %s\n", page.Clean(why.Error()))
	}
	switch {
	case len(runs) == 0 && len(unreadable) > 0:
		return fmt.Errorf("list runs: no run in %s can be read", parent)
	case len(runs) == 0:
		fmt.Fprintf(streams.Err, "no runs in %s; measure one by `unnest bench quickstart`\n", parent)
		return nil
	}
	w := tabwriter.NewWriter(streams.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "RUN\tEXPERIMENT\tSTATE\tACCEL\tBEGUN")
	for _, r := range runs {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", page.Clean(r.Dir), page.Clean(r.Run.Experiment), page.Clean(string(r.Run.State)), page.Clean(r.Run.Accelerator),
			r.Run.Started.Local().Format("2006-01-02 15:04"))
	}
	return w.Flush()
}
