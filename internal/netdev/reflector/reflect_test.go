package reflector_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/hostapi/segment"
	"unnest.io/unnest/internal/netdev/reflector"
)

// sizes are the numbers of fractions in the tests.
var sizes = []int{2, 3, 8, 16}

func TestUnicast(t *testing.T) {
	for _, n := range sizes {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			l := newLab(t, n, reflector.Options{})
			all := l.members()
			for from := range all.All() {
				mac := segment.MAC(from)
				l.reaches(t, "a broadcast", from, frame(mac, segment.Broadcast, "all"), all.Without(from))
				l.reaches(t, "IPv6", from, retyped(frame(mac, segment.Broadcast, "six"), 0x86, 0xdd), all.Without(from))
				for to := range all.Without(from).All() {
					l.reaches(t, "a frame for one", from, frame(mac, segment.MAC(to), "one"), segment.Of(to))
				}
			}
		})
	}
}

// Plain mode sends every frame to all fractions.
func TestPlain(t *testing.T) {
	for _, n := range sizes {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			l := newLab(t, n, reflector.Options{Mode: reflector.Plain})
			for from, w := range l.vms {
				for _, to := range []segment.Address{segment.Broadcast, segment.MAC(1), segment.MAC(2), {2, 0, 0, 0, 0, 9}} {
					f := frame(segment.MAC(from), to, "plain")
					w.send(t, f)
					for m, w := range l.vms {
						if got := w.receive(t, patience); !bytes.Equal(got, f) {
							t.Fatalf("from %d for %s: fraction %d receives % x", from, to, m, got)
						}
					}
				}
				c := l.counters(t, from)
				if c.Frames != 4 || c.Broadcast != 1 || c.Bytes != 4*uint64(len(frame(segment.MAC(from), segment.Broadcast, "plain"))) {
					t.Errorf("fraction %d: %+v, want 4 frames, 1 of them broadcast", from, c)
				}
			}
		})
	}
}

// In both modes only IP with the fraction's own source address passes. Every other frame
// is counted under its reason.
func TestDropped(t *testing.T) {
	mac := segment.MAC(2)
	ok := frame(mac, segment.Broadcast, "text")
	forged := segment.Membership{Generation: 9, Members: segment.Of(2)}.Frame(segment.Broadcast)
	tests := []struct {
		name  string
		frame []byte
		plain bool // dropped in plain mode too
		want  reflector.Counters
	}{
		{"another fraction's address", frame(segment.MAC(1), segment.Broadcast, ""), true, reflector.Counters{Spoofed: 1}},
		{"an absent fraction's", frame(segment.MAC(9), segment.Broadcast, ""), true, reflector.Counters{Spoofed: 1}},
		{"the reflector's", frame(segment.MAC(0), segment.Broadcast, ""), true, reflector.Counters{Spoofed: 1}},
		{"fraction 17's", frame(segment.MAC(17), segment.Broadcast, ""), true, reflector.Counters{Spoofed: 1}},
		{"another's address", frame(segment.Address{2, 'h', '5', 0, 1, 2}, segment.Broadcast, ""), true, reflector.Counters{Spoofed: 1}},
		{"membership", forged, true, reflector.Counters{Spoofed: 1}},
		{"membership of its own", slices.Replace(slices.Clone(forged), 6, 12, mac[:]...), true, reflector.Counters{Unknown: 1}},
		{"ARP", retyped(ok, 8, 6), true, reflector.Counters{Unknown: 1}},
		{"VLAN", slices.Insert(slices.Clone(ok), 12, 0x81, 0, 0, 5), true, reflector.Counters{Unknown: 1}},
		{"a length", retyped(ok, 0, 46), true, reflector.Counters{Unknown: 1}},
		{"too long", append(slices.Clone(ok), make([]byte, 14+40+65535+1-len(ok))...), true, reflector.Counters{Oversize: 1}},
		{"for itself", frame(mac, mac, ""), false, reflector.Counters{Unknown: 1}},
		{"for the reflector", frame(mac, segment.MAC(0), ""), false, reflector.Counters{Unknown: 1}},
		{"for an absent fraction", frame(mac, segment.MAC(9), ""), false, reflector.Counters{Unknown: 1}},
		{"to another segment", frame(mac, segment.Address{2, 'h', '5', 0, 1, 1}, ""), false, reflector.Counters{Unknown: 1}},
		{"multicast", frame(mac, segment.Address{1, 0, 0x5e, 0, 0, 1}, ""), false, reflector.Counters{Unknown: 1}},
	}
	for _, mode := range []reflector.Mode{reflector.Unicast, reflector.Plain} {
		l := newLab(t, 3, reflector.Options{Mode: mode})
		for _, tt := range tests {
			if mode == reflector.Plain && !tt.plain {
				continue
			}
			t.Run(string(mode)+"/"+tt.name, func(t *testing.T) {
				before := l.counters(t, 2)
				l.vms[2].send(t, tt.frame)
				l.vms[2].send(t, ok)
				for _, f := range []segment.Fraction{1, 3} {
					if got := l.vms[f].receive(t, patience); !bytes.Equal(got, ok) {
						t.Errorf("fraction %d receives % x", f, got[:min(len(got), 60)])
					}
				}
				if mode == reflector.Plain { // its own
					if got := l.vms[2].receive(t, patience); !bytes.Equal(got, ok) {
						t.Errorf("the sender receives % x", got[:min(len(got), 60)])
					}
				}
				got := minus(l.counters(t, 2), before)
				want := tt.want
				want.Frames, want.Broadcast, want.Bytes = 1, 1, uint64(len(ok))
				if got != want {
					t.Errorf("counted %+v, want %+v", got, want)
				}
			})
		}
		if got := l.vms[2].receive(t, time.Millisecond); got != nil {
			t.Errorf("%s: the sender receives % x", mode, got)
		}
	}
}

