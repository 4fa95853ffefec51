package reflector

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/netdev/tap"
)

// Delete ends the segment and closes it, also if VMs have queues: no frame passes any
// more, and the name is free. The TAP disappears with the last queue that a VM has. Until
// then it is down and has another name: see tap.Remove for why it is not deleted.
func (s *Segment) Delete() error {
	err := s.retire()
	if errors.Is(err, unix.ENODEV) {
		err = nil
	}
	if err := errors.Join(err, s.Close()); err != nil {
		return fmt.Errorf("delete segment %s: %w", s.name, err)
	}
	return nil
}

// retire sets the TAP down, and takes what tells it as a segment's from it.
func (s *Segment) retire() error {
	link, err := netlink.LinkByIndex(s.index)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := netlink.LinkSetDown(link); err != nil {
		return fmt.Errorf("set down: %w", err)
	}
	for _, name := range link.Attrs().AltNames {
		if err := netlink.LinkDelAltName(link, name); err != nil {
			return fmt.Errorf("delete name %s: %w", name, err)
		}
	}
	if err := netlink.LinkSetAlias(link, ""); err != nil {
		return fmt.Errorf("delete alias: %w", err)
	}
	return netlink.LinkSetName(link, tap.RetiredName(s.index))
}
