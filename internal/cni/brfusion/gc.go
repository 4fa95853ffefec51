package brfusion

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"unnest/internal/cni/failure"
	"unnest/internal/cni/netconf"
	"unnest/internal/cni/servicepath"
)

// gc is the command GC: it removes what belongs to attachments of the network
// that are not valid, all of it that it can. A runtime that does not say which
// are valid (the key cni.dev/valid-attachments is missing) gets only its unfinished
// DELs finished.
func gc(ctx context.Context, args *skel.CmdArgs) error {
	c, err := parse(args)
	if err != nil {
		return err
	}
	err = errors.Join(gcHost(ctx, c), gcIPAM(ctx, c, args))
	if c.Complete {
		err = errors.Join(err, servicepath.Reap(c.Name, func(o servicepath.Owner) bool {
			return slices.Contains(c.ValidAttachments, types.GCAttachment{ContainerID: o.Container, IfName: o.Interface})
		}))
	}
	return err
}

// gcHost asks the host daemon. One that does not know GC does not know the NICs'
// networks either; it has had a DEL for every attachment.
func gcHost(ctx context.Context, c netconf.BrFusion) error {
	d, err := dial(c)
	if err != nil {
		return err
	}
	defer d.Close()
	if c.Complete {
		if err := d.GC(ctx, c.Name, c.ValidAttachments); err != nil && !failure.Unknown(err) {
			return fmt.Errorf("collect NICs: %w", err)
		}
	}
	return pending(c).Finish(ctx, d.Detach)
}

func gcIPAM(ctx context.Context, c netconf.BrFusion, args *skel.CmdArgs) error {
	if !c.IPAM.Delegated() {
		return nil
	}
	if knows, err := knowsGC(ctx, c); err != nil || !knows {
		return err
	}
	return delegate(ctx, c, args, "collect addresses by", invoke.DelegateGC)
}
