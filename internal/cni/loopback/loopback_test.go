package loopback

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/cni/podnic"
	"unnest.io/unnest/internal/hostapi/segment"
	"unnest.io/unnest/internal/netdev/tc"
)

// picture is everything that joining changes in a fraction.
func (w *world) picture(f segment.Fraction) (lines []string) {
	w.t.Helper()
	w.in(f, func() error {
		for _, name := range []string{routeLocalnet, acceptLocal, portRange, disableIPv6(nicName), disableIPv6("lo")} {
			data, err := os.ReadFile("/proc/sys/net/" + name)
			if err != nil {
				return err
			}
			lines = append(lines, name+" "+string(data))
		}
		links, err := netlink.LinkList()
		if err != nil {
			return err
		}
		for _, l := range links {
			a := l.Attrs()
			lines = append(lines, fmt.Sprintf("%s MTU %d %v %s", a.Name, a.MTU, a.Flags&net.FlagUp, a.HardwareAddr))
			qdiscs, err := netlink.QdiscList(l)
			if err != nil {
				return err
			}
			for _, q := range qdiscs {
				if q.Type() != "clsact" {
					continue
				}
				lines = append(lines, a.Name+" has clsact")
				for _, hook := range []uint32{netlink.HANDLE_MIN_INGRESS, netlink.HANDLE_MIN_EGRESS} {
					filters, err := netlink.FilterList(l, hook)
					if err != nil {
						return err
					}
					for _, filter := range filters {
						lines = append(lines, fmt.Sprintf("%s has %s at %x", a.Name, filter.(*netlink.BpfFilter).Name, hook))
					}
				}
			}
		}
		routes, err := netlink.RouteListFiltered(unix.AF_INET6, &netlink.Route{Table: unix.RT_TABLE_LOCAL, LinkIndex: lo.Index}, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_OIF)
		for _, r := range routes {
			lines = append(lines, r.Dst.String())
		}
		return err
	})
	return lines
}

// addFilter adds a filter of another owner, which passes everything.
func addFilter(l netlink.Link, hook uint32, priority uint16) error {
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.SchedCLS, License: "Apache-2.0",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, -1), asm.Return()},
	})
	if err != nil {
		return err
	}
	defer p.Close()
	return netlink.FilterAdd(&netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{LinkIndex: l.Attrs().Index, Parent: hook, Handle: 1, Priority: priority, Protocol: unix.ETH_P_IP},
		Fd:          p.FD(), Name: "other", DirectAction: true,
	})
}

// Leave restores the state before Join.
func TestLeaveRestores(t *testing.T) {
	w := emptyWorld(t, 2)
	w.joined = segment.Of(1, 2)
	w.set(2, routeLocalnet, "1")
	w.set(2, acceptLocal, "1")
	w.set(2, portRange, "20000 20999")
	w.in(2, func() error {
		link, err := netlink.LinkByName(nicName)
		if err != nil {
			return err
		}
		return errors.Join(
			netlink.LinkSetMTU(link, 9000), netlink.LinkSetUp(link), podnic.SetSysctl(disableIPv6(nicName), "1"),
			netlink.QdiscAdd(tc.Qdisc(lo)), netlink.QdiscAdd(tc.Qdisc(link)),
			addFilter(lo, netlink.HANDLE_MIN_EGRESS, 1))
	})
	for f := range w.joined.All() {
		before := w.picture(f)
		for range 2 { // the second has nothing to do
			if err := Leave(w.pods[f], nicName); err != nil {
				t.Error(err)
			}
		}
		if got := w.picture(f); !cmp.Equal(got, before) {
			t.Errorf("fraction %d: leaving without a segment changes:\n%s", f, cmp.Diff(before, got))
		}
		for range 2 { // the second joins again
			if err := Join(w.pods[f], nicName, w.config(f)); err != nil {
				t.Fatal(err)
			}
			if got := w.picture(f); cmp.Equal(got, before) {
				t.Errorf("fraction %d: joining changes nothing", f)
			}
		}
		if err := Check(w.pods[f], nicName, w.config(f)); err != nil {
			t.Error(err)
		}
		if err := Leave(w.pods[f], nicName); err != nil {
			t.Error(err)
		}
		if got := w.picture(f); !cmp.Equal(got, before) {
			t.Errorf("fraction %d: not restored:\n%s", f, cmp.Diff(before, got))
		}
		if _, err := Membership(w.pods[f]); !errors.Is(err, ErrNotJoined) {
			t.Errorf("fraction %d: got %v, want %v", f, err, ErrNotJoined)
		}
	}
}

