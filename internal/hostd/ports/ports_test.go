package ports

import (
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/hostd/attachment"
	"unnest.io/unnest/internal/hostd/networkpolicy"
	"unnest.io/unnest/internal/hostd/quota"
	"unnest.io/unnest/internal/netdev/antispoof"
	"unnest.io/unnest/internal/netdev/isolation"
	"unnest.io/unnest/internal/netdev/link"
	"unnest.io/unnest/internal/netdev/tap"
)

// inHost returns a function that calls another in a network namespace with the bridge br0.
func inHost(t *testing.T) (do func(func() error)) {
	t.Helper()
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		t.Skip("needs root and network namespaces: set UNNEST_PRIVILEGED=1")
	}
	host, err := ns.TempNetNS()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { host.Close() })
	do = func(f func() error) {
		t.Helper()
		if err := host.Do(func(ns.NetNS) error { return f() }); err != nil {
			t.Fatal(err)
		}
	}
	do(func() error { return netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}) })
	return do
}

// A filter that could not be opened is opened again for the next port.
func TestFilterIsOpenedAgain(t *testing.T) {
	tries, failed := 0, errors.New("netlink: no buffer space available")
	h := New(slog.New(slog.DiscardHandler))
	h.Open = func() (*antispoof.Table, error) { tries++; return nil, failed }
	for want := 1; want <= 3; want++ {
		if err := h.Guard("u1n1-1", "0a:00:01:00:01:01", nil, false, 0); !errors.Is(err, failed) || tries != want {
			t.Errorf("port %d: got %v after %d tries, want %v after %d", want, err, tries, failed, want)
		}
	}
}

// The metrics are collected while the first NIC opens the packet filter. The race
// detector finds an access that is not synchronized.
func TestDropsDuringFirstGuard(t *testing.T) {
	l := inHost(t)
	h := New(slog.New(slog.NewTextHandler(t.Output(), nil)))
	var wg sync.WaitGroup
	started, guarded := make(chan struct{}), make(chan struct{})
	wg.Go(func() {
		h.Drops()
		close(started)
		for {
			select {
			case <-guarded:
				return
			default:
				h.Drops()
			}
		}
	})
	<-started
	l(func() error { return h.Guard("u1n1-1", "0a:00:01:01:00:01", nil, false, 0) })
	close(guarded)
	wg.Wait()
	if drops := h.Drops(); drops["mac"] != 0 || len(drops) == 0 {
		t.Errorf("drops are %v, want every reason with 0", drops)
	}
}

// A port that is connected gets only frames for its MAC and for groups. When it is
// disconnected, and connected again for another pod, it is the same.
func TestConnectedPort(t *testing.T) {
	l := inHost(t)
	h := New(slog.New(slog.NewTextHandler(t.Output(), nil)))
	const port, mac = "u1n1-1", "0a:00:01:01:00:01"
	l(func() error {
		f, err := tap.Open(tap.Device{Name: port, MTU: 1400, Alias: attachment.WarmAlias})
		if err != nil {
			return err
		}
		t.Cleanup(func() { f.Close() })
		for range 2 {
			if err := h.Connect(nil, port, mac, attachment.Record{Bridge: "br0", MTU: 1400}, "alias", 0); err != nil {
				return err
			}
			link, err := netlink.LinkByName(port)
			if err != nil {
				return err
			}
			flags, err := netlink.LinkGetProtinfo(link)
			if err != nil || flags.Flood || !flags.Learning {
				t.Errorf("the port has %+v, %v", flags, err)
			}
			entries, err := netlink.NeighList(link.Attrs().Index, unix.AF_BRIDGE)
			if err != nil || !slices.ContainsFunc(entries, func(n netlink.Neigh) bool { return n.HardwareAddr.String() == mac && n.MasterIndex != 0 }) {
				t.Errorf("the bridge knows %v, %v", entries, err)
			}
			if err := h.Disconnect(nil, port, mac); err != nil {
				return err
			}
		}
		return h.Delete(nil, port)
	})
}

// stepFilter is a packet filter of connections that calls functions when it sets and ends the filter of a port.
type stepFilter struct {
	networkpolicy.Filter
	set, end func(isolation.Port) error
}

func (f stepFilter) Set(ports ...isolation.Port) error { return each(ports, f.set) }

func (f stepFilter) Prepare(func(), ...isolation.Port) (func() error, error) {
	return func() error { return nil }, nil
}

