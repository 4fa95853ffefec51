// Package libnetwork is the driver of networks and of addresses for Docker: it serves libnetwork's
// remote driver protocol in the guest, and gives each container a NIC of the host (BrFusion), or an
// endpoint of a segment (Hostlo).
//
// # What Docker does, and what the driver does then
//
// Docker asks IPAM for an address first, which names neither network nor container: RequestAddress
// attaches a NIC, because the host daemon gives addresses to NICs only. CreateEndpoint finds the NIC
// by the address, and Join names its link, which Docker moves into the container and configures.
// ReleaseAddress, which follows DeleteEndpoint or a call that has failed, detaches the NIC: so nobody else
// gets the address before Docker has released it.
//
// The driver keeps a file for each NIC in /run, which like the NICs ends with the guest's boot. It never
// calls Docker, which waits for it while it starts. What a crash of Docker or of the driver has
// left is found in the host daemon's list: see sweep.
//
// Plugging and access control belong to the host daemon, moving and configuring links to Docker.
package libnetwork

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/vishvananda/netlink"

	"unnest.io/unnest/internal/cni/hostclient"
	"unnest.io/unnest/internal/cni/podnic"
	"unnest.io/unnest/internal/hostapi/hostdpb"
)

const (
	// addressSpace is that of the driver's IPAM.
	addressSpace = "unnest"
	// networkName is the network of all NICs of the driver, at the host daemon.
	networkName = "docker"
	// ownerPrefix begins the container IDs of the driver's attachments.
	ownerPrefix = "docker-"
	// attachedAs is the interface of the driver's NICs at the host daemon. Docker names the link in
	// the container.
	attachedAs = "docker"
	// detachTime bounds a rollback, which goes on when Docker has given up.
	detachTime = time.Minute
	// awayTime is how long the host daemon may be away before a container fails to start, which Docker then leaves stopped, whatever
	// its restart policy. The daemon restarts in seconds, but a guest may boot before it.
	awayTime = time.Minute
)

// driver serves Docker.
type driver struct {
	server      netip.AddrPort
	credentials string        // directory
	wait        time.Duration // for a NIC to appear
	maxIdle     time.Duration // in no container, before a NIC is taken for lost
	away        time.Duration // awayTime, unless a flag says another
	proxy       string        // Docker's docker-proxy
	log         *slog.Logger
	nicFiles    directory // one for each NIC, in /run
	sandboxes   directory // network namespace of each endpoint of a Hostlo network, in /run
	netFiles    directory // one for each Hostlo network, which outlives the guest's boot

	mu    sync.Mutex
	nics  map[string]nic     // by owner; without an address while it is being attached
	joins map[string]joining // by endpoint
}

// nic is a NIC that the host daemon has attached for a container.
type nic struct {
	Owner     string         `json:"owner"` // at the host daemon
	MAC       string         `json:"mac"`
	MTU       int            `json:"mtu"`
	Addresses []netip.Prefix `json:"addresses"`
	Gateways  []netip.Addr   `json:"gateways"`
	Endpoint  string         `json:"endpoint,omitempty"` // of Docker; empty: not created yet, or deleted
	Released  bool           `json:"released,omitempty"` // Docker has released the address, or its request has failed, but the NIC may still be attached
}

// of returns the address of a family, which the host daemon gives one of.
func (n nic) of(six bool) (p netip.Prefix) {
	for _, a := range n.Addresses {
		if a.Addr().Is6() == six {
			return a
		}
	}
	return p
}

// gateway returns the gateway of a family, "" for none.
func (n nic) gateway(six bool) string {
	for _, g := range n.Gateways {
		if g.Is6() == six {
			return g.String()
		}
	}
	return ""
}

// withDaemon calls f with a connection to the host daemon. The credentials may have been renewed since
// the last one.
func (d *driver) withDaemon(f func(hostclient.Client) error) error {
	c, err := hostclient.Dial(d.server, d.credentials)
	if err != nil {
		return err
	}
	defer c.Close()
	return f(c)
}

// untilAnswered is withDaemon, but repeats f while the daemon does not answer, for d.away.
func (d *driver) untilAnswered(ctx context.Context, f func(hostclient.Client) error) error {
	for begin, said := time.Now(), false; ; said = true {
		err := d.withDaemon(f)
		if !hostclient.Unanswered(err) || hostclient.Untrusted(err) || time.Since(begin) > d.away {
			return err
		}
		if !said {
			d.log.Warn("the host daemon does not answer; trying again", "error", err)
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(time.Second):
		}
	}
}

// find returns the first NIC that matches.
func (d *driver) find(match func(nic) bool) (nic, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, n := range d.nics {
		if match(n) {
			return n, true
		}
	}
	return nic{}, false
}

func (d *driver) findEndpoint(id string) (nic, bool) {
	return d.find(func(n nic) bool { return n.Endpoint == id && id != "" })
}

