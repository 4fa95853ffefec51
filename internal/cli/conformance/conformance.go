// Package conformance is the command line of unnest-conformance: it turns flags into
// options, outcomes into lines, and errors into the exit code.
//
// The checks belong to package check/cni.
package conformance

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/containernetworking/cni/libcni"

	"unnest.io/unnest/internal/check"
	"unnest.io/unnest/internal/check/cni"
	"unnest.io/unnest/internal/cli/console"
)

const usage = `Check CNI plugins against the specification, or under load.

usage:
  unnest-conformance [flags] LIST
      check the plugins of a network configuration list
  unnest-conformance churn [flags] LIST
      add and delete many pods

flags:
`

// Main runs the command in args, without the name of the binary, and returns the exit
// code: 0 success, 1 a check failed, 2 wrong usage, 130 interrupted.
func Main(args []string, stdout, stderr io.Writer) int {
	return console.Main("unnest-conformance", stdout, stderr, func(ctx context.Context, stdout io.Writer) error { return dispatch(ctx, args, stdout) })
}

func dispatch(ctx context.Context, args []string, stdout io.Writer) error {
	if len(args) > 0 && args[0] == "churn" {
		return churn(ctx, args[1:], stdout)
	}
	return checkPlugins(ctx, args, stdout)
}

// flags are those of one command, with those of all commands.
type flags struct {
	*flag.FlagSet
	network cni.Network
	path    string
}

func newFlags(name string) *flags {
	f := &flags{FlagSet: console.NewFlags(name)}
	path := cmp.Or(os.Getenv("CNI_PATH"), "/opt/cni/bin:/usr/lib/cni")
	f.StringVar(&f.path, "cni-path", path, "`directories` of the plugins")
	f.Func("timeout", "`time` limit of one plugin call (default 2m)", console.Time(&f.network.Timeout))
	f.Func("wait", "`time` limit until a pod reaches its peers, and until the links of a deleted pod are gone (default 1m)", console.Time(&f.network.Wait))
	f.Func("peer", "an address that every pod must reach: `ADDRESS` (pinged), tcp://ADDRESS:PORT or udp://ADDRESS:PORT; may be repeated (default the gateways)",
		func(s string) error {
			p, err := cni.ParsePeer(s)
			f.network.Peers = append(f.network.Peers, p)
			return err
		})
	return f
}

// readNetwork reads the network configuration list that the arguments name.
func (f *flags) readNetwork() error {
	if f.NArg() != 1 {
		return fmt.Errorf("%w: want one network configuration list, got %d arguments", console.ErrUsage, f.NArg())
	}
	text, err := os.ReadFile(f.Arg(0))
	if err != nil {
		return fmt.Errorf("%w: read network configuration list: %w", console.ErrUsage, err)
	}
	if _, err := libcni.ConfListFromBytes(text); err != nil {
		return fmt.Errorf("%w: read network configuration list %s: %w", console.ErrUsage, f.Arg(0), err)
	}
	f.network.List, f.network.Path = text, filepath.SplitList(f.path)
	return nil
}

