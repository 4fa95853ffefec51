// Package attachment is what the commands of both plugins share for one attachment
// (container ID, interface name): its lock, the pod's network namespace, the host
// daemon that plugs it, and releases that wait until the daemon can be reached.
//
// What is done inside the pod belongs to the plugins.
package attachment

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	cnins "github.com/containernetworking/cni/pkg/ns"
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"

	"unnest.io/unnest/internal/cni/hostclient"
	"unnest.io/unnest/internal/cni/netconf"
	"unnest.io/unnest/internal/cni/plugin"
	"unnest.io/unnest/internal/cni/podnic"
	"unnest.io/unnest/internal/cni/portfilter"
	"unnest.io/unnest/internal/cni/renewal"
	"unnest.io/unnest/internal/hostapi/hostdpb"
)

// StateDir has the locks and the pending releases. Like the NICs they end with the
// guest's boot. Tests replace it.
var StateDir = "/run/unnest"

// Kind is what the host daemon plugs for an attachment.
type Kind struct {
	name    string // in errors
	pending string // directory of pending releases in StateDir
	// release gives the NIC with a MAC back; "": whichever it has.
	release func(ctx context.Context, d hostclient.Client, container, iface, mac string) error
}

// NIC is a pod's own NIC, or VLAN.
var NIC = Kind{"NIC", "pending", func(ctx context.Context, d hostclient.Client, container, iface, mac string) error {
	_, err := d.DetachNIC(ctx, &hostdpb.DetachNICRequest{ContainerId: container, Interface: iface, Mac: mac})
	return err
}}

// Endpoint is an endpoint of a segment.
var Endpoint = Kind{"endpoint", "pending-endpoints", func(ctx context.Context, d hostclient.Client, container, iface, mac string) error {
	_, err := d.LeaveSegment(ctx, &hostdpb.LeaveSegmentRequest{ContainerId: container, Interface: iface, Mac: mac})
	if hostclient.Unknown(err) { // then the daemon has given no endpoint either
		return nil
	}
	return err
}}

// Attachment is one attachment during an ADD.
type Attachment struct {
	*skel.CmdArgs
	Pod    ns.NetNS
	Daemon hostclient.Client

	kind    Kind
	made    made
	pending pending
	undo    func() error // the move into the pod; nil: not moved
	log     io.Writer    // nil: none
}

// Add is the common part of ADD for what the host daemon attaches: it calls f by InPod, with the connection to the daemon
// prepared.
func (k Kind) Add(ctx context.Context, c netconf.Base, args *skel.CmdArgs, name string, f func(*Attachment) error) error {
	m := made{Network: c.Name, Asked: true, Server: c.Server, Credentials: c.Credentials}
	return k.inPod(ctx, &m, args, name, func(pod ns.NetNS) error {
		d, err := hostclient.Dial(c.Server, c.Credentials)
		if err != nil {
			return err
		}
		defer d.Close()
		protect(c)
		a := &Attachment{CmdArgs: args, Pod: pod, Daemon: d, kind: k, made: m, pending: k.pendingAt(c, d)}
		if c.Log {
			a.log = os.Stderr
		}
		if err := f(a); err != nil {
			return err
		}
		renew(ctx, c, d)
		return nil
	})
}

// InPod is the common part of every ADD: it waits for its turn, locks the attachment, opens the pod's network
// namespace, in which no link may have the given name, and calls f. If a link has the name, the pod has its
// NIC already, which the rollback of this ADD would release. It remembers the runtime, unless f fails.
func (k Kind) InPod(ctx context.Context, network string, args *skel.CmdArgs, name string, f func(pod ns.NetNS) error) error {
	return k.inPod(ctx, &made{Network: network}, args, name, f)
}

func (k Kind) inPod(ctx context.Context, m *made, args *skel.CmdArgs, name string, f func(pod ns.NetNS) error) error {
	if strings.ContainsRune(name, '%') {
		return types.NewError(types.ErrInvalidEnvironmentVariables, fmt.Sprintf("interface name %q: the kernel would replace %%; use another name", name), "")
	}
	// Before the lock, which other attachments may share, and before the namespace is opened, which
	// the runtime has removed if it has given up.
	done, err := takeTurn(ctx, addTurn)
	if err != nil {
		return err
	}
	defer done()
	unlock, err := k.lock(ctx, args.ContainerID, args.IfName)
	if err != nil {
		return err
	}
	defer unlock()
	pod, err := openPod(args.Netns)
	if err != nil {
		return err
	}
	defer pod.Close()
	if err := podnic.CheckFree(pod, name); err != nil {
		return fmt.Errorf("check interface %s in %s: %w", name, args.Netns, err)
	}
	m.Container, m.Interface, m.Runtime = args.ContainerID, args.IfName, runtimeName()
	if err := k.remember(*m); err != nil {
		return err
	}
	err = f(pod)
	switch {
	case err == nil:
		return nil
	case k.recorded(args.ContainerID, args.IfName): // what this ADD has asked for, or a DEL before it
		return errors.Join(err, k.rememberEnded(args.ContainerID, args.IfName, false))
	}
	return errors.Join(err, k.forget(args.ContainerID, args.IfName))
}

