package ports

import (
	"errors"
	"log/slog"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/hostd/attachment"
	"unnest.io/unnest/internal/netdev/antispoof"
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
