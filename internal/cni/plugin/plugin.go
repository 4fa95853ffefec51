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
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"unnest.io/unnest/internal/cni/hostclient"
	"unnest.io/unnest/internal/cni/netconf"
	"unnest.io/unnest/internal/cni/podnic"
)

var versions = version.PluginSupports("0.3.1", "0.4.0", "1.0.0", "1.1.0")

// Versions returns the versions of the CNI specification that the plugins support.
func Versions() []string { return versions.SupportedVersions() }

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

// Step is one step of an ADD.
type Step struct {
	Name string
	Do   func(ctx context.Context) error
	// Undo rolls the step back, whether it was done, done in part or had no effect.
	// It is nil when there is nothing to roll back.
	Undo func(ctx context.Context) error
}

// undoTime bounds the rollback of one step. It applies also after the ADD's own
// context has ended.
const undoTime = time.Minute

// RunSteps runs the steps in order. When one fails, RunSteps rolls it and all before
// it back in reverse order, and joins the errors. If log is not nil, RunSteps writes
// one line to it, with the attributes about and the duration of each step.
func RunSteps(ctx context.Context, steps []Step, log io.Writer, about func() []slog.Attr) error {
	var times []slog.Attr
	var failed error
	for i, s := range steps {
		begin := time.Now()
		err := s.Do(ctx)
		times = append(times, slog.Duration(s.Name, time.Since(begin)))
		if err != nil {
			failed = errors.Join(fmt.Errorf("%s: %w", s.Name, err), undo(ctx, steps[:i+1]))
			break
		}
	}
	if log != nil {
		level := slog.LevelInfo
		if failed != nil {
			level, times = slog.LevelError, append(times, slog.Any("error", failed))
		}
		slog.New(slog.NewTextHandler(log, nil)).LogAttrs(ctx, level, "add", append(about(), times...)...)
	}
	return failed
}

func undo(ctx context.Context, done []Step) error {
	var all error
	for i := len(done) - 1; i >= 0; i-- {
		if done[i].Undo == nil {
			continue
		}
		bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
		if err := done[i].Undo(bound); err != nil {
			all = errors.Join(all, fmt.Errorf("undo %s: %w", done[i].Name, err))
		}
		cancel()
	}
	return all
}

// Invalid gives err the code of a configuration that has to be changed.
func Invalid(err error) error {
	return types.NewError(types.ErrInvalidNetworkConfig, err.Error(), "")
}

// ConfigError gives an error of package netconf its code.
func ConfigError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, netconf.ErrDecode):
		return types.NewError(types.ErrDecodingFailure, err.Error(), "")
	case errors.Is(err, netconf.ErrArgs):
		return types.NewError(types.ErrInvalidEnvironmentVariables, err.Error(), "")
	}
	return Invalid(err)
}

// TooOld is the error for a feature that the host daemon does not support.
func TooOld(feature string) error {
	return Invalid(fmt.Errorf("host daemon does not support %s; update unnest hostd on the host", feature))
}

// coded gives the error of an ADD, DEL, CHECK or GC the code that tells the runtime
// whether to retry.
func coded(err error) error {
	if err == nil {
		return nil
	}
	code := types.ErrInternal
	if r := (*hostclient.Refusal)(nil); errors.As(err, &r) {
		code = refusalCode(r)
	} else if e := (*types.Error)(nil); errors.As(err, &e) && e.Code != types.ErrUnknown && e.Code != types.ErrUnknownContainer {
		code = e.Code // ours or an IPAM plugin's, but an IPAM plugin cannot know whether a DEL is needed
	} else if errors.Is(err, podnic.ErrNotPlugged) || errors.Is(err, podnic.ErrVLANTaken) || errors.Is(err, unix.ENODEV) {
		code = types.ErrTryAgainLater // ENODEV: the NIC was unplugged during the ADD
	}
	return withCode(code, err)
}

// refusalCode is 11 when the same request may succeed later, 7 when it cannot
// succeed without a change of the configuration.
func refusalCode(r *hostclient.Refusal) uint {
	switch r.Status.Code() {
	case codes.Unavailable, codes.DeadlineExceeded, codes.ResourceExhausted, codes.Aborted, codes.Canceled:
		return types.ErrTryAgainLater
	case codes.InvalidArgument, codes.PermissionDenied, codes.Unauthenticated, codes.Unimplemented:
		return types.ErrInvalidNetworkConfig
	}
	return types.ErrInternal
}

// unavailable gives the error of a STATUS its code. 50: no ADD can succeed now. 51:
// in addition, existing pods may lose connectivity. That is so only when the daemon
// answers but cannot reach the guest's VMM: it can then not repair the pods' NICs on
// the host. Without a daemon the NICs keep working.
func unavailable(err error) error {
	if err == nil {
		return nil
	}
	code := types.ErrPluginNotAvailable
	if r := (*hostclient.Refusal)(nil); errors.As(err, &r) && r.Reached && r.Status.Code() == codes.Unavailable {
		code = types.ErrLimitedConnectivity
	} else if e := (*types.Error)(nil); errors.As(err, &e) && e.Code == types.ErrLimitedConnectivity {
		code = e.Code
	}
	return withCode(code, err)
}

// withCode keeps the whole text of err, on one line.
func withCode(code uint, err error) error {
	return types.NewError(code, strings.ReplaceAll(err.Error(), "\n", "; "), "")
}
