// Package netconf reads the configuration that a container runtime gives to our
// CNI plugins, and says which key is wrong.
//
// It does not look at the machine: whether a file or a link exists belongs to
// the plugin that needs it.
package netconf

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"time"
	"unicode"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
)

// Defaults of BrFusion's keys.
const (
	DefaultCredentials = "/etc/unnest"
	DefaultWait        = 30 * time.Second
	// MaxWait is below the time that the kubelet gives to a whole ADD.
	MaxWait = 2 * time.Minute
)

// Limits of an Ethernet NIC's MTU in bytes: what IPv4 needs (RFC 791), and what
// virtio-net can carry.
const (
	minMTU = 68
	maxMTU = 65535
)

// BrFusion is the configuration of the plugin brfusion. Beside CNI's own keys it
// has:
//
//	"server"       "10.200.0.1:7443", the host daemon's address; required
//	"credentials"  directory with ca.crt, client.crt, client.key; default /etc/unnest
//	"bridge"       the host's bridge for the NIC; default: the guest's own
//	"mtu"          bytes; default 0: what the host daemon says
//	"wait"         how long the NIC may take to appear, "30s" by default, at most "2m"
//	"log"          true: one line per ADD with the duration of each step, to stderr
//	"ipam"         with the "type" of the IPAM plugin; required
type BrFusion struct {
	types.PluginConf
	Server      netip.AddrPort `json:"-"`
	Credentials string         `json:"credentials"`
	Bridge      string         `json:"bridge"`
	MTU         int            `json:"mtu"`
	Wait        time.Duration  `json:"-"`
	Log         bool           `json:"log"`

	RawServer string `json:"server"`
	RawWait   string `json:"wait"`
}

// ParseBrFusion reads the configuration from a plugin's standard input. An error
// names the key.
func ParseBrFusion(stdin []byte) (BrFusion, error) {
	var c BrFusion
	if err := json.Unmarshal(stdin, &c); err != nil {
		return BrFusion{}, fmt.Errorf("parse network configuration: %w", err)
	}
	if err := c.complete(); err != nil {
		return BrFusion{}, fmt.Errorf("network configuration: %w", err)
	}
	if err := version.ParsePrevResult(&c.PluginConf); err != nil {
		return BrFusion{}, fmt.Errorf("network configuration: prevResult: %w", err)
	}
	return c, nil
}

func (c *BrFusion) complete() (err error) {
	if c.Server, err = server(c.RawServer); err != nil {
		return err
	}
	if c.Wait, err = wait(c.RawWait); err != nil {
		return err
	}
	if c.Credentials == "" {
		c.Credentials = DefaultCredentials
	}
	switch {
	case !filepath.IsAbs(c.Credentials):
		return fmt.Errorf("credentials %q: want an absolute path", c.Credentials)
	case c.Bridge != "" && !isInterfaceName(c.Bridge):
		return fmt.Errorf("bridge %q: want the name of a network interface", c.Bridge)
	case c.MTU != 0 && (c.MTU < minMTU || c.MTU > maxMTU):
		return fmt.Errorf("mtu %d: want 0 or %d to %d", c.MTU, minMTU, maxMTU)
	case c.IPAM.Type == "":
		return fmt.Errorf("ipam.type is missing: want an IPAM plugin, such as %q", "host-local")
	}
	return nil
}

func server(s string) (netip.AddrPort, error) {
	if s == "" {
		return netip.AddrPort{}, fmt.Errorf("server is missing: want the host daemon's ADDRESS:PORT, such as %q", "10.200.0.1:7443")
	}
	a, err := netip.ParseAddrPort(s)
	if err != nil || a.Port() == 0 || a.Addr().IsUnspecified() {
		return netip.AddrPort{}, fmt.Errorf("server %q: want IP-ADDRESS:PORT, such as %q", s, "10.200.0.1:7443")
	}
	return a, nil
}

func wait(s string) (time.Duration, error) {
	if s == "" {
		return DefaultWait, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 || d > MaxWait {
		return 0, fmt.Errorf("wait %q: want a duration above 0, at most %v, such as %q", s, MaxWait, "30s")
	}
	return d, nil
}

// isInterfaceName follows the kernel (dev_valid_name in net/core/dev.c).
func isInterfaceName(s string) bool {
	return s != "" && len(s) <= 15 && s != "." && s != ".." &&
		!strings.ContainsFunc(s, func(r rune) bool { return r == '/' || r == ':' || unicode.IsSpace(r) })
}
