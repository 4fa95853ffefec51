// Package xen creates domains on a Xen host that is reached as a place, and counts what they get of
// the processors: PV, PVH and HVM domains, by the command xl in dom0. The host is a guest that the
// project boots with Xen, or a machine of the user's.
//
// What domains there are is asked of xl, never kept. It knows nothing about labs and experiments.
package xen

import (
	"context"
	_ "embed"
	"fmt"
	"net/netip"
	"path"
	"strconv"
	"strings"

	"golang.org/x/crypto/ssh"

	"unnest.io/unnest/internal/testbed/place"
)

// Host is a Xen host.
type Host struct {
	Dom0  place.Place  // its commands run as root
	Dial  place.Dialer // connects to domains, from dom0
	Dir   string       // of the run, in dom0. Its name is the prefix of the names of the domains
	Image Image
	Key   ssh.Signer // logs in to domains
	// Reached says that dom0 forwards between its networks and the domains; else dom0 alone reaches them.
	Reached bool
	// Uplink is the NIC through which dom0 answers ARP for the domains. If it is empty, clients need a
	// route to Network through dom0.
	Uplink   string
	Emulated bool // its processors are emulated
}

// Image are the files of the domains: paths in dom0, but Initrd is on this host.
type Image struct {
	Kernel string
	Initrd string
	Root   string // a file or a disk
}

// Facts are what a Xen host says about itself.
type Facts struct {
	Version string
	Kinds   []Kind // that it runs
}

//go:embed scripts/dom0
var dom0Script string

//go:embed scripts/remove
var removeScript string

// Removal is the shell function remove_domains, which removes the domains of the run with a
// directory, their files and their bridge. It does nothing where a run has none.
func Removal() string { return removeScript }

// Prepare prepares dom0: Xen's services and the bridge of the domains.
func (h *Host) Prepare(ctx context.Context) (Facts, error) {
	gateway := netip.PrefixFrom(gateway, network.Bits()).String()
	out, err := place.Output(ctx, h.Dom0, "sh", "-c", dom0Script, "dom0", h.Dir, gateway, strconv.FormatBool(h.Reached), h.Uplink)
	if err != nil {
		return Facts{}, fmt.Errorf("prepare Xen on %s: %w", h.Dom0, err)
	}
	return parseFacts(string(out))
}

// parseFacts reads the version of Xen and its capabilities, a line each.
func parseFacts(printed string) (Facts, error) {
	version, capabilities, ok := strings.Cut(strings.TrimSpace(printed), "\n")
	if !ok || version == "" {
		return Facts{}, fmt.Errorf("read xl info: want version and capabilities, got %q", printed)
	}
	f := Facts{Version: version}
	if strings.Contains(capabilities, "xen-3.0-x86_64") {
		f.Kinds = append(f.Kinds, PV)
	}
	if strings.Contains(capabilities, "hvm-3.0-x86_64") {
		f.Kinds = append(f.Kinds, PVH, HVM)
	}
	return f, nil
}

// Remove removes the domains of the run, their files and their bridge.
func (h *Host) Remove(ctx context.Context) error {
	if err := place.Run(ctx, h.Dom0, "sh", "-c", removeScript+`remove_domains "$1"`, "remove", h.Dir); err != nil {
		return fmt.Errorf("remove domains %s on %s: %w", h.name("*"), h.Dom0, err)
	}
	return nil
}

// name is the name of a domain in Xen.
func (h *Host) name(domain string) string { return path.Base(h.Dir) + "-" + domain }

// List returns the domains of the run.
func (h *Host) List(ctx context.Context) (own []Entry, err error) {
	out, err := place.Output(ctx, h.Dom0, "xl", "list")
	if err != nil {
		return nil, fmt.Errorf("list domains: %w", err)
	}
	all, err := ParseList(string(out))
	for _, e := range all {
		if strings.HasPrefix(e.Name, h.name("")) {
			own = append(own, e)
		}
	}
	return own, err
}

// Own returns the name of a domain of the run by its name in Xen; ok is false for other domains.
func (h *Host) Own(name string) (domain string, ok bool) { return strings.CutPrefix(name, h.name("")) }
