//go:build profile

package loopback

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"

	"unnest.io/unnest/internal/hostapi/segment"
	"unnest.io/unnest/internal/measure/stats"
)

// path is a way that short connections take in a pod, and the ordinary way that it is compared
// with, without Hostlo.
type path struct {
	name             string
	pod, ordinary    end
	ratios           map[string]stats.Effect // by family
	pods, ordinaries map[string][]stats.Observation
}

// end is where clients and their server are.
type end struct {
	world          *world
	client, server segment.Fraction
	address        func(family string) string
}

func loopbackOf(family string) string {
	if family == "4" {
		return "127.0.0.1"
	}
	return "::1"
}

// nicAddress is the address of the segment's NIC in a fraction that has not joined.
func nicAddress(f segment.Fraction, family string) string {
	if family == "4" {
		return fmt.Sprintf("10.2.0.%d", f)
	}
	return fmt.Sprintf("fd02::%d", f)
}

// addressNIC makes the segment's NIC an ordinary one, with an address. Frames that ask for an
// address of another fraction are not needed.
func (w *world) addressNIC(f segment.Fraction) {
	w.t.Helper()
	w.in(f, func() error {
		nic, err := netlink.LinkByName(nicName)
		if err != nil {
			return err
		}
		errs := []error{setUp(nicName, nicAddress(f, "4")+"/24", nicAddress(f, "6")+"/64")}
		for other := range w.pods {
			if other == elsewhere {
				continue
			}
			mac := segment.MAC(other)
			for _, family := range []string{"4", "6"} {
				errs = append(errs, netlink.NeighSet(&netlink.Neigh{LinkIndex: nic.Attrs().Index, State: netlink.NUD_PERMANENT,
					IP: net.ParseIP(nicAddress(other, family)), HardwareAddr: mac[:]}))
			}
		}
		return errors.Join(errs...)
	})
	if w.t.Failed() {
		w.t.FailNow()
	}
}

// bridgedWorld is a world with n fractions that have not joined. In place of a process, a bridge copies frames between
// their NICs, each the end of a veth pair: the kernel does all of it.
func bridgedWorld(t testing.TB, n int) *world {
	t.Helper()
	w := &world{t: t, pods: map[segment.Fraction]ns.NetNS{}}
	const bridge, port = "hostlo", "port%d"
	for f := elsewhere; f <= segment.Fraction(n); f++ {
		pod, err := ns.TempNetNS()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = pod.Close() })
		w.pods[f] = pod
	}
	w.in(elsewhere, func() error {
		snooping := false
		hub := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: bridge, MTU: bridgedMTU}, MulticastSnooping: &snooping}
		errs := []error{netlink.LinkAdd(hub), setUp(bridge)}
		for f := segment.Fraction(1); f <= segment.Fraction(n); f++ {
			mac := segment.MAC(f)
			name := fmt.Sprintf(port, f)
			errs = append(errs, netlink.LinkAdd(&netlink.Veth{
				LinkAttrs: netlink.LinkAttrs{Name: name, MTU: bridgedMTU, MasterIndex: hub.Index},
				PeerName:  nicName, PeerNamespace: netlink.NsFd(w.pods[f].Fd()), PeerHardwareAddr: mac[:], PeerMTU: bridgedMTU,
			}), setUp(name))
		}
		return errors.Join(errs...)
	})
	delete(w.pods, elsewhere)
	for f := range w.pods {
		w.in(f, func() error { return netlink.LinkSetUp(lo) })
	}
	if t.Failed() {
		t.FailNow()
	}
	return w
}

// bridgedMTU is that of TAPs.
const bridgedMTU = 1500

