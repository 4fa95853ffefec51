// Package link finds and changes the host's network interfaces by name. It does not
// know whose they are. Every function works in the network namespace of the calling thread.
package link

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"unicode"

	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Link is a network interface.
type Link struct {
	Index    int
	Name     string
	AltNames []string
	Alias    string
	Master   int // index of its bridge; 0: none
	Up       bool
	TAP      bool
	// Persistent says that a TAP stays when the last process with its descriptor ends.
	Persistent bool
}

func describe(l netlink.Link) Link {
	a := l.Attrs()
	d := Link{Index: a.Index, Name: a.Name, AltNames: a.AltNames, Alias: a.Alias, Master: a.MasterIndex, Up: a.Flags&net.FlagUp != 0}
	if t, ok := l.(*netlink.Tuntap); ok {
		d.TAP, d.Persistent = true, !t.NonPersist
	}
	return d
}

// List lists all links.
func List() (all []Link, err error) {
	links, err := netlinksafe.LinkList()
	if err != nil {
		return nil, err
	}
	for _, l := range links {
		all = append(all, describe(l))
	}
	return all, nil
}

// Find returns the link with a name. IsGone tells the error of one that does not exist.
func Find(name string) (Link, error) {
	l, err := netlinksafe.LinkByName(name)
	if err != nil {
		return Link{}, err
	}
	return describe(l), nil
}

// IsGone reports whether an error says that a link does not exist.
func IsGone(err error) bool {
	return errors.As(err, new(netlink.LinkNotFoundError)) || errors.Is(err, unix.ENODEV)
}

// Bridge returns the name of the bridge that a link is on, "" if it is on none.
func Bridge(name string) string {
	l, err := Find(name)
	if err != nil || l.Master == 0 {
		return ""
	}
	master, err := netlink.LinkByIndex(l.Master)
	if err != nil {
		return ""
	}
	return master.Attrs().Name
}

// CheckName returns an error unless the kernel takes a name for a link (dev_valid_name
// in net/core/dev.c).
func CheckName(name string) error {
	invalid := func(r rune) bool { return r == '/' || r == ':' || unicode.IsSpace(r) || unicode.IsControl(r) }
	if name == "" || len(name) > 15 || name == "." || name == ".." || strings.ContainsFunc(name, invalid) {
		return fmt.Errorf("interface %.40q: want 1 to 15 bytes without '/', ':' and white space", name)
	}
	return nil
}
