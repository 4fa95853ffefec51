// Package checksum drops the frames of a guest that have the host write a checksum into a
// header, where it would change an address, a port or a type after all filters have seen it.
//
// A guest may leave a checksum open (virtio 1.2, §5.1.6.2: VIRTIO_NET_HDR_F_NEEDS_CSUM) and
// names the place in the frame. The kernel takes any place. An open checksum may be that of
// the transport, or behind the transport's header.
//
// The filters themselves (packages antispoof and isolation) do not belong here.
package checksum

import (
	"fmt"

	"github.com/cilium/ebpf/rlimit"
	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/vishvananda/netlink"

	"unnest.io/unnest/internal/netdev/tc"
)

//go:generate go tool bpf2go -target bpfel checksum bpf/checksum.c -- -O2 -mcpu=v3 -Wall -Wextra -Wno-unused-parameter -Werror -idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include/aarch64-linux-gnu

// Priority is that of the program at the ingress of a link. Other filters have a larger one, and see
// only what the program lets pass.
const Priority = 1

// Filter is the program, which all ports share.
type Filter struct{ objects checksumObjects }

// Load loads the program. That needs CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN, and a kernel that
// describes its types (CONFIG_DEBUG_INFO_BTF).
func Load() (*Filter, error) {
	if err := rlimit.RemoveMemlock(); err != nil { // kernels before 5.11
		return nil, fmt.Errorf("remove memory lock limit: %w", err)
	}
	f := &Filter{}
	if err := loadChecksumObjects(&f.objects, nil); err != nil {
		return nil, fmt.Errorf("load the program that checks where guests leave checksums open: %w", err)
	}
	return f, nil
}

// Attach checks all frames that come from a link, in the network namespace of the calling thread. The
// link keeps the program when the Filter is closed, and a later Attach replaces it.
func (f *Filter) Attach(iface string) error {
	l, err := netlinksafe.LinkByName(iface)
	if err != nil {
		return fmt.Errorf("find %s: %w", iface, err)
	}
	return tc.Attach(l, netlink.HANDLE_MIN_INGRESS, Priority, "unnest_checksum", f.objects.CheckChecksum)
}

// Detach ends the check of a link. It is not an error if there is none.
func Detach(iface string) error {
	l, err := netlinksafe.LinkByName(iface)
	if err != nil {
		return fmt.Errorf("find %s: %w", iface, err)
	}
	return tc.Remove(l, netlink.HANDLE_MIN_INGRESS, Priority)
}

// Drops returns how many frames the program has dropped since Load.
func (f *Filter) Drops() (sum uint64, err error) {
	var each []uint64 // processor
	if err := f.objects.Dropped.Lookup(uint32(0), &each); err != nil {
		return 0, fmt.Errorf("count frames with a checksum in a header: %w", err)
	}
	for _, n := range each {
		sum += n
	}
	return sum, nil
}

// Close closes the Filter.
func (f *Filter) Close() error {
	return f.objects.Close()
}
