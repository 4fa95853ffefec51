package rpc

import (
	"context"
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
	procRegisterEvent = 316 // CONNECT_DOMAIN_EVENT_CALLBACK_REGISTER_ANY
	procDetachAlias   = 392 // DOMAIN_DETACH_DEVICE_ALIAS, since libvirt 4.4

	procLifecycle     = 318
	procReboot        = 319
	procDeviceRemoved = 333
	procRemovalFailed = 367
)

// authNone is the method of a client that need not say who it is.
const authNone = 0

// affectLive is VIR_DOMAIN_AFFECT_LIVE: change the running domain, and not what
// it starts with the next time.
const affectLive = 1

// Domain names a domain, as libvirt does in its calls.
type Domain struct {
	Name string
	uuid [16]byte
	id   int32 // of this run; -1: it does not run
}

// Running reports whether the domain ran when it was looked up.
func (d Domain) Running() bool { return d.id >= 0 }

// open passes libvirtd's authentication, which asks nothing of root, and opens
// the driver.
func (c *Client) open(ctx context.Context) error {
	d, err := c.call(ctx, procAuthList, nil)
	if err != nil {
		return err
	}
	methods := make([]int32, max(0, min(d.int(), 20))) // as many as the protocol allows
	for i := range methods {
		methods[i] = d.int()
	}
	if d.err != nil {
		return fmt.Errorf("decode libvirt's ways to authenticate: %w", d.err)
	}
	if len(methods) > 0 && !slices.Contains(methods, authNone) {
		return errors.New("libvirtd wants to know who asks: be root, or set auth_unix_rw to none in its configuration")
	}
	var args encoder
	args.optional()
	args.string("qemu:///system")
	args.int(0) // flags
	_, err = c.call(ctx, procOpen, args)
	return err
}

// Lookup finds a domain by its name. When there is none the error is an *Error
// with CodeNoDomain.
func (c *Client) Lookup(ctx context.Context, name string) (Domain, error) {
	var args encoder
	args.string(name)
	d, err := c.call(ctx, procLookupByName, args)
	if err != nil {
		return Domain{}, err
	}
	m := d.domain()
	return m, d.err
}

// XML describes a domain as it runs.
func (c *Client) XML(ctx context.Context, m Domain) (string, error) {
	var args encoder
	args.domain(m)
	args.int(0) // flags
	d, err := c.call(ctx, procGetXMLDesc, args)
	if err != nil {
		return "", err
	}
	text := d.string()
	return text, d.err
}

// AttachDevice plugs the device that xml describes into the running domain.
func (c *Client) AttachDevice(ctx context.Context, m Domain, xml string) error {
	var args encoder
	args.domain(m)
	args.string(xml)
	args.int(affectLive)
	_, err := c.call(ctx, procAttachDevice, args)
	return err
}

// DetachDevice asks the running domain to give up the device with an alias.
// It returns when it has been asked; the device is gone with DeviceRemoved.
func (c *Client) DetachDevice(ctx context.Context, m Domain, alias string) error {
	var args encoder
	args.domain(m)
	args.string(alias)
	args.int(affectLive)
	_, err := c.call(ctx, procDetachAlias, args)
	return err
}

// Event is something that libvirt tells unasked.
type Event interface{ event() }

// Events of a domain.
type (
	// Stopped says that the domain runs no more.
	Stopped struct{}
	// Rebooted says that the domain starts anew.
	Rebooted struct{}
	// DeviceRemoved says that the domain has given a device up.
	DeviceRemoved struct{ Alias string }
	// RemovalFailed says that the domain has refused to.
	RemovalFailed struct{ Alias string }
)

func (Stopped) event()       {}
func (Rebooted) event()      {}
func (DeviceRemoved) event() {}
func (RemovalFailed) event() {}

// Watch asks for the events of a domain.
func (c *Client) Watch(ctx context.Context, m Domain) error {
	// virDomainEventID: LIFECYCLE, REBOOT, DEVICE_REMOVED, DEVICE_REMOVAL_FAILED.
	for _, id := range []int32{0, 1, 15, 22} {
		var args encoder
		args.int(id)
		args.optional()
		args.domain(m)
		if _, err := c.call(ctx, procRegisterEvent, args); err != nil {
			return fmt.Errorf("watch domain %s: %w", m.Name, err)
		}
	}
	return nil
}

// lifecycleStopped is VIR_DOMAIN_EVENT_STOPPED.
const lifecycleStopped = 5

func (c *Client) dispatchEvent(procedure uint32, d *decoder) error {
	d.int() // which of our requests for events it comes from
	d.domain()
	var e Event
	switch procedure {
	case procLifecycle:
		if d.int() == lifecycleStopped {
			e = Stopped{}
		}
	case procReboot:
		e = Rebooted{}
	case procDeviceRemoved:
		e = DeviceRemoved{d.string()}
	case procRemovalFailed:
		e = RemovalFailed{d.string()}
	}
	if d.err != nil {
		return fmt.Errorf("decode libvirt's event %d: %w", procedure, d.err)
	}
	if e == nil {
		return nil
	}
	return c.handle(e)
}
