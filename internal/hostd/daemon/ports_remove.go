package daemon

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"unnest/internal/hostd/attachment"
	"unnest/internal/netdev/ratelimit"
	"unnest/internal/netdev/tap"
)

// delete deletes a port, with its limits and its guard. A port that does not exist is not an
// error. No VMM may use it: see tap.Remove.
func (p *ports) delete(name string) error {
	link, err := netlink.LinkByName(name)
	if err == nil {
		err = netlink.LinkDel(link)
	}
	if isGone(err) {
		err = nil
	}
	if err != nil {
		err = fmt.Errorf("delete %s: %w", name, err)
	}
	return errors.Join(err, p.forget(name))
}

// cut takes a TAP off the network, with its limits and its guard, and deletes it unless a VMM
// has it: then it stays, marked as ended.
func (p *ports) cut(name string) (left bool, err error) {
	left, err = tap.Remove(name)
	if left && err == nil {
		if err = setAlias(name, attachment.EndedAlias); isGone(err) { // closed meanwhile
			left, err = false, nil
		}
	}
	return left, errors.Join(err, p.forget(name))
}

// retire deletes a port, or cuts it if a VMM has it. Then it leaves the name to others.
func (p *ports) retire(name string) error {
	link, _ := netlink.LinkByName(name) // if there is none, its rules are left
	if _, is := link.(*netlink.Tuntap); !is {
		return p.delete(name)
	}
	left, err := p.cut(name)
	if left && err == nil {
		if err = netlink.LinkSetName(link, tap.RetiredName(link.Attrs().Index)); isGone(err) {
			err = nil
		}
	}
	return err
}

// forget removes what a port leaves behind.
func (p *ports) forget(name string) error {
	return errors.Join(ratelimit.Clear(name), p.setServices(name, nil), p.policies.disconnect(name), p.unguard(name))
}

// isGone reports whether an error says that a link does not exist.
func isGone(err error) bool {
	return errors.As(err, new(netlink.LinkNotFoundError)) || errors.Is(err, unix.ENODEV)
}

// retirePrefixed retires the ports of a guest that is gone, or whose VMM is not ours any more.
func (p *ports) retirePrefixed(prefixes ...string) error {
	names, err := portsWhere(func(l *netlink.LinkAttrs) bool { return isPort(l.Name, prefixes...) })
	guarded, failed := p.guarded() // also ports that went with their VMM
	err = errors.Join(err, failed)
	for name := range guarded {
		if isPort(name, prefixes...) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, name := range names {
		err = errors.Join(err, p.retire(name))
	}
	return err
}

// held returns a TAP with the prefix that exists because a process has its descriptor; ""
// if there is none. It does not see persistent TAPs.
func (p *ports) held(prefix string) (string, error) {
	links, err := netlinksafe.LinkList()
	if err != nil {
		return "", fmt.Errorf("list links: %w", err)
	}
	for _, l := range links {
		if t, ok := l.(*netlink.Tuntap); ok && t.NonPersist && isPort(t.Name, prefix) {
			return t.Name, nil
		}
	}
	return "", nil
}

// orphans lists our ports that have none of the prefixes.
func orphans(known []string) ([]string, error) {
	return portsWhere(func(l *netlink.LinkAttrs) bool {
		return strings.HasPrefix(l.Alias, attachment.WarmAlias) && !isPort(l.Name, known...)
	})
}

func portsWhere(match func(*netlink.LinkAttrs) bool) (names []string, err error) {
	links, err := netlinksafe.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	for _, l := range links {
		if match(l.Attrs()) {
			names = append(names, l.Attrs().Name)
		}
	}
	return names, nil
}

// isPort reports whether a link's name is a prefix followed by a digit: the prefix of
// one guest may begin that of another.
func isPort(name string, prefixes ...string) bool {
	return slices.ContainsFunc(prefixes, func(prefix string) bool {
		rest, ok := strings.CutPrefix(name, prefix)
		return ok && rest != "" && '0' <= rest[0] && rest[0] <= '9'
	})
}
