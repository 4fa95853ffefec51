// Package plugin is the frame of our CNI plugins: the binary that runs the plugin by
// whose name it is called, the steps of an ADD with their rollback, and the error
// codes of the CNI specification (section 5, "Error").
//
// What a plugin does belongs to the plugin's own package.
package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
)

// versions are the versions of the CNI specification that the plugins support.
var versions = version.PluginSupports("0.3.1", "0.4.0", "1.0.0", "1.1.0")

// errUnknownName is wrapped when the binary is called by a name that is not a plugin's.
var errUnknownName = errors.New("unknown CNI plugin")

// Command is one command of a plugin. It gives up when ctx ends, an ADD after its
// rollback.
type Command func(ctx context.Context, args *skel.CmdArgs) error

// Plugin is one CNI plugin.
type Plugin struct {
	Name  string
	About string // printed when the plugin is called by hand

	Add, Del, Check, GC, Status Command
}

// Main runs the plugin whose name is the last part of the path argv0, for the
// command in the environment. It returns the exit code. As the specification
// requires, an error is JSON on the standard output; an unknown name is also
// reported on stderr.
func Main(argv0 string, stderr io.Writer, plugins ...Plugin) int {
	// When the runtime goes away, the process must still clean up.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // writes fail in its place; IPAM plugins would inherit Ignore
	err := run(ctx, filepath.Base(argv0), plugins)
	if err == nil {
		return 0
	}
	if errors.Is(err, errUnknownName) {
		fmt.Fprintln(stderr, err)
	}
	failure := (*types.Error)(nil)
	if !errors.As(err, &failure) {
		failure = types.NewError(types.ErrInvalidEnvironmentVariables, err.Error(), "")
	}
	_ = failure.Print() // the exit code reports the error too
	return 1
}

func run(ctx context.Context, name string, plugins []Plugin) error {
	var names []string
	for _, p := range plugins {
		if p.Name != name {
			names = append(names, p.Name)
			continue
		}
		if err := skel.PluginMainFuncsWithError(p.funcs(ctx), versions, p.About); err != nil {
			return err
		}
		return nil
	}
	return fmt.Errorf("%w %q; install this binary, or a link to it, as %s", errUnknownName, name, strings.Join(names, " or "))
}

// funcs are the commands with the error codes of the specification.
func (p Plugin) funcs(ctx context.Context) skel.CNIFuncs {
	with := func(code func(error) error, command Command) func(*skel.CmdArgs) error {
		return func(args *skel.CmdArgs) error { return code(command(ctx, args)) }
	}
	return skel.CNIFuncs{
		Add: with(coded, p.Add), Del: with(coded, p.Del), Check: with(coded, p.Check), GC: with(coded, p.GC),
		Status: with(unavailable, p.Status),
	}
}