// keep keeps a NIC, also for the next driver.
func (d *driver) keep(n nic) error {
	if err := d.nicFiles.write(n.Owner, n); err != nil {
		return fmt.Errorf("keep NIC of %s: %w", n.Owner, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.nics[n.Owner] = n
	return nil
}

func (d *driver) forget(owner string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.nics, owner)
	return d.nicFiles.remove(owner)
}

// attach attaches a NIC, with the wanted address or, if that is not valid, any. On an error nothing is left, or the next sweep
// detaches it.
func (d *driver) attach(ctx context.Context, wanted netip.Addr) (n nic, err error) {
	n.Owner = ownerPrefix + strings.ToLower(rand.Text()[:16])
	d.mu.Lock()
	d.nics[n.Owner] = n // sweep spares it
	d.mu.Unlock()
	defer func() {
		if err != nil {
			err = errors.Join(err, d.release(context.WithoutCancel(ctx), nic{Owner: n.Owner}))
		}
	}()
	err = d.untilAnswered(ctx, func(c hostclient.Client) error {
		n = nic{Owner: n.Owner}
		r := n.request("")
		r.Allocate = true
		answer, err := c.AttachNIC(ctx, r)
		if err != nil {
			return err
		}
		if err := n.read(answer); err != nil {
			return fmt.Errorf("read the host daemon's answer: %w", err)
		}
		if !wanted.IsValid() || n.of(wanted.Is6()).Addr() == wanted {
			return nil
		}
		if err := n.exchange(wanted); err != nil {
			return err
		}
		_, err = c.AttachNIC(ctx, n.request(""))
		return err
	})
	if err != nil {
		return n, fmt.Errorf("attach NIC: %w", err)
	}
	return n, d.keep(n)
}

// request is for the NIC as the host daemon has attached it, but with this MAC in the container if that is not empty.
func (n nic) request(mac string) *hostdpb.AttachNICRequest {
	r := &hostdpb.AttachNICRequest{ContainerId: n.Owner, Interface: attachedAs, Network: networkName, Mac: mac}
	for _, a := range n.Addresses {
		r.Addresses = append(r.Addresses, a.String())
	}
	return r
}

// setMAC has the host daemon let the NIC send from a MAC that a user has chosen. Docker gives it to the link.
func (d *driver) setMAC(ctx context.Context, n nic, mac string) error {
	return d.untilAnswered(ctx, func(c hostclient.Client) error {
		answer, err := c.AttachNIC(ctx, n.request(mac))
		if err == nil && answer.GetNic().GetPodMac() == "" {
			return errors.New("the host daemon is too old for that: update unnest hostd on the host")
		}
		return err
	})
}

func (n *nic) read(answer *hostdpb.AttachNICResponse) error {
	n.MAC, n.MTU = answer.GetNic().GetMac(), int(answer.GetNic().GetMtu())
	if _, err := net.ParseMAC(n.MAC); err != nil {
		return err
	}
	for _, a := range answer.GetAddresses() {
		p, err := netip.ParsePrefix(a.GetAddress())
		if err != nil {
			return err
		}
		n.Addresses = append(n.Addresses, p)
		if a.GetGateway() == "" {
			continue
		}
		g, err := netip.ParseAddr(a.GetGateway())
		if err != nil {
			return err
		}
		n.Gateways = append(n.Gateways, g)
	}
	if !n.of(false).IsValid() {
		return errors.New("no IPv4 address, which Docker needs: give the tenant a range of them in the host daemon's configuration")
	}
	return nil
}

// exchange replaces the address of a family by the wanted one.
func (n *nic) exchange(wanted netip.Addr) error {
	for i, a := range n.Addresses {
		if a.Contains(wanted) {
			n.Addresses[i] = netip.PrefixFrom(wanted, a.Bits())
			return nil
		}
	}
	return fmt.Errorf("address %s: want one of %s", wanted, n.of(wanted.Is6()).Masked())
}

// release detaches a NIC. If the daemon does not do so now, the next sweep tries again.
func (d *driver) release(ctx context.Context, n nic) error {
	n.Released = true
	return errors.Join(d.keep(n), d.detach(ctx, n.Owner))
}

// detach detaches a NIC. It succeeds if there is none.
func (d *driver) detach(ctx context.Context, owner string) error {
	ctx, cancel := context.WithTimeout(ctx, detachTime)
	defer cancel()
	err := d.withDaemon(func(c hostclient.Client) error {
		_, err := c.DetachNIC(ctx, &hostdpb.DetachNICRequest{ContainerId: owner, Interface: attachedAs})
		return err
	})
	if err != nil {
		return fmt.Errorf("detach NIC of %s: %w", owner, err)
	}
	return d.forget(owner)
}

// appear waits for the link of a NIC, and until udev has given it its name, by which Docker finds it.
func (d *driver) appear(ctx context.Context, n nic) (netlink.Link, error) {
	mac, err := net.ParseMAC(n.MAC)
	if err != nil {
		return nil, err
	}
	l, err := podnic.AwaitPlugged(ctx, mac, d.wait)
	if err != nil {
		return nil, err
	}
	if err := settle(ctx, l.Attrs().Index); err != nil {
		return nil, err
	}
	if l, err = netlink.LinkByIndex(l.Attrs().Index); err != nil {
		return nil, fmt.Errorf("find NIC %s: %w", n.MAC, err)
	}
	if n.MTU > 0 && l.Attrs().MTU != n.MTU {
		if err := netlink.LinkSetMTU(l, n.MTU); err != nil {
			return nil, fmt.Errorf("set MTU %d of NIC %s: %w", n.MTU, n.MAC, err)
		}
	}
	return l, nil
}
