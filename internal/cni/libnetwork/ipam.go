package libnetwork

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"unnest.io/unnest/internal/cni/hostclient"
	"unnest.io/unnest/internal/hostapi/hostdpb"
)

// anyPool is the pool of a network without a subnet. Docker checks another pool against the guest's
// routes, of which that of the guest's own NIC overlaps the tenant's subnet.
const anyPool = "0.0.0.0/0"

// subnets asks the host daemon for the tenant's subnets of IPv4.
func (d *driver) subnets(ctx context.Context) (all []*hostdpb.Subnet, err error) {
	err = d.untilAnswered(ctx, func(c hostclient.Client) error {
		s, err := c.Status(ctx, &hostdpb.StatusRequest{})
		all = slices.DeleteFunc(s.GetSubnets(), func(w *hostdpb.Subnet) bool { return strings.Contains(w.GetPrefix(), ":") })
		return err
	})
	if err == nil && len(all) == 0 {
		err = errors.New("host daemon: the tenant has no range of IPv4 addresses, or the daemon is too old to say; " +
			"add ranges to its configuration, or update unnest hostd on the host")
	}
	return all, err
}

// gateway is ADDRESS/PREFIX-LENGTH of a subnet's gateway, "" if it has none.
func gateway(w *hostdpb.Subnet) string {
	if w.GetGateway() == "" {
		return ""
	}
	return w.GetGateway() + w.GetPrefix()[strings.Index(w.GetPrefix(), "/"):]
}

// requestPool serves "docker network create": a pool is the tenant's subnet, whichever network uses it.
func (d *driver) requestPool(ctx context.Context, r poolRequest) (any, error) {
	switch {
	case r.V6:
		return nil, errors.New("--ipv6: leave it out; containers have an IPv6 address, too, if the tenant has a range of them")
	case r.SubPool != "":
		return nil, fmt.Errorf("--ip-range %s: leave it out; the host daemon chooses addresses from the tenant's ranges", r.SubPool)
	}
	all, err := d.subnets(ctx)
	if err != nil {
		return nil, err
	}
	var known []string
	for _, w := range all {
		if r.Pool == "" || r.Pool == w.GetPrefix() {
			answer := poolAnswer{PoolID: w.GetPrefix(), Pool: cmp.Or(r.Pool, anyPool), Data: map[string]string{}}
			if g := gateway(w); g != "" {
				answer.Data[labelGateway] = g
			}
			return answer, nil
		}
		known = append(known, w.GetPrefix())
	}
	return nil, fmt.Errorf("--subnet %s: want the tenant's, %s", r.Pool, strings.Join(known, " or "))
}

// requestAddress attaches a NIC and returns its address. The gateway is the host's and needs no NIC.
func (d *driver) requestAddress(ctx context.Context, r addressRequest) (any, error) {
	if r.Options[addressType] == labelGateway {
		return d.requestGateway(ctx, r)
	}
	wanted, err := netip.ParseAddr(r.Address)
	if err != nil && r.Address != "" {
		return nil, fmt.Errorf("address %q: %w", r.Address, err)
	}
	n, err := d.attach(ctx, wanted)
	if err != nil {
		return nil, err
	}
	return addressAnswer{n.of(false).String()}, nil
}

// requestGateway serves "docker network create --gateway", and a tenant that has none.
func (d *driver) requestGateway(ctx context.Context, r addressRequest) (any, error) {
	all, err := d.subnets(ctx)
	if err != nil {
		return nil, err
	}
	for _, w := range all {
		switch {
		case w.GetPrefix() != r.PoolID:
		case r.Address != "" && r.Address != w.GetGateway():
			return nil, fmt.Errorf("--gateway %s: the host's is %s; leave it out", r.Address, w.GetGateway())
		default:
			return addressAnswer{cmp.Or(gateway(w), anyPool)}, nil
		}
	}
	return nil, fmt.Errorf("pool %s is not the tenant's any more", r.PoolID)
}

// releaseAddress detaches the NIC with an address. One with an endpoint is that of a later container.
func (d *driver) releaseAddress(ctx context.Context, r addressRequest) (any, error) {
	address, err := netip.ParseAddr(r.Address)
	if err != nil {
		return nil, fmt.Errorf("address %q: %w", r.Address, err)
	}
	n, ok := d.withAddress(address)
	if !ok || n.Endpoint != "" {
		return nil, nil
	}
	return nil, errors.Join(stopProxies(n), d.release(ctx, n))
}

// withAddress returns the NIC with an address. One that is being released may have it, too.
func (d *driver) withAddress(a netip.Addr) (n nic, ok bool) {
	for _, released := range []bool{false, true} {
		if n, ok = d.find(func(n nic) bool { return n.of(false).Addr() == a && n.Released == released }); ok {
			break
		}
	}
	return n, ok
}