// Another owner's filter next to ours stays, with its qdisc.
func TestLeaveKeepsOthersFilter(t *testing.T) {
	w := newWorld(t, 1)
	w.in(1, func() error {
		return addFilter(lo, netlink.HANDLE_MIN_INGRESS, 1)
	})
	if err := Leave(w.pods[1], nicName); err != nil {
		t.Error(err)
	}
	if got := strings.Join(w.picture(1), "\n"); !strings.Contains(got, "lo has other") || strings.Contains(got, filterName) {
		t.Errorf("got:\n%s", got)
	}
}

// Leave also works after another process has detached lo's program.
func TestLeaveWithoutProgram(t *testing.T) {
	w := emptyWorld(t, 1)
	before := w.picture(1)
	w.join(segment.Of(1))
	w.in(1, func() error { return netlink.QdiscDel(tc.Qdisc(lo)) })
	if err := Leave(w.pods[1], nicName); err != nil {
		t.Error(err)
	}
	if got := w.picture(1); !cmp.Equal(got, before) {
		t.Errorf("not restored:\n%s", cmp.Diff(before, got))
	}
}

func TestLeaveWithoutNIC(t *testing.T) {
	w := newWorld(t, 1)
	w.in(1, func() error {
		link, err := netlink.LinkByName(nicName)
		if err != nil {
			return err
		}
		return netlink.LinkDel(link)
	})
	if err := Check(w.pods[1], nicName, w.config(1)); err == nil || !strings.Contains(err.Error(), nicName) {
		t.Errorf("check: got %v, want an error that names %s", err, nicName)
	}
	if err := Leave(w.pods[1], nicName); err != nil {
		t.Error(err)
	}
}

// Leave also restores the range of the clients' ports, which earlier versions of Join set.
func TestLeaveEarlierVersion(t *testing.T) {
	w := emptyWorld(t, 1)
	w.set(1, portRange, "20000 20999")
	before := w.picture(1)
	w.join(segment.Of(1))
	w.set(1, portRange, "32768 34531")
	w.in(1, func() error {
		m, state, err := findMap(lo, netlink.HANDLE_MIN_EGRESS)
		if err != nil {
			return err
		}
		state.FirstPort, state.Ports = 32768, 1764
		state.Former.FirstPort, state.Former.LastPort = 20000, 20999
		return errors.Join(m.Put(uint32(0), state), m.Close())
	})
	if err := Leave(w.pods[1], nicName); err != nil {
		t.Error(err)
	}
	if got := w.picture(1); !cmp.Equal(got, before) {
		t.Errorf("not restored:\n%s", cmp.Diff(before, got))
	}
}

