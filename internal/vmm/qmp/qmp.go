// Package qmp speaks the QEMU Machine Protocol (QEMU, docs/interop/qmp-spec)
// with one QEMU process over its unix socket: concurrent commands, file
// descriptors, and events.
//
// It carries single commands. What to plug where, when to retry, and starting QEMU
// do not belong here.
package qmp

import (
	"errors"
	"fmt"
	"strings"
)

// ErrClosed is wrapped by every error that is due to the end of the connection.
// When QEMU itself went away the error wraps io.EOF as well.
var ErrClosed = errors.New("connection to QEMU closed")

// Error classes of QMP. Most errors are GenericError.
const (
	ClassGeneric        = "GenericError"
	ClassDeviceNotFound = "DeviceNotFound"
)

// Error is QEMU's refusal of one command. The connection goes on.
type Error struct {
	Class   string // "GenericError", "DeviceNotFound", …
	Desc    string // QEMU's own words
	Command string // the command refused
}

// Error gives the command, QEMU's words, and the class unless it is generic.
func (e *Error) Error() string {
	if e.Class == ClassGeneric {
		return fmt.Sprintf("qmp %s: %s", e.Command, e.Desc)
	}
	return fmt.Sprintf("qmp %s: %s (%s)", e.Command, e.Desc, e.Class)
}

// IsNotFound reports whether QEMU refused a command because its device or netdev
// does not exist. For a deletion this means that it is already done.
func IsNotFound(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Class == ClassDeviceNotFound
}

// IsBadDescriptor reports whether QEMU refused a netdev because it has closed a descriptor that it
// was given (net_init_tap of net/tap.c). The error has no class of its own.
func IsBadDescriptor(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && strings.Contains(e.Desc, "Bad file descriptor")
}

// IsDuplicate reports whether QEMU refused a netdev because it has one with the ID. The error has no
// class of its own.
func IsDuplicate(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && strings.Contains(e.Desc, "Duplicate ID")
}

// IsUnplugPending reports whether QEMU refused device_del because an earlier one
// still waits for the guest: DEVICE_DELETED is still to come. The error has no
// class of its own, so this matches QEMU's words.
func IsUnplugPending(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && strings.Contains(e.Desc, "in the process of unplug")
}
