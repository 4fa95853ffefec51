package libnetwork

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/containernetworking/plugins/pkg/netlinksafe"

	"unnest.io/unnest/internal/cni/attachment"
	"unnest.io/unnest/internal/cni/hostclient"
	"unnest.io/unnest/internal/cni/podnic"
	"unnest.io/unnest/internal/cni/portfilter"
	"unnest.io/unnest/internal/cni/renewal"
	"unnest.io/unnest/internal/hostapi/hostdpb"
)

const (
	// sweepInterval is the time between two sweeps.
	sweepInterval = time.Minute
	// maxIdle is how long Docker may take from RequestAddress until it has moved the link, or from Leave until
	// ReleaseAddress. An emulated guest on a busy host took a minute.
	maxIdle = 15 * time.Minute
)

// maintain sweeps again and again until ctx ends. It logs an error once.
func (d *driver) maintain(ctx context.Context, interval time.Duration) {
	idle, logged := map[string]time.Time{}, ""
	for {
		next, err := d.sweep(ctx, idle)
		text := ""
		if idle = next; err != nil && ctx.Err() == nil {
			text = strings.ReplaceAll(err.Error(), "\n", "; ")
		}
		if text != "" && text != logged {
			d.log.Error("look for NICs that Docker has lost", "error", text)
		}
		logged = text
		select {
		case <-ctx.Done():
			return
		case <-time.After(interval):
		}
	}
}

// sweep detaches the driver's NICs that a crash has left, and returns since when others may be such:
//
//   - a NIC without a file: the driver was killed while it attached or detached the NIC. If it is in a container, its file was
//     damaged, and is made again
//   - a NIC whose address Docker has released, or whose request has failed, while the host daemon did not answer
//   - a NIC whose link has not been in a container for maxIdle: Docker was killed while it made or
//     removed the container
//
// It also keeps the daemon's port closed to containers, and renews the guest's certificate.
func (d *driver) sweep(ctx context.Context, before map[string]time.Time) (idle map[string]time.Time, err error) {
	if err := portfilter.Ensure(d.server); err != nil { // such as a kernel without nftables
		d.log.Warn("keep containers away from the host daemon's port", "error", err)
	}
	kept, err := d.nicFiles.names()
	if err != nil {
		return before, err
	}
	var nics []*hostdpb.NIC
	err = d.withDaemon(func(c hostclient.Client) error {
		answer, err := c.ListNICs(ctx, &hostdpb.ListNICsRequest{})
		nics = answer.GetNics()
		return errors.Join(err, renewal.Attempt(ctx, c, d.credentials, attachment.StateDir))
	})
	if err != nil {
		return before, err
	}
	macs, err := guestMACs()
	if err != nil {
		return before, err
	}
	idle = map[string]time.Time{}
	listed := map[string]bool{}
	for _, n := range nics {
		owner := n.GetContainerId()
		if n.GetNetwork() != networkName || !strings.HasPrefix(owner, ownerPrefix) || n.GetMode() == hostdpb.Mode_MODE_SEGMENT {
			continue
		}
		listed[owner] = true
		k, known := d.find(func(k nic) bool { return k.Owner == owner })
		since, seen := before[owner]
		if !seen {
			since = time.Now()
		}
		inGuest := slices.Contains(macs, n.GetMac())
		switch {
		case known && !k.Released && !inGuest:
		case !known && !inGuest && !seen: // it may be on its way into the guest, or out of it
			idle[owner] = since
		case !known && !inGuest && n.GetState() == hostdpb.NICState_NIC_STATE_ATTACHED:
			err = errors.Join(err, d.takeOver(n))
		case known && !k.Released && time.Since(since) < d.maxIdle:
			idle[owner] = since
		default:
			d.log.Info("detach NIC that Docker has lost", "owner", owner, "addresses", n.GetAddresses())
			err = errors.Join(err, stopProxies(k), d.detach(ctx, owner))
		}
	}
	for _, owner := range kept {
		if !listed[owner] {
			err = errors.Join(err, d.forget(owner))
		}
	}
	return idle, err
}

// takeOver makes the file of a NIC again.
func (d *driver) takeOver(n *hostdpb.NIC) error {
	k, answer := nic{Owner: n.GetContainerId()}, &hostdpb.AttachNICResponse{Nic: n}
	for _, a := range n.GetAddresses() {
		answer.Addresses = append(answer.Addresses, &hostdpb.Address{Address: a})
	}
	if err := k.read(answer); err != nil {
		return fmt.Errorf("take over NIC %s: %w", n.GetMac(), err)
	}
	return d.keep(k)
}

// guestMACs are those with which the links in the guest's own network namespace were plugged.
func guestMACs() (all []string, err error) {
	links, err := netlinksafe.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	for _, l := range links {
		all = append(all, podnic.PluggedMAC(l.Attrs()).String())
	}
	return all, nil
}
