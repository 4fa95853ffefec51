package vm

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/crypto/ssh"
	"golang.org/x/term"

	"unnest.io/unnest/internal/cli/terminal"
	"unnest.io/unnest/internal/cli/usage"
	"unnest.io/unnest/internal/testbed/guest"
	"unnest.io/unnest/internal/testbed/place"
)

func newSSHCmd(streams terminal.Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ssh NAME [COMMAND...]",
		Short: "Enter a guest, or run a command in it",
		Long: `Enter a guest, or run a command in it. If COMMAND is one argument, the guest's shell
runs it as a line; several arguments are the words of one command, as they are. The exit
code is that of the command.`,
		Example: `  unnest vm ssh node1
  unnest vm ssh node1 'hostname; uptime'
  unnest vm ssh node1 -- ls -l "/a name with spaces"`,
		Args: usage.Some("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return enterGuest(cmd.Context(), streams.Ungated(), args[0], words(args[1:]))
		},
	}
	cmd.ValidArgsFunction = func(cmd *cobra.Command, given []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(given) > 0 { // the command in the guest
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return completeGuests(cmd, given, word)
	}
	cmd.Flags().SetInterspersed(false) // flags after NAME are the command's
	return cmd
}

// words returns the command of the arguments after NAME: without a leading "--", and a
// single argument as a line for the shell, as ssh takes it.
func words(args []string) []string {
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	if len(args) == 1 {
		return []string{"sh", "-c", args[0]}
	}
	return args
}

func enterGuest(ctx context.Context, streams terminal.Streams, name string, command []string) (err error) {
	f, err := view()
	if err != nil {
		return explain(err, name)
	}
	n, err := f.Find(name)
	if errors.Is(err, guest.ErrDied) {
		return fmt.Errorf("%w: remove it by `unnest vm down %s`", err, name)
	}
	if err != nil {
		return err
	}
	connection, err := f.Reach(ctx, n)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, connection.Close()) }()
	if len(command) == 0 {
		return shell(ctx, streams, connection)
	}
	process, err := connection.Start(ctx, place.Command{Args: command, Stdin: streams.In, Stdout: streams.Out, Stderr: streams.Err})
	if err != nil {
		return err
	}
	return passOn(process.Wait())
}

// passOn turns the end of a command in a guest into that of this one: the same exit code, and no
// repetition of its standard error.
func passOn(err error) error {
	if exit, ok := errors.AsType[*place.ExitError](err); ok && exit.Code > 0 {
		return usage.Exit(exit.Code)
	} else if ok {
		exit.Stderr = ""
	}
	return err
}

// shell gives the terminal to a shell in the guest, until that or ctx ends.
func shell(ctx context.Context, streams terminal.Streams, connection *place.SSH) (err error) {
	stop := context.AfterFunc(ctx, func() { _ = connection.Close() })
	defer func() {
		if !stop() {
			err = context.Cause(ctx)
		}
	}()
	session, err := connection.Client().NewSession()
	if err != nil {
		return fmt.Errorf("open a shell on %s: %w", connection, err)
	}
	defer session.Close()
	session.Stdin, session.Stdout, session.Stderr = streams.In, streams.Out, streams.Err
	if in, ok := streams.In.(*os.File); ok && term.IsTerminal(int(in.Fd())) {
		saved, err := term.MakeRaw(int(in.Fd()))
		if err != nil {
			return fmt.Errorf("set up the terminal: %w", err)
		}
		defer func() { _ = term.Restore(int(in.Fd()), saved) }()
		width, height, err := term.GetSize(int(in.Fd()))
		if err != nil {
			width, height = 80, 24
		}
		if err := session.RequestPty(os.Getenv("TERM"), height, width, ssh.TerminalModes{}); err != nil {
			return fmt.Errorf("open a terminal on %s: %w", connection, err)
		}
	}
	if err := session.Shell(); err != nil {
		return fmt.Errorf("open a shell on %s: %w", connection, err)
	}
	err = session.Wait()
	if _, ended := errors.AsType[*ssh.ExitError](err); ended {
		return nil // the code of an interactive shell is that of its last command
	}
	return err
}