// A broadcast that the kernel divides into frames counts as so many at the limit. One for a single fraction does not count.
func TestSegmentedBroadcast(t *testing.T) {
	const tcp, udp, ufo = 1, 5, 3 // gso_type, virtio 1.2, section 5.1.6
	for _, mode := range []reflector.Mode{reflector.Unicast, reflector.Plain} {
		var l *lab
		send := func(to segment.Address, kind byte) error {
			t.Helper()
			protocol, checksum, headers := byte(17), byte(6), byte(42)
			if kind == tcp {
				protocol, checksum, headers = 6, 16, 54
			}
			ip := []byte{0x45, 0, 4, 0, 0, 1, 0, 0, 64, protocol, 0, 0, 127, 0, 0, 1, 127, 0, 0, 1}
			transport := append([]byte{0x80, 0, 0, 53, 4, 0, 0, 0, 0, 0, 0, 0, 0x50}, make([]byte, 1024-20-13)...)
			mac := segment.MAC(2)
			header := []byte{1, kind, headers, 0, 16, 0, 34, 0, checksum, 0, 0, 0}
			_, err := l.vms[2].Write(slices.Concat(header, to[:], mac[:], []byte{8, 0}, ip, transport))
			return err
		}
		for _, kind := range []byte{tcp, udp, ufo} {
			l = newLab(t, 3, reflector.Options{Mode: mode, Limit: reflector.Limit{Rate: 1, Burst: 9}})
			err := send(segment.Broadcast, kind)
			if kind == udp && errors.Is(err, unix.EINVAL) {
				continue // the kernel is older than 6.2
			}
			if err = errors.Join(err, send(segment.Broadcast, kind), send(segment.MAC(1), kind)); err != nil {
				t.Fatalf("%s, type %d: %v", mode, kind, err)
			}
			if got, want := l.counters(t, 2), (reflector.Counters{Frames: 2, Bytes: 2 * (14 + 1024), Broadcast: 1, Limited: 1}); got != want {
				t.Errorf("%s, type %d: counted %+v, want %+v", mode, kind, got, want)
			}
		}
	}
}

