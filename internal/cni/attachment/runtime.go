package attachment

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"

	"unnest/internal/cni/netconf"
)

// This file keeps which runtime has made an attachment. Two runtimes of a guest, such as containerd for
// Kubernetes and nerdctl, may have networks of the same name, and each knows its own containers only:
// its GC must not remove the others'.

// made is the content of a file.
type made struct {
	Network   string `json:"network"`
	Container string `json:"container"`
	Interface string `json:"interface"`
	Runtime   string `json:"runtime"`
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

// remember keeps the runtime of an attachment.
func (k Kind) remember(network, container, iface string) error {
	if err := WriteFile(k.madeFile(container, iface), made{network, container, iface, runtimeName()}); err != nil {
		return fmt.Errorf("keep the runtime of %s %s: %w", container, iface, err)
	}
	return nil
}

func (k Kind) forget(container, iface string) error {
	if err := os.Remove(k.madeFile(container, iface)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// all reads the files of a network. One that cannot be read is of no runtime that could be named.
func (k Kind) all(network string) (all []made, err error) {
	files, err := os.ReadDir(k.madeDir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, f := range files {
		var m made
		content, readErr := os.ReadFile(filepath.Join(k.madeDir(), f.Name()))
		if readErr == nil && json.Unmarshal(content, &m) == nil && m.Network == network {
			all = append(all, m)
		}
	}
	return all, err
}

// Spare adds to the valid attachments of a GC those that another runtime has made. Attachments of an
// earlier plugin have no runtime: a GC removes them as it did.
func (k Kind) Spare(c *netconf.Release) error {
	if !c.Complete {
		return nil
	}
	all, err := k.all(c.Name)
	if err != nil {
		return fmt.Errorf("find attachments of other runtimes: %w", err)
	}
	own := runtimeName()
	for _, m := range all {
		a := types.GCAttachment{ContainerID: m.Container, IfName: m.Interface}
		if m.Runtime != own && !slices.Contains(c.ValidAttachments, a) {
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