func checkPlugins(ctx context.Context, args []string, stdout io.Writer) error {
	f := newFlags("unnest-conformance")
	var o cni.Options
	f.Func("version", "`version` of the specification to check; may be repeated (default all that the plugins report)", func(s string) error {
		o.Versions = append(o.Versions, s)
		return nil
	})
	f.Func("run", "make only the checks whose names match the `pattern`", func(s string) (err error) {
		o.Only, err = regexp.Compile(s)
		return err
	})
	f.Func("parallel", "`number` of pods added at the same time (default 8)", console.Count(&o.Parallel, 1))
	f.Func("kills", "kill this `number` of ADDs and DELs (default 5)", console.Count(&o.Kills, 1))
	f.Func("capacity", "`number` of pods that the network can hold (default unknown: skip the checks that fill it)", console.Count(&o.Capacity, 0))
	f.Func("spare-links", "`number` of links that the plugin may keep for later pods (default 0)", console.Count(&o.SpareLinks, 0))
	f.StringVar(&o.CNITool, "cnitool", "", "`path` of cnitool, to check the plugins with it too")
	strict := f.Bool("strict", false, "fail also if the plugins do not meet a recommendation of the specification")
	p := &printer{Printer: console.Printer{Out: stdout}, count: map[cni.Verdict]int{}}
	f.BoolVar(&p.JSON, "json", false, "print JSON lines")
	list := f.Bool("list", false, "print the names of the checks and exit")
	if err := console.Parse(f.FlagSet, args, usage, stdout); err != nil {
		return err
	}
	if *list {
		_, err := fmt.Fprintln(stdout, strings.Join(cni.Checks(), "\n"))
		return err
	}
	if err := f.readNetwork(); err != nil {
		return err
	}
	o.Network = f.network
	err := cni.Run(ctx, o, p.outcome)
	p.summary()
	return p.End(err, p.count[cni.Fail] > 0 || *strict && p.count[cni.Unmet] > 0)
}

func churn(ctx context.Context, args []string, stdout io.Writer) error {
	f := newFlags("unnest-conformance churn")
	var o cni.ChurnOptions
	f.Func("pods", "`number` of pods that exist at the same time (default 10)", console.Count(&o.Pods, 1))
	f.Func("parallel", "`number` of pods added or deleted at the same time (default 8)", console.Count(&o.Parallel, 1))
	o.Rounds = 1
	f.Func("rounds", "`number` of times that each pod is replaced (default 1)", console.Count(&o.Rounds, 0))
	f.Func("retry", "`time` for which an ADD or DEL is retried (default 1m)", console.Time(&o.Retry))
	if err := console.Parse(f.FlagSet, args, usage, stdout); err != nil {
		return err
	}
	if err := f.readNetwork(); err != nil {
		return err
	}
	o.Network = f.network
	result, err := cni.Churn(ctx, o)
	p := console.Printer{Out: stdout, JSON: true}
	if result.Version != "" {
		p.Line(result, "")
	}
	return p.End(err, len(result.Failures) > 0)
}

// Line is an outcome as JSON.
type Line struct {
	Check    string        `json:"check"`
	Version  string        `json:"version,omitempty"`
	Section  string        `json:"section"`
	Level    cni.Level     `json:"level"`
	Verdict  cni.Verdict   `json:"verdict"`
	Error    string        `json:"error,omitempty"`
	Reason   string        `json:"reason,omitempty"` // why it is not applicable
	Duration time.Duration `json:"duration_ns"`
}

// counts are the numbers of outcomes by verdict.
type counts struct {
	Pass          int `json:"pass"`
	Fail          int `json:"fail"`
	Unmet         int `json:"unmet"`
	NotApplicable int `json:"not_applicable"`
}

// printer prints and counts outcomes.
type printer struct {
	console.Printer
	count map[cni.Verdict]int
}

func (p *printer) outcome(o cni.Outcome) {
	l := Line{Check: o.Check, Version: o.Version, Section: o.Section, Level: o.Level,
		Verdict: o.Verdict(), Error: check.OneLine(o.Err), Reason: o.NotApplicable, Duration: o.Duration}
	p.count[l.Verdict]++
	p.Line(l, "%-5s %-5s %-26s %6.2fs  %s", l.Verdict, l.Version, l.Check, l.Duration.Seconds(), remark(l))
}

// remark is the reason, the error, or the section of the specification.
func remark(l Line) string {
	switch {
	case l.Reason != "":
		return l.Reason
	case l.Error != "":
		return fmt.Sprintf("%s (%s)", l.Error, l.Section)
	}
	return l.Section
}

func (p *printer) summary() {
	c := counts{p.count[cni.Pass], p.count[cni.Fail], p.count[cni.Unmet], p.count[cni.NotApplicable]}
	p.Line(map[string]counts{"summary": c}, "%d passed, %d failed, %d recommendations unmet, %d not applicable",
		c.Pass, c.Fail, c.Unmet, c.NotApplicable)
}
