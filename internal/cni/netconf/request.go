package netconf

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
)

// This file reads what a runtime requests for one pod: by CNI_ARGS, by args.cni, and by
// the capabilities in runtimeConfig (CONVENTIONS.md of containernetworking/cni). A
// request is met or refused, never ignored. An empty value is not a request.

// CheckKeys refuses keys of the configuration that brfusion does not know, such as
// misspelled ones. It is for ADD and STATUS only: a DEL succeeds with any keys.
func (c *BrFusion) CheckKeys() error {
	limits := []string{"egressBurst", "egressRate", "ingressBurst", "ingressRate"}
	if err := c.checkKeys("bandwidth", "bridge", "ipam", "mode", "mtu", "pool", "services"); err != nil {
		return err
	}
	sections := []section{
		{"bandwidth.", c.keys["bandwidth"], limits},
		{"runtimeConfig.bandwidth.", c.RawRuntime["bandwidth"], limits},
		{"services.", c.keys["services"], []string{"ranges"}},
	}
	if !c.IPAM.Delegated() {
		sections = append(sections, section{"ipam.", c.keys["ipam"], []string{"routes", "type"}})
	}
	return checkSections(sections...)
}

// CheckKeys is BrFusion.CheckKeys for hostlo.
func (c *Hostlo) CheckKeys() error {
	if err := c.checkKeys("encryption", "interface", "key", "mode", "network", "segment", "span"); err != nil {
		return err
	}
	return checkSections(
		section{"runtimeConfig.segment.", c.RawRuntime["segment"], []string{"key", "mode", "name"}},
		section{"network.", c.keys["network"], []string{"fraction", "names", "nodes", "vni"}})
}

func (b *Base) checkKeys(own ...string) error {
	return checkKeys("", b.keys, append(own, "server", "credentials", "wait", "log",
		"cniVersion", "name", "type", "capabilities", "dns", "args", "runtimeConfig", "prevResult"))
}

// section is an object of the configuration, with the keys that it may have.
type section struct {
	prefix string // of its keys in errors
	raw    json.RawMessage
	known  []string
}

func checkSections(sections ...section) error {
	for _, s := range sections {
		var values map[string]json.RawMessage
		if s.raw == nil {
			continue
		}
		if err := json.Unmarshal(s.raw, &values); err != nil {
			return fmt.Errorf("%w: %s: %w", ErrDecode, strings.TrimSuffix(s.prefix, "."), inWords(err))
		}
		if err := checkKeys(s.prefix, values, s.known); err != nil {
			return err
		}
	}
	return nil
}

func checkKeys(prefix string, values map[string]json.RawMessage, known []string) error {
	for _, key := range slices.Sorted(maps.Keys(values)) {
		isKnown := slices.ContainsFunc(known, func(k string) bool { return strings.EqualFold(k, key) }) // as package json does
		if !isKnown && !strings.HasPrefix(key, "cni.dev/") && !isEmpty(values[key]) {
			return fmt.Errorf("%w: read %.60q: no such key; remove it, or use one of %s%s",
				errConfiguration, prefix+key, prefix, strings.Join(known, ", "+prefix))
		}
	}
	return nil
}

// isEmpty reports whether a value requests nothing.
func isEmpty(raw json.RawMessage) bool {
	switch string(bytes.Join(bytes.Fields(raw), nil)) {
	case "", "null", "false", "0", `""`, "[]", "{}":
		return true
	}
	return false
}

// What a runtime can request for a pod in several ways.
const (
	address = "address"
	gateway = "gateway"
	mac     = "MAC"
)

// request is one value that a runtime requests for a pod.
type request struct {
	what   string // address, gateway or mac
	source string
	value  string
}

// refuse is the error for a request that cannot be met.
func (r request) refuse(cause, fix string) error {
	return fmt.Errorf("give the pod the %s %.60q (%s): %s; %s", r.what, r.value, r.source, cause, fix)
}

