// Package netavark is a plugin of netavark, by which Podman gives containers a NIC of the host: it
// translates netavark's plugin protocol (API version 1.0.0) to CNI and runs the plugin brfusion, which
// is the same program. The network's options are keys of that plugin's configuration.
//
// What the plugin does belongs to package brfusion.
package netavark

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"slices"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"unnest.io/unnest/internal/cni/hostclient"
	"unnest.io/unnest/internal/cni/netconf"
	"unnest.io/unnest/internal/hostapi/hostdpb"
)

// Name is the plugin's file name, which is the driver's for "podman network create -d".
const Name = "unnest"

// options are the options of a network that the driver knows.
var options = []string{"server", "credentials", "bridge", "mode"}

// network is a network, of which the driver keeps the fields that it does not know.
type network map[string]json.RawMessage

// request is the input of setup and teardown.
type request struct {
	ContainerID  string `json:"container_id"`
	PortMappings []struct {
		HostPort uint16 `json:"host_port"`
	} `json:"port_mappings"`
	Network        network `json:"network"`
	NetworkOptions struct {
		InterfaceName string   `json:"interface_name"`
		StaticIPs     []string `json:"static_ips"`
		StaticMAC     string   `json:"static_mac"`
	} `json:"network_options"`
}

// status is the output of setup.
type status struct {
	DNSSearchDomains []string             `json:"dns_search_domains"`
	DNSServerIPs     []string             `json:"dns_server_ips"`
	Interfaces       map[string]netDevice `json:"interfaces"`
}

type netDevice struct {
	MAC     string   `json:"mac_address"`
	Subnets []subnet `json:"subnets"`
}

type subnet struct {
	IPNet   string `json:"ipnet,omitempty"`  // of an interface
	Subnet  string `json:"subnet,omitempty"` // of a network
	Gateway string `json:"gateway,omitempty"`
}

// Main is the plugin. It returns the exit code; netavark expects errors on the standard output.
func Main(ctx context.Context, args []string, stdin io.Reader, stdout io.Writer) int {
	answer, err := run(ctx, args, stdin)
	code := 0
	if err != nil {
		answer, code = map[string]string{"error": err.Error()}, 1
	}
	if answer != nil {
		if err := json.NewEncoder(stdout).Encode(answer); err != nil {
			return 1
		}
	}
	return code
}

func run(ctx context.Context, args []string, stdin io.Reader) (any, error) {
	if len(args) == 1 && args[0] == "info" {
		return map[string]string{"version": "1.0.0", "api_version": "1.0.0"}, nil
	}
	decode := json.NewDecoder(stdin)
	switch {
	case len(args) == 1 && args[0] == "create":
		var n network
		if err := decode.Decode(&n); err != nil {
			return nil, fmt.Errorf("read network: %w", err)
		}
		return n, create(ctx, n)
	case len(args) == 2 && (args[0] == "setup" || args[0] == "teardown"):
		var r request
		if err := decode.Decode(&r); err != nil {
			return nil, fmt.Errorf("read request: %w", err)
		}
		if args[0] == "teardown" {
			_, err := r.call(ctx, "DEL", args[1])
			return nil, err
		}
		return r.setup(ctx, args[1])
	}
	return nil, fmt.Errorf("arguments %q: want create, setup NETNS, teardown NETNS or info; Podman runs this plugin", args)
}

// create completes a network with the subnets in which the host daemon chooses addresses.
func create(ctx context.Context, n network) error {
	var given []subnet
	var internal bool
	if err := errors.Join(n.get("subnets", &given), n.get("internal", &internal)); err != nil {
		return err
	}
	switch {
	case len(given) > 0:
		return fmt.Errorf("--subnet %s: leave it out; the host daemon chooses addresses from the tenant's ranges", given[0].Subnet)
	case internal:
		return errors.New("--internal: leave it out; the bridge of the host leads outside")
	}
	stdin, err := n.configuration(nil)
	if err != nil {
		return err
	}
	c, err := netconf.ParseBrFusion(stdin)
	if err != nil {
		return err
	}
	d, err := hostclient.Dial(c.Server, c.Credentials)
	if err != nil {
		return err
	}
	defer d.Close()
	s, err := d.Status(ctx, &hostdpb.StatusRequest{})
	if err != nil {
		return err
	}
	six := false
	for _, w := range s.GetSubnets() {
		p, err := netip.ParsePrefix(w.GetPrefix())
		if err != nil {
			return fmt.Errorf("read the host daemon's answer: %w", err)
		}
		six = six || p.Addr().Is6()
		given = append(given, subnet{Subnet: w.GetPrefix(), Gateway: w.GetGateway()})
	}
	return errors.Join(n.set("subnets", given), n.set("ipv6_enabled", six), n.set("dns_enabled", false),
		n.set("ipam_options", map[string]string{"driver": "none"})) // Podman itself chooses no address
}

