package cluster

import (
	"context"
	"fmt"
	"net/netip"

	"unnest.io/unnest/internal/testbed/fleet"
)

// launchNodes starts the guests, which boot and wait for the API server.
func (c *Cluster) launchNodes(ctx context.Context) (nodes []*fleet.Node, err error) {
	o := c.options
	for k := range o.Nodes {
		name := fmt.Sprintf("node%d", k+1)
		n, err := c.fleet.Launch(ctx, fleet.Options{
			Name: name, Image: c.image, Accel: o.Accel, VCPUs: o.VCPUs, Memory: o.Memory, Slots: o.Slots, Pool: o.Pool, Shares: o.Shares, Snapshots: o.Snapshots, Vouched: true,
			Extras: func(address netip.Addr) (fleet.Extras, error) { return c.extras(name, address) },
		})
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, n)
	}
	return nodes, nil
}

// extras returns what a node has beyond other guests. It routes packets of pods behind its
// bridge, so the host must accept and route their addresses.
func (c *Cluster) extras(name string, address netip.Addr) (e fleet.Extras, err error) {
	e.Addresses = moreAddresses(c.families(), address)
	if e.Files, err = c.nodeFiles(name, address); err != nil {
		return e, err
	}
	if err := c.routeTo(address); err != nil {
		return e, fmt.Errorf("route to pods of %s: %w", name, err)
	}
	return e, nil
}

// nodeFiles returns the files of a node with its address for others: credentials,
// configuration and networks.
func (c *Cluster) nodeFiles(name string, address netip.Addr) (map[string]string, error) {
	user := "system:node:" + name
	kubelet, err := c.keys.client(user, "system:nodes")
	if err != nil {
		return nil, err
	}
	families := c.families()
	names := append([]string{name}, all(families, func(f family) netip.Addr { return f.node(address) })...)
	server, err := c.keys.server(user, names...)
	if err != nil {
		return nil, err
	}
	proxy, err := c.keys.client("system:kube-proxy")
	if err != nil {
		return nil, err
	}
	var chained []any
	variables := nodeVariables(families, address, c.options.ProxyMode)
	if c.options.SplitPods == SpanHost {
		variables += "volumes=" + daemonAddress + "\n"
	}
	if c.options.SplitPods != "" {
		chained = append(chained, hostlo(c.options.SplitPods))
	}
	networks := map[string]string{BrFusion: brfusionNetwork(families, chained...), Bridge: bridgeNetwork(families, address, chained...)}
	return map[string]string{
		"/etc/kubernetes/node":            variables,
		"/etc/kubernetes/routes":          routes(families, address, c.options.Nodes),
		"/etc/kubernetes/ca.crt":          string(c.keys.caPEM()),
		"/etc/kubernetes/kubelet.crt":     string(server.cert),
		"/etc/kubernetes/kubelet.key":     string(server.key),
		"/etc/kubernetes/kubelet.conf":    string(c.keys.kubeconfig(c.apiURL(), kubelet)),
		"/etc/kubernetes/kubelet.json":    kubeletConfig(c.options.Slots, families),
		"/etc/kubernetes/kube-proxy.conf": string(c.keys.kubeconfig(c.apiURL(), proxy)),
		// The first configuration of the default network's directory is that of all pods.
		"/etc/cni/net.d/10-pods.conflist":      networks[c.options.Network],
		"/etc/cni/brfusion.d/10-pods.conflist": networks[BrFusion],
		"/etc/cni/bridge.d/10-pods.conflist":   networks[Bridge],
	}, nil
}

// kubeletConfig is the configuration of a kubelet on a node with room for some NICs. There is
// no registry, so images that are removed are lost. An emulated node needs minutes for many pods that
// start at once: with the default of two minutes, the kubelet gives all of them up and begins again.
func kubeletConfig(slots int, families []family) string {
	return string(asJSON(map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"authentication": map[string]any{
			"anonymous": map[string]any{"enabled": false}, "webhook": map[string]any{"enabled": true},
			"x509": map[string]any{"clientCAFile": "/etc/kubernetes/ca.crt"},
		},
		"authorization": map[string]any{"mode": "Webhook"},
		"tlsCertFile":   "/etc/kubernetes/kubelet.crt", "tlsPrivateKeyFile": "/etc/kubernetes/kubelet.key",
		"containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock", "cgroupDriver": "cgroupfs",
		"clusterDNS": dnsServices(families), "clusterDomain": dnsDomain,
		"resolvConf": "", "maxPods": slots, "runtimeRequestTimeout": "10m", "imageGCHighThresholdPercent": 100,
		"evictionHard": map[string]string{"memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%", "nodefs.inodesFree": "1%"},
	}))
}

// brfusionNetwork gives a pod a NIC of its own, and a path to Services through the guest.
func brfusionNetwork(families []family, chained ...any) string {
	return network(BrFusion, map[string]any{
		"type": "brfusion", "server": daemonAddress, "credentials": "/etc/unnest",
		"ipam": map[string]any{"type": "hostd"}, "services": map[string]any{"ranges": serviceRanges(families)},
		"capabilities": map[string]bool{"bandwidth": true, "ips": true, "mac": true},
	}, chained...)
}

// bridgeNetwork puts pods behind a bridge of the guest, which routes their packets.
func bridgeNetwork(families []family, node netip.Addr, chained ...any) string {
	var ranges, routes []any
	for _, f := range families {
		ranges = append(ranges, []any{map[string]string{"subnet": f.bridgeSubnet(node).String()}})
		routes = append(routes, map[string]string{"dst": netip.PrefixFrom(f.bridges, 0).Masked().String()})
	}
	return network(Bridge, map[string]any{
		"type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true,
		"ipam": map[string]any{
			"type": "host-local", "ranges": ranges, "routes": routes,
		},
	}, chained...)
}

// network returns a configuration list of a plugin and those that are chained to it. portmap publishes
// host ports.
func network(name string, plugin map[string]any, chained ...any) string {
	ports := map[string]any{"type": "portmap", "capabilities": map[string]bool{"portMappings": true}}
	return string(asJSON(map[string]any{"cniVersion": "1.0.0", "name": name, "plugins": append(append([]any{plugin}, chained...), ports)}))
}
