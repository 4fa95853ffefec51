//go:build profile

package loopback

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"

	"unnest.io/unnest/internal/hostapi/segment"
	"unnest.io/unnest/internal/measure/stats"
)

// spanLoads are between the two fractions of a pod on 127.0.0.1. Each returns its metric.
var spanLoads = []struct {
	name string
	run  func(w *world, port int) (float64, error)
}{
	{"UDP round trip, 64 B, µs", func(w *world, port int) (float64, error) { return w.roundTrip("udp", port, 64, 2000) }},
	{"UDP round trip, 16384 B, µs", func(w *world, port int) (float64, error) { return w.roundTrip("udp", port, 16384, 1000) }},
	{"TCP round trip, 1024 B, µs", func(w *world, port int) (float64, error) { return w.roundTrip("tcp", port, 1024, 2000) }},
	{"TCP stream, 16384 B, Mbit/s", func(w *world, port int) (float64, error) { return w.stream(port, 500*time.Millisecond) }},
}

// TestSpanCost compares the localhost of a pod whose two fractions are connected by tunnels between nodes with one that is connected
// by a process that copies frames between TAPs, in place of two VMs and their host, in network namespaces and in rounds of a random order.
func TestSpanCost(t *testing.T) {
	const rounds = 20
	tunnels := newTunnelWorld(t, 2, "10.9.0.", 1500)
	byNetwork := &world{t: t, pods: map[segment.Fraction]ns.NetNS{1: tunnels.pods[0], 2: tunnels.pods[1]}}
	byHost := newWorld(t, 2)
	worlds := []*world{byNetwork, byHost}
	var ps []float64
	var effects []stats.Effect
	values := make([][2][]stats.Observation, len(spanLoads))
	for i, l := range spanLoads {
		for block := range rounds {
			for _, w := range rand.Perm(len(worlds)) {
				value, err := l.run(worlds[w], 9000+i*100+block)
				if err != nil {
					t.Fatalf("%s by %s: %v", l.name, []string{"tunnel", "process"}[w], err)
				}
				values[i][w] = append(values[i][w], stats.Observation{Block: block, Value: value})
			}
		}
		e, err := stats.Compare(values[i][0], values[i][1], true)
		if err != nil {
			t.Fatal(err)
		}
		effects, ps = append(effects, e), append(ps, e.P())
	}
	all := stats.Judge(ps, stats.DefaultAlpha)
	t.Logf("| between two fractions | tunnel | process | ratio, %.1f %% |", 100*all.Confidence())
	for i, l := range spanLoads {
		interval, _ := effects[i].Judge(all, stats.DefaultMargin, true)
		t.Logf("| %s | %.1f | %.1f | %.2f [%.2f, %.2f] |", l.name, median(stats.Values(values[i][0])), median(stats.Values(values[i][1])), effects[i].Ratio(), interval.Low, interval.High)
	}
}

// connect serves a port of localhost in fraction 2, with a new server each time, and connects to it from fraction 1.
func (w *world) connect(network string, port int, serve func(net.Conn)) (c net.Conn, end func() error, err error) {
	address := fmt.Sprintf("127.0.0.1:%d", port)
	end = func() error { return nil }
	err = w.pods[2].Do(func(ns.NetNS) error {
		if network == "udp" {
			to, err := net.ResolveUDPAddr(network, address)
			if err != nil {
				return err
			}
			s, err := net.ListenUDP(network, to)
			if err == nil {
				end = s.Close
				go func() {
					b := make([]byte, 1<<16)
					for {
						n, from, err := s.ReadFromUDP(b)
						if err != nil {
							return
						}
						_, _ = s.WriteToUDP(b[:n], from) // a loss ends the measurement
					}
				}()
			}
			return err
		}
		l, err := net.Listen(network, address)
		if err == nil {
			end = l.Close
			go func() {
				if c, err := l.Accept(); err == nil {
					defer c.Close()
					serve(c)
				}
			}()
		}
		return err
	})
	if err != nil {
		return nil, end, err
	}
	err = w.pods[1].Do(func(ns.NetNS) error {
		d := dialer()
		c, err = d.DialContext(w.t.Context(), network, address)
		return err
	})
	if err == nil {
		err = c.SetDeadline(time.Now().Add(10 * time.Second))
	}
	return c, end, err
}

// roundTrip returns the mean time of a message there and back, in microseconds, after some that do not count.
func (w *world) roundTrip(network string, port, size, n int) (float64, error) {
	c, end, err := w.connect(network, port, func(c net.Conn) { _, _ = io.Copy(c, c) })
	if err != nil {
		return 0, errors.Join(err, end())
	}
	defer c.Close()
	message := make([]byte, size)
	var begin time.Time
	for i := range n + n/10 {
		if i == n/10 {
			begin = time.Now()
		}
		if _, err = c.Write(message); err == nil {
			_, err = io.ReadFull(c, message)
		}
		if err != nil {
			return 0, errors.Join(err, end())
		}
	}
	return float64(time.Since(begin).Microseconds()) / float64(n), end()
}

// stream returns what fraction 2 receives of fraction 1, in Mbit/s.
func (w *world) stream(port int, duration time.Duration) (float64, error) {
	received := make(chan int64, 1)
	c, end, err := w.connect("tcp", port, func(c net.Conn) { n, _ := io.Copy(io.Discard, c); received <- n })
	if err != nil {
		return 0, errors.Join(err, end())
	}
	message, begin := make([]byte, 16384), time.Now()
	for time.Since(begin) < duration && err == nil {
		_, err = c.Write(message)
	}
	if err = errors.Join(err, c.Close()); err != nil {
		return 0, errors.Join(err, end())
	}
	n := <-received
	return float64(n) * 8 / 1e6 / time.Since(begin).Seconds(), end()
}