// podRequests returns the requests of CNI_ARGS and args.cni. CNI_ARGS' IP is ignored
// when args.cni has ips, as CNI's conventions say. Other keys of args.cni need not be
// understood. Those of CNI_ARGS have to be, unless it has IgnoreUnknown=1.
func (b *Base) podRequests(args string) (all []request, err error) {
	var optional struct {
		CNI struct {
			IPs []string `json:"ips"`
			MAC string   `json:"mac"`
		} `json:"cni"`
	}
	if b.RawArgs != nil {
		if err := json.Unmarshal(b.RawArgs, &optional); err != nil {
			return nil, fmt.Errorf("%w: args: %w", ErrDecode, inWords(err))
		}
	}
	add := func(what, source string, values ...string) {
		for _, v := range values {
			if v = strings.TrimSpace(v); v != "" {
				all = append(all, request{what, source, v})
			}
		}
	}
	add(address, "args.cni.ips", optional.CNI.IPs...)
	add(mac, "args.cni.mac", optional.CNI.MAC)
	values, err := ParseArgs(args)
	if err != nil {
		return nil, err
	}
	ignore := values["IgnoreUnknown"] == "1" || strings.EqualFold(values["IgnoreUnknown"], "true")
	for _, key := range slices.Sorted(maps.Keys(values)) {
		switch value := values[key]; key {
		case "IP":
			if len(optional.CNI.IPs) == 0 {
				add(address, "CNI_ARGS IP", strings.Split(value, ",")...) // the plugin static accepts a list
			}
		case "GATEWAY":
			add(gateway, "CNI_ARGS GATEWAY", strings.Split(value, ",")...)
		case "MAC":
			add(mac, "CNI_ARGS MAC", value)
		case "IgnoreUnknown", argKeys.name, argKeys.key, argKeys.mode: // hostlo's may stand in a chain with brfusion
		default:
			if !ignore && !strings.HasPrefix(key, "K8S_") {
				return nil, fmt.Errorf("%w: read %.60q: no such key; remove it, or add IgnoreUnknown=1", ErrArgs, key)
			}
		}
	}
	return all, nil
}

// ParseArgs parses CNI_ARGS. It accepts keys of other plugins. An error wraps ErrArgs.
func ParseArgs(args string) (map[string]string, error) {
	values := map[string]string{}
	if args == "" {
		return values, nil
	}
	for pair := range strings.SplitSeq(args, ";") {
		key, value, ok := strings.Cut(pair, "=")
		if !ok {
			return nil, fmt.Errorf("%w: %q: want KEY=VALUE;KEY=VALUE", ErrArgs, pair)
		}
		values[key] = value
	}
	return values, nil
}

