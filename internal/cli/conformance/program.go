// Package conformance is the command line of unnest-conformance: flags to options,
// outcomes to lines, and the exit code.
//
// What is checked belongs to package conformance.
package conformance

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"unnest/internal/check/cni"
	"unnest/internal/cli/console"
)

const usage = `usage:
  unnest-conformance [flags] LIST          check the plugins of a network configuration list
  unnest-conformance churn [flags] LIST    add and delete many pods
  unnest-conformance call-back ADDRESS     serve churn's --call-back on ADDRESS
`

// Main runs the command in args, which begin after the program's name, and
// returns the exit code: 0 all is well, 1 something failed, 2 wrong usage, 130
// interrupted.
func Main(args []string, stdout, stderr io.Writer) int {
	return console.Main("unnest-conformance", stderr, func(ctx context.Context) error { return dispatch(ctx, args, stdout) })
}

func dispatch(ctx context.Context, args []string, stdout io.Writer) error {
	if len(args) > 0 {
		switch args[0] {
		case "churn":
			return churn(ctx, args[1:], stdout)
		case "call-back":
			return callBack(ctx, args[1:])
		}
	}
	return check(ctx, args, stdout)
}

// flags are those of one command, with those that all have.
type flags struct {
	*flag.FlagSet
	network cni.Network
	peers   []cni.Peer
	path    string
}

func newFlags(name string) *flags {
	f := &flags{FlagSet: console.NewFlags(name)}
	path := os.Getenv("CNI_PATH")
	if path == "" {
		path = "/opt/cni/bin:/usr/lib/cni"
	}
	f.StringVar(&f.path, "cni-path", path, "`directories` of the plugins")
	f.DurationVar(&f.network.Timeout, "timeout", 0, "`time` that one run of a plugin may take (default 2m)")
	f.Func("peer", "whom every pod has to reach: `ADDRESS` (pinged), tcp://ADDRESS:PORT or udp://ADDRESS:PORT; may be repeated (default the gateways)",
		func(s string) error {
			p, err := cni.ParsePeer(s)
			f.peers = append(f.peers, p)
			return err
		})
	return f
}

// parse reads the flags and the network configuration list. It prints the help
// when that is what they ask for.
func (f *flags) parse(args []string, stdout io.Writer) error {
	switch err := f.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		_, printErr := fmt.Fprint(stdout, usage)
		f.SetOutput(stdout)
		f.PrintDefaults()
		return errors.Join(err, printErr)
	case err != nil:
		return fmt.Errorf("%w: %w", console.ErrUsage, err)
	}
	if f.NArg() != 1 {
		return fmt.Errorf("%w: want one network configuration list, got %d arguments", console.ErrUsage, f.NArg())
	}
	text, err := os.ReadFile(f.Arg(0))
	if err != nil {
		return fmt.Errorf("%w: read network configuration list: %w", console.ErrUsage, err)
	}
	f.network.List, f.network.Path = text, filepath.SplitList(f.path)
	return nil
}

func check(ctx context.Context, args []string, stdout io.Writer) error {
	f := newFlags("unnest-conformance")
	var o cni.Options
	f.Func("version", "`version` of the specification to check; may be repeated (default all that the plugins report)", func(s string) error {
		o.Versions = append(o.Versions, s)
		return nil
	})
	f.Func("run", "make the checks whose names match the `pattern` only", func(s string) (err error) {
		o.Only, err = regexp.Compile(s)
		return err
	})
	f.IntVar(&o.Parallel, "parallel", 8, "`number` of pods added at once")
	f.IntVar(&o.Kills, "kills", 5, "`number` of times that an ADD, and a DEL, is killed")
	f.IntVar(&o.Capacity, "capacity", 0, "`number` of pods that the network can hold; without it, it is never used up")
	f.IntVar(&o.SpareLinks, "spare-links", 0, "`number` of links that the plugin may keep for pods to come")
	f.StringVar(&o.CNITool, "cnitool", "", "`path` of the program cnitool, to be run as well")
	strict := f.Bool("strict", false, "fail also when what the specification recommends is not met")
	asJSON := f.Bool("json", false, "print JSON lines")
	list := f.Bool("list", false, "print the names of the checks and end")
	if err := f.parse(args, stdout); *list {
		_, err := fmt.Fprintln(stdout, strings.Join(cni.Checks(), "\n"))
		return err
	} else if err != nil {
		return err
	}
	o.Network, o.Peers = f.network, f.peers
	p := &printer{Printer: console.Printer{Out: stdout}, json: *asJSON}
	err := cni.Run(ctx, o, p.outcome)
	p.summary()
	switch {
	case err != nil:
		return err
	case p.Err != nil:
		return p.Err
	case p.count.Fail > 0, *strict && p.count.Unmet > 0:
		return console.ErrFailed
	}
	return nil
}

func churn(ctx context.Context, args []string, stdout io.Writer) error {
	f := newFlags("unnest-conformance churn")
	var o cni.ChurnOptions
	f.IntVar(&o.Pods, "pods", 10, "`number` of pods that live at the same time")
	f.IntVar(&o.Parallel, "parallel", 8, "`number` of pods that come and go at once")
	f.IntVar(&o.Rounds, "rounds", 1, "`number` of times that each pod is replaced")
	f.DurationVar(&o.Retry, "retry", 0, "`time` for which an ADD that may be tried again, or a DEL, is (default 1m)")
	f.StringVar(&o.CallBack, "call-back", "", "`ADDRESS:PORT` of a call-back server, which has to reach every pod")
	if err := f.parse(args, stdout); err != nil {
		return err
	}
	o.Network, o.Peers = f.network, f.peers
	seen, err := cni.Churn(ctx, o)
	if seen.Version != "" {
		p := console.Printer{Out: stdout}
		p.JSON(seen)
		err = errors.Join(err, p.Err)
	}
	if err == nil && len(seen.Failures) > 0 {
		return console.ErrFailed
	}
	return err
}

func callBack(ctx context.Context, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("%w: call-back wants one address to listen on", console.ErrUsage)
	}
	l, err := net.Listen("tcp", args[0])
	if err != nil {
		return err
	}
	return cni.ServeCalls(ctx, l)
}
