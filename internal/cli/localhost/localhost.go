// Package localhost is the command line of unnest-localhost: it turns flags into options,
// outcomes into lines, and errors into the exit code.
//
// The cases belong to package check/localhost, what happens in a fraction to its agent.
package localhost

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"

	"unnest.io/unnest/internal/check"
	"unnest.io/unnest/internal/check/localhost"
	"unnest.io/unnest/internal/check/localhost/agent"
	"unnest.io/unnest/internal/cli/console"
	"unnest.io/unnest/internal/testbed/place"
)

const usage = `Check whether the fractions of a pod share one localhost.

usage:
  unnest-localhost check [flags] --fraction COMMAND --fraction COMMAND ...
      each COMMAND, a shell line, starts an agent in one fraction, for example
        --fraction "ip netns exec f1 unnest-localhost agent"
        --fraction "ssh guest ip netns exec f2 /root/unnest-localhost agent"
  unnest-localhost agent
      execute the requests of check: JSON lines on standard input and output

flags of check:
`

// Main runs the command in args, without the name of the binary, and returns the exit
// code: 0 success, 1 a case failed, 2 wrong usage, 130 interrupted.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return console.Main("unnest-localhost", stdout, stderr, func(ctx context.Context, stdout io.Writer) error { return dispatch(ctx, args, stdin, stdout) })
}

func dispatch(ctx context.Context, args []string, stdin io.Reader, stdout io.Writer) error {
	if len(args) == 0 {
		return fmt.Errorf("%w: want the command check or agent", console.ErrUsage)
	}
	switch command, rest := args[0], args[1:]; command {
	case "check":
		return checkFractions(ctx, rest, stdout)
	case "agent":
		if len(rest) > 0 {
			return fmt.Errorf("%w: agent: want no arguments, got %q", console.ErrUsage, rest)
		}
		return agent.Execute(ctx, stdin, stdout)
	case "serve": // started by agents only
		if len(rest) != 1 {
			return fmt.Errorf("%w: serve: want one request, got %d", console.ErrUsage, len(rest))
		}
		return agent.RunServer(ctx, rest[0], stdin, stdout)
	case "help", "-h", "-help", "--help":
		return console.Help(checkFlags(new(options)), usage, stdout)
	default:
		return fmt.Errorf("%w: unknown command %q: want check or agent", console.ErrUsage, command)
	}
}

// options are the flags of check.
type options struct {
	localhost.Options
	json, list, strict bool
}

func checkFlags(o *options) *flag.FlagSet {
	f := console.NewFlags("unnest-localhost check")
	f.Func("fraction", "`command`, a shell line, that starts an agent in a fraction; repeat it for each fraction", func(s string) error {
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
	f.Func("run", "run only the cases whose names match the `pattern`, for example ^(tcp|udp)/ipv4/", pattern(&o.Only))
	f.Func("skip", "skip the cases whose names match the `pattern`, for example ^bind/", pattern(&o.Skip))
	f.Func("patience", "`time` limit of immediate events; other events may take ten times as long (default 1s)", console.Time(&o.Patience))
	f.Func("first-port", "first of up to 1000 `ports` on which servers listen (default 20000)", console.Count(&o.FirstPort, 1))
	f.BoolVar(&o.Large, "large", false, "run the cases of load in full size: 10,000 connections, 100,000 short ones, bursts of 20,000 datagrams")
	f.BoolVar(&o.strict, "strict", false, "fail also if a fraction lacks the tool that a case needs")
	f.BoolVar(&o.json, "json", false, "print JSON lines")
	f.BoolVar(&o.list, "list", false, "print the names of the cases and exit")
	return f
}

func checkFractions(ctx context.Context, args []string, stdout io.Writer) error {
	var o options
	f := checkFlags(&o)
	switch err := console.Parse(f, args, usage, stdout); {
	case err != nil:
		return err
	case o.list:
		_, err := fmt.Fprintln(stdout, strings.Join(localhost.Names(), "\n"))
		return err
	case f.NArg() > 0:
		return fmt.Errorf("%w: unexpected argument %q: quote a command that has blanks", console.ErrUsage, f.Arg(0))
	case len(o.Fractions) < 2:
		return fmt.Errorf("%w: want at least 2 fractions, got %d", console.ErrUsage, len(o.Fractions))
	}
	p := &printer{console.Printer{Out: stdout, JSON: o.json}, map[localhost.Verdict]int{}}
	err := localhost.Run(ctx, o.Options, p.outcome)
	if len(p.count) > 0 || err == nil {
		p.summary()
	}
	if err == nil && len(p.count) == 0 {
		err = fmt.Errorf("%w: no case matches --run and --skip", console.ErrUsage)
	}
	return p.End(err, p.count[localhost.Fail] > 0 || o.strict && p.count[localhost.NotThere] > 0)
}

// Line is an outcome as JSON.
type Line struct {
	Case     string            `json:"case"`
	Verdict  localhost.Verdict `json:"verdict"`
	Error    string            `json:"error,omitempty"`
	NotThere string            `json:"not_there,omitempty"` // which tool, and where
	Duration time.Duration     `json:"duration_ns"`
}

// counts are the numbers of outcomes by verdict.
type counts struct {
	Pass     int `json:"pass"`
	Fail     int `json:"fail"`
	NotThere int `json:"not_there"`
}

// printer prints and counts outcomes.
type printer struct {
	console.Printer
	count map[localhost.Verdict]int
}

func (p *printer) outcome(o localhost.Outcome) {
	l := Line{Case: o.Case, Verdict: o.Verdict(), Error: check.OneLine(o.Err), NotThere: o.NotThere, Duration: o.Duration}
	p.count[l.Verdict]++
	remark := l.Error + l.NotThere
	if remark != "" {
		remark = "  " + remark
	}
	p.Line(l, "%-9s %-70s %6.2fs%s", l.Verdict, l.Case, l.Duration.Seconds(), remark)
}

func (p *printer) summary() {
	c := counts{p.count[localhost.Pass], p.count[localhost.Fail], p.count[localhost.NotThere]}
	p.Line(map[string]counts{"summary": c}, "%d passed, %d failed, %d not there", c.Pass, c.Fail, c.NotThere)
}
