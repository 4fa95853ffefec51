package hotplug

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Key is whose NIC it is: one interface of one container, as in CNI. A container
// ID that CNI would not allow ("@trunk") can stand for the caller's own.
type Key struct {
	ContainerID string
	Interface   string
}

// String gives "container/interface".
func (k Key) String() string { return k.ContainerID + "/" + k.Interface }

// Validate returns an error unless k can be written into a TAP's alias and read
// back from it.
func (k Key) Validate() error {
	return validateOwner(k, "")
}

// validateOwner returns an error unless key and note can be written into a TAP's
// alias and read back from it.
func validateOwner(k Key, note string) error {
	if !validName(k.ContainerID) || !validName(k.Interface) {
		return fmt.Errorf("attachment %q: want a container ID and an interface name, in printable ASCII without blank and slash", k)
	}
	if !printable(note) {
		return fmt.Errorf("attachment %q: note %q: want printable ASCII without blank", k, note)
	}
	if n := len(Owner(k, note)); n > maxAlias {
		return fmt.Errorf("attachment %q: alias of its TAP would have %d bytes, %d of them its note, want at most %d",
			k, n, len(note), maxAlias)
	}
	return nil
}

func validName(s string) bool { return s != "" && printable(s) && !strings.Contains(s, "/") }

func printable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}

const (
	ownerPrefix = "unnest:"
	maxAlias    = 255 // of a Linux network interface (IFALIASZ without its NUL)
)

// WarmOwner is the alias of a TAP that is nobody's yet.
const WarmOwner = ownerPrefix

// Owner returns the alias of the TAP that belongs to key: "unnest:c1/eth0", and
// behind a blank the note, if there is one.
func Owner(k Key, note string) string {
	if note == "" {
		return ownerPrefix + k.String()
	}
	return ownerPrefix + k.String() + " " + note
}

// ParseOwner returns key and note in a TAP's alias; false when it is not one that
// Owner made of a valid key and note, such as WarmOwner.
func ParseOwner(alias string) (k Key, note string, ok bool) {
	rest, _ := strings.CutPrefix(alias, ownerPrefix)
	name, note, _ := strings.Cut(rest, " ")
	k.ContainerID, k.Interface, _ = strings.Cut(name, "/")
	return k, note, Owner(k, note) == alias && validateOwner(k, note) == nil
}

// Occupant is one NIC in one slot. The generation counts the slot's NICs from 1,
// so that late events of an earlier one are not taken for the present one's.
type Occupant struct {
	Slot       int
	Generation uint32
}

// String gives "slot-generation", the generation in base 36.
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

// following is the generation after g. It begins anew when all are used up, one
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
