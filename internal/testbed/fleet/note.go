package fleet

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/crypto/ssh"

	"unnest/internal/hostd/daemon"
	"unnest/internal/testbed/guest"
	"unnest/internal/testbed/place"
	"unnest/internal/vmm/qemu"
)

// note is what another process needs to know of a running guest, kept in its
// state directory. Whether it still runs is asked of the kernel.
type note struct {
	Index   int         `json:"index"`
	PID     int         `json:"pid"`
	Arch    guest.Arch  `json:"arch,omitempty"` // empty: guest.AMD64
	Accel   guest.Accel `json:"accelerator"`
	VCPUs   int         `json:"vcpus"`
	Memory  int64       `json:"memory"`
	Slots   int         `json:"slots"`
	Address string      `json:"address"`
	HostKey string      `json:"host_key"` // as in authorized_keys
	Started time.Time   `json:"started"`
	// Nested is the image of a guest that can be launched in this one.
	Nested *guest.Image `json:"nested,omitempty"`
}

const noteFile = "node.json"

// note writes what others need to know of the guest: its note for us, its
// record for the host daemon.
func (n *Node) note(stateDir string, o Options, fingerprint string) error {
	hostKey, err := ssh.NewPublicKey(n.Seed.HostKey.Public())
	if err != nil {
		return err
	}
	if err := writeJSON(filepath.Join(n.Dir, noteFile), note{
		Index: n.Index, PID: n.PID, Arch: n.Arch, Accel: n.Accel, VCPUs: n.VCPUs, Memory: n.Memory, Slots: n.Slots,
		Address: n.Address, HostKey: string(ssh.MarshalAuthorizedKey(hostKey)), Started: time.Now().UTC(),
		Nested: o.Nested,
	}); err != nil {
		return err
	}
	p := plan(n.Index)
	nics := []daemon.BootNIC{p.managementNIC(), p.tenantNIC()}
	if o.Nested != nil {
		nics = append(nics, p.nestedNIC())
	}
	return daemon.WriteRecord(stateDir, daemon.GuestRecord{
		Name: n.Name, Tenant: cmp.Or(o.Tenant, Tenant), Index: n.Index, PID: n.PID, QMP: n.DaemonQMP(),
		Ports: qemu.Ports(n.Slots), Pool: o.Pool, CertificateSHA256: fingerprint,
		NICs: nics, Export: o.Export,
	})
}

func writeJSON(path string, v any) error {
	content, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+".part", content, 0o600); err != nil {
		return fmt.Errorf("note guest: %w", err)
	}
	return os.Rename(path+".part", path)
}

func readNote(dir string) (note, error) {
	var n note
	content, err := os.ReadFile(filepath.Join(dir, noteFile))
	if err != nil {
		return n, fmt.Errorf("read note of guest: %w", err)
	}
	if err := json.Unmarshal(content, &n); err != nil {
		return n, fmt.Errorf("read note of guest %s: %w", filepath.Join(dir, noteFile), err)
	}
	return n, nil
}

// ErrNoGuest says that the lab has no guest of a name.
var ErrNoGuest = errors.New("no such guest")

// Find returns the guest name, which another process may have started. When
// the guest has ended, the error wraps guest.ErrDied.
func (f *Fleet) Find(name string) (*Node, error) {
	dir := f.Lab.GuestDir(name)
	n, err := readNote(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s: `unnest vm ls` lists them", ErrNoGuest, name)
	}
	if err != nil {
		return nil, err
	}
	g, err := guest.Adopt(guest.Config{
		Name: name, Dir: dir, Arch: n.Arch, Accel: n.Accel, VCPUs: n.VCPUs, Memory: n.Memory, Slots: n.Slots, Address: n.Address,
	}, n.PID)
	if err != nil {
		return nil, err
	}
	return &Node{g, n.Index, plan(n.Index).tenantIP}, nil
}

// Login waits until the guest that this process launched is ready.
func (f *Fleet) Login(ctx context.Context, n *Node) (*place.SSH, guest.BootTimes, error) {
	return n.WaitReady(ctx, f.Lab.Dial, f.key)
}

// Reach logs in to a guest that is ready, whoever launched it.
func (f *Fleet) Reach(ctx context.Context, n *Node) (*place.SSH, error) {
	saved, err := readNote(n.Dir)
	if err != nil {
		return nil, err
	}
	hostKey, _, _, _, err := ssh.ParseAuthorizedKey([]byte(saved.HostKey))
	if err != nil {
		return nil, fmt.Errorf("read host key of guest %s: %w", n.Name, err)
	}
	return place.DialSSH(ctx, "guest "+n.Name, n.Address, f.Lab.Dial, guest.ClientConfig(f.key, hostKey))
}
