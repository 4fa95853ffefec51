package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"testing"
)

// hopper is a running hops binary.
type hopper struct {
	name    string
	in      io.Writer
	out     *json.Decoder
	links   []string // on which it records times
	problem *bytes.Buffer
}

// waypoint is a point that a message passes: the hopper that records the time, its name of the
// point, and the part of the round trip that ends here. If the part begins on another clock, the
// way back must have a segment of the same part in the other direction, so that the difference
// of the clocks cancels out.
type waypoint struct {
	by   *hopper
	at   string
	part string
}

// The parts of a round trip.
const (
	toDevice   = "in the VMs: socket to NIC, or to lo"
	throughLo  = "in the VMs: NIC to lo, or through lo"
	toSocket   = "in the VMs: lo or NIC to socket"
	acrossVirt = "NIC to TAP and TAP to NIC: virtio and QEMU"
	onHost     = "on the host: TAP to TAP"
)

var allParts = []string{toDevice, throughLo, toSocket, acrossVirt, onHost}

// trip is the duration of a round trip, or a mean of several, in µs, and of its parts.
type trip struct {
	all   float64
	parts map[string]float64
	of    int // messages
}

// meanTrip returns the mean of the middle half of the messages, sorted by round trip, so that
// the parts add up and disturbed messages do not count. It ignores messages without all times,
// for which the kernel had no buffer space.
func meanTrip(way []waypoint, times map[*hopper]map[string][]int64) (trip, error) {
	var trips []trip
	for n := range times[way[0].by][way[0].at] {
		if p, ok := tripOf(way, times, n); ok {
			trips = append(trips, p)
		}
	}
	if len(trips) < 4 {
		return trip{}, fmt.Errorf("%d of %d messages have all times, want at least 4",
			len(trips), len(times[way[0].by][way[0].at]))
	}
	slices.SortFunc(trips, func(a, b trip) int { return int(math.Copysign(1, a.all-b.all)) })
	middle := trips[len(trips)/4 : len(trips)*3/4]
	mean := trip{parts: map[string]float64{}, of: len(trips)}
	for _, p := range middle {
		mean.all += p.all / float64(len(middle))
		for name, t := range p.parts {
			mean.parts[name] += t / float64(len(middle))
		}
	}
	return mean, nil
}

// tripOf returns the trip of message n, and whether the message has all times.
func tripOf(way []waypoint, times map[*hopper]map[string][]int64, n int) (trip, bool) {
	p, before := trip{parts: map[string]float64{}}, int64(0)
	for i, s := range way {
		all := times[s.by][s.at]
		if n >= len(all) || all[n] == 0 {
			return p, false
		}
		if i > 0 {
			took := float64(all[n]-before) / 1000
			p.parts[s.part] += took
			p.all += took
		}
		before = all[n]
	}
	return p, true
}

// middleMean returns the mean of the middle half.
func middleMean(xs []float64) float64 {
	sorted, sum := slices.Sorted(slices.Values(xs)), 0.0
	middle := sorted[len(sorted)/4 : max(len(sorted)*3/4, len(sorted)/4+1)]
	for _, x := range middle {
		sum += x
	}
	return sum / float64(len(middle))
}

// The difference between the clocks of two hoppers has no effect, nor have disturbed messages
// and messages with lost times.
func TestParts(t *testing.T) {
	client, server := &hopper{name: "client"}, &hopper{name: "server"}
	way := []waypoint{
		{client, "sent", ""},
		{client, "eth0 out request", toDevice},
		{server, "eth0 in request", acrossVirt},
		{server, "served", toSocket},
		{server, "eth0 out answer", toDevice},
		{client, "eth0 in answer", acrossVirt},
		{client, "answered", toSocket},
	}
	const ahead = 5_000_000_000 // the server's clock, in ns
	times := map[*hopper]map[string][]int64{client: {}, server: {}}
	for n := range 8 {
		at := int64(1_000_000 * (n + 1))
		for i, s := range way {
			offset := int64(0)
			if s.by == server {
				offset = ahead
			}
			late := int64(0)
			if n == 7 && i == 6 { // the machine was busy
				late = 1_000_000
			}
			times[s.by][s.at] = append(times[s.by][s.at], at+offset+late+int64(i*i)*1000)
		}
	}
	times[server]["served"][2] = 0 // lost
	got, err := meanTrip(way, times)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]float64{toDevice: 1 + 7, acrossVirt: 3 + 9, toSocket: 5 + 11}
	for name, us := range want {
		if math.Abs(got.parts[name]-us) > 1e-6 {
			t.Errorf("%s: got %v µs, want %v", name, got.parts[name], us)
		}
	}
	if math.Abs(got.all-36) > 1e-6 || got.of != 7 || len(got.parts) != len(want) {
		t.Errorf("got %+v, want 36 µs in three parts, from 7 messages", got)
	}
	if _, err := meanTrip(way, map[*hopper]map[string][]int64{client: times[client], server: {}}); err == nil {
		t.Error("want an error without the server's times")
	}
}
