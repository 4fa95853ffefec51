// Package fleet puts guests and the host daemon into a lab: addresses, keys, certificates,
// the record of a guest for the daemon, and the guest's CNI configuration, which names
// the daemon.
//
// It does not know what runs in the guests.
package fleet

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/sync/errgroup"

	"unnest.io/unnest/internal/hostapi/identity"
	"unnest.io/unnest/internal/hostd/quota"
	"unnest.io/unnest/internal/testbed/guest"
	"unnest.io/unnest/internal/testbed/image"
	"unnest.io/unnest/internal/testbed/lab"
)

// Fleet are the guests of a lab.
type Fleet struct {
	Lab *lab.Lab
	// Policy is the configuration of the host daemon. Change it before StartDaemon only.
	Policy quota.Config
	// Pausing keeps logins to guests that are paused for long. Without it, the host ends a connection
	// after two minutes and a half in which its guest does not answer.
	Pausing bool
	// Progress is called with what a guest does that takes long to become ready. Nil: nobody is told.
	Progress   func(step string)
	key        ssh.Signer
	authority  *identity.Authority
	segmentKey string
}

// Open returns the fleet of l. It makes what is missing: the key to log in to guests,
// the authority for their certificates, the key of their segments, and the directory of
// their pods' volumes, which is removed with the lab.
func Open(l *lab.Lab) (*Fleet, error) {
	key, err := loginKey(filepath.Join(l.Dir, "ssh.key"))
	if err != nil {
		return nil, err
	}
	authority, err := identity.OpenAuthority(l.Dir)
	if err != nil {
		return nil, err
	}
	segmentKey, err := openSegmentKey(filepath.Join(l.Dir, "segment.key"))
	if err != nil {
		return nil, err
	}
	p := defaultPolicy()
	p.Tenants[0].Volumes, p.Tenants[0].VolumesUnbounded = filepath.Join(l.Dir, "volumes"), true
	if err := os.Mkdir(p.Tenants[0].Volumes, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("make directory of volumes: %w", err)
	}
	return &Fleet{Lab: l, Policy: p, key: key, authority: authority, segmentKey: segmentKey}, nil
}

// openSegmentKey returns the secret in the file path, by which guests join the segments
// of the lab's Hostlo networks. It makes the file if it is missing.
func openSegmentKey(path string) (string, error) {
	content, err := readOrCreate(path, func() ([]byte, error) { return []byte(rand.Text()), nil })
	if err != nil {
		return "", fmt.Errorf("read key of segments: %w", err)
	}
	return string(content), nil
}

// loginKey returns the private key in the file path. It makes the file if it is missing.
func loginKey(path string) (ssh.Signer, error) {
	content, err := readOrCreate(path, newKey)
	if err != nil {
		return nil, fmt.Errorf("read login key: %w", err)
	}
	key, err := ssh.ParsePrivateKey(content)
	if err != nil {
		return nil, fmt.Errorf("read login key %s: %w", path, err)
	}
	return key, nil
}

func newKey() ([]byte, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	block, err := ssh.MarshalPrivateKey(key, "unnest")
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(block), nil
}

// readOrCreate returns the content of the file path, and makes it first if it is missing. Several processes may call it at once:
// vm ls does without the lab's lock.
func readOrCreate(path string, content func() ([]byte, error)) ([]byte, error) {
	b, err := os.ReadFile(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return b, err
	}
	if b, err = content(); err != nil {
		return nil, err
	}
	if err := identity.LinkNew(path, b); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
}

// Options describe a guest to launch.
type Options struct {
	Name   string
	Image  image.Image
	Accel  guest.Accel
	VCPUs  int
	Memory int64 // bytes
	Slots  int   // NICs that can be hot-plugged at the same time
	Pool   int   // number of them that the host daemon keeps plugged in advance
	Shares int   // volumes and shared memory that can be plugged at the same time
	// Vouched lets the host daemon hand the guest its credentials through the VMM, in a drive for
	// which the image needs drivers (Recipe.WithDrives). Otherwise they are in the seed.
	Vouched bool
	// VHostPoll is how long vhost-net waits for the next frame of each NIC of the guest before it
	// sleeps. 0: not at all; for NICs that are plugged, as the policy says.
	VHostPoll time.Duration
	// Queues is how many pairs of queues each NIC has that is plugged. 0: as the policy says.
	Queues int
	// Emulated gives the guest emulated hardware in place of paravirtual devices.
	Emulated bool
	Export   string // prepared directory (share.Export) that the guest can mount over 9p; empty: none
	Tenant   string // empty: the only one of the default policy
	// Extras returns what the guest has beyond others. It is called with the guest's address on
	// the tenant's network. Nil: nothing.
	Extras func(address netip.Addr) (Extras, error)
	// Snapshots restores the guest where it can. Nil: it boots.
	Snapshots *guest.Snapshots
	// Nesting gives the guest the same processor as one with Nested, so that the figures
	// of both can be compared.
	Nesting bool
	// Nested is the image of the guest that LaunchNested can run in this one. Image must
	// have a hypervisor then (guest.HypervisorRecipe). Nil: none.
	Nested *image.Image
}

