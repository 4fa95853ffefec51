// Package share is the host's side of what the fractions of a pod share in addition
// to their loopback: volumes, which are directories of the host, and memory (Bacou et
// al. 2019, §4.3). A fraction's VM mounts a volume by virtiofs or 9p, and maps memory
// of a PCI device.
//
// Plugging devices, authorization, and the guest's side do not belong here.
package share

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// Kind is the kind of a share. The IDs of devices begin with it.
type Kind string

// The kinds.
const (
	Volume Kind = "volume"
	Memory Kind = "memory"
)

// ID names a share within its tenant.
type ID struct {
	Kind Kind
	Pod  string // 1 to MaxPod bytes of a-z, A-Z, 0-9, '_', '.' and '-', the first a letter or digit
	Name string // within pod and kind: 1 to MaxName bytes of a-z, 0-9 and '-', the first not '-'
}

// The longest names in bytes. A pod's name is that of its segment.
const (
	MaxPod  = 63
	MaxName = 31
)

// ErrName is wrapped when a name is invalid.
var ErrName = errors.New("invalid name of a share")

var (
	podPattern  = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]*$`)
	namePattern = regexp.MustCompile(`^[a-z0-9][a-z0-9-]*$`)
)

// Validate returns an error that wraps ErrName when a name is invalid. A valid name
// is one element of a path, not a hidden file, and an ID in QEMU.
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

// String returns "KIND.NAME.POD", the ID of the device in a VMM. Kind and name have
// no dots.
func (i ID) String() string { return string(i.Kind) + "." + i.Name + "." + i.Pod }

// ParseID is the inverse of String. It returns false for other texts.
func ParseID(text string) (i ID, ok bool) {
	kind, rest, _ := strings.Cut(text, ".")
	i.Kind = Kind(kind)
	i.Name, i.Pod, _ = strings.Cut(rest, ".")
	return i, i.Validate() == nil && i.String() == text
}
