// Package plugin is what the binary of the CNI plugins does: it is the plugin by
// whose name it was called.
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
	"syscall"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"

	"unnest/internal/cni/brfusion"
	"unnest/internal/cni/hostlo"
)

// versions are those of the CNI specification that the plugins speak.
var versions = version.PluginSupports("0.3.1", "0.4.0", "1.0.0", "1.1.0")

// ErrUnknownName says that there is no plugin of the name called.
var ErrUnknownName = errors.New("no such CNI plugin")

// Main is the plugin of the given name, the last part of the path argv0, for the
// command in the environment. It returns the exit code. As the specification
// wants it, an error is JSON on the standard output; when the plugin's name is
// unknown it is one line on stderr too.
func Main(argv0 string, stderr io.Writer) int {
	// A runtime that goes away must not end us before we have cleaned up.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // writes fail instead; not Ignore: IPAM plugins inherit that
	var failure *types.Error
	switch name := filepath.Base(argv0); name {
	case "brfusion":
		failure = skel.PluginMainFuncsWithError(brfusion.Funcs(ctx), versions, brfusion.About)
	case "hostlo":
		failure = skel.PluginMainFuncsWithError(hostlo.Funcs(ctx), versions, hostlo.About)
	default:
		err := fmt.Errorf("%w: called as %q: install this binary, or a link to it, as brfusion or hostlo", ErrUnknownName, name)
		fmt.Fprintln(stderr, err)
		failure = types.NewError(types.ErrInvalidEnvironmentVariables, err.Error(), "")
	}
	if failure == nil {
		return 0
	}
	_ = failure.Print() // the exit code tells it as well
	return 1
}
