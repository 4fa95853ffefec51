package libnetwork

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"unnest.io/unnest/internal/cni/hostclient"
	"unnest.io/unnest/internal/hostapi/hostdpb"
)

// anyPool is the pool of a network without a subnet. Docker checks another pool against the guest's
// routes, of which that of the guest's own NIC overlaps the tenant's subnet.
const anyPool = "0.0.0.0/0"

// subnet is one of the tenant's.
type subnet struct {
	prefix  netip.Prefix
	gateway netip.Addr
}

// subnets asks the host daemon for the tenant's subnets of IPv4.
func (d *driver) subnets(ctx context.Context) (all []subnet, err error) {
	err = d.withDaemon(func(c hostclient.Client) error {
		s, err := c.Status(ctx, &hostdpb.StatusRequest{})
		if err != nil {
			return err
		}
		for _, w := range s.GetSubnets() {
			p, err := netip.ParsePrefix(w.GetPrefix())
			if err != nil {
				return fmt.Errorf("read the host daemon's answer: %w", err)
			}
			g, _ := netip.ParseAddr(w.GetGateway()) // it may have none
			if p.Addr().Is4() {
				all = append(all, subnet{p, g})
			}
		}
		return nil
	})
	if err == nil && len(all) == 0 {
		err = errors.New("host daemon: the tenant has no range of IPv4 addresses, or the daemon is too old to say; " +
			"add ranges to its configuration, or update unnest hostd on the host")
	}
	return all, err
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
	for _, s := range all {
		if r.Pool == "" || r.Pool == s.prefix.String() {
			answer := poolAnswer{PoolID: s.prefix.String(), Pool: r.Pool, Data: map[string]string{}}
			if r.Pool == "" {
				answer.Pool = anyPool
			}
			if s.gateway.IsValid() {
				answer.Data[labelGateway] = netip.PrefixFrom(s.gateway, s.prefix.Bits()).String()
			}
			return answer, nil
		}
		known = append(known, s.prefix.String())
	}
	return nil, fmt.Errorf("--subnet %s: want the tenant's, %s", r.Pool, strings.Join(known, " or "))
}

// requestAddress attaches a NIC and returns its address. The gateway is the host's and needs no NIC.
func (d *driver) requestAddress(ctx context.Context, r addressRequest) (any, error) {
	pool, err := netip.ParsePrefix(r.PoolID)
	if err != nil {
		return nil, fmt.Errorf("pool %q: %w", r.PoolID, err)
	}
	var wanted netip.Addr
	if r.Address != "" {
		if wanted, err = netip.ParseAddr(r.Address); err != nil {
			return nil, fmt.Errorf("address %q: %w", r.Address, err)
		}
	}
	if r.Options[addressType] == labelGateway {
		return d.requestGateway(ctx, pool, wanted)
	}
	n, err := d.attach(ctx, wanted)
	if err != nil {
		return nil, err
	}
	return addressAnswer{n.of(false).String()}, nil
}

// requestGateway serves "docker network create --gateway", and a tenant that has none.
func (d *driver) requestGateway(ctx context.Context, pool netip.Prefix, wanted netip.Addr) (any, error) {
	all, err := d.subnets(ctx)
	if err != nil {
		return nil, err
	}
	for _, s := range all {
		switch {
		case s.prefix != pool:
		case !s.gateway.IsValid() && !wanted.IsValid():
			return addressAnswer{anyPool}, nil
		case !wanted.IsValid() || wanted == s.gateway:
			return addressAnswer{netip.PrefixFrom(s.gateway, pool.Bits()).String()}, nil
		default:
			return nil, fmt.Errorf("--gateway %s: the host's is %s; leave it out", wanted, s.gateway)
		}
	}
	return nil, fmt.Errorf("pool %s is not the tenant's any more", pool)
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
	n.Released = true // the next sweep detaches what the daemon does not detach now
	return nil, errors.Join(d.keep(n), d.detach(ctx, n.Owner))
}

func (d *driver) withAddress(a netip.Addr) (nic, bool) {
	return d.find(func(n nic) bool { return n.of(false).Addr() == a })
}
