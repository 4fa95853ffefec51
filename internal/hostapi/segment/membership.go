package segment

import "encoding/binary"

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
	offMembers     = 22 // then zeros to the end
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

// Older reports whether generation a came before b. Generations wrap around: the
// one ahead by less than half of all is the later (RFC 1982, section 3.2). Who
// knows b takes what is not older.
func Older(a, b uint32) bool { return int32(a-b) < 0 }
