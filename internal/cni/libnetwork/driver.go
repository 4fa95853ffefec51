package libnetwork

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"

	"unnest.io/unnest/internal/cni/podnic"
)

// createNetwork serves "docker network create". A BrFusion network needs no state: its NICs are on the
// bridge of the guest's tenant, whichever network they are in.
func (d *driver) createNetwork(_ context.Context, r network) (any, error) {
	var internal bool
	if raw, ok := r.Options[labelInternal]; ok {
		if err := json.Unmarshal(raw, &internal); err != nil {
			return nil, fmt.Errorf("option %s: %w", labelInternal, err)
		}
	}
	options := map[string]string{}
	if raw, ok := r.Options[labelGeneric]; ok {
		if err := json.Unmarshal(raw, &options); err != nil {
			return nil, fmt.Errorf("options of the network: %w", err)
		}
	}
	if options[optionSegment] != "" {
		return nil, d.createSegmentNetwork(r, options)
	}
	switch {
	case internal:
		return nil, errors.New("--internal: leave it out; the bridge of the host leads outside, and a network policy of the host daemon can forbid that")
	case len(options) > 0:
		return nil, fmt.Errorf("options %q: a BrFusion network has none, a Hostlo network has %s, %s and %s",
			slices.Sorted(maps.Keys(options)), optionSegment, optionKey, optionMode)
	case len(r.IPv4Data) != 1 || r.IPv4Data[0].AddressSpace != addressSpace:
		return nil, errors.New("the host daemon gives the addresses: add --ipam-driver unnest, in a compose file ipam: {driver: unnest}")
	}
	return nil, nil
}

func (d *driver) deleteNetwork(ctx context.Context, r network) (any, error) {
	err := d.endpoints(func(lost endpoint, _ bool) error {
		if lost.NetworkID != r.NetworkID {
			return nil
		}
		return d.leaveSegment(ctx, lost)
	})
	if err != nil {
		return nil, err
	}
	return nil, d.netFiles.remove(r.NetworkID)
}

// createEndpoint gives the NIC with the address to an endpoint.
func (d *driver) createEndpoint(ctx context.Context, r endpoint) (any, error) {
	if _, ok, err := d.segmentNetwork(r.NetworkID); ok || err != nil {
		return nil, err
	}
	if r.Interface == nil || r.Interface.Address == "" {
		return nil, errors.New("the endpoint has no address: create the network with --ipam-driver unnest")
	}
	ports, err := publications(r.Options)
	if err != nil {
		return nil, err
	}
	address, err := netip.ParsePrefix(r.Interface.Address)
	if err != nil {
		return nil, fmt.Errorf("address of the endpoint: %w", err)
	}
	n, ok := d.withAddress(address.Addr())
	switch {
	case !ok:
		return nil, fmt.Errorf("address %s has no NIC: the driver may have given it back; try again", address)
	case n.Released:
		return nil, fmt.Errorf("address %s is being released: try again", address)
	case n.Endpoint != "" && n.Endpoint != r.EndpointID:
		return nil, fmt.Errorf("address %s is that of another endpoint, %s", address, n.Endpoint)
	case len(ports) > 0 && n.gateway(false) == "":
		return nil, fmt.Errorf("publish port %d: Docker publishes ports only of a container with a gateway: give the tenant's range one in the host daemon's configuration, or connect the container to this network when it runs", ports[0].Port)
	}
	n.Endpoint = r.EndpointID
	answer := iface{MacAddress: n.MAC}
	if m := r.Interface.MacAddress; m != "" {
		if err := d.setMAC(ctx, n, m); err != nil {
			return nil, fmt.Errorf("--mac-address %s: %w", m, err)
		}
		answer.MacAddress = "" // Docker refuses one that it knows
	}
	if err := d.keep(n); err != nil {
		return nil, err
	}
	if six := n.of(true); six.IsValid() && r.Interface.AddressIPv6 == "" {
		answer.AddressIPv6 = six.String()
	}
	return map[string]iface{"Interface": answer}, nil
}

