package reflector_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"

	"unnest.io/unnest/internal/hostapi/segment"
	"unnest.io/unnest/internal/netdev/reflector"
)

func newNS(t *testing.T) ns.NetNS {
	t.Helper()
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		t.Skip("needs root, network namespaces, eBPF and /dev/net/tun: set UNNEST_PRIVILEGED=1")
	}
	n, err := ns.TempNetNS()
	if err != nil {
		t.Fatalf("make network namespace: %v", err)
	}
	t.Cleanup(func() { n.Close() })
	return n
}

// in runs f in n. It ends the test when f fails.
func in(t *testing.T, n ns.NetNS, f func() error) {
	t.Helper()
	if err := n.Do(func(ns.NetNS) error { return f() }); err != nil {
		t.Fatal(err)
	}
}

const vnetHeader = 12 // bytes of struct virtio_net_hdr_v1

// patience is the time limit for expected frames.
const patience = time.Minute

// wire is the end of a queue that a VM has: a read or write is a frame with its
// header.
type wire struct{ *os.File }

func (w wire) send(t *testing.T, frame []byte) {
	t.Helper()
	if _, err := w.Write(append(make([]byte, vnetHeader), frame...)); err != nil {
		t.Fatalf("send: %v", err)
	}
}

// receive returns the next frame, or nil when none comes in time.
func (w wire) receive(t *testing.T, wait time.Duration) []byte {
	t.Helper()
	if err := w.SetReadDeadline(time.Now().Add(wait)); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1<<17)
	n, err := w.Read(b)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	if err != nil {
		t.Fatalf("receive: %v", err)
	}
	return b[vnetHeader:n]
}

// frame is an Ethernet frame of IPv4's type.
func frame(from, to segment.Address, text string) []byte {
	return slices.Concat(to[:], from[:], []byte{8, 0}, []byte(text), make([]byte, 46))
}

// retyped is a frame of another type.
func retyped(frame []byte, etherType ...byte) []byte {
	return slices.Replace(slices.Clone(frame), 12, 14, etherType...)
}

// lab is a namespace with the segment hl0 and the wires of its fractions.
type lab struct {
	ns      ns.NetNS
	segment *reflector.Segment
	vms     map[segment.Fraction]wire
	sent    int
}

// newLab has fractions 1 to n join a new segment.
func newLab(t *testing.T, n int, o reflector.Options) *lab {
	t.Helper()
	o.Name = "hl0"
	l := &lab{ns: newNS(t), vms: map[segment.Fraction]wire{}}
	in(t, l.ns, func() (err error) {
		l.segment, err = reflector.Create(o)
		return err
	})
	t.Cleanup(func() { l.segment.Close() })
	for f := range segment.Fraction(n) {
		l.join(t, f+1)
	}
	return l
}

func (l *lab) join(t *testing.T, f segment.Fraction) {
	t.Helper()
	in(t, l.ns, func() error {
		file, err := l.segment.Join(f)
		l.vms[f] = wire{file}
		return err
	})
	t.Cleanup(func() { l.vms[f].Close() })
}

func (l *lab) leave(t *testing.T, f segment.Fraction) {
	t.Helper()
	l.evict(t, f).Close()
}

// evict lets a fraction leave while its VM keeps the descriptor.
func (l *lab) evict(t *testing.T, f segment.Fraction) wire {
	t.Helper()
	in(t, l.ns, func() error { return l.segment.Leave(f) })
	w := l.vms[f]
	delete(l.vms, f)
	return w
}

func (l *lab) members() segment.Set {
	var s segment.Set
	for f := range l.vms {
		s = s.With(f)
	}
	return s
}

// reaches sends a frame from a fraction, and fails the test unless each expected fraction
// receives it exactly once, and no other does. A broadcast of that fraction after it,
// and one of another, end the wait of all.
func (l *lab) reaches(t *testing.T, what string, from segment.Fraction, f []byte, want segment.Set) {
	t.Helper()
	l.vms[from].send(t, f)
	l.sent++
	var other segment.Fraction
	for m := range l.members().Without(from).All() {
		other = m
	}
	ends := map[segment.Fraction][]byte{}
	for _, m := range []segment.Fraction{from, other} {
		ends[m] = frame(segment.MAC(m), segment.Broadcast, fmt.Sprintf("end %d of %d", l.sent, m))
		l.vms[m].send(t, ends[m])
	}
	for m := range l.members().All() {
		if got := l.countUntil(t, what, m, f, ends); (got == 1) != want.Has(m) || got > 1 {
			t.Errorf("%s from fraction %d: %d receives it %d times; want it at %s", what, from, m, got, want)
		}
	}
}

// countUntil returns how often a fraction receives a frame before it has received all end
// marks except its own.
func (l *lab) countUntil(t *testing.T, what string, m segment.Fraction, f []byte, ends map[segment.Fraction][]byte) int {
	t.Helper()
	left := maps.Clone(ends)
	delete(left, m)
	var count int
	for len(left) > 0 {
		got := l.vms[m].receive(t, patience)
		if got == nil {
			t.Fatalf("%s: fraction %d does not even hear what comes after", what, m)
		}
		n := len(left)
		maps.DeleteFunc(left, func(_ segment.Fraction, end []byte) bool { return bytes.Equal(end, got) })
		if bytes.Equal(got, f) {
			count++
		} else if len(left) == n {
			t.Fatalf("%s: fraction %d receives %q", what, m, got[:min(len(got), 40)])
		}
	}
	return count
}

// counters of one fraction.
func (l *lab) counters(t *testing.T, f segment.Fraction) reflector.Counters {
	t.Helper()
	all, err := l.segment.Counters()
	if err != nil {
		t.Fatal(err)
	}
	return all[f]
}
