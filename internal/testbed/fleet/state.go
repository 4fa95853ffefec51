package fleet

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/crypto/ssh"

	"unnest.io/unnest/internal/hostapi/identity"
	"unnest.io/unnest/internal/hostd/quota"
	"unnest.io/unnest/internal/hostd/record"
	"unnest.io/unnest/internal/testbed/guest"
	"unnest.io/unnest/internal/testbed/image"
	"unnest.io/unnest/internal/testbed/place"
	"unnest.io/unnest/internal/vmm/qemu"
)

// nodeState is what another process needs to know of a guest. It is kept in the state
// directory of the guest. While the guest starts, it has the index only. Whether the guest
// still runs is not in it: ask the kernel.
type nodeState struct {
	Index   int         `json:"index"`
	PID     int         `json:"pid"`
	Arch    image.Arch  `json:"arch,omitempty"` // empty: guest.AMD64
	Accel   guest.Accel `json:"accelerator"`
	VCPUs   int         `json:"vcpus"`
	Memory  int64       `json:"memory"`
	Slots   int         `json:"slots"`
	Address string      `json:"address"`
	HostKey string      `json:"host_key"` // as in authorized_keys
	Started time.Time   `json:"started"`
	// Nested is the image of the guest that can run in this one.
	Nested *image.Image `json:"nested,omitempty"`
}

const stateFile = "node.json"

// save writes the state of the guest for other processes of ours, and its record for
// the host daemon, with further addresses on the tenant's network.
func (n *Node) save(stateDir string, o Options, c identity.Credentials, more ...netip.Addr) error {
	hostKey, err := ssh.NewPublicKey(n.Seed.HostKey.Public())
	if err != nil {
		return err
	}
	if err := writeJSON(filepath.Join(n.Dir, stateFile), nodeState{
		Index: n.Index, PID: n.PID, Arch: n.Arch, Accel: n.Accel, VCPUs: n.VCPUs, Memory: n.Memory, Slots: n.Slots,
		Address: n.Address, HostKey: string(ssh.MarshalAuthorizedKey(hostKey)), Started: time.Now().UTC(),
		Nested: o.Nested,
	}); err != nil {
		return err
	}
	p := addressesOf(n.Index)
	tenant := bootNIC(p.tenantTAP, p.tenantMAC, p.tenantIP)
	tenant.Addresses = append(tenant.Addresses, more...)
	nics := []record.BootNIC{bootNIC(p.managementTAP, p.managementMAC, p.managementIP), tenant}
	if o.Nested != nil {
		nics = append(nics, bootNIC(p.nestedTAP, p.nestedMAC, p.nestedIP))
	}
	from := ""
	if o.Vouched {
		from = quota.CredentialsVMM
	}
	return record.Write(stateDir, record.Guest{
		Name: n.Name, Tenant: cmp.Or(o.Tenant, Tenant), Index: n.Index, PID: n.PID, QMP: n.DaemonQMP(),
		Ports: qemu.Ports(n.Slots), Pool: o.Pool, CertificateSHA256: c.Fingerprint, CertificateSerial: c.Serial, CertificateExpires: c.Expires,
		NICs: nics, Export: o.Export, Credentials: from, VHostPoll: o.VHostPoll, Queues: o.Queues,
	})
}

func writeJSON(path string, v any) error {
	content, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+".part", content, 0o600); err != nil {
		return fmt.Errorf("write state of guest: %w", err)
	}
	return os.Rename(path+".part", path)
}

func readState(dir string) (n nodeState, err error) {
	path := filepath.Join(dir, stateFile)
	content, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(content, &n)
	}
	if err != nil {
		return n, fmt.Errorf("read state of guest %s: %w", path, err)
	}
	return n, nil
}

// ErrNoGuest is the error of Find for a guest that the lab does not have.
var ErrNoGuest = errors.New("no such guest")

// ErrStarting is the error of Find for a guest that another process starts.
var ErrStarting = errors.New("guest is being started")

// Find returns the guest name, which another process may have started. If the guest
// has ended, or its start was interrupted, the error wraps guest.ErrDied.
func (f *Fleet) Find(name string) (*Node, error) {
	if err := identity.CheckGuestName(name); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoGuest, err)
	}
	dir := f.Lab.GuestDir(name)
	n, err := readState(dir)
	if _, noDir := os.Stat(dir); errors.Is(noDir, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s: `unnest vm ls` lists them", ErrNoGuest, name)
	}
	if errors.Is(err, fs.ErrNotExist) || err == nil && n.PID == 0 {
		if f.Lab.Busy() {
			return nil, fmt.Errorf("%w: %s", ErrStarting, name)
		}
		return nil, fmt.Errorf("%w: %s: its start was interrupted", guest.ErrDied, name)
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
	return &Node{g, n.Index, addressesOf(n.Index).tenantIP}, nil
}

// Login waits until the guest, which this process launched, is ready.
func (f *Fleet) Login(ctx context.Context, n *Node) (*place.SSH, guest.BootTimes, error) {
	return n.WaitReady(ctx, f.dial, f.key)
}

// dial connects to a guest.
func (f *Fleet) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := f.Lab.Dial(ctx, network, address)
	if tcp, ok := conn.(*net.TCPConn); ok && err == nil && f.Pausing {
		err = tcp.SetKeepAlive(false)
	}
	return conn, err
}

// Reach logs in to a guest that is ready. Another process may have launched it.
func (f *Fleet) Reach(ctx context.Context, n *Node) (*place.SSH, error) {
	saved, err := readState(n.Dir)
	if err != nil {
		return nil, err
	}
	hostKey, _, _, _, err := ssh.ParseAuthorizedKey([]byte(saved.HostKey))
	if err != nil {
		return nil, fmt.Errorf("read host key of guest %s: %w", n.Name, err)
	}
	return place.DialSSH(ctx, "guest "+n.Name, n.Address, f.Lab.Dial, guest.ClientConfig(f.key, hostKey))
}
