package attachment

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/cni/netconf"
)

// This file keeps which runtime has made an attachment, and which NIC it has. Two runtimes of a guest, such as containerd for
// Kubernetes and nerdctl, may have networks of the same name, and each knows its own containers only:
// its GC must not remove the others'. Reclaim needs the NIC.

// made is the content of a file.
type made struct {
	Network   string `json:"network"`
	Container string `json:"container"`
	Interface string `json:"interface"`
	Runtime   string `json:"runtime"`

	// Of what the host daemon gives. An earlier plugin has not kept it.
	Server      netip.AddrPort `json:"server,omitzero"`
	Credentials string         `json:"credentials,omitempty"`
	Asked       bool           `json:"asked,omitempty"` // an ADD asks the daemon, or was killed while it did
	Ended       bool           `json:"ended,omitempty"` // a DEL has not released all of it
	MAC         string         `json:"mac,omitempty"`   // of the NIC when it was plugged, or of the VLAN
	VLAN        int            `json:"vlan,omitempty"`  // 0: a NIC of its own
	Trunk       string         `json:"trunk,omitempty"` // MAC of the VLAN's NIC

	// Of an address that an IPAM plugin leases.
	Config json.RawMessage `json:"config,omitempty"` // the network configuration of the ADD
	Path   string          `json:"path,omitempty"`   // CNI_PATH
}

// args are the arguments of a DEL of the attachment, as far as the file has them.
func (m made) args() *skel.CmdArgs {
	return &skel.CmdArgs{ContainerID: m.Container, IfName: m.Interface, StdinData: m.Config, Path: m.Path}
}

// runtimeName is the program that has called this one, such as "containerd"; "" if that is not known.
func runtimeName() string {
	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", os.Getppid()))
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(filepath.Base(exe), " (deleted)") // it was updated while it runs
}

func (k Kind) madeDir() string { return filepath.Join(StateDir, "runtimes", k.name) }

func (k Kind) madeFile(container, iface string) string {
	return filepath.Join(k.madeDir(), container+":"+iface)
}

// remember keeps an attachment.
func (k Kind) remember(m made) error {
	if err := WriteFile(k.madeFile(m.Container, m.Interface), m); err != nil {
		return fmt.Errorf("keep the runtime and the NIC of %s %s: %w", m.Container, m.Interface, err)
	}
	return nil
}

// rememberEnded marks an attachment of which a DEL, or the rollback of an ADD, has not released all: Reclaimer releases the rest. cleaned says
// that no lease is left in the guest.
func (k Kind) rememberEnded(container, iface string, cleaned bool) error {
	m, ok := readMade(k.madeFile(container, iface))
	if !ok || !m.Server.IsValid() {
		return k.forget(container, iface)
	}
	if m.Ended = true; cleaned {
		m.Config, m.Path = nil, ""
	}
	return k.remember(m)
}

// forgetEnded removes the file of a marked attachment that was released, unless a lease is left, or another command runs for the
// attachment.
func (k Kind) forgetEnded(container, iface string) error {
	now, nothing := context.WithTimeout(context.Background(), 0)
	defer nothing()
	_, unlock, err := lockAlone(now, container, iface)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unlock()
	if m, ok := readMade(k.madeFile(container, iface)); !ok || !m.Ended || m.Config != nil {
		return nil
	}
	return k.forget(container, iface)
}

// Given records the NIC that the host daemon gave, by its MAC. If vlan is not 0, it is a VLAN, and trunk is the MAC of the NIC
// that carries it.
func (a *Attachment) Given(mac string, vlan int, trunk string) error {
	a.made.Asked, a.made.MAC, a.made.VLAN, a.made.Trunk = false, mac, vlan, trunk
	return a.kind.remember(a.made)
}

// Leasing records how to release the address that an IPAM plugin is about to lease.
func (a *Attachment) Leasing() error {
	a.made.Config, a.made.Path = a.StdinData, a.Path
	return a.kind.remember(a.made)
}

// Leased returns the arguments of a DEL with the configuration by which the ADD has had an IPAM plugin lease addresses, if that is known.
func (k Kind) Leased(container, iface string) (args *skel.CmdArgs, ok bool) {
	m, ok := readMade(k.madeFile(container, iface))
	return m.args(), ok && m.Config != nil
}

func (k Kind) forget(container, iface string) error {
	if err := os.Remove(k.madeFile(container, iface)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// all reads the files of a network, or of all; "" is all. One that cannot be read is of no runtime that could be named.
func (k Kind) all(network string) (all []made, err error) {
	files, err := os.ReadDir(k.madeDir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, f := range files {
		if strings.HasPrefix(f.Name(), ".") { // a command was killed while it wrote
			continue
		}
		if m, ok := readMade(filepath.Join(k.madeDir(), f.Name())); ok && (network == "" || m.Network == network) {
			all = append(all, m)
		}
	}
	return all, err
}

func readMade(path string) (m made, ok bool) {
	content, err := os.ReadFile(path)
	return m, err == nil && json.Unmarshal(content, &m) == nil
}

// spare adds to the valid attachments of a GC those that another runtime has made. Attachments of an
// earlier plugin have no runtime: a GC removes them as it did.
func (k Kind) spare(c *netconf.Release) error {
	all, err := k.all(c.Name)
	if err != nil {
		return fmt.Errorf("find attachments of other runtimes: %w", err)
	}
	own := runtimeName()
	for _, m := range all {
		a := types.GCAttachment{ContainerID: m.Container, IfName: m.Interface}
		released := m.Ended && m.Config == nil
		if m.Runtime != own && !released && !slices.Contains(c.ValidAttachments, a) {
			c.ValidAttachments = append(c.ValidAttachments, a)
		}
	}
	return nil
}

// ForgetCollected removes the files of what a GC has removed.
func (k Kind) ForgetCollected(c netconf.Release) error {
	all, err := k.all(c.Name)
	for _, m := range all {
		if !slices.Contains(c.ValidAttachments, types.GCAttachment{ContainerID: m.Container, IfName: m.Interface}) {
			err = errors.Join(err, k.forget(m.Container, m.Interface))
		}
	}
	return err
}
