package install

import (
	"context"
	"crypto/sha256"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"unnest.io/unnest/internal/cni/brfusion"
	"unnest.io/unnest/internal/cni/hostclient"
	"unnest.io/unnest/internal/cni/netconf"
	"unnest.io/unnest/internal/hostapi/hostdpb"
	"unnest.io/unnest/internal/hostapi/identity"
)

// NICs are the NICs of a node's pods.
type NICs struct {
	Known          bool // the daemon counts them, and they are what limits the network
	Attached, Free int
	Limited        string    // why there is none more; "": there is
	Expires        time.Time // the node's certificate; zero: unknown
	Policies       hostdpb.PolicyState
	Host           string // identifies host and tenant of the node, or is SpanNetwork if its runtime calls hostlo with that span; "": unknown
	Key            string // public, of the node's WireGuard device; "": none
}

// full reports whether pods have all NICs.
func (n NICs) full() bool { return n.Known && n.Attached > 0 && n.Limited != "" }

// count asks the host daemon for the NICs of a network. On a trunk, slots do not limit them.
func count(ctx context.Context, plugin string, stdin []byte) (n NICs, err error) {
	if plugin != brfusion.Plugin.Name {
		return n, nil
	}
	c, err := netconf.ParseBrFusion(stdin)
	if err != nil {
		return n, err
	}
	d, err := hostclient.Dial(c.Server, c.Credentials)
	if err != nil {
		return n, err
	}
	defer d.Close()
	n.Expires = d.Certificate.NotAfter
	s, err := d.Status(ctx, &hostdpb.StatusRequest{Allocate: !c.IPAM.Delegated()})
	if err != nil {
		return n, fmt.Errorf("ask for the NICs of pods: %w", err)
	}
	n.Policies = s.GetPolicies()
	if n.Host, err = host(c.Credentials, s.GetTenant()); err != nil {
		return n, err
	}
	n.Known = s.GetNics() != nil && c.Mode == netconf.Hotplug
	n.Attached, n.Free, n.Limited = int(s.GetNics().GetAttached()), int(s.GetNics().GetFree()), s.GetLimited()
	return n, nil
}

// host identifies the daemon that has answered, by its certificate authority, together with the
// tenant: nodes with the same value can be in one segment.
func host(credentials, tenant string) (string, error) {
	content, err := os.ReadFile(filepath.Join(credentials, identity.CAFile))
	if err != nil {
		return "", fmt.Errorf("read certificate of the host daemon: %w", err)
	}
	block, _ := pem.Decode(content)
	if block == nil {
		return "", fmt.Errorf("read certificate of the host daemon: %s has none", identity.CAFile)
	}
	return fmt.Sprintf("%x", sha256.Sum256(append(block.Bytes, tenant...)))[:32], nil
}
