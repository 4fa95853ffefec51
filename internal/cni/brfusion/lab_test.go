package brfusion_test

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/containernetworking/plugins/pkg/ns"
	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/cni/attachment"
	"unnest.io/unnest/internal/cni/brfusion"
	"unnest.io/unnest/internal/cni/cnitest"
	"unnest.io/unnest/internal/cni/netavark"
	"unnest.io/unnest/internal/cni/plugin"
	"unnest.io/unnest/internal/hostapi/hostdpb"
)

// TestMain is the plugin, or netavark's, when the test binary is called by its name.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == netavark.Name {
		os.Exit(netavark.Main(context.Background(), os.Args[1:], os.Stdin, os.Stdout))
	}
	if filepath.Base(os.Args[0]) == reclaimName {
		os.Exit(reclaimMain())
	}
	if filepath.Base(os.Args[0]) == "brfusion" {
		// Podman's cleanup in the background has not the environment of the test.
		attachment.StateDir = cmp.Or(os.Getenv("TEST_STATE_DIR"), filepath.Join(filepath.Dir(os.Args[0]), "run"))
		os.Exit(plugin.Main(os.Args[0], os.Stderr, brfusion.Plugin))
	}
	os.Exit(m.Run())
}

var with, edits, path = cnitest.With, cnitest.Edits, cnitest.Path

// lab has a fake host daemon.
type lab struct {
	*cnitest.Lab
	t      *testing.T
	daemon *fakeDaemon
}

func newLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{Lab: cnitest.New(t, "brfusion"), t: t}
	if _, err := os.Stat(filepath.Join(cnitest.PluginDir, "host-local")); err != nil {
		t.Fatalf("install containernetworking-plugins: %v", err)
	}
	l.daemon = &fakeDaemon{lab: l, protocol: 2, nics: map[string]*hostdpb.NIC{}}
	l.daemon.start()
	return l
}

// config is a configuration of the plugin, changed by the given edits.
func (l *lab) config(edits ...func(map[string]any)) []byte {
	l.t.Helper()
	return l.Config(map[string]any{
		"name": "brf",
		"ipam": map[string]any{
			"type": "host-local", "dataDir": filepath.Join(l.Dir, "leases"),
			"ranges": []any{[]any{map[string]any{"subnet": "10.201.0.0/16", "rangeStart": "10.201.0.7", "rangeEnd": "10.201.0.7", "gateway": "10.201.0.1"}}},
			"routes": []any{map[string]any{"dst": "0.0.0.0/0"}},
		},
	}, edits...)
}

// leases are the addresses that host-local has leased.
func (l *lab) leases() []string {
	found, err := filepath.Glob(filepath.Join(l.Dir, "leases", "*", "10.*"))
	l.Must(err)
	return found
}

// wantNothing fails the test unless the guest, the host, the daemon and the IPAM are clean.
func (l *lab) wantNothing() {
	l.t.Helper()
	l.WantClean()
	if nics := l.daemon.all(); len(nics) > 0 {
		l.t.Errorf("the daemon still has %v", nics)
	}
	if leases := l.leases(); len(leases) > 0 {
		l.t.Errorf("host-local still has %v", leases)
	}
}

// frames receives the ARP frames that arrive at the host's end of the NIC.
func (l *lab) frames() (arp func() []byte) {
	l.t.Helper()
	var fd int
	l.Must(l.Host.Do(func(ns.NetNS) (err error) {
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0x0608) // ETH_P_ARP in network order
		return err
	}))
	l.t.Cleanup(func() { _ = unix.Close(fd) })
	l.Must(unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 60}))
	return func() []byte {
		b := make([]byte, 128)
		n, _, err := unix.Recvfrom(fd, b, 0)
		l.Must(err)
		return b[:n]
	}
}
