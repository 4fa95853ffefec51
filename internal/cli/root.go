package cli

import (
	"cmp"
	"errors"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"unnest.io/unnest/internal/cli/advise"
	"unnest.io/unnest/internal/cli/bench"
	"unnest.io/unnest/internal/cli/clean"
	"unnest.io/unnest/internal/cli/cluster"
	"unnest.io/unnest/internal/cli/compare"
	"unnest.io/unnest/internal/cli/doctor"
	"unnest.io/unnest/internal/cli/hostd"
	"unnest.io/unnest/internal/cli/papers"
	"unnest.io/unnest/internal/cli/plan"
	"unnest.io/unnest/internal/cli/report"
	"unnest.io/unnest/internal/cli/score"
	"unnest.io/unnest/internal/cli/terminal"
	"unnest.io/unnest/internal/cli/usage"
	"unnest.io/unnest/internal/cli/version"
	"unnest.io/unnest/internal/cli/vm"
)

// newRootCmd returns the command tree. A new command is one more line in a group, which
// orders the help as the product does.
func newRootCmd(streams terminal.Streams) *cobra.Command {
	root := &cobra.Command{
		Use:           "unnest",
		Short:         "Measure, remove and plan what nested virtualization costs",
		Version:       version.Get().String(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	progress := &terminal.Gate{Writer: streams.Err}
	streams.Err = progress
	var quiet bool
	root.PersistentFlags().BoolVarP(&quiet, "quiet", "q", false, "print results and errors only; services still log")
	root.PersistentFlags().Bool("no-color", false, "print without colours, as with NO_COLOR=1") // see System
	root.PersistentPreRun = func(*cobra.Command, []string) { progress.Shut = quiet }
	root.AddCommand(version.NewCmd(streams))
	for _, g := range []struct {
		title    string
		commands []*cobra.Command
	}{
		{"Measure:", []*cobra.Command{
			bench.NewCmd(streams, bench.Run), report.NewCmd(streams, report.Run), report.NewRunsCmd(streams), advise.NewCmd(streams, advise.Run), compare.NewCmd(streams, compare.Run), score.NewCmd(streams, score.Run), papers.NewCmd(streams, papers.Run),
		}},
		{"Connect:", []*cobra.Command{hostd.NewCmd(streams, hostd.Run)}},
		{"Plan:", []*cobra.Command{plan.NewCmd(streams, plan.Run)}},
		{"Set up:", []*cobra.Command{
			doctor.NewCmd(streams, doctor.Run), vm.NewCmd(streams), cluster.NewCmd(streams), clean.NewCmd(streams, clean.Run),
		}},
	} {
		root.AddGroup(&cobra.Group{ID: g.title, Title: g.title})
		for _, c := range g.commands {
			c.GroupID = g.title
		}
		root.AddCommand(g.commands...)
	}
	equip(root, streams)
	return root
}

// equip sets the streams of the tree, and makes every command report wrong usage in the
// same way.
func equip(root *cobra.Command, streams terminal.Streams) {
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.Err)
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetHelpCommand(newHelpCmd(root))
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usage.Wrap(explainFlag(cmd, err))
	})
	root.SetUsageTemplate(strings.NewReplacer(
		"{{if .Runnable}}", `{{if and .Runnable (not (index .Annotations "group"))}}`,
		".FlagUsages", ".FlagUsagesWrapped "+strconv.Itoa(helpWidth)).Replace(root.UsageTemplate()))
	root.SetVersionTemplate("{{.Version}}\n")
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	foldHelp(root)
	checkArgs(root)
}

// checkArgs makes wrong arguments of cmd and of its subcommands a *usage.Error. Shells complete the choices of their
// flags. A group without a subcommand prints its help.
func checkArgs(cmd *cobra.Command) {
	usage.CompleteChoices(cmd)
	if !cmd.Runnable() { // it becomes runnable here, to report unknown commands
		cmd.Annotations = map[string]string{"group": "yes"}
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

// checkLine returns a check of the arguments and of required flags, which returns a
// *usage.Error where cobra returns a plain one.
func checkLine(check cobra.PositionalArgs) cobra.PositionalArgs {
	if check == nil {
		check = cobra.ArbitraryArgs
	}
	return func(cmd *cobra.Command, args []string) error {
		if err := cmd.ValidateFlagGroups(); err != nil { // its text is for programmers
			_, given, _ := strings.Cut(err.Error(), "; ")
			given = strings.Trim(strings.TrimSuffix(given, " were all set"), "[]")
			return usage.Errorf("--%s: give only one", strings.ReplaceAll(given, " ", " and --"))
		}
		return usage.Wrap(cmp.Or(check(cmd, args), cmd.ValidateRequiredFlags()))
	}
}

// newHelpCmd returns "unnest help", which refuses unknown topics.
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

func unknownCommand(group *cobra.Command, name string) error {
	return usage.Errorf("unknown command %q%s", name, usage.SuggestCommand(group, name, ""))
}

// wanted says what flags take, by their type. The errors of these types are those of Go's parsers.
var wanted = map[string]string{"int": "a whole number", "float64": "a number", "bool": "true or false", "duration": "a time such as 30s or 5m"}

// explainFlag suggests a flag in the error for an unknown one of cmd. In the error for a wrong value, it says what the flag takes.
func explainFlag(cmd *cobra.Command, err error) error {
	if invalid, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		cause := invalid.Unwrap()
		if want := wanted[invalid.GetFlag().Value.Type()]; want != "" {
			cause = errors.New("want " + want)
		}
		return usage.Errorf("--%s %q: %w", invalid.GetFlag().Name, invalid.GetValue(), cause)
	}
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok || unknown.GetSpecifiedShortnames() != "" {
		return err
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	name := unknown.GetSpecifiedName()
	return usage.Errorf("unknown flag --%s%s", name, usage.Suggest(name, "--", names))
}

// helpWidth is what every help fits, in columns.
const helpWidth = 80

// foldHelp folds the texts of cmd and of its subcommands.
func foldHelp(cmd *cobra.Command) {
	cmd.Long = terminal.Fold(cmd.Long, helpWidth)
	for _, c := range cmd.Commands() {
		foldHelp(c)
	}
}