// TestConnectionRates compares rates of short connections in a pod of two fractions with those
// of ordinary network namespaces, in rounds of a random order. Each connection carries 200
// bytes there and back. Eight clients connect at once.
func TestConnectionRates(t *testing.T) {
	const rounds, connections = 20, 800
	pod, ordinary := routedWorld(t, 2), ordinaryWorld(t, 2)
	bridgedPod, bridged := bridgedWorld(t, 2), bridgedWorld(t, 2)
	bridgedPod.join(segment.Set(0).With(1).With(2))
	for f := range bridged.pods {
		ordinary.addressNIC(f)
		bridged.addressNIC(f)
	}
	for _, w := range []*world{pod, ordinary, bridgedPod, bridged} {
		for f := range w.pods {
			w.set(f, "ipv4/tcp_tw_reuse", "1") // as on loopback: else the ports of clients run out
		}
	}
	own := func(family string) string { return address(1, family) }
	outside := func(family string) string { return strings.TrimSuffix(address(1, family), "2") + "1" }
	second := func(family string) string { return nicAddress(2, family) }
	paths := []*path{
		{name: "within a fraction", pod: end{pod, 1, 1, loopbackOf}, ordinary: end{ordinary, 1, 1, loopbackOf}},
		{name: "across fractions", pod: end{pod, 1, 2, loopbackOf}, ordinary: end{ordinary, 1, 1, loopbackOf}},
		{name: "across fractions, compared with two namespaces that the same process connects", pod: end{pod, 1, 2, loopbackOf}, ordinary: end{ordinary, 1, 2, second}},
		{name: "across fractions that a bridge connects", pod: end{bridgedPod, 1, 2, loopbackOf}, ordinary: end{ordinary, 1, 1, loopbackOf}},
		{name: "across fractions, compared with two namespaces, a bridge connects both", pod: end{bridgedPod, 1, 2, loopbackOf}, ordinary: end{bridged, 1, 2, second}},
		{name: "to the outside", pod: end{pod, 1, elsewhere, outside}, ordinary: end{ordinary, 1, elsewhere, outside}},
		{name: "from the outside", pod: end{pod, elsewhere, 1, own}, ordinary: end{ordinary, elsewhere, 1, own}},
	}
	port := 0
	var ps []float64
	for _, p := range paths {
		p.pods, p.ordinaries, p.ratios = map[string][]stats.Observation{}, map[string][]stats.Observation{}, map[string]stats.Effect{}
		for _, family := range []string{"4", "6"} {
			port++
			at := func(e end) string { return net.JoinHostPort(e.address(family), strconv.Itoa(8200+port)) }
			rate := func(e end, n int) float64 { return e.world.connectionRate(e.client, "tcp"+family, at(e), n) }
			for _, e := range []end{p.pod, p.ordinary} {
				e.world.listen(e.server, "tcp"+family, at(e))
			}
			rate(p.pod, connections/4) // finds the server
			for block := range rounds {
				for _, i := range rand.Perm(2) {
					if i == 0 {
						p.pods[family] = append(p.pods[family], stats.Observation{Block: block, Value: rate(p.pod, connections)})
					} else {
						p.ordinaries[family] = append(p.ordinaries[family], stats.Observation{Block: block, Value: rate(p.ordinary, connections)})
					}
				}
			}
			e, err := stats.Compare(p.pods[family], p.ordinaries[family], true)
			if err != nil {
				t.Fatal(err)
			}
			p.ratios[family] = e
			ps = append(ps, e.P())
		}
	}
	all := stats.Judge(ps, stats.DefaultAlpha)
	t.Logf("| connections | IPv | pod, connections/s | ordinary | ratio, %.1f %% |", 100*all.Confidence())
	for _, p := range paths {
		for _, family := range []string{"4", "6"} {
			e := p.ratios[family]
			i, verdict := e.Judge(all, stats.DefaultMargin, true)
			t.Logf("| %s | %s | %.0f | %.0f | %.2f [%.2f, %.2f], %s |", p.name, family,
				median(stats.Values(p.pods[family])), median(stats.Values(p.ordinaries[family])), e.Ratio(), i.Low, i.High, verdict)
		}
	}
}

// connectionRate opens n connections from a fraction, eight at once, and returns how many it
// opened in a second.
func (w *world) connectionRate(from segment.Fraction, network, address string, n int) float64 {
	w.t.Helper()
	const clients = 8
	failures := make([]error, clients)
	message := strings.Repeat("x", 200)
	var all sync.WaitGroup
	start := time.Now()
	for i := range clients {
		all.Go(func() {
			failures[i] = w.pods[from].Do(func(ns.NetNS) error {
				for range n / clients {
					d := dialer()
					c, err := d.DialContext(w.t.Context(), network, address)
					if err != nil {
						return err
					}
					if err := errors.Join(echo(c, message), c.Close()); err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
	all.Wait()
	if err := errors.Join(failures...); err != nil {
		w.t.Fatal(err)
	}
	return float64(n) / time.Since(start).Seconds()
}
