package bridge

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// This file looks for what other programs of the host do to forwarded frames, such as Docker, which
// turns bridge-nf-call on and sets the policy of the chain FORWARD to drop when it starts.

// bridgeCalls are the settings of a network namespace that pass frames of its bridges to the rules of
// the IP layer, and the same setting of one bridge (linux/if_link.h). A frame is passed on if either
// is 1.
var bridgeCalls = []struct {
	file      string
	attribute int
}{
	{"net/bridge/bridge-nf-call-iptables", unix.IFLA_BR_NF_CALL_IPTABLES},
	{"net/bridge/bridge-nf-call-ip6tables", unix.IFLA_BR_NF_CALL_IP6TABLES},
}

// Called returns the settings bridge-nf-call of the calling thread's network namespace that are on.
func Called() (on []string, err error) {
	for _, c := range bridgeCalls {
		value, err := os.ReadFile(filepath.Join("/proc/sys", c.file))
		switch {
		case errors.Is(err, fs.ErrNotExist): // the kernel has no such filter
		case err != nil:
			return nil, err
		case strings.TrimSpace(string(value)) != "0":
			on = append(on, c.file)
		}
	}
	return on, nil
}

// StopCalls turns bridge-nf-call off in the calling thread's network namespace, and on at each bridge
// that is not one of ours: so the frames of other programs' bridges are passed on as before. It returns
// the settings that were on.
func StopCalls(ours []string) (on []string, err error) {
	if on, err = Called(); err != nil || len(on) == 0 {
		return nil, err
	}
	links, err := netlinksafe.LinkList()
	if err != nil {
		return on, fmt.Errorf("list bridges: %w", err)
	}
	for _, c := range bridgeCalls {
		if !slices.Contains(on, c.file) {
			continue
		}
		for _, l := range links {
			if _, is := l.(*netlink.Bridge); is && !slices.Contains(ours, l.Attrs().Name) {
				if err := setBridge(l, c.attribute, []byte{1}); err != nil && !errors.Is(err, unix.ENODEV) {
					return on, fmt.Errorf("turn %s on at %s only: %w", c.file, l.Attrs().Name, err)
				}
			}
		}
		if err := os.WriteFile(filepath.Join("/proc/sys", c.file), []byte("0"), 0); err != nil {
			return on, fmt.Errorf("set %s: %w", c.file, err)
		}
	}
	return on, nil
}

// stopOwnCalls turns bridge-nf-call off at bridges: StopCalls has turned it on at those that were not ours.
func stopOwnCalls(ours []string) error {
	for _, name := range ours {
		l, err := netlink.LinkByName(name)
		for _, c := range bridgeCalls {
			_, is := l.(*netlink.Bridge)
			if _, unknown := os.Stat(filepath.Join("/proc/sys", c.file)); is && err == nil && unknown == nil {
				err = setBridge(l, c.attribute, []byte{0})
			}
		}
		if err != nil && !errors.As(err, new(netlink.LinkNotFoundError)) && !errors.Is(err, unix.ENODEV) {
			return fmt.Errorf("turn bridge-nf-call off at %s: %w", name, err)
		}
	}
	return nil
}

// setBridge sets an attribute of a bridge, of linux/if_link.h.
func setBridge(bridge netlink.Link, attribute int, value []byte) error {
	info := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	info.AddRtAttr(nl.IFLA_INFO_KIND, nl.NonZeroTerminated(bridge.Type()))
	info.AddRtAttr(nl.IFLA_INFO_DATA, nil).AddRtAttr(attribute, value)
	message := nl.NewIfInfomsg(unix.AF_UNSPEC)
	message.Index = int32(bridge.Attrs().Index)
	request := nl.NewNetlinkRequest(unix.RTM_NEWLINK, unix.NLM_F_ACK)
	request.AddData(message)
	request.AddData(info)
	_, err := request.Execute(unix.NETLINK_ROUTE, 0)
	return err
}

// Dropper is a chain of nftables that drops forwarded packets unless a rule accepts them.
type Dropper struct {
	Family, Table, Chain string   // as nft names them
	named                []string // interfaces that the table's rules name
}

func (d Dropper) String() string { return d.Family + " " + d.Table + " " + d.Chain }

// Names reports whether a rule of the chain's table names a bridge: then the operator has seen to it.
func (d Dropper) Names(bridge string) bool { return slices.Contains(d.named, bridge) }

var droppingFamilies = map[nftables.TableFamily]string{
	nftables.TableFamilyIPv4: "ip", nftables.TableFamilyIPv6: "ip6", nftables.TableFamilyINet: "inet",
}

// Droppers lists the chains of the calling thread's network namespace that drop what no rule accepts.
// It does not see chains of iptables-legacy.
func Droppers() (all []Dropper, err error) {
	c, err := nftables.New()
	if err != nil {
		return nil, fmt.Errorf("open nftables: %w", err)
	}
	chains, err := c.ListChains()
	if err != nil {
		return nil, fmt.Errorf("list chains of nftables: %w", err)
	}
	for _, ch := range chains {
		family, known := droppingFamilies[ch.Table.Family]
		if !known || ch.Hooknum == nil || *ch.Hooknum != *nftables.ChainHookForward || ch.Policy == nil || *ch.Policy != nftables.ChainPolicyDrop {
			continue
		}
		d := Dropper{Family: family, Table: ch.Table.Name, Chain: ch.Name}
		for _, other := range chains {
			if other.Table.Name != ch.Table.Name || other.Table.Family != ch.Table.Family {
				continue
			}
			rules, err := c.GetRules(ch.Table, other)
			if err != nil {
				continue // rules that cannot be read name nothing
			}
			for _, r := range rules {
				d.named = append(d.named, interfaces(r)...)
			}
		}
		all = append(all, d)
	}
	return all, nil
}

// interfaces are the names that a rule compares with the interface of a packet.
func interfaces(r *nftables.Rule) (names []string) {
	meta := false
	for _, e := range r.Exprs {
		switch e := e.(type) {
		case *expr.Meta:
			meta = e.Key == expr.MetaKeyIIFNAME || e.Key == expr.MetaKeyOIFNAME
		case *expr.Cmp:
			if meta {
				name, _, _ := bytes.Cut(e.Data, []byte{0})
				names = append(names, string(name))
			}
			meta = false
		}
	}
	return names
}
