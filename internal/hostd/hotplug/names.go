package hotplug

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Occupant is one device in one slot. The generation counts the slot's devices from 1,
// so that late events of an earlier one are not taken for the present one's.
type Occupant struct {
	Slot       int
	Generation uint32
}

// String returns "slot-generation", the generation in base 36.
func (o Occupant) String() string {
	return strconv.Itoa(o.Slot) + "-" + strconv.FormatUint(uint64(o.Generation), 36)
}

const devicePrefix = "nic"

// DeviceID is the ID of the occupant's device in the VMM.
func (o Occupant) DeviceID() string { return devicePrefix + o.String() }

// NetdevID is the ID of the occupant's netdev in the VMM.
func (o Occupant) NetdevID() string { return "net" + o.String() }

// TAP is the name of the occupant's TAP, for the guest with the given prefix:
// at most 15 characters.
func (o Occupant) TAP(prefix string) string { return prefix + o.String() }

// MAC is the occupant's address, for the guest with the given MAC prefix. It
// comes back in the same slot after 65,536 generations.
func (o Occupant) MAC(prefix [3]byte) string {
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", prefix[0], prefix[1], prefix[2],
		o.Slot, byte(o.Generation>>8), byte(o.Generation))
}

// parseOccupant reads prefix and an occupant; false when name is anything else,
// or not written as String writes it.
func parseOccupant(name, prefix string) (Occupant, bool) {
	rest, ours := strings.CutPrefix(name, prefix)
	slotText, generationText, _ := strings.Cut(rest, "-")
	slot, err1 := strconv.Atoi(slotText)
	generation, err2 := strconv.ParseUint(generationText, 36, 32)
	o := Occupant{Slot: slot, Generation: uint32(generation)}
	return o, ours && err1 == nil && err2 == nil && slot > 0 && generation > 0 && o.String() == rest
}

// following returns the generation after g. It wraps around when all are used up, one
// a second, after 136 years.
func following(g uint32) uint32 { return g%math.MaxUint32 + 1 }

// validPrefix keeps TAP names within 15 characters (prefix 4, slot 3, dash,
// generation 7) and makes the end of the prefix recognisable: a digit there
// would read as the slot's.
func validPrefix(p string) bool {
	letter := func(c byte) bool { return 'a' <= c && c <= 'z' }
	if len(p) < 1 || len(p) > 4 || !letter(p[0]) || !letter(p[len(p)-1]) {
		return false
	}
	return !strings.ContainsFunc(p, func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') })
}
