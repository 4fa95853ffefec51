// Package segment is what the host and the guests of a Hostlo segment agree on:
// the numbers of the fractions, their MAC addresses and ephemeral ports, the frame
// by which the guests learn who is in the segment, and the order of a multi-queue
// TAP's queues.
//
// A segment is one loopback, backed by the host, that the fractions of one pod
// share (Bacou et al., section 4). Reaching a TAP or a guest does not belong here.
package segment

import (
	"fmt"
	"iter"
	"math/bits"
	"strconv"
	"strings"
)

// MaxFractions is how many fractions a segment has at most.
const MaxFractions = 16

// MTU of a segment's NICs in bytes: the most that a TAP takes, 65,535 with the
// Ethernet header.
const MTU = 65521

// Fraction numbers the part of a pod that is on one VM: 1 to MaxFractions.
type Fraction uint8

// Reflector stands for the host's side where a frame's sender is named. It is no
// fraction.
const Reflector Fraction = 0

// Valid reports whether f is the number of a fraction.
func (f Fraction) Valid() bool { return f >= 1 && f <= MaxFractions }

// Address is a MAC address.
type Address [6]byte

// Broadcast is the address of all fractions but the sender.
var Broadcast = Address{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// MAC is the address of a fraction's NIC, or the sender's of what the reflector
// itself sends: locally administered, with the fraction in the last byte.
func MAC(f Fraction) Address { return Address{0x02, 'h', '5', 0, 0, byte(f)} }

// String is the address as QEMU and ip(8) write it.
func (a Address) String() string {
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", a[0], a[1], a[2], a[3], a[4], a[5])
}

// The ports from which Linux takes those of clients (ip_local_port_range, see
// ip-sysctl in the kernel's documentation), and each fraction's share of them.
const (
	firstPort        = 32768
	lastPort         = 60999
	portsPerFraction = (lastPort - firstPort + 1) / MaxFractions
)

// Ports is the range from which a fraction takes its clients' ports, for
// ip_local_port_range; both ends belong to it. No two fractions' ranges meet, so
// that no two clients of a pod are at the same port.
func Ports(f Fraction) (low, high uint16) {
	low = firstPort + uint16(f-1)*portsPerFraction
	return low, low + portsPerFraction - 1
}

// Set is a set of fractions: bit f stands for fraction f.
type Set uint32

const allFractions Set = 1<<(MaxFractions+1) - 2

// Of is the set of the fractions given.
func Of(fractions ...Fraction) Set {
	var s Set
	for _, f := range fractions {
		s = s.With(f)
	}
	return s
}

// With is s and f.
func (s Set) With(f Fraction) Set { return s | 1<<f }

// Without is s, but not f.
func (s Set) Without(f Fraction) Set { return s &^ (1 << f) }

// Has reports whether f is in s.
func (s Set) Has(f Fraction) bool { return s>>f&1 != 0 }

// Len is the number of fractions in s.
func (s Set) Len() int { return bits.OnesCount32(uint32(s)) }

// Valid reports whether there are only fractions in s.
func (s Set) Valid() bool { return s&^allFractions == 0 }

// All yields the fractions of s in order.
func (s Set) All() iter.Seq[Fraction] {
	return func(yield func(Fraction) bool) {
		for ; s != 0; s &= s - 1 {
			if !yield(Fraction(bits.TrailingZeros32(uint32(s)))) {
				return
			}
		}
	}
}

// String lists the fractions, "1,2,5"; the empty set is "none".
func (s Set) String() string {
	if s == 0 {
		return "none"
	}
	var numbers []string
	for f := range s.All() {
		numbers = append(numbers, strconv.Itoa(int(f)))
	}
	return strings.Join(numbers, ",")
}
