package hostlo

import (
	"context"
	"fmt"

	"github.com/containernetworking/cni/pkg/skel"

	"unnest/internal/cni/failure"
)

// gc is the command GC: it gives back the endpoints of the network's attachments
// that are not valid. A runtime that does not say which are valid (the key
// cni.dev/valid-attachments is missing) gets only its unfinished DELs finished.
func gc(ctx context.Context, args *skel.CmdArgs) error {
	c, err := parse(args)
	if err != nil {
		return err
	}
	d, err := dial(c)
	if err != nil {
		return err
	}
	defer d.Close()
	if c.Complete {
		if err := d.GC(ctx, c.Name, c.ValidAttachments); err != nil && !failure.Unknown(err) {
			return fmt.Errorf("collect endpoints: %w", err)
		}
	}
	return pending(c).Finish(ctx, d.Leave)
}