// A fraction that has answered before is silent when it answers neither of two announcements. While
// nothing is announced it need not answer. Answers are not counted, and reach no fraction.
func TestSilent(t *testing.T) {
	for _, mode := range []reflector.Mode{reflector.Unicast, reflector.Plain} {
		l := newLab(t, 3, reflector.Options{Mode: mode})
		m := segment.Membership{Generation: 1, Members: l.members()}
		answer := func(f segment.Fraction, to segment.Address) {
			b := m.Frame(to)
			mac := segment.MAC(f)
			copy(b[6:], mac[:])
			l.vms[f].send(t, b)
		}
		announce := func() {
			t.Helper()
			if err := l.segment.Announce(m); err != nil {
				t.Fatal(err)
			}
			for f := range m.Members.All() {
				if l.vms[f].receive(t, patience) == nil {
					t.Fatalf("%s: fraction %d does not receive the announcement", mode, f)
				}
			}
		}
		want := func(when string, after time.Duration, want segment.Set) {
			t.Helper()
			for end := time.Now().Add(patience); ; {
				got, err := l.segment.Silent(after)
				if err == nil && got == want {
					return
				}
				if time.Now().After(end) {
					t.Fatalf("%s, %s: %s are silent, %v; want %s", mode, when, got, err, want)
				}
			}
		}
		answer(2, segment.MAC(segment.Reflector))
		answer(3, segment.MAC(1)) // not for the reflector
		announce()
		announce()
		want("after two announcements", 0, segment.Of(2))
		want("after two announcements", time.Hour, 0)
		answer(2, segment.MAC(segment.Reflector))
		want("after an answer", 0, 0)
		time.Sleep(10 * time.Millisecond)
		want("while nothing is announced", 0, 0)
		announce()
		want("after one announcement", 0, 0)
		announce()
		want("after the next one", 0, segment.Of(2))
		if c := l.counters(t, 2); c != (reflector.Counters{}) {
			t.Errorf("%s: counters are %+v, want none", mode, c)
		}
		if got := l.vms[1].receive(t, time.Millisecond); got != nil {
			t.Errorf("%s: fraction 1 receives % x", mode, got)
		}
		l.leave(t, 2)
		l.join(t, 2)
		announce()
		announce()
		want("back", 0, 0)
	}
}

func minus(a, b reflector.Counters) reflector.Counters {
	return reflector.Counters{
		Full: a.Full - b.Full, Frames: a.Frames - b.Frames, Bytes: a.Bytes - b.Bytes, Broadcast: a.Broadcast - b.Broadcast,
		Spoofed: a.Spoofed - b.Spoofed, Limited: a.Limited - b.Limited, Oversize: a.Oversize - b.Oversize, Unknown: a.Unknown - b.Unknown,
	}
}

// The longest packet of IPv6 passes, although it is longer than the MTU.
func TestLongest(t *testing.T) {
	l := newLab(t, 2, reflector.Options{})
	f := retyped(frame(segment.MAC(1), segment.MAC(2), ""), 0x86, 0xdd)
	f = append(f, bytes.Repeat([]byte("long"), 20_000)[:14+40+65535-len(f)]...)
	l.reaches(t, "the longest frame", 1, f, segment.Of(2))
}

// Broadcasts beyond the limit are dropped. The limit does not affect other fractions, or
// frames to one fraction.
func TestStorm(t *testing.T) {
	const burst, rate, storm = 50, 200, 400
	for _, n := range sizes {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			l := newLab(t, n, reflector.Options{Limit: reflector.Limit{Rate: rate, Burst: burst}})
			began := time.Now()
			for i := range storm {
				l.vms[1].send(t, frame(segment.MAC(1), segment.Broadcast, fmt.Sprint(i)))
			}
			most := burst + 1 + uint64(time.Since(began).Seconds()*rate)
			c := l.counters(t, 1)
			if c.Broadcast < burst || c.Broadcast > most || c.Limited != storm-c.Broadcast || c.Frames != c.Broadcast {
				t.Errorf("%+v after %d broadcasts: want %d to %d of them", c, storm, burst, most)
			}
			l.vms[1].send(t, frame(segment.MAC(1), segment.MAC(2), "for one"))
			l.vms[2].send(t, frame(segment.MAC(2), segment.Broadcast, "another's"))
			for f, w := range l.vms {
				last := -1
				for range c.Broadcast {
					if f == 1 {
						break
					}
					var i int
					got := w.receive(t, patience)
					if _, err := fmt.Sscan(string(bytes.TrimRight(got[14:], "\x00")), &i); err != nil || i <= last {
						t.Fatalf("fraction %d receives %q after broadcast %d", f, got, last)
					}
					last = i
				}
				want := "another's"
				if f == 2 {
					want = "for one"
				}
				if text := string(w.receive(t, patience)[14:]); !strings.HasPrefix(text, want) {
					t.Errorf("fraction %d receives %q after the storm, want %s", f, text, want)
				}
			}
			// The bucket fills again at the rate.
			time.Sleep(100 * time.Millisecond)
			l.vms[1].send(t, frame(segment.MAC(1), segment.Broadcast, "later"))
			if after := l.counters(t, 1); after.Broadcast != c.Broadcast+1 {
				t.Errorf("%+v a while after the storm, want one broadcast more than %+v", after, c)
			}
		})
	}
}

