package brfusion

import (
	"context"
	"fmt"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/skel"

	"unnest/internal/cni/failure"
	"unnest/internal/cni/netconf"
	"unnest/internal/hostapi/hostdpb"
)

// protocol is the number of the host daemon's protocol that the newer keys of the
// configuration need.
const protocol = 2

// status is the command STATUS: can an ADD succeed?
func status(ctx context.Context, args *skel.CmdArgs) error {
	c, err := parse(args)
	if err != nil {
		return err
	}
	d, err := dial(c)
	if err != nil {
		return err
	}
	defer d.Close()
	s, err := d.Status(ctx, !c.IPAM.Delegated())
	if err != nil {
		return err
	}
	_ = pending(c).Finish(ctx, d.Detach) // what it could not finish is no reason to refuse an ADD
	if s.GetLimited() != "" {
		return fmt.Errorf("host daemon: %s", s.GetLimited())
	}
	if err := serves(c, s); err != nil {
		return err
	}
	return delegate(ctx, c, args, "status of", invoke.DelegateStatus)
}

// serves reports what the configuration asks for that a daemon of an older
// protocol does not know.
func serves(c netconf.BrFusion, s *hostdpb.StatusResponse) error {
	switch {
	case s.GetProtocol() >= protocol:
		return nil
	case !c.IPAM.Delegated():
		return failure.TooOld(`ipam.type "hostd"`)
	case c.Mode == netconf.Trunk:
		return failure.TooOld(`mode "trunk"`)
	case c.Bandwidth != netconf.Bandwidth{}:
		return failure.TooOld("bandwidth")
	}
	return nil
}