func (n network) get(key string, into any) error {
	raw, ok := n[key]
	if !ok {
		return nil
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("network: %s: %w", key, err)
	}
	return nil
}

func (n network) set(key string, value any) (err error) {
	n[key], err = json.Marshal(value)
	return err
}

// configuration is that of the plugin brfusion for a container that requests what runtime has.
func (n network) configuration(runtime map[string]any) ([]byte, error) {
	var name string
	var given map[string]string
	if err := errors.Join(n.get("name", &name), n.get("options", &given)); err != nil {
		return nil, err
	}
	c := map[string]any{"cniVersion": "1.0.0", "name": name, "type": "brfusion", "ipam": map[string]string{"type": netconf.Daemon}, "runtimeConfig": runtime}
	for _, key := range slices.Sorted(maps.Keys(given)) {
		if !slices.Contains(options, key) {
			return nil, fmt.Errorf("option %q: want %q", key, options)
		}
		c[key] = given[key]
	}
	return json.Marshal(c)
}

// setup gives a container its NIC.
func (r request) setup(ctx context.Context, netns string) (any, error) {
	if len(r.PortMappings) > 0 {
		return nil, fmt.Errorf("publish port %d: leave it out; the container's own NIC bypasses the guest, so clients use the container's address", r.PortMappings[0].HostPort)
	}
	out, err := r.call(ctx, "ADD", netns)
	if err != nil {
		return nil, err
	}
	parsed, err := types100.NewResult(out)
	if err != nil {
		return nil, err
	}
	result, err := types100.GetResult(parsed)
	if err != nil {
		return nil, err
	}
	if len(result.Interfaces) == 0 {
		return nil, errors.New("the plugin brfusion has made no interface")
	}
	nic := netDevice{MAC: result.Interfaces[0].Mac}
	for _, ip := range result.IPs {
		s := subnet{IPNet: ip.Address.String()}
		if ip.Gateway != nil {
			s.Gateway = ip.Gateway.String()
		}
		nic.Subnets = append(nic.Subnets, s)
	}
	return status{
		DNSSearchDomains: append([]string{}, result.DNS.Search...), DNSServerIPs: append([]string{}, result.DNS.Nameservers...),
		Interfaces: map[string]netDevice{r.NetworkOptions.InterfaceName: nic},
	}, nil
}

// call runs the plugin brfusion, which is this program by another name, and returns its output.
func (r request) call(ctx context.Context, command, netns string) ([]byte, error) {
	runtime := map[string]any{}
	if ips := r.NetworkOptions.StaticIPs; len(ips) > 0 {
		runtime["ips"] = ips
	}
	if mac := r.NetworkOptions.StaticMAC; mac != "" {
		runtime["mac"] = mac
	}
	stdin, err := r.Network.configuration(runtime)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Args[0] = "brfusion"
	cmd.Env = append(os.Environ(), "CNI_COMMAND="+command, "CNI_CONTAINERID="+r.ContainerID, "CNI_NETNS="+netns,
		"CNI_IFNAME="+r.NetworkOptions.InterfaceName, "CNI_PATH=/")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), &out, os.Stderr
	if err := cmd.Run(); err != nil {
		var failure types.Error
		if json.Unmarshal(out.Bytes(), &failure) == nil && failure.Msg != "" {
			return nil, errors.New(failure.Msg)
		}
		return nil, fmt.Errorf("run plugin brfusion: %w: %s", err, bytes.TrimSpace(out.Bytes()))
	}
	return out.Bytes(), nil
}