// deleteEndpoint takes the NIC away from an endpoint. Docker releases the address next.
func (d *driver) deleteEndpoint(ctx context.Context, r endpoint) (any, error) {
	n, ok := d.findEndpoint(r.EndpointID)
	if !ok {
		return nil, d.leaveSegment(ctx, r)
	}
	err := stopProxies(n)
	n.Endpoint = ""
	return nil, errors.Join(err, d.keep(n))
}

// join says which link Docker has to move into the container.
func (d *driver) join(ctx context.Context, r endpoint) (any, error) {
	if s, ok, err := d.segmentNetwork(r.NetworkID); ok || err != nil {
		return joined{DisableGatewayService: true}, errors.Join(err, d.joinSegment(ctx, s, r))
	}
	n, ok := d.findEndpoint(r.EndpointID)
	if !ok {
		return nil, fmt.Errorf("endpoint %s has no NIC: the driver may have given it back; start the container again", r.EndpointID)
	}
	l, err := d.appear(ctx, n)
	if err != nil {
		return nil, err
	}
	go d.announce(n, r.SandboxKey)
	return joined{
		InterfaceName: &interfaceName{SrcName: l.Attrs().Name, DstPrefix: "eth"},
		Gateway:       n.gateway(false), GatewayIPv6: n.gateway(true),
		DisableGatewayService: n.gateway(false) == "", // else Docker adds a NIC behind NAT of the guest
	}, nil
}

// leave comes before Docker moves the link back.
func (d *driver) leave(ctx context.Context, r endpoint) (any, error) {
	return nil, d.leaveSegment(ctx, r)
}

// sandboxTime is how long Docker may take to make a container's network namespace, and to configure the
// link there, after Join. In an emulated guest on a busy host, containers that started with the guest took more than two minutes.
const sandboxTime = 5 * time.Minute

// firstLook and lastLook are the first and the longest time between two looks at a container's network namespace. They grow,
// because each look at the links takes an emulated guest a few milliseconds, which several containers that start need themselves.
const (
	firstLook = 50 * time.Millisecond
	lastLook  = time.Second
)

// inSandbox calls f in a container's network namespace, as soon as that is there, until f is done. Docker
// makes the namespace of a container that it starts after Join.
func inSandbox(ctx context.Context, path string, f func(pod ns.NetNS) (done bool, err error)) error {
	ctx, cancel := context.WithTimeout(ctx, sandboxTime)
	defer cancel()
	for look := firstLook; ; {
		pod, err := ns.GetNS(path)
		if err == nil {
			look = min(look*3/2, lastLook)
			done, err := f(pod)
			if err = errors.Join(err, pod.Close()); done || err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-time.After(look):
		}
	}
}

// announce tells the neighbours the MAC of the container's addresses, which they may know with another
// one, once Docker has configured the link.
func (d *driver) announce(n nic, sandbox string) {
	ctx := context.Background()
	err := inSandbox(ctx, sandbox, func(pod ns.NetNS) (bool, error) {
		name := ""
		err := pod.Do(func(ns.NetNS) (err error) {
			name, err = configured(n)
			return err
		})
		if name == "" || err != nil {
			return false, err
		}
		var all []netip.Addr
		for _, a := range n.Addresses {
			all = append(all, a.Addr())
		}
		return true, podnic.Announce(ctx, pod, name, all)
	})
	if err != nil {
		d.log.Warn("announce container", "endpoint", n.Endpoint, "error", err)
	}
}

// configured returns the name of the link in this network namespace that has all the NIC's addresses, else "".
func configured(n nic) (string, error) {
	links, err := netlinksafe.LinkList()
	if err != nil {
		return "", err
	}
	for _, l := range links {
		have, err := netlinksafe.AddrList(l, netlink.FAMILY_ALL)
		if err != nil {
			return "", err
		}
		lacks := func(want netip.Prefix) bool {
			return !slices.ContainsFunc(have, func(a netlink.Addr) bool { return a.IP.Equal(want.Addr().AsSlice()) })
		}
		if !slices.ContainsFunc(n.Addresses, lacks) {
			return l.Attrs().Name, nil
		}
	}
	return "", nil
}
