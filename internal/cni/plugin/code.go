package plugin

import (
	"errors"
	"fmt"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"unnest.io/unnest/internal/cni/hostclient"
	"unnest.io/unnest/internal/cni/netconf"
	"unnest.io/unnest/internal/cni/podnic"
)

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
