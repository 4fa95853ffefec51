//go:build profile

package loopback

import (
	"errors"
	goflag "flag"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/hostapi/segment"
)

var oldPrograms = goflag.String("old-programs", "", "object `file` with earlier programs, for TestComparePrograms")

// clientPorts are how many ports earlier programs gave to each fraction, from firstPort.
const firstPort, clientPorts = 32768, 1764

// compared is a world whose fractions run one version of the programs.
type compared struct {
	*world
	programs map[segment.Fraction][]*ebpf.Program
}

// useOld replaces the programs of all fractions by those of an object file.
func (c *compared) useOld(file string) {
	c.t.Helper()
	for f := range c.joined.All() {
		spec, err := ebpf.LoadCollectionSpec(file)
		if err != nil {
			c.t.Fatal(err)
		}
		all, err := ebpf.NewCollection(spec)
		if err != nil {
			c.t.Fatal(err)
		}
		c.t.Cleanup(all.Close)
		c.in(f, func() error {
			m, state, err := findMap(lo, netlink.HANDLE_MIN_EGRESS)
			if err != nil {
				return err
			}
			defer m.Close()
			state.FirstPort, state.Ports = firstPort, clientPorts
			nic, err := netlink.LinkByName(nicName)
			if err != nil {
				return err
			}
			return errors.Join(all.Maps["hostlo_segment"].Put(uint32(0), state),
				attach(lo, all.Programs["leave_lo"], netlink.HANDLE_MIN_EGRESS),
				attach(nic, all.Programs["enter_nic"], netlink.HANDLE_MIN_INGRESS))
		})
	}
	if c.t.Failed() {
		c.t.FailNow()
	}
}

func (c *compared) findPrograms() {
	c.t.Helper()
	c.programs = map[segment.Fraction][]*ebpf.Program{}
	for f := range c.joined.All() {
		c.set(f, portRange, fmt.Sprintf("%d %d", firstPort+clientPorts*int(f-1), firstPort+clientPorts*int(f)-1))
		c.in(f, func() error {
			nic, err := netlink.LinkByName(nicName)
			if err != nil {
				return err
			}
			for _, at := range []struct {
				link netlink.Link
				hook uint32
			}{{lo, netlink.HANDLE_MIN_EGRESS}, {nic, netlink.HANDLE_MIN_INGRESS}} {
				filter, err := ours(at.link, at.hook)
				if err != nil {
					return err
				}
				p, err := ebpf.NewProgramFromID(ebpf.ProgramID(filter.Id))
				if err != nil {
					return err
				}
				c.t.Cleanup(func() { p.Close() })
				c.programs[f] = append(c.programs[f], p)
			}
			return nil
		})
	}
}

// inPrograms is the time that the programs of all fractions have taken.
func (c *compared) inPrograms() (all time.Duration) {
	c.t.Helper()
	for _, programs := range c.programs {
		for _, p := range programs {
			stats, err := p.Stats()
			if err != nil {
				c.t.Fatal(err)
			}
			all += stats.Runtime
		}
	}
	return all
}

// round is the time per round trip, and what of it the programs take, in ns.
type round struct{ whole, programs float64 }

func (c *compared) roundTrips(conn net.Conn, n int) round {
	c.t.Helper()
	before, start := c.inPrograms(), time.Now()
	for range n {
		if err := echo(conn, "hello"); err != nil {
			c.t.Fatal(err)
		}
	}
	whole := time.Since(start)
	return round{float64(whole) / float64(n), float64(c.inPrograms()-before) / float64(n)}
}

// TestComparePrograms compares round trips and short connections with earlier programs and with today's, in rounds
// of a random order. Judge by what the programs take: the rest is the same code.
func TestComparePrograms(t *testing.T) {
	if *oldPrograms == "" {
		t.Fatal("-old-programs is not set: run make e2e TEST=TestComparePrograms")
	}
	if err := rlimit.RemoveMemlock(); err != nil {
		t.Fatal(err)
	}
	stats, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
	if err != nil {
		t.Fatal(err)
	}
	defer stats.Close()
	versions := []*compared{{world: newWorld(t, 3)}, {world: newWorld(t, 3)}}
	versions[0].useOld(*oldPrograms)
	for _, v := range versions {
		v.findPrograms()
	}
	t.Logf("%-22s %20s %20s %18s", "", "programs, old", "programs, new", "new/old, whole")
	for _, network := range []string{"tcp4", "tcp6", "udp4", "udp6"} {
		for _, server := range []segment.Fraction{1, 2} {
			compareRoundTrips(t, versions, network, server)
		}
	}
	for _, network := range []string{"tcp4", "tcp6"} {
		compareConnections(t, versions, network)
	}
}

// compareConnections compares what the programs take of a short connection within a fraction. There
// are few, because earlier programs gave a fraction few ports.
func compareConnections(t *testing.T, versions []*compared, network string) {
	const rounds, connections = 20, 64
	address := net.JoinHostPort(map[string]string{"tcp4": "127.0.0.1", "tcp6": "::1"}[network], "8142")
	var programs [2][]float64
	var logs []float64
	for _, v := range versions {
		v.listen(1, network, address)
		v.connectionRate(1, network, address, connections)
	}
	for range rounds {
		var took [2]float64
		for _, i := range rand.Perm(2) {
			before := versions[i].inPrograms()
			versions[i].connectionRate(1, network, address, connections)
			took[i] = float64(versions[i].inPrograms()-before) / connections
			programs[i] = append(programs[i], took[i])
		}
		logs = append(logs, math.Log(took[1]/took[0]))
	}
	mean, half := interval(logs)
	t.Logf("%-6s %-15s %14.0f ns/conn %12.0f ns/conn %8.2f [%.2f, %.2f] of the programs", network, "short, within",
		median(programs[0]), median(programs[1]), math.Exp(mean), math.Exp(mean-half), math.Exp(mean+half))
}

func compareRoundTrips(t *testing.T, versions []*compared, network string, server segment.Fraction) {
	const rounds, trips = 20, 1000
	host, port := "127.0.0.1", map[segment.Fraction]string{1: "8140", 2: "8141"}[server]
	if network[3] == '6' {
		host = "::1"
	}
	var conns []net.Conn
	for _, v := range versions {
		v.listen(server, network, net.JoinHostPort(host, port))
		conn, err := v.dial(1, network, net.JoinHostPort(host, port))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		v.roundTrips(conn, trips)
		conns = append(conns, conn)
	}
	var programs [2][]float64
	var logs []float64
	for range rounds {
		var r [2]round
		for _, i := range rand.Perm(2) {
			r[i] = versions[i].roundTrips(conns[i], trips)
			programs[i] = append(programs[i], r[i].programs)
		}
		logs = append(logs, math.Log(r[1].whole/r[0].whole))
	}
	where := map[segment.Fraction]string{1: "within", 2: "across"}[server]
	mean, half := interval(logs)
	t.Logf("%-6s %-15s %14.0f ns/trip %12.0f ns/trip %8.2f [%.2f, %.2f]", network, where,
		median(programs[0]), median(programs[1]), math.Exp(mean), math.Exp(mean-half), math.Exp(mean+half))
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/2]
}

// interval returns the mean, and half of its 95 % interval for 20 values.
func interval(v []float64) (mean, half float64) {
	const t19 = 2.093
	for _, x := range v {
		mean += x / float64(len(v))
	}
	square := 0.0
	for _, x := range v {
		square += (x - mean) * (x - mean)
	}
	return mean, t19 * math.Sqrt(square/float64(len(v)-1)/float64(len(v)))
}
