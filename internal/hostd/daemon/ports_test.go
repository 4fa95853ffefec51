package daemon

import (
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"unnest/internal/hostd/attachment"
	"unnest/internal/netdev/antispoof"
	"unnest/internal/netdev/tap"
)

// A filter that could not be opened is opened again for the next port.
func TestFilterIsOpenedAgain(t *testing.T) {
	tries, failed := 0, errors.New("netlink: no buffer space available")
	h := &ports{log: slog.New(slog.DiscardHandler), open: func() (*antispoof.Table, error) { tries++; return nil, failed }}
	for want := 1; want <= 3; want++ {
		if err := h.guard("u1n1-1", "0a:00:01:00:01:01", nil, false, 0); !errors.Is(err, failed) || tries != want {
			t.Errorf("port %d: got %v after %d tries, want %v after %d", want, err, tries, failed, want)
		}
	}
}

// The metrics are collected while the first NIC opens the packet filter. The race
// detector finds an access that is not synchronized.
func TestDropsDuringFirstGuard(t *testing.T) {
	l := newLab(t)
	h := &ports{log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	var wg sync.WaitGroup
	started, guarded := make(chan struct{}), make(chan struct{})
	wg.Go(func() {
		h.drops()
		close(started)
		for {
			select {
			case <-guarded:
				return
			default:
				h.drops()
			}
		}
	})
	<-started
	l.do(func() error { return h.guard("u1n1-1", "0a:00:01:01:00:01", nil, false, 0) })
	close(guarded)
	wg.Wait()
	if drops := h.drops(); drops["mac"] != 0 || len(drops) == 0 {
		t.Errorf("drops are %v, want every reason with 0", drops)
	}
}

// A port that is connected gets only frames for its MAC and for groups. When it is
// disconnected, and connected again for another pod, it is the same.
func TestConnectedPort(t *testing.T) {
	l := newLab(t)
	h := newPorts(slog.New(slog.NewTextHandler(t.Output(), nil)))
	const port, mac = "u1n1-1", "0a:00:01:01:00:01"
	l.do(func() error {
		f, err := tap.Open(tap.Device{Name: port, MTU: 1400, Alias: attachment.WarmAlias})
		if err != nil {
			return err
		}
		t.Cleanup(func() { f.Close() })
		for range 2 {
			if err := h.connect(port, mac, attachment.Record{Bridge: "br0", MTU: 1400}, "alias", 0); err != nil {
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
			if err := h.disconnect(port, mac); err != nil {
				return err
			}
		}
		return h.delete(port)
	})
}
