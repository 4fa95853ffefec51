package segments

import (
	"errors"
	"fmt"
	"os"

	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"unnest/internal/hostapi/segment"
	"unnest/internal/netdev/reflector"
)

// loopback is a segment's TAP: the reflector on it, and its names.
type loopback interface {
	Join(segment.Fraction) (*os.File, error)
	Leave(segment.Fraction) error
	RestoreOffloads() error
	Announce(segment.Membership) error
	Members() segment.Set
	Counters() (map[segment.Fraction]reflector.Counters, error)
	Close() error
	Delete() error

	setAlias(string) error
	addName(string) error
	// deleteName succeeds when the name does not exist.
	deleteName(string) error
	// gone reports whether somebody has deleted the TAP.
	gone() bool
}

// tapLoopback is one in the network namespace of the process.
type tapLoopback struct {
	*reflector.Segment
	name string
}

func createLoopback(o reflector.Options) (loopback, error) {
	s, err := reflector.Create(o)
	if err != nil {
		return nil, err
	}
	return tapLoopback{s, o.Name}, nil
}

func recoverLoopback(o reflector.Options, holders map[int]segment.Fraction) (loopback, error) {
	s, err := reflector.Recover(o, holders)
	if err != nil {
		return nil, err
	}
	return tapLoopback{s, o.Name}, nil
}

func (l tapLoopback) setAlias(alias string) error {
	return l.change("set alias of", func(link netlink.Link) error { return netlink.LinkSetAlias(link, alias) })
}

func (l tapLoopback) addName(name string) error {
	return l.change("add name "+name+" to", func(link netlink.Link) error { return netlink.LinkAddAltName(link, name) })
}

func (l tapLoopback) deleteName(name string) error {
	return l.change("delete name "+name+" of", func(link netlink.Link) error {
		if err := netlink.LinkDelAltName(link, name); !errors.Is(err, unix.ENOENT) {
			return err
		}
		return nil
	})
}

// change changes the TAP's link.
func (l tapLoopback) change(what string, f func(netlink.Link) error) error {
	link, err := netlinksafe.LinkByName(l.name)
	if err == nil {
		err = f(link)
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", what, l.name, err)
	}
	return nil
}

func (l tapLoopback) gone() bool {
	_, err := netlinksafe.LinkByName(l.name)
	return errors.As(err, new(netlink.LinkNotFoundError))
}