// IfPod is Delete without a host daemon: it calls clean unless the pod's network namespace is gone, unknown, or the
// guest's own.
func (k Kind) IfPod(ctx context.Context, args *skel.CmdArgs, clean func(pod ns.NetNS) error) error {
	unlock, err := k.lock(ctx, args.ContainerID, args.IfName)
	if err != nil {
		return err
	}
	defer unlock()
	if pod, _ := openPod(args.Netns); pod != nil {
		defer pod.Close()
		if err := clean(pod); err != nil {
			return err
		}
	}
	return k.forget(args.ContainerID, args.IfName)
}

// protect keeps containers away from the daemon's port. A failure, such as a kernel without
// nftables, is not one of the command: the daemon refuses who has no key.
func protect(c netconf.Base) {
	if err := portfilter.Ensure(c.Server); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

// renew renews the guest's certificate if that is due. A failure is not one of the command:
// the daemon warns before the certificate expires.
func renew(ctx context.Context, c netconf.Base, d hostclient.Client) {
	if err := renewal.Attempt(ctx, d, c.Credentials, StateDir); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

// Run does pending releases of earlier DELs and then the steps. If the configuration
// says so, it logs them, with the attributes that about returns in the end.
func (a *Attachment) Run(ctx context.Context, steps []plugin.Step, about func() slog.Attr) error {
	steps = append([]plugin.Step{{Name: "reconcile", Do: a.reconcile}}, steps...)
	return plugin.RunSteps(ctx, steps, a.log, func() []slog.Attr {
		return []slog.Attr{slog.String("container", a.ContainerID), slog.String("interface", a.IfName), about()}
	})
}

// reconcile requires success only of the attachment's own pending release: a later
// command would otherwise release the new NIC in place of the old one.
func (a *Attachment) reconcile(ctx context.Context) error {
	return a.pending.reconcile(ctx, a.ContainerID, a.IfName)
}

// Moved keeps the undo of a move into the pod for UndoMove. It returns err.
func (a *Attachment) Moved(undo func() error, err error) error {
	a.undo = undo
	return err
}

// Appear waits until the NIC with a MAC is there. Credentials of another guest, as a cloned VM has,
// plug it into that one.
func (a *Attachment) Appear(ctx context.Context, mac net.HardwareAddr, wait time.Duration) (netlink.Link, error) {
	l, err := podnic.AwaitPlugged(ctx, mac, wait)
	if errors.Is(err, podnic.ErrNotPlugged) {
		err = fmt.Errorf("%w, and that this is the guest %s, whose credentials it has: the host has plugged the NIC there",
			err, a.Daemon.Certificate.Subject.CommonName)
	}
	return l, err
}

// UndoMove undoes the move into the pod, if there was one.
func (a *Attachment) UndoMove(context.Context) error {
	if a.undo == nil {
		return nil
	}
	return a.undo()
}

// Release rolls the request for a NIC or endpoint back. If the daemon does not
// answer, a later command does it.
func (a *Attachment) Release(ctx context.Context) error {
	marked := a.kind.rememberEnded(a.ContainerID, a.IfName, false) // as Delete does
	_, err := a.pending.releaseOrRecord(ctx, a.ContainerID, a.IfName)
	return errors.Join(marked, err)
}

// Delete is the common part of DEL. It calls clean, which undoes what the ADD has
// set up in the guest, and then releases the attachment at the host daemon. If the
// daemon does not answer, that is not an error: the release is recorded for a later
// command and for Reclaimer, and moveOut moves the NIC out of the pod, which must not keep it. Pod is
// nil when its namespace is gone, unknown, or the guest's own. Every part is done
// whether or not the others fail.
func (k Kind) Delete(ctx context.Context, c netconf.Release, args *skel.CmdArgs, clean, moveOut func(pod ns.NetNS) error) error {
	if done, err := takeTurn(ctx, delTurn); err == nil {
		defer done()
	}
	unlock, err := k.lock(ctx, args.ContainerID, args.IfName)
	if err != nil {
		return err
	}
	defer unlock()
	pod, _ := openPod(args.Netns)
	if pod != nil {
		defer pod.Close()
	}
	out := func() error {
		if pod == nil {
			return nil
		}
		return moveOut(pod)
	}
	cleanErr := clean(pod)
	// Marked before the release: a DEL that is killed after it leaves no link by which Reclaimer would find the file.
	cleanErr = errors.Join(cleanErr, k.rememberEnded(args.ContainerID, args.IfName, cleanErr == nil))
	d, err := dial(c)
	p, recorded := k.pendingAt(c.Base, d), true
	if err != nil { // no credentials now, or no server
		fmt.Fprintln(os.Stderr, err)
		err = errors.Join(p.record(args.ContainerID, args.IfName), out())
	} else {
		defer d.Close()
		recorded, err = p.end(ctx, args.ContainerID, args.IfName, out)
	}
	if cleanErr != nil || err != nil || recorded {
		return errors.Join(cleanErr, err)
	}
	return k.forget(args.ContainerID, args.IfName)
}

// GC reads the valid attachments, adds those of other runtimes, and calls f. No ADD makes another one meanwhile, which f would remove.
func (k Kind) GC(ctx context.Context, args *skel.CmdArgs, f func(c netconf.Release) error) error {
	c := netconf.ReadRelease(args.StdinData)
	err := plugin.ConfigError(c.ReadValid(args.StdinData))
	if c.Complete {
		done, err := takeAllTurns(ctx)
		if err != nil {
			return err
		}
		defer done()
		if err := k.spare(&c); err != nil {
			return err
		}
	}
	return errors.Join(err, f(c))
}

// Collect releases the attachments of the network that are not valid, and retries pending releases. If the runtime did not say
// which are valid, it only retries.
func (k Kind) Collect(ctx context.Context, c netconf.Release) error {
	d, err := dial(c)
	if err != nil {
		return err
	}
	defer d.Close()
	if c.Complete {
		r := &hostdpb.GCRequest{Network: c.Name}
		for _, a := range c.ValidAttachments {
			r.Valid = append(r.Valid, &hostdpb.Attachment{ContainerId: a.ContainerID, Interface: a.IfName})
		}
		// A daemon that does not know GC has had a DEL for every attachment.
		if _, err := d.GC(ctx, r); err != nil && !hostclient.Unknown(err) {
			return fmt.Errorf("collect %ss: %w", k.name, err)
		}
		if err := k.ForgetCollected(c); err != nil {
			return err
		}
	}
	return k.pendingAt(c.Base, d).retry(ctx)
}

// dial prepares the connection to the host daemon of a configuration that may have mistakes.
func dial(c netconf.Release) (hostclient.Client, error) {
	if c.ServerError != nil {
		return hostclient.Client{}, plugin.Invalid(c.ServerError)
	}
	return hostclient.Dial(c.Server, c.Credentials)
}

// Status is the common part of STATUS: it asks the host daemon for its status, for NICs with its
// own IPAM also for addresses, and retries pending releases.
func (k Kind) Status(ctx context.Context, stdin []byte) (*hostdpb.StatusResponse, error) {
	c := netconf.ReadRelease(stdin)
	d, err := dial(c)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	protect(c.Base)
	s, err := d.Status(ctx, &hostdpb.StatusRequest{Allocate: !c.IPAM.Delegated()})
	if err == nil {
		_ = k.pendingAt(c.Base, d).retry(ctx) // does not prevent an ADD
		renew(ctx, c.Base, d)
	}
	return s, err
}

// Check is the common part of CHECK: inPod checks the pod and onHost asks the host
// daemon. A daemon that does not answer is not an error: the pod works without it, and a
// runtime may kill a pod whose CHECK fails.
func Check(c netconf.Base, args *skel.CmdArgs, inPod func(pod ns.NetNS) error, onHost func(d hostclient.Client, pod ns.NetNS) error) error {
	pod, err := ns.GetNS(args.Netns)
	if err == nil {
		defer pod.Close()
		err = inPod(pod)
	}
	if err != nil {
		return fmt.Errorf("check %s in %s: %w", args.IfName, args.Netns, err)
	}
	d, err := hostclient.Dial(c.Server, c.Credentials)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := onHost(d, pod); err != nil && !hostclient.Unanswered(err) {
		return fmt.Errorf("check %s on the host: %w", args.IfName, err)
	}
	return nil
}

// recorded reports whether the release of an attachment is pending.
func (k Kind) recorded(container, iface string) bool {
	return pending{dir: k.pending}.recorded(container, iface)
}

func (k Kind) pendingAt(c netconf.Base, d hostclient.Client) pending {
	server := anyServer
	if c.Server.IsValid() {
		server = c.Server.String()
	}
	return pending{
		dir: k.pending, what: k.name, server: server,
		release: func(ctx context.Context, container, iface string) error {
			return k.release(ctx, d, container, iface, "")
		},
		forget: k.forgetEnded,
	}
}

// openPod opens a pod's network namespace. It refuses the guest's own, which no
// command may change.
func openPod(path string) (ns.NetNS, error) {
	own, cniErr := cnins.CheckNetNS(path)
	if cniErr != nil {
		return nil, cniErr
	}
	if own {
		return nil, types.NewError(types.ErrInvalidNetNS, fmt.Sprintf("network namespace %s is the guest's own: want a pod's", path), "")
	}
	pod, err := ns.GetNS(path)
	if err != nil {
		return nil, types.NewError(types.ErrInvalidNetNS, fmt.Sprintf("open network namespace: %v", err), "")
	}
	return pod, nil
}
