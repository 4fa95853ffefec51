package cli

import (
	"cmp"
	"errors"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"unnest/internal/cli/bench"
	"unnest/internal/cli/compare"
	"unnest/internal/cli/doctor"
	"unnest/internal/cli/hostd"
	"unnest/internal/cli/plan"
	"unnest/internal/cli/report"
	"unnest/internal/cli/score"
	"unnest/internal/cli/terminal"
	"unnest/internal/cli/usage"
	"unnest/internal/cli/version"
	"unnest/internal/cli/vm"
)

// newRootCmd returns the whole command tree. A new command is one more line.
func newRootCmd(streams terminal.Streams) *cobra.Command {
	root := &cobra.Command{
		Use:           "unnest",
		Short:         "Measure what nested virtualization costs, and take the duplicated network layer away",
		Version:       version.Get().String(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(
		doctor.NewCmd(streams, nil),
		vm.NewCmd(streams),
		bench.NewCmd(streams, nil),
		report.NewCmd(streams, nil),
		score.NewCmd(streams, nil),
		compare.NewCmd(streams, nil),
		plan.NewCmd(streams, nil),
		hostd.NewCmd(streams, nil),
		version.NewCmd(streams),
	)
	equip(root, streams)
	return root
}

// equip gives the tree its streams and the same answer to wrong usage in every
// command.
func equip(root *cobra.Command, streams terminal.Streams) {
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.Err)
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetHelpCommand(newHelpCmd(root))
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usage.Wrap(explainFlag(cmd, err))
	})
	// A group such as "unnest vm" runs only to complain.
	root.SetUsageTemplate(strings.Replace(root.UsageTemplate(),
		"{{if .Runnable}}", "{{if and .Runnable (not .HasAvailableSubCommands)}}", 1))
	root.SetVersionTemplate("{{.Version}}\n")
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	checkArgs(root)
}

// typos is how many letters may be wrong in a name that is guessed.
const typos = 2

// checkArgs makes wrong arguments of cmd and of the commands below it a
// *usage.Error. A group shows its help when no command is named.
func checkArgs(cmd *cobra.Command) {
	if !cmd.Runnable() {
		cmd.SuggestionsMinimumDistance = typos
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return unknownCommand(cmd, args[0])
		}
		cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	} else {
		cmd.Args = checkLine(cmd.Args)
	}
	for _, c := range cmd.Commands() {
		checkArgs(c)
	}
}

// checkLine returns the check of the arguments and of the flags that need each
// other, which cobra would word the same but not mark.
func checkLine(check cobra.PositionalArgs) cobra.PositionalArgs {
	if check == nil {
		check = cobra.ArbitraryArgs
	}
	return func(cmd *cobra.Command, args []string) error {
		return usage.Wrap(cmp.Or(check(cmd, args), cmd.ValidateRequiredFlags(), cmd.ValidateFlagGroups()))
	}
}

// newHelpCmd returns "unnest help", which refuses topics that it does not know.
func newHelpCmd(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [command]",
		Short: "Explain a command",
		RunE: func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			if cmd == nil || err != nil || len(rest) > 0 {
				return unknownCommand(root, strings.Join(args, " "))
			}
			return cmd.Help()
		},
	}
}

// unknownCommand is the error for a name that is no command of group.
func unknownCommand(group *cobra.Command, name string) error {
	return usage.Errorf("unknown command %q%s", name, suggestion("", group.SuggestionsFor(name)))
}

// explainFlag words a mistake in the flags of cmd.
func explainFlag(cmd *cobra.Command, err error) error {
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok || unknown.GetSpecifiedShortnames() != "" {
		return err
	}
	// Cobra looks for names alike among commands only.
	names := &cobra.Command{SuggestionsMinimumDistance: typos}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		names.AddCommand(&cobra.Command{Use: f.Name, Run: func(*cobra.Command, []string) {}})
	})
	name := unknown.GetSpecifiedName()
	return usage.Errorf("unknown flag --%s%s", name, suggestion("--", names.SuggestionsFor(name)))
}

// suggestion asks whether one of names was meant.
func suggestion(prefix string, names []string) string {
	if len(names) == 0 {
		return ""
	}
	return ": did you mean " + prefix + strings.Join(names, " or "+prefix) + "?"
}
