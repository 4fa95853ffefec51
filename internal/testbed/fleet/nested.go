package fleet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"unnest.io/unnest/internal/hostapi/identity"
	"unnest.io/unnest/internal/testbed/guest"
	"unnest.io/unnest/internal/testbed/image"
	"unnest.io/unnest/internal/testbed/lab"
	"unnest.io/unnest/internal/testbed/place"
)

// Nested is a guest in a guest: level L2. It has one NIC, on its tenant's network, by
// which the host reaches it. It has no access to the host daemon, so its containers get
// no NICs of their own. It ends with its parent, and with the process that launched it.
type Nested struct {
	*Node
	Parent *Node
	Choice guest.Choice // its accelerator in the parent, and why that one
}

// Err says why the guest, or its parent, has ended. It returns nil while the guest
// runs.
func (n *Nested) Err() error {
	err := n.Node.Err()
	if err == nil {
		return nil
	}
	if died := n.Parent.Err(); died != nil {
		return fmt.Errorf("%w: %s, with its outer guest: %w", guest.ErrDied, n.Name, died)
	}
	return err
}

// nestedDir is the state directory of the inner guest in that of the outer one.
const nestedDir = "nested"

// LaunchNested starts a guest in parent, which must be ready and launched with
// Options.Nested, the image of the new guest. o.Image must be empty or that image, and
// o.Slots 0. It returns when QEMU runs in parent. The guest is ready when Login
// succeeds. A parent runs one such guest at a time.
func (f *Fleet) LaunchNested(ctx context.Context, parent *Node, o Options) (*Nested, error) {
	if err := identity.CheckGuestName(o.Name); err != nil {
		return nil, err
	}
	saved, err := readState(parent.Dir)
	if err != nil {
		return nil, err
	}
	if err := checkNested(parent, saved, o); err != nil {
		return nil, fmt.Errorf("launch guest %s in %s: %w", o.Name, parent.Name, err)
	}
	in, err := f.Reach(ctx, parent)
	if err != nil {
		return nil, err
	}
	n, err := f.startNested(ctx, parent, *saved.Nested, o, in)
	if err != nil {
		return nil, errors.Join(err, in.Close())
	}
	go func() {
		select {
		case <-n.Done():
		case <-parent.Done(): // the end of the connection is not reported then
		}
		_ = in.Close()
	}()
	return n, nil
}

// checkNested refuses options that do not fit parent.
func checkNested(parent *Node, saved nodeState, o Options) error {
	switch {
	case saved.Nested == nil:
		return errors.New("it was launched without an image of an inner guest: set Options.Nested")
	case o.Image != image.Image{} && o.Image != *saved.Nested:
		return fmt.Errorf("image %s: %s has the inner image %s", o.Image.Digest, parent.Name, saved.Nested.Digest)
	case o.Nested != nil:
		return errors.New("a guest in a guest cannot run guests")
	}
	return nil
}

func (f *Fleet) startNested(ctx context.Context, parent *Node, inner image.Image, o Options, in place.Place) (*Nested, error) {
	dir := filepath.Join(parent.Dir, nestedDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("launch guest %s: %w", o.Name, err)
	}
	p := addressesOf(parent.Index)
	o.Image = inner
	config, err := f.nestedConfig(o, p, dir)
	if err != nil {
		return nil, err
	}
	g, choice, err := guest.StartNested(ctx, config, parent.Config, in, p.uplinkMAC)
	if err != nil {
		return nil, err
	}
	return &Nested{&Node{g, parent.Index, p.nestedIP}, parent, choice}, nil
}

// nestedConfig returns the configuration of the inner guest. p are the addresses of its
// parent.
func (f *Fleet) nestedConfig(o Options, p addresses, dir string) (guest.Config, error) {
	return f.baseConfig(o, dir, p.nestedIP, []guest.NIC{{MAC: p.nestedMAC}},
		guest.Interface{MAC: p.nestedMAC, Name: "eth0", Address: fmt.Sprintf("%s/%d", p.nestedIP, lab.TenantPrefix), Gateway: lab.TenantGateway})
}
