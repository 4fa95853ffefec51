// Package share is the host's side of what the fractions of a pod share beside
// their loopback: volumes, which are directories of the host, and memory (Bacou et
// al. 2019, §4.3). A fraction's VM reaches a volume by virtiofs or by 9p, and memory
// as that of a PCI device.
//
// Plugging devices into a VM, who may have what, and the guest's side do not belong
// here.
package share

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// Kind is what is shared.
type Kind string

// The kinds. They begin the IDs of devices.
const (
	Volume Kind = "volume"
	Memory Kind = "memory"
)

// ID names something that a pod shares, within its tenant.
type ID struct {
	Kind Kind
	Pod  string // 1 to MaxPod bytes of a-z, A-Z, 0-9, '_', '.' and '-', the first a letter or digit
	Name string // among the pod's of the kind: 1 to MaxName bytes of a-z, 0-9 and '-', the first no '-'
}

// The bounds of names in bytes. A pod's is a segment's.
const (
	MaxPod  = 63
	MaxName = 31
)

// ErrName is wrapped when a name is none.
var ErrName = errors.New("no name of something shared")

var (
	podPattern  = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]*$`)
	namePattern = regexp.MustCompile(`^[a-z0-9][a-z0-9-]*$`)
)

// Validate returns an error, which wraps ErrName, when a name is out of its bounds.
// A valid one is no path of more than one element, no hidden file, and an ID in
// QEMU.
func (i ID) Validate() error {
	switch {
	case i.Kind != Volume && i.Kind != Memory:
		return fmt.Errorf("%w: kind %.20q: want %s or %s", ErrName, i.Kind, Volume, Memory)
	case len(i.Pod) > MaxPod || !podPattern.MatchString(i.Pod):
		return fmt.Errorf("%w: pod %.80q: want 1 to %d of a-z, A-Z, 0-9, '_', '.' and '-', beginning with a letter or digit", ErrName, i.Pod, MaxPod)
	case len(i.Name) > MaxName || !namePattern.MatchString(i.Name):
		return fmt.Errorf("%w: %s %.40q: want 1 to %d of a-z, 0-9 and '-', beginning with a letter or digit", ErrName, i.Kind, i.Name, MaxName)
	}
	return nil
}

// String gives "KIND.NAME.POD", which is what a device is called in a VMM. A name
// has no dot.
func (i ID) String() string { return string(i.Kind) + "." + i.Name + "." + i.Pod }

// ParseID reads what String gives; false for anything else.
func ParseID(text string) (i ID, ok bool) {
	kind, rest, _ := strings.Cut(text, ".")
	i.Kind = Kind(kind)
	i.Name, i.Pod, _ = strings.Cut(rest, ".")
	return i, i.Validate() == nil && i.String() == text
}
