package link

import (
	"errors"
	"fmt"

	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// SetUp brings a link up.
func SetUp(name string) error {
	return change(name, func(l netlink.Link) error {
		if err := netlink.LinkSetUp(l); err != nil {
			return fmt.Errorf("bring up: %w", err)
		}
		return nil
	})
}

// SetAlias replaces the alias of a link, at most 255 bytes.
func SetAlias(name, alias string) error {
	return change(name, func(l netlink.Link) error { return netlink.LinkSetAlias(l, alias) })
}

// AddAltName adds another name to a link.
func AddAltName(name, alt string) error {
	return change(name, func(l netlink.Link) error { return netlink.LinkAddAltName(l, alt) })
}

// DeleteAltName deletes another name of a link. One that it does not have is not an error.
func DeleteAltName(name, alt string) error {
	return change(name, func(l netlink.Link) error {
		if err := netlink.LinkDelAltName(l, alt); !errors.Is(err, unix.ENOENT) {
			return err
		}
		return nil
	})
}

// Delete deletes a link. One that does not exist is not an error.
func Delete(name string) error {
	err := change(name, netlink.LinkDel)
	if err == nil || IsGone(err) {
		return nil
	}
	return fmt.Errorf("delete %s: %w", name, err)
}

func change(name string, f func(netlink.Link) error) error {
	l, err := netlinksafe.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find %s: %w", name, err)
	}
	return f(l)
}
