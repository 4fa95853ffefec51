package segment

import (
	"encoding/binary"
	"fmt"
)

// EtherType of the frames by which the reflector tells who is in a segment: IEEE
// 802's first for local experiments (IEEE 802, section 9.2.3). No other frame of
// it passes the reflector.
const EtherType = 0x88b5

// FrameSize is the length of a membership frame in bytes: the least that Ethernet
// has, without the checksum.
const FrameSize = 60

// magic begins the payload. Its last letter is the version.
const magic = "HLO1"

// Where in the frame is what, in bytes. Numbers are big-endian.
const (
	offDestination = 0
	offSource      = 6
	offType        = 12
	offMagic       = 14
	offGeneration  = 18
	offMembers     = 22
	offPadding     = 26 // zeros to the end
)

// Membership says who is in a segment. A later one has a higher generation; see
// Older.
type Membership struct {
	Generation uint32
	Members    Set
}

// Frame is the Ethernet frame that tells to, Broadcast or a fraction's MAC, of m.
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
	return frame
}

// ParseMembership reads a membership frame, whoever it is for. What follows the
// members does not count, nor that it was cut off. An error says why the frame is
// none.
func ParseMembership(frame []byte) (Membership, error) {
	if len(frame) < offPadding {
		return Membership{}, fmt.Errorf("membership frame of %d bytes: want %d", len(frame), FrameSize)
	}
	if t := binary.BigEndian.Uint16(frame[offType:]); t != EtherType {
		return Membership{}, fmt.Errorf("membership frame: EtherType %#04x, want %#04x", t, EtherType)
	}
	if source := Address(frame[offSource:offType]); source != MAC(Reflector) {
		return Membership{}, fmt.Errorf("membership frame from %s: want the reflector's, %s", source, MAC(Reflector))
	}
	if m := string(frame[offMagic:offGeneration]); m != magic {
		return Membership{}, fmt.Errorf("membership frame begins with %q, want %q", m, magic)
	}
	m := Membership{
		Generation: binary.BigEndian.Uint32(frame[offGeneration:]),
		Members:    Set(binary.BigEndian.Uint32(frame[offMembers:])),
	}
	if !m.Members.Valid() {
		return Membership{}, fmt.Errorf("membership frame: set %#x: want fractions 1 to %d only", uint32(m.Members), MaxFractions)
	}
	return m, nil
}

// Older reports whether generation a came before b. Generations wrap around: the
// one ahead by less than half of all is the later (RFC 1982, section 3.2). Who
// knows b takes what is not older.
func Older(a, b uint32) bool { return int32(a-b) < 0 }
