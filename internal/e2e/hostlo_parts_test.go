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

// hopper is the program hops at a place.
type hopper struct {
	name    string
	in      io.Writer
	out     *json.Decoder
	links   []string // at which it takes times
	problem *bytes.Buffer
}

// spot is where the time of a message is taken: by which hopper, and what that calls
// the place.
type spot struct {
	by *hopper
	at string
}

// station is a place that a message comes by, and what the time since the one before
// counts for. Where that is by another clock, the way back counts for the same part:
// in the sum, what is between the two clocks is no more.
type station struct {
	spot
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

// parted is what one round's messages took, in µs: all, and of that each part.
type parted struct {
	all   float64
	parts map[string]float64
	of    int // messages
}

// part says where the messages' time went on their way, as the mean of the middle half
// of them by round trips: so the parts add up, and what disturbed a few is left out.
// Messages that lack a time, because the kernel had no room for it, are left out too.
func part(way []station, times map[*hopper]map[string][]int64) (parted, error) {
	var trips []parted
	for n := range times[way[0].by][way[0].at] {
		if p, ok := partOne(way, times, n); ok {
			trips = append(trips, p)
		}
	}
	if len(trips) < 4 {
		return parted{}, fmt.Errorf("%d of %d messages have all times: want 4 at least",
			len(trips), len(times[way[0].by][way[0].at]))
	}
	slices.SortFunc(trips, func(a, b parted) int { return int(math.Copysign(1, a.all-b.all)) })
	middle := trips[len(trips)/4 : len(trips)*3/4]
	mean := parted{parts: map[string]float64{}, of: len(trips)}
	for _, p := range middle {
		mean.all += p.all / float64(len(middle))
		for name, t := range p.parts {
			mean.parts[name] += t / float64(len(middle))
		}
	}
	return mean, nil
}

// partOne reports whether message n has all times.
func partOne(way []station, times map[*hopper]map[string][]int64, n int) (parted, bool) {
	p, before := parted{parts: map[string]float64{}}, int64(0)
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

// middleMean is the mean of the middle half.
func middleMean(xs []float64) float64 {
	sorted, sum := slices.Sorted(slices.Values(xs)), 0.0
	middle := sorted[len(sorted)/4 : max(len(sorted)*3/4, len(sorted)/4+1)]
	for _, x := range middle {
		sum += x
	}
	return sum / float64(len(middle))
}

// What is between the clocks of two hoppers does not matter, nor do messages that were
// disturbed, or whose times were lost.
func TestParts(t *testing.T) {
	client, server := &hopper{name: "client"}, &hopper{name: "server"}
	way := []station{
		{spot{client, "sent"}, ""},
		{spot{client, "eth0 out request"}, toDevice},
		{spot{server, "eth0 in request"}, acrossVirt},
		{spot{server, "served"}, toSocket},
		{spot{server, "eth0 out answer"}, toDevice},
		{spot{client, "eth0 in answer"}, acrossVirt},
		{spot{client, "answered"}, toSocket},
	}
	const ahead = 5_000_000_000 // of the server's clock
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
	got, err := part(way, times)
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
		t.Errorf("got %+v, want 36 µs in three parts, of 7 messages", got)
	}
	if _, err := part(way, map[*hopper]map[string][]int64{client: times[client], server: {}}); err == nil {
		t.Error("want an error without the server's times")
	}
}