// A join that fails changes nothing.
func TestJoinFails(t *testing.T) {
	w := emptyWorld(t, 1)
	before := w.picture(1)
	for _, c := range []struct {
		nic    string
		config Config
		word   string
	}{
		{nicName, Config{Fraction: 2, Members: segment.Of(1, 2)}, "want fraction 2's, 02:68:35:00:00:02"},
		{"eth9", Config{Fraction: 1, Members: segment.Of(1, 2)}, "eth9"},
		{nicName, Config{Fraction: 1, Members: segment.Of(2, 3)}, "members 2,3"},
		{nicName, Config{Fraction: 17, Members: segment.Of(17)}, "fractions from 1 to 16"},
		{nicName, Config{Members: segment.Of(1)}, "fractions from 1 to 16"},
	} {
		if err := Join(w.pods[1], c.nic, c.config); err == nil || !strings.Contains(err.Error(), c.word) {
			t.Errorf("%+v: got %v, want an error with %q", c.config, err, c.word)
		}
		if got := w.picture(1); !cmp.Equal(got, before) {
			t.Errorf("%+v: changed:\n%s", c.config, cmp.Diff(before, got))
		}
	}
	// A step in the middle: another protocol's filters have our priority at the NIC.
	w.in(1, func() error {
		link, err := netlink.LinkByName(nicName)
		if err != nil {
			return err
		}
		return errors.Join(netlink.QdiscAdd(tc.Qdisc(link)), addFilter(link, netlink.HANDLE_MIN_INGRESS, priority))
	})
	before = w.picture(1)
	if err := Join(w.pods[1], nicName, Config{Fraction: 1, Members: segment.Of(1)}); err == nil || !strings.Contains(err.Error(), "attach program to "+nicName) {
		t.Errorf("got %v, want an error at attaching to %s", err, nicName)
	}
	if got := w.picture(1); !cmp.Equal(got, before) {
		t.Errorf("changed:\n%s", cmp.Diff(before, got))
	}
}

// Check reports every change.
func TestCheck(t *testing.T) {
	w := newWorld(t, 1)
	link := func(change func(netlink.Link) error) func() error {
		return func() error {
			l, err := netlink.LinkByName(nicName)
			if err != nil {
				return err
			}
			return change(l)
		}
	}
	for _, c := range []struct {
		word   string
		change func() error
	}{
		{"link 9: want", nil},
		{"want it up", link(netlink.LinkSetDown)},
		{"MTU 1500", link(func(l netlink.Link) error { return netlink.LinkSetMTU(l, 1500) })},
		{"02:00:00:00:00:01", link(func(l netlink.Link) error {
			return netlink.LinkSetHardwareAddr(l, net.HardwareAddr{2, 0, 0, 0, 0, 1})
		})},
		{"lacks the segment's program at its ingress", link(func(l netlink.Link) error { return netlink.QdiscDel(tc.Qdisc(l)) })},
		{ErrNotJoined.Error(), func() error { return netlink.QdiscDel(tc.Qdisc(lo)) }},
		{routeLocalnet, func() error { return podnic.SetSysctl(routeLocalnet, "0") }},
		{acceptLocal, func() error { return podnic.SetSysctl(acceptLocal, "0") }},
		{disableIPv6(nicName), func() error { return podnic.SetSysctl(disableIPv6(nicName), "0") }},
	} {
		want := w.config(1)
		if c.change == nil {
			c.word, want.Fraction = "want fraction 2's", 2
		} else {
			w.in(1, c.change)
		}
		if err := Check(w.pods[1], nicName, want); err == nil || !strings.Contains(err.Error(), c.word) {
			t.Errorf("got %v, want an error with %q", err, c.word)
		}
		mac := segment.MAC(1)
		w.in(1, link(func(l netlink.Link) error { return netlink.LinkSetHardwareAddr(l, mac[:]) }))
		if err := Join(w.pods[1], nicName, w.config(1)); err != nil {
			t.Fatal(err)
		}
		if err := Check(w.pods[1], nicName, w.config(1)); err != nil {
			t.Errorf("after joining again: %v", err)
		}
	}
}

func TestProbe(t *testing.T) {
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		t.Skip("needs root: set UNNEST_PRIVILEGED=1")
	}
	if err := Probe(); err != nil {
		t.Error(err)
	}
}

// Each error that a kernel or a caller may cause has a fix.
func TestFix(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{unix.EPERM, "root"},
		{unix.ENOENT, "CONFIG_NET_SCH_INGRESS"},
		{unix.EOPNOTSUPP, "CONFIG_NET_CLS_BPF"},
		{unix.EINVAL, ""},
		{nil, ""},
	} {
		if got := fix(c.err); !strings.Contains(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%v: got %q, want it with %q", c.err, got, c.want)
		}
	}
}