// capabilities returns the names of the capabilities for which the runtime has passed
// a value, except the given ones.
func (b *Base) capabilities(except ...string) (names []string) {
	for name, raw := range b.RawRuntime {
		if !isEmpty(raw) && !slices.Contains(except, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// refuseCapability is the error for a capability that the plugin does not support.
func (b *Base) refuseCapability(name, do, cause, fix string) error {
	return fmt.Errorf("%s (runtimeConfig.%.60s %.60s): %s; %s", do, name, bytes.Join(bytes.Fields(b.RawRuntime[name]), nil), cause, fix)
}

// informative are capabilities that request nothing.
var informative = []string{annotations, "cgroupPath"}

// ReadRequest reads what the runtime requests for a new pod: DNS, which replaces the
// configuration's, and addresses. It refuses what brfusion cannot give. Only an IPAM
// plugin that runs in the guest sees the requests itself, so the caller has to compare
// its addresses with Requested.
func (c *BrFusion) ReadRequest(args string) error {
	if err := c.CheckKeys(); err != nil {
		return err
	}
	all, err := c.podRequests(args)
	if err != nil {
		return err
	}
	for _, name := range c.capabilities(append(informative, "bandwidth")...) {
		more, err := c.readCapability(name)
		if err != nil {
			return err
		}
		all = append(all, more...)
	}
	for _, r := range all {
		if err := c.read(r); err != nil {
			return err
		}
	}
	return nil
}

func (c *BrFusion) readCapability(name string) ([]request, error) {
	refuse := func(do, cause, fix string) ([]request, error) { return nil, c.refuseCapability(name, do, cause, fix) }
	switch name {
	case "ips":
		var ips []string
		err := c.capability(name, &ips)
		var all []request
		for _, ip := range ips {
			all = append(all, request{address, "runtimeConfig.ips", ip})
		}
		return all, err
	case "mac":
		var value string
		err := c.capability(name, &value)
		return []request{{mac, "runtimeConfig.mac", value}}, err
	case "portMappings":
		return nil, c.checkPorts()
	case "dns":
		var dns struct{ Servers, Searches, Options []string }
		err := c.capability(name, &dns)
		c.DNS = types.DNS{Nameservers: dns.Servers, Domain: c.DNS.Domain, Search: dns.Searches, Options: dns.Options}
		return nil, err
	case "ipRanges":
		if c.IPAM.Delegated() && c.IPAM.Type != DHCP && c.IPAM.Type != "static" {
			return nil, nil
		}
		return refuse("allocate from ranges", fmt.Sprintf("the ipam.type %q does not take ranges from the runtime", c.IPAM.Type),
			"remove them, or use an IPAM plugin that does, such as host-local")
	case "infinibandGUID":
		return refuse("set the InfiniBand GUID", "the NIC is an Ethernet NIC", "remove the GUID")
	case "deviceID":
		return refuse("use the device", "the host daemon chooses the NIC", "remove the device")
	case "aliases":
		return refuse("register aliases", "brfusion has no name server", "remove them, or declare the capability at a plugin that has one")
	}
	if c.IPAM.Delegated() { // it may be for the IPAM plugin
		return nil, nil
	}
	return refuse("support the capability", "brfusion does not know it", "remove it from the capabilities of the configuration")
}

// checkPorts refuses to publish ports. Without a service path, also a chained plugin
// cannot: the guest rewrites the destination of a connection, but the pod's answer
// leaves by its own NIC, past the guest, with an address that the client did not call.
func (c *BrFusion) checkPorts() error {
	var ports []struct {
		HostPort int `json:"hostPort"`
	}
	if err := c.capability("portMappings", &ports); err != nil {
		return err
	}
	cause, fix := "the pod's own NIC bypasses the guest, which has the port", `set "services", chain the plugin portmap`
	if len(c.Services) > 0 {
		cause, fix = "brfusion does not map ports", "chain the plugin portmap"
	}
	for _, p := range ports {
		if p.HostPort != 0 { // 0: none, as in Kubernetes
			return fmt.Errorf("publish host port %d (runtimeConfig.portMappings): %s; %s, and declare the capability portMappings there only", p.HostPort, cause, fix)
		}
	}
	return nil
}

// read takes a requested address, and refuses what brfusion cannot give.
func (c *BrFusion) read(r request) error {
	switch {
	case r.what == mac:
		return r.refuse("the host chooses the MAC of each NIC, and drops frames from another", "remove the MAC, such as the option --mac-address")
	case r.what == gateway && c.IPAM.Type == Daemon:
		return r.refuse("the host daemon chooses the gateway", `remove it, or set it in "ipam.routes"`)
	case c.IPAM.Type == DHCP:
		return r.refuse("the DHCP server chooses it", "remove it, reserve it at the DHCP server, or use another ipam.type")
	case r.what == gateway:
		return nil // for the IPAM plugin
	}
	a, ok := parseAddress(r.value)
	if !ok {
		return r.refuse("want ADDRESS or ADDRESS/PREFIX-LENGTH", "correct it")
	}
	if !slices.ContainsFunc(c.Requested, func(o netip.Prefix) bool { return o.Addr() == a.Addr() }) {
		c.Requested = append(c.Requested, a)
	}
	return nil
}

// parseAddress parses an address with or without a prefix length.
func parseAddress(s string) (netip.Prefix, bool) {
	if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
		return netip.PrefixFrom(a.Unmap(), -1), true
	}
	p, err := netip.ParsePrefix(s)
	return p, err == nil && !p.Addr().Is4In6()
}

// CheckRequest refuses what the runtime requests for a new pod, except a segment. In a
// chain, CNI_ARGS and args.cni are for the plugin that gives the pod its network.
func (c *Hostlo) CheckRequest(args string) error {
	if err := c.CheckKeys(); err != nil {
		return err
	}
	all, err := c.podRequests(args)
	if err != nil {
		return err
	}
	if len(all) > 0 && c.PrevResult == nil {
		return all[0].refuse("an endpoint has the addresses of lo, and the MAC of its fraction",
			"remove it, or chain hostlo after the plugin that gives the pod its network")
	}
	if names := c.capabilities(append(informative, "segment")...); len(names) > 0 {
		return c.refuseCapability(names[0], "support the capability", "hostlo gives a pod only a localhost",
			"remove it from the capabilities of hostlo; declare it at the plugin that gives the pod its network")
	}
	return nil
}
