// Package failure gives what goes wrong in our CNI plugins the error codes of the
// CNI specification (section 5, Error), which tell a runtime whether to try again,
// and whether pods suffer.
//
// Asking the host daemon belongs to package daemon.
package failure

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"unnest/internal/cni/podnic"
)

// Refusal is the host daemon's answer, or that there was none.
type Refusal struct {
	Status *status.Status
	// Reached: the daemon itself says so, not our end of the connection.
	Reached bool
}

func (r *Refusal) Error() string {
	return fmt.Sprintf("host daemon: %s (%s)", r.Status.Message(), r.Status.Code())
}

// code is 11 when the same request may succeed later without anybody's doing, 7
// when the request itself cannot succeed.
func (r *Refusal) code() uint {
	switch r.Status.Code() {
	case codes.Unavailable, codes.DeadlineExceeded, codes.ResourceExhausted, codes.Aborted, codes.Canceled:
		return types.ErrTryAgainLater
	case codes.InvalidArgument, codes.PermissionDenied, codes.Unauthenticated, codes.Unimplemented:
		return types.ErrInvalidNetworkConfig
	}
	return types.ErrInternal
}

// Unanswered reports whether err means that the daemon could not be asked, or
// cannot reach the guest's VMM. The request may be repeated later.
func Unanswered(err error) bool {
	r := (*Refusal)(nil)
	return errors.As(err, &r) && (!r.Reached || r.Status.Code() == codes.Unavailable)
}

// Unknown reports whether the daemon is too old for the verb.
func Unknown(err error) bool {
	r := (*Refusal)(nil)
	return errors.As(err, &r) && r.Status.Code() == codes.Unimplemented
}

// Invalid says that nothing but another configuration helps.
func Invalid(err error) error {
	return types.NewError(types.ErrInvalidNetworkConfig, err.Error(), "")
}

// TooOld says what the daemon lacks.
func TooOld(what string) error {
	return Invalid(fmt.Errorf("the host daemon is too old: it does not know %s: update unnest hostd", what))
}

// Commands are a plugin's, as they are written: ctx ends when they are to give up.
type Commands struct {
	Add, Del, Check, GC, Status func(ctx context.Context, args *skel.CmdArgs) error
}

// Funcs are the commands as a runtime has them, until ctx ends, with errors that have
// the specification's codes.
func (c Commands) Funcs(ctx context.Context) skel.CNIFuncs {
	with := func(code func(error) error, command func(context.Context, *skel.CmdArgs) error) func(*skel.CmdArgs) error {
		return func(args *skel.CmdArgs) error { return code(command(ctx, args)) }
	}
	return skel.CNIFuncs{
		Add: with(coded, c.Add), Del: with(coded, c.Del), Check: with(coded, c.Check), GC: with(coded, c.GC),
		Status: with(unavailable, c.Status),
	}
}

// coded gives the error of an ADD, DEL, CHECK or GC the code that tells the runtime
// whether to try again.
func coded(err error) error {
	if err == nil {
		return nil
	}
	code := types.ErrInternal
	if r := (*Refusal)(nil); errors.As(err, &r) {
		code = r.code()
	} else if e := (*types.Error)(nil); errors.As(err, &e) && e.Code != types.ErrUnknown && e.Code != types.ErrUnknownContainer {
		code = e.Code // ours, or an IPAM plugin's; but only we know whether a DEL is needed
	} else if errors.Is(err, podnic.ErrVLANTaken) || errors.Is(err, unix.ENODEV) {
		// Until the former pod's namespace is gone; or the NIC went in the middle.
		code = types.ErrTryAgainLater
	}
	return withCode(code, err)
}

// unavailable gives STATUS's codes. 50: no ADD can work now. 51, that pods may
// suffer as well, is for a daemon that answers but cannot reach the guest's VMM:
// what the daemon keeps of the pods' NICs on the host can then not be mended.
// Without a daemon the NICs work on, so that is 50; and a slot in quarantine is
// no pod's, so it is nothing as long as others are free.
func unavailable(err error) error {
	if err == nil {
		return nil
	}
	code := types.ErrPluginNotAvailable
	if r := (*Refusal)(nil); errors.As(err, &r) && r.Reached && r.Status.Code() == codes.Unavailable {
		code = types.ErrLimitedConnectivity
	} else if e := (*types.Error)(nil); errors.As(err, &e) && e.Code == types.ErrLimitedConnectivity {
		code = e.Code
	}
	return withCode(code, err)
}

// withCode keeps all of err's words, on one line.
func withCode(code uint, err error) error {
	return types.NewError(code, strings.ReplaceAll(err.Error(), "\n", "; "), "")
}
