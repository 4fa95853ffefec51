// Package doctor is the command "unnest doctor": it prints the checks of package
// testbed/doctor.
package doctor

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"unnest.io/unnest/internal/cli/terminal"
	"unnest.io/unnest/internal/cli/usage"
	"unnest.io/unnest/internal/testbed/doctor"
	"unnest.io/unnest/internal/testbed/image"
)

// Options are what the command line asks for.
type Options struct {
	Streams terminal.Streams
	Probes  doctor.Probes
	Run     func(command []string) error // runs a command to its end
	JSON    bool
	Fix     bool          // print the command that installs what is missing
	Yes     bool          // and run it
	Noise   time.Duration // measure the machine's noise for so long instead; 0: do not
}

// NewCmd returns the command, which calls run.
func NewCmd(streams terminal.Streams, run func(context.Context, Options) error) *cobra.Command {
	opts := Options{Streams: streams}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check this machine, and say how to fix what is missing",
		Long: `Check what this machine can do for nested virtualization and its networks, and say
how to fix what is missing.

Each line is one capability: its state, which is ok, limited (works, but slower or
smaller than possible) or missing; what was found; and how to fix it. The exit code
is 0 if the machine has everything that the quick start requires, else 1.

With --fix, the command prints the command that installs the missing packages, and
with --yes it runs it. What no package provides stays as it is.

With --noise, the command instead measures for a minute what else runs on this machine,
and says what differences an experiment can show on it.`,
		Args: usage.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if opts.Yes && !opts.Fix {
				return usage.Errorf("--yes without --fix: add --fix")
			}
			opts.Probes = doctor.System(image.CacheDir())
			opts.Run = func(command []string) error { return install(streams, command) }
			return run(cmd.Context(), opts)
		},
	}
	cmd.Flags().BoolVar(&opts.JSON, "json", false, "print an array of {name, state, found, remedy, required}, or with --noise an object")
	cmd.Flags().BoolVar(&opts.Fix, "fix", false, "print the command that installs the missing packages")
	cmd.Flags().BoolVar(&opts.Yes, "yes", false, "with --fix: run that command")
	cmd.Flags().Var(usage.Time(&opts.Noise), "noise", "measure for `TIME` what disturbs measurements on this machine (default 1m)")
	cmd.Flags().Lookup("noise").NoOptDefVal = time.Minute.String()
	cmd.MarkFlagsMutuallyExclusive("fix", "json")
	cmd.MarkFlagsMutuallyExclusive("fix", "noise")
	return cmd
}

// Run checks the host and prints the results.
func Run(ctx context.Context, opts Options) error {
	if opts.Noise > 0 {
		return measureNoise(ctx, opts.Streams, opts.Noise, opts.JSON)
	}
	checks := doctor.Examine(ctx, opts.Probes)
	if err := ctx.Err(); err != nil {
		return err
	}
	if opts.Fix {
		return fix(ctx, opts, checks)
	}
	printChecks := printTable
	if opts.JSON {
		printChecks = printJSON
	}
	if err := printChecks(opts.Streams, checks); err != nil {
		return fmt.Errorf("print checks: %w", err)
	}
	return lacks(doctor.Unmet(checks))
}

// lacks is the error for required checks that are missing.
func lacks(unmet []string) error {
	if len(unmet) == 0 {
		return nil
	}
	return fmt.Errorf("this machine lacks what the quick start requires: %s", strings.Join(unmet, ", "))
}

