package rpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// Numbers of the calls and events (remote_protocol.x, enum remote_procedure).
const (
	procOpen          = 1
	procGetXMLDesc    = 14
	procLookupByName  = 23
	procAuthList      = 66
	procAttachDevice  = 160 // DOMAIN_ATTACH_DEVICE_FLAGS
	procUpdateDevice  = 174 // DOMAIN_UPDATE_DEVICE_FLAGS
	procRegisterEvent = 316 // CONNECT_DOMAIN_EVENT_CALLBACK_REGISTER_ANY
	procDetachAlias   = 392 // DOMAIN_DETACH_DEVICE_ALIAS, since libvirt 4.4

	procLifecycle     = 318
	procReboot        = 319
	procDeviceRemoved = 333
	procRemovalFailed = 367
)

// procMonitorCommand is QEMU_PROC_DOMAIN_MONITOR_COMMAND of the program ofQEMU.
const procMonitorCommand = 1

// authNone is the authentication method of clients that need none.
const authNone = int32(0)

// affectLive is VIR_DOMAIN_AFFECT_LIVE: change the running domain, and not the
// definition for its next start.
const affectLive = int32(1)

// changeNow is affectLive with VIR_DOMAIN_DEVICE_MODIFY_FORCE: also if the guest has locked
// the tray.
const changeNow = affectLive | 4

// Domain identifies a domain in libvirt's calls.
type Domain struct {
	Name string
	uuid [16]byte
	id   int32 // of this run; -1: not running
}

// Running reports whether the domain ran when it was looked up.
func (d Domain) Running() bool { return d.id >= 0 }

// noFlags is the flags argument of a call.
const noFlags = int32(0)

// open authenticates, which libvirtd does not ask of root, and opens the driver.
func (c *Client) open(ctx context.Context) error {
	d, err := c.call(ctx, procAuthList)
	if err != nil {
		return err
	}
	methods := make([]int32, max(0, min(d.int(), 20))) // 20 is the protocol's maximum
	for i := range methods {
		methods[i] = d.int()
	}
	if d.err != nil {
		return fmt.Errorf("decode libvirt's authentication methods: %w", d.err)
	}
	if len(methods) > 0 && !slices.Contains(methods, authNone) {
		return errors.New("libvirtd asks for authentication: be root, or set auth_unix_rw to none in its configuration")
	}
	_, err = c.call(ctx, procOpen, optional, "qemu:///system", noFlags)
	return err
}

// Lookup finds a domain by its name. When it does not exist the error is an *Error
// with CodeNoDomain.
func (c *Client) Lookup(ctx context.Context, name string) (Domain, error) {
	d, err := c.call(ctx, procLookupByName, name)
	if err != nil {
		return Domain{}, err
	}
	m := d.domain()
	return m, d.err
}

// XML describes a domain as it runs.
func (c *Client) XML(ctx context.Context, m Domain) (string, error) {
	d, err := c.call(ctx, procGetXMLDesc, m, noFlags)
	if err != nil {
		return "", err
	}
	text := d.string()
	return text, d.err
}

// AttachDevice plugs the device that xml describes into the running domain.
func (c *Client) AttachDevice(ctx context.Context, m Domain, xml string) error {
	_, err := c.call(ctx, procAttachDevice, m, xml, affectLive)
	return err
}

// DetachDevice asks the running domain to release the device with an alias, and
// does not wait until it has. The event DeviceRemoved ends the unplug.
func (c *Client) DetachDevice(ctx context.Context, m Domain, alias string) error {
	_, err := c.call(ctx, procDetachAlias, m, alias, affectLive)
	return err
}

// ChangeMedium replaces the medium of the CD-ROM drive that xml describes, in the running
// domain.
func (c *Client) ChangeMedium(ctx context.Context, m Domain, xml string) error {
	_, err := c.call(ctx, procUpdateDevice, m, xml, changeNow)
	return err
}

// OpenTray has QEMU open the tray of a drive. libvirt passes the command on to QEMU's monitor, and learns of the open tray
// by QEMU's event. For that, libvirt marks the domain as tainted ("custom-monitor" in its log). drive is the alias of the drive.
func (c *Client) OpenTray(ctx context.Context, m Domain, drive string) error {
	command, err := json.Marshal(map[string]any{"execute": "blockdev-open-tray", "arguments": map[string]any{"id": drive, "force": true}})
	if err != nil {
		return err
	}
	d, err := c.callProgram(ctx, ofQEMU, procMonitorCommand, m, string(command), noFlags)
	if err != nil {
		return err
	}
	var answer struct{ Error *struct{ Desc string } }
	if text := d.string(); d.err == nil {
		d.err = json.Unmarshal([]byte(text), &answer)
	}
	if d.err != nil {
		return fmt.Errorf("decode the answer of QEMU's monitor: %w", d.err)
	}
	if answer.Error != nil {
		return fmt.Errorf("open tray of %s: %s", drive, answer.Error.Desc)
	}
	return nil
}

// Event is a message that libvirt sends without a request.
type Event struct {
	Kind  EventKind
	Alias string // of the device, for DeviceRemoved and RemovalFailed
}

// EventKind says what has happened to a domain.
type EventKind int

// The kinds of events.
const (
	Stopped       EventKind = iota // the domain has stopped
	Rebooted                       // the domain reboots
	DeviceRemoved                  // the domain has released a device
	RemovalFailed                  // the domain has refused to release a device
)

// Watch subscribes to the events of a domain.
func (c *Client) Watch(ctx context.Context, m Domain) error {
	// virDomainEventID: LIFECYCLE, REBOOT, DEVICE_REMOVED, DEVICE_REMOVAL_FAILED.
	for _, id := range []int32{0, 1, 15, 22} {
		if _, err := c.call(ctx, procRegisterEvent, id, optional, m); err != nil {
			return fmt.Errorf("watch domain %s: %w", m.Name, err)
		}
	}
	return nil
}

// lifecycleStopped is VIR_DOMAIN_EVENT_STOPPED.
const lifecycleStopped = 5

func (c *Client) dispatchEvent(procedure uint32, d *decoder) error {
	d.int() // the subscription's ID
	d.domain()
	var e Event
	switch procedure {
	case procLifecycle:
		if d.int() != lifecycleStopped {
			return d.err
		}
		e.Kind = Stopped
	case procReboot:
		e.Kind = Rebooted
	case procDeviceRemoved:
		e = Event{DeviceRemoved, d.string()}
	case procRemovalFailed:
		e = Event{RemovalFailed, d.string()}
	default:
		return nil
	}
	if d.err != nil {
		return fmt.Errorf("decode libvirt's event %d: %w", procedure, d.err)
	}
	return c.handle(e)
}