// Extras are what a guest has beyond others.
type Extras struct {
	Files     map[string]string // by absolute path, mode 0600
	Addresses []netip.Addr      // from which it may send on the tenant's network, besides its own
}

// Node is a guest of the fleet.
type Node struct {
	*guest.Guest
	Index    int    // from 1, part of its addresses
	TenantIP string // of its NIC on the tenant bridge
}

// Launch starts a guest. The guest is ready when Login succeeds, not when Launch returns. If
// a step fails, no guest is left.
func (f *Fleet) Launch(ctx context.Context, o Options) (n *Node, err error) {
	err = f.LaunchAll(ctx, []Options{o}, func(_ int, launched *Node) error {
		n = launched
		return nil
	})
	return n, err
}

// LaunchAll starts guests, as many at the same time as there are processors, with indices in their order. It
// calls use with each guest that has started and its place in options, at the same time for all. It returns
// the first error when all are done.
func (f *Fleet) LaunchAll(ctx context.Context, options []Options, use func(i int, n *Node) error) error {
	var indices []int
	for _, o := range options {
		index, err := f.reserve(o.Name)
		if err != nil {
			for _, reserved := range options[:len(indices)] {
				err = errors.Join(err, os.RemoveAll(f.Lab.GuestDir(reserved.Name)))
			}
			return err
		}
		indices = append(indices, index)
	}
	var g errgroup.Group
	starts := make(chan struct{}, runtime.NumCPU())
	for i, o := range options {
		starts <- struct{}{} // in the order of the options
		g.Go(func() error {
			n, err := f.launch(ctx, o, indices[i])
			<-starts
			if err != nil {
				return errors.Join(err, os.RemoveAll(f.Lab.GuestDir(o.Name)))
			}
			return use(i, n)
		})
	}
	return g.Wait()
}

// reserve makes the directory of a guest, with a state file that has its index only, and returns the index.
func (f *Fleet) reserve(name string) (int, error) {
	if err := identity.CheckGuestName(name); err != nil {
		return 0, err
	}
	index, err := f.freeIndex()
	if err != nil {
		return 0, err
	}
	dir := f.Lab.GuestDir(name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		if errors.Is(err, fs.ErrExist) {
			err = f.taken(name)
		}
		return 0, fmt.Errorf("launch guest %s: %w", name, err)
	}
	if err := writeJSON(filepath.Join(dir, stateFile), nodeState{Index: index}); err != nil {
		return 0, errors.Join(err, os.RemoveAll(dir))
	}
	return index, nil
}

// launch starts the guest with an index, whose directory is there.
func (f *Fleet) launch(ctx context.Context, o Options, index int) (_ *Node, err error) {
	dir := f.Lab.GuestDir(o.Name)
	var credentials identity.Credentials
	if !o.Vouched {
		if credentials, err = f.authority.Issue(o.Name); err != nil {
			return nil, err
		}
	}
	p := addressesOf(index)
	config, err := f.config(o, p, credentials, dir)
	if err != nil {
		return nil, err
	}
	var extras Extras
	if o.Extras != nil {
		if extras, err = o.Extras(netip.MustParseAddr(p.tenantIP)); err != nil {
			return nil, err
		}
	}
	maps.Copy(config.Seed.Files, extras.Files)
	if o.Snapshots != nil {
		if config.Snapshot, err = o.Snapshots.For(ctx, config); ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		config.NotRestored = err
	}
	if err := f.plug(&config, p, o.Nested != nil); err != nil {
		return nil, err
	}
	g, err := guest.Start(ctx, config)
	for _, nic := range config.NICs {
		err = errors.Join(err, nic.TAP.Close())
	}
	if err != nil {
		return nil, err
	}
	o.Snapshots.Report(g)
	n := &Node{g, index, p.tenantIP}
	if err := n.save(f.Lab.Dir, o, credentials, extras.Addresses...); err != nil {
		return nil, errors.Join(err, g.Kill())
	}
	return n, nil
}

// taken says which guest has a name, and how to free it.
func (f *Fleet) taken(name string) error {
	_, err := f.Find(name)
	switch {
	case err == nil:
		return fmt.Errorf("a running guest has the name: choose another, or stop that guest by `unnest vm down %s`", name)
	case errors.Is(err, guest.ErrDied):
		return fmt.Errorf("the name belongs to a dead guest: remove it by `unnest vm down %s`", name)
	}
	return err
}

// freeIndex returns the lowest index that is not used in the lab.
func (f *Fleet) freeIndex() (int, error) {
	names, err := f.Lab.Guests()
	if err != nil {
		return 0, err
	}
	taken := map[int]bool{}
	for _, name := range names {
		state, err := readState(f.Lab.GuestDir(name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return 0, err
		}
		taken[state.Index] = true
	}
	for i := 1; i <= maxGuests; i++ {
		if !taken[i] {
			return i, nil
		}
	}
	return 0, fmt.Errorf("lab %s is full: it has room for %d guests", f.Lab.Name, maxGuests)
}

// Key logs in to guests of the fleet.
func (f *Fleet) Key() ssh.Signer { return f.key }
