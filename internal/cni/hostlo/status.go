package hostlo

import (
	"context"
	"errors"
	"fmt"

	"github.com/containernetworking/cni/pkg/skel"

	"unnest/internal/cni/failure"
)

// protocol is the number of the host daemon's protocol that has segments.
const protocol = 3

// status is the command STATUS: can a pod be a fraction of a segment? That no slot
// is free counts only where every pod needs one; elsewhere the network serves the
// pods that have no segment all the same.
func status(ctx context.Context, args *skel.CmdArgs) error {
	c, err := parse(args)
	if err != nil {
		return err
	}
	if err := lo.probe(); err != nil {
		return err
	}
	d, err := dial(c)
	if err != nil {
		return err
	}
	defer d.Close()
	s, err := d.Status(ctx, false)
	if err != nil {
		return err
	}
	_ = pending(c).Finish(ctx, d.Leave) // what it could not finish is no reason to refuse an ADD
	switch {
	case s.GetProtocol() < protocol:
		return failure.TooOld("segments")
	case len(s.GetSegmentModes()) == 0:
		return errors.New("host daemon: the guest's tenant may have no segments")
	case c.Segment.Name != "" && s.GetLimited() != "":
		return fmt.Errorf("host daemon: %s", s.GetLimited())
	}
	return nil
}
