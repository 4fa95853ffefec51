// Package localhost is the command line of unnest-localhost: flags to options,
// outcomes to lines, and the exit code.
//
// What is asked belongs to package localhost, what is done in a fraction to its
// agent.
package localhost

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"regexp"
	"strings"

	"unnest/internal/check/localhost"
	"unnest/internal/check/localhost/agent"
	"unnest/internal/cli/console"
	"unnest/internal/testbed/place"
)

const usage = `usage:
  unnest-localhost check [flags] --fraction COMMAND --fraction COMMAND ...
      ask whether fractions behave as one loopback; each COMMAND, a shell line,
      starts an agent in one of them, such as
        --fraction "ip netns exec f1 unnest-localhost agent"
        --fraction "ssh guest nsenter --net=/run/netns/pod /root/unnest-localhost agent"
  unnest-localhost agent
      do what check orders: JSON lines on standard input and output
`

// Main runs the command in args, which begin after the program's name, and
// returns the exit code: 0 all is well, 1 something failed, 2 wrong usage, 130
// interrupted.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return console.Main("unnest-localhost", stderr, func(ctx context.Context) error { return dispatch(ctx, args, stdin, stdout) })
}

func dispatch(ctx context.Context, args []string, stdin io.Reader, stdout io.Writer) error {
	if len(args) == 0 {
		return fmt.Errorf("%w: want check or agent", console.ErrUsage)
	}
	switch command, rest := args[0], args[1:]; command {
	case "check":
		return check(ctx, rest, stdout)
	case "agent":
		if len(rest) > 0 {
			return fmt.Errorf("%w: agent has no arguments, got %q", console.ErrUsage, rest)
		}
		return agent.Obey(ctx, stdin, stdout)
	case "serve": // by agents only
		if len(rest) != 1 {
			return fmt.Errorf("%w: serve wants one order, got %d", console.ErrUsage, len(rest))
		}
		return agent.ServeOne(ctx, rest[0], stdin, stdout)
	case "help", "-h", "-help", "--help":
		return help(stdout, checkFlags(new(options)))
	default:
		return fmt.Errorf("%w: %q is none of check and agent", console.ErrUsage, command)
	}
}

// options are check's flags.
type options struct {
	localhost.Options
	json, list, strict bool
}

func checkFlags(o *options) *flag.FlagSet {
	f := console.NewFlags("unnest-localhost check")
	f.Func("fraction", "`command`, a shell line, that starts an agent in a fraction; repeat it for each", func(s string) error {
		if strings.TrimSpace(s) == "" {
			return errors.New("the command is empty")
		}
		o.Fractions = append(o.Fractions, localhost.Fraction{Place: place.Local{}, Args: []string{"sh", "-c", s}})
		return nil
	})
	pattern := func(to **regexp.Regexp) func(string) error {
		return func(s string) (err error) {
			*to, err = regexp.Compile(s)
			return err
		}
	}
	f.Func("run", "try the cases whose names match the `pattern` only, such as ^(tcp|udp)/ipv4/", pattern(&o.Only))
	f.Func("skip", "leave out the cases whose names match the `pattern`, such as ^bind/", pattern(&o.Skip))
	f.DurationVar(&o.Patience, "patience", 0, "`time` that what happens at once may take; all else may take ten times that (default 1s)")
	f.IntVar(&o.FirstPort, "first-port", 0, "first of up to 1000 `ports` that servers listen on (default 20000)")
	f.BoolVar(&o.strict, "strict", false, "fail also when a program is not there")
	f.BoolVar(&o.json, "json", false, "print JSON lines")
	f.BoolVar(&o.list, "list", false, "print the names of the cases and end")
	return f
}

func help(stdout io.Writer, f *flag.FlagSet) error {
	_, err := fmt.Fprint(stdout, usage, "\nflags of check:\n")
	f.SetOutput(stdout)
	f.PrintDefaults()
	return err
}

func check(ctx context.Context, args []string, stdout io.Writer) error {
	var o options
	f := checkFlags(&o)
	switch err := f.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return help(stdout, f)
	case err != nil:
		return fmt.Errorf("%w: %w", console.ErrUsage, err)
	case o.list:
		_, err := fmt.Fprintln(stdout, strings.Join(localhost.Names(), "\n"))
		return err
	case f.NArg() > 0:
		return fmt.Errorf("%w: %q is no flag: a command with blanks is quoted", console.ErrUsage, f.Arg(0))
	case len(o.Fractions) < 2:
		return fmt.Errorf("%w: %d fractions: at least 2 are needed to ask whether they are one", console.ErrUsage, len(o.Fractions))
	}
	p := &printer{Printer: console.Printer{Out: stdout}, json: o.json}
	err := localhost.Run(ctx, o.Options, p.outcome)
	if p.count != (counts{}) || err == nil {
		p.summary()
	}
	switch {
	case err != nil:
		return err
	case p.Err != nil:
		return p.Err
	case p.count == (counts{}):
		return fmt.Errorf("%w: no case matches", console.ErrUsage)
	case p.count.Fail > 0, o.strict && p.count.NotThere > 0:
		return console.ErrFailed
	}
	return nil
}