// A program that connects to 10,000 ports at once is not limited by default.
func TestManyBroadcasts(t *testing.T) {
	const times = 10_000
	l := newLab(t, 2, reflector.Options{})
	f := frame(segment.MAC(1), segment.Broadcast, "SYN")
	for range times {
		l.vms[1].send(t, f)
	}
	if c := l.counters(t, 1); c.Broadcast != times || c.Limited != 0 {
		t.Errorf("%+v, want %d broadcasts and none limited", c, times)
	}
}

// A queue holds a burst for a VM that is behind. What it cannot hold is counted.
func TestFullQueue(t *testing.T) {
	const holds, times = 4096, 5000
	l := newLab(t, 2, reflector.Options{})
	for i := range times {
		l.vms[1].send(t, frame(segment.MAC(1), segment.MAC(2), fmt.Sprint(i)))
	}
	full, got := l.counters(t, segment.Reflector).Full, 0
	for got < times-int(full) && l.vms[2].receive(t, patience) != nil {
		got++
	}
	for l.vms[2].receive(t, 50*time.Millisecond) != nil { // there are none, if all others are counted
		got++
	}
	if got < 4000 || got > holds || full != uint64(times-got) {
		t.Errorf("%d of %d frames arrive, %d are counted as dropped; want a queue of %d", got, times, full, holds)
	}
}

// An announcement of the host reaches each queue once and unchanged.
func TestAnnounce(t *testing.T) {
	for _, n := range sizes {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			l := newLab(t, n, reflector.Options{})
			for generation := range uint32(3) {
				l.hears(t, segment.Membership{Generation: generation, Members: segment.Of(1, 2)})
			}
		})
	}
}

// hears checks that every fraction receives the announcement once and unchanged.
func (l *lab) hears(t *testing.T, want segment.Membership) {
	t.Helper()
	if err := l.segment.Announce(want); err != nil {
		t.Fatal(err)
	}
	for f, w := range l.vms {
		if got := w.receive(t, patience); !bytes.Equal(got, want.Frame(segment.MAC(f))) {
			t.Errorf("fraction %d receives % x, want %+v", f, got, want)
		}
	}
	var one segment.Fraction
	for f := range l.members().All() {
		one = f
	}
	if l.members().Len() > 1 {
		l.reaches(t, "after the announcement", one, frame(segment.MAC(one), segment.Broadcast, "on"), l.members().Without(one))
	}
}

// A VM that does not read does not delay the others.
func TestFrozen(t *testing.T) {
	l := newLab(t, 3, reflector.Options{})
	for i := range 5000 { // more than a queue holds
		l.vms[1].send(t, frame(segment.MAC(1), segment.MAC(2), fmt.Sprint(i)))
	}
	m := segment.Membership{Generation: 1, Members: segment.Of(1, 3)}
	if err := l.segment.Announce(m); err != nil {
		t.Fatal(err)
	}
	for _, f := range []segment.Fraction{1, 3} {
		if got := l.vms[f].receive(t, patience); !bytes.Equal(got, m.Frame(segment.MAC(f))) {
			t.Errorf("fraction %d receives % x, want %+v", f, got, m)
		}
	}
	b := frame(segment.MAC(1), segment.Broadcast, "on")
	l.vms[1].send(t, b)
	if got := l.vms[3].receive(t, patience); !bytes.Equal(got, b) {
		t.Errorf("fraction 3 receives % x", got)
	}
}
