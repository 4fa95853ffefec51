package segment

import "encoding/binary"

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