// fix prints the command that installs the packages that checks miss or, with --yes, runs it
// and examines the machine again.
func fix(ctx context.Context, opts Options, checks []doctor.Check) error {
	packages := doctor.Packages(checks)
	if len(packages) == 0 {
		fmt.Fprintln(opts.Streams.Err, "no package is missing")
		return lacks(doctor.Unmet(checks))
	}
	if _, err := opts.Probes.LookPath("apt-get"); err != nil {
		return fmt.Errorf("no apt-get in PATH: install what provides Debian's packages %s", strings.Join(packages, " "))
	}
	command := append([]string{"apt-get", "install", "--yes", "--no-install-recommends"}, packages...)
	if !opts.Yes {
		_, err := fmt.Fprintln(opts.Streams.Out, strings.Join(command, " "))
		return err
	}
	if !opts.Probes.Root {
		return fmt.Errorf("not root: run sudo unnest doctor --fix --yes")
	}
	for i, command := range [][]string{{"apt-get", "-qq", "update"}, command} {
		fmt.Fprintln(opts.Streams.Err, strings.Join(command, " "))
		err := opts.Run(command)
		if err = cmp.Or(context.Cause(ctx), err); err != nil && (i > 0 || ctx.Err() != nil) {
			return fmt.Errorf("%s: %w", strings.Join(command, " "), err)
		} else if err != nil { // sources of other packages may fail
			fmt.Fprintf(opts.Streams.Err, "warning: %s: %v: going on with the lists of packages that are there\n", strings.Join(command, " "), err)
		}
	}
	checks = doctor.Examine(ctx, opts.Probes)
	return cmp.Or(context.Cause(ctx), lacks(doctor.Unmet(checks)))
}

// install runs a command of apt, in a process group of its own: a signal to unnest does not leave a
// package half installed, which would be in the way of every later apt-get.
func install(streams terminal.Streams, command []string) error {
	cmd := exec.Command(command[0], append(command[1:], "-o", "DPkg::Lock::Timeout=300")...)
	cmd.Stdout, cmd.Stderr = streams.Err, streams.Ungated().Err
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd.Run()
}

func printJSON(streams terminal.Streams, checks []doctor.Check) error {
	enc := json.NewEncoder(streams.Out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(checks)
}

// row is one check in the table.
type row struct {
	cells  [4]string
	colour string // of the state; empty: none
	remedy string
}

// tableWidth is what the table fits, in columns, unless a word is longer.
const tableWidth = 80

// printTable prints one row per check and, below it, how to fix it.
func printTable(streams terminal.Streams, checks []doctor.Check) error {
	rows := []row{{cells: [...]string{"CHECK", "STATE", "NEED", "FOUND"}}}
	for _, c := range checks {
		r := row{cells: [...]string{c.Name, string(c.State), "optional", strings.ReplaceAll(c.Found, "\n", " ")}, remedy: c.Remedy}
		if c.Required {
			r.cells[2] = "required"
		}
		if streams.Colour {
			r.colour = colourOf(c)
		}
		rows = append(rows, r)
	}
	var widths [3]int // of all columns but the last
	for _, r := range rows {
		for i := range widths {
			widths[i] = max(widths[i], utf8.RuneCountInString(r.cells[i]))
		}
	}
	last := widths[0] + widths[1] + widths[2] + 6 // where that one begins
	var text strings.Builder
	for _, r := range rows {
		state := fmt.Sprintf("%-*s", widths[1], r.cells[1])
		if r.colour != "" {
			state = r.colour + r.cells[1] + reset + state[len(r.cells[1]):]
		}
		fmt.Fprintf(&text, "%-*s  %s  %-*s  %s\n", widths[0], r.cells[0], state, widths[2], r.cells[2], folded(r.cells[3], last))
		if r.remedy != "" {
			fmt.Fprintf(&text, "  → %s\n", folded(r.remedy, 4))
		}
	}
	_, err := fmt.Fprint(streams.Out, text.String())
	return err
}

// folded folds a text that begins in a column of the table.
func folded(text string, column int) string {
	return strings.ReplaceAll(terminal.Fold(text, tableWidth-column), "\n", "\n"+strings.Repeat(" ", column))
}

// The colours of states, as ECMA-48 select graphic rendition.
const (
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
	red    = "\x1b[31m"
	reset  = "\x1b[0m"
)

func colourOf(c doctor.Check) string {
	switch {
	case c.State == doctor.OK:
		return green
	case c.State == doctor.Missing && c.Required:
		return red
	}
	return yellow
}