func (f stepFilter) Remove(ports ...isolation.Port) error { return each(ports, f.end) }

func each(ports []isolation.Port, f func(isolation.Port) error) (err error) {
	for _, p := range ports {
		err = errors.Join(err, f(p))
	}
	return err
}

// A guest may send from a pod's service address only while the filter of the address is there. Until that filter ends, the next daemon
// knows the address by the port's alias: a pod may run for a while after its NIC has gone. If the filter cannot end, the alias and the port's own
// filter stay.
func TestFilterOfServiceAddress(t *testing.T) {
	inHost(t)(func() error {
		const port, mac = "u1n1-1", "0a:00:01:00:01:01"
		service, refused := netip.MustParseAddr("10.0.1.1"), errors.New("the kernel refuses")
		r := attachment.Record{Bridge: "br0", Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/16")}, Services: []netip.Addr{service}}
		alias := attachment.Alias(attachment.Key{Owner: "c1", Name: "eth0"}, r)
		var begun, ended, portEnded int
		refuse := false
		h := New(slog.New(slog.NewTextHandler(t.Output(), nil)))
		closed := func(what string) {
			t.Helper()
			all, err := h.Opened().Ports()
			if err != nil || slices.ContainsFunc(all, func(g antispoof.Port) bool { return slices.Contains(g.Addresses, service) }) {
				t.Errorf("when the filter %s, the guest may send: ports %v, error %v", what, all, err)
			}
		}
		h.Policies = networkpolicy.New(t.TempDir(), slog.New(slog.DiscardHandler))
		h.Policies.Open = func([]isolation.Port) (networkpolicy.Filter, error) {
			return stepFilter{
				set: func(p isolation.Port) error {
					if p.Address == service {
						begun++
						closed("begins")
					}
					return nil
				},
				end: func(p isolation.Port) error {
					switch {
					case p.Interface == port:
						portEnded++
					case p.Address == service && refuse:
						return refused
					case p.Address == service:
						ended++
						closed("ends")
						if l, err := link.Find(port); err != nil || !strings.HasPrefix(l.Alias, attachment.WarmAlias+"c1/eth0 ") {
							t.Errorf("when the filter ends, the port is %+v, error %v: the next daemon would not know the address", l, err)
						}
					}
					return nil
				},
			}, nil
		}
		if _, err := h.Policies.Configure([]quota.Tenant{{Name: "shop", Bridge: "br0", NetworkPolicy: quota.PolicyRequired}}); err != nil {
			return err
		}
		own := OwnGuard{MAC: "0a:00:01:00:00:01", Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.9")}, Pods: []string{"u1n"}}
		if err := h.GuardOwn("tap0", own); err != nil {
			return err
		}
		for name, end := range map[string]func() error{
			"disconnect": func() error { return h.Disconnect(nil, port, mac) },
			"delete":     func() error { return h.Delete(nil, port) },
			"cut": func() error {
				_, err := h.Cut(nil, port)
				return err
			},
		} {
			f, err := tap.Open(tap.Device{Name: port, MTU: 1400, Alias: attachment.WarmAlias})
			if err != nil {
				return err
			}
			begun, ended, portEnded = 0, 0, 0
			other := r
			other.Services = []netip.Addr{netip.MustParseAddr("10.0.1.2")}
			for i, record := range []attachment.Record{r, other, r} { // another address in its place, and back
				err := h.Connect(nil, port, mac, record, attachment.Alias(attachment.Key{Owner: "c1", Name: "eth0"}, record), 0)
				if err != nil || begun != 1+i/2 || ended != (i+1)/2 {
					t.Errorf("%s: the filter of the address has begun %d times and ended %d times, error %v", name, begun, ended, err)
				}
			}
			refuse = true
			err = end()
			l, failed := link.Find(port)
			if !errors.Is(err, refused) || failed != nil || l.Alias != alias || l.Master != 0 || portEnded != 0 {
				t.Errorf("%s, refused: error %v, the port is %+v, %v, its filter has ended %d times", name, err, l, failed, portEnded)
			}
			refuse = false
			if err := end(); err != nil || ended != 2 || portEnded != 1 {
				t.Errorf("%s: the filter of the address has ended %d times, want twice, that of the port %d times, error %v", name, ended, portEnded, err)
			}
			if err := f.Close(); err != nil {
				return err
			}
		}
		return nil
	})
}
