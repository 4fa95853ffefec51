// Package segment has the constants and formats that the host and the guests of a Hostlo
// segment share: the numbers of the fractions, their MAC addresses, and the membership
// frame.
//
// A segment is one loopback, backed by the host, that the fractions of one pod
// share (Bacou et al. 2019, section 4). Access to a TAP or a guest does not belong here.
package segment

import (
	"encoding/binary"
	"fmt"
	"iter"
	"math/bits"
	"strconv"
	"strings"
)

// MaxVNI is the largest number of a segment between any nodes: that of a VXLAN (RFC 7348, §5).
const MaxVNI = 1<<24 - 1

// MaxFractions is the largest number of fractions of a segment.
const MaxFractions = 16

// MTU of a segment's NICs in bytes. It is the largest of a TAP: 65,535 bytes with the
// Ethernet header.
const MTU = 65521

// Modes of a segment: which fractions get a frame.
const (
	Unicast = "unicast" // the one it is addressed to
	Plain   = "plain"   // all, also the sender, as in the paper
)

// Fraction numbers the part of a pod that is on one VM: 1 to MaxFractions.
type Fraction uint8

// Reflector is the number of the host's side as a sender of frames. It is not a
// fraction.
const Reflector Fraction = 0

// Valid reports whether f is the number of a fraction.
func (f Fraction) Valid() bool { return f >= 1 && f <= MaxFractions }

// Address is a MAC address.
type Address [6]byte

// Broadcast is the address of all fractions except the sender.
var Broadcast = Address{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// MAC returns the address of a fraction's NIC, or of the reflector as a sender: locally
// administered, with the fraction in the last byte.
func MAC(f Fraction) Address { return Address{0x02, 'h', '5', 0, 0, byte(f)} }

// String returns the address as QEMU and ip(8) write it.
func (a Address) String() string {
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", a[0], a[1], a[2], a[3], a[4], a[5])
}

// Set is a set of fractions: bit f stands for fraction f.
type Set uint32

const allFractions Set = 1<<(MaxFractions+1) - 2

// Of returns the set of the fractions.
func Of(fractions ...Fraction) Set {
	var s Set
	for _, f := range fractions {
		s = s.With(f)
	}
	return s
}

// With returns s with f added.
func (s Set) With(f Fraction) Set { return s | 1<<f }

// Without returns s without f.
func (s Set) Without(f Fraction) Set { return s &^ (1 << f) }

// Has reports whether f is in s.
func (s Set) Has(f Fraction) bool { return s>>f&1 != 0 }

// Len returns the number of fractions in s.
func (s Set) Len() int { return bits.OnesCount32(uint32(s)) }

// Valid reports whether s has only valid fractions.
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

// String lists the fractions: "1,2,5", or "none".
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

// EtherType of membership frames: the first for local experiments (IEEE 802, section
// 9.2.3). The reflector drops all other frames of this type.
const EtherType = 0x88b5

// FrameSize is the length of a membership frame in bytes: Ethernet's minimum without the
// checksum.
const FrameSize = 60

// magic begins the payload. Its last letter is the version.
const magic = "HLO1"

// The offsets of the fields in bytes. Numbers are big-endian.
const (
	offDestination = 0
	offSource      = 6
	offType        = 12
	offMagic       = 14
	offGeneration  = 18
	offMembers     = 22
	offSilent      = 26
	offAnswer      = 30 // 1 wants an answer, the frame itself, from a member; then zeros to the end
)

// Membership is the set of fractions in a segment. A later one has a higher generation;
// see Older.
type Membership struct {
	Generation uint32
	Members    Set
	Silent     Set // members that have not answered frames lately: nobody waits for their refusals
}

// Frame returns the Ethernet frame that announces m to Broadcast or to a fraction's MAC.
// The reflector is its sender.
func (m Membership) Frame(to Address) []byte {
	frame := make([]byte, FrameSize)
	source := MAC(Reflector)
	copy(frame[offDestination:], to[:])
	copy(frame[offSource:], source[:])
	binary.BigEndian.PutUint16(frame[offType:], EtherType)
	copy(frame[offMagic:], magic)
	binary.BigEndian.PutUint32(frame[offGeneration:], m.Generation)
	binary.BigEndian.PutUint32(frame[offMembers:], uint32(m.Members))
	binary.BigEndian.PutUint32(frame[offSilent:], uint32(m.Silent))
	frame[offAnswer] = 1
	return frame
}

// Older reports whether generation a came before b. Generations wrap around: the
// one ahead by less than half of all is the later (RFC 1982, section 3.2). A receiver
// that has b accepts any generation that is not older.
func Older(a, b uint32) bool { return int32(a-b) < 0 }
