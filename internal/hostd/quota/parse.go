package quota

import (
	"time"

	"github.com/goccy/go-yaml/ast"

	"unnest.io/unnest/internal/hostd/ipam"
	"unnest.io/unnest/internal/yamldoc"
)

// Defaults of keys that a file may omit.
const (
	DefaultPool     = 4
	DefaultMTU      = 1500
	DefaultCooldown = time.Minute
	DefaultSocket   = "/run/libvirt/libvirt-sock"
)

// addressesPerNIC is how many addresses the pods of a guest may have on average, unless
// the file says otherwise. A pod has one of each family, and some have a few more.
const addressesPerNIC = 4

// DefaultLimits are the default limits of a tenant. A Kubernetes node has at most 110
// pods, in addition to NICs of deleted pods that the guest has not released yet; its
// kubelet starts a few pods per second. A NIC that is plugged and unplugged again keeps other
// tenants waiting for 10 to 20 ms. A client's first packet to a port of its pod is a broadcast. The kernel's table of connections has 65,536 entries or more. A volume
// takes three inodes and 12 KiB of ext4 before a guest writes to it.
var DefaultLimits = Limits{
	NICs: 128, Addresses: 128 * addressesPerNIC, RequestsPerSecond: 20, Burst: 200, AttachesPerSecond: 2, Connections: 32,
	Segments: 256, Endpoints: MaxEndpoints, Broadcasts: 20_000,
	Volumes: 256, VolumeDirectories: 1024, SharedMemory: 256, Multicasts: 1000, QueueMemory: 2048, Flows: 32768,
}

// The bounds of a file, which catch mistakes.
const (
	maxFile  = 256 << 10 // bytes
	maxCount = 1 << 20   // of a limit
	maxPorts = 255       // of a guest
	maxMTU   = 65535
)

// file is a configuration file that is being parsed.
type file struct {
	*yamldoc.Document
	config Config
}

// Parse parses a configuration file. Each error gives name, the line and the key. The
// defaults are pool 4, trunk true, mtu 1500, cooldown 60s, nat false, limits
// DefaultLimits, with four addresses per NIC, a guest's pool that of the file, socket DefaultSocket, a segment's
// span host. Other keys have none, and an address may be "".
func Parse(name string, content []byte) (Config, error) {
	doc, root, err := yamldoc.Parse(name, content, maxFile)
	if err != nil {
		return Config{}, err
	}
	f := &file{doc, Config{Pool: DefaultPool, Trunk: true}}
	f.decode(root)
	if !f.Failed() { // else consequential errors would confuse
		f.check()
	}
	if err := f.Err(); err != nil {
		return Config{}, err
	}
	return f.config, nil
}

func (f *file) decode(root ast.Node) {
	p := &f.config
	f.Mapping("", root, map[string]yamldoc.Key{
		"listen":   yamldoc.Scalar(f.Document, &p.Listen, parseListen),
		"http":     yamldoc.Scalar(f.Document, &p.HTTP, parseHTTP),
		"tenants":  f.NotEmpty(f.List(f.tenant)),
		"guests":   f.List(f.guest),
		"pool":     yamldoc.Scalar(f.Document, &p.Pool, yamldoc.Count(0, maxPorts)),
		"logLevel": yamldoc.Scalar(f.Document, &p.LogLevel, parseLogLevel),
		"trunk":    yamldoc.Scalar(f.Document, &p.Trunk, yamldoc.Bool),
	})
	for i := range p.Guests {
		if !f.Has(guestPath(i) + ".pool") {
			p.Guests[i].Pool = p.Pool
		}
	}
}

func (f *file) tenant(path string, n ast.Node) {
	t := Tenant{MTU: DefaultMTU, Cooldown: DefaultCooldown, Limits: DefaultLimits}
	f.Mapping(path, n, map[string]yamldoc.Key{
		"name":        yamldoc.Scalar(f.Document, &t.Name, parseLabel),
		"bridge":      yamldoc.Scalar(f.Document, &t.Bridge, parseInterface),
		"bridges":     yamldoc.Scalars(f.Document, &t.Bridges, parseInterface),
		"mtu":         yamldoc.Scalar(f.Document, &t.MTU, yamldoc.Count(minMTU4, maxMTU)),
		"gateways":    yamldoc.Scalars(f.Document, &t.Gateways, parsePrefix),
		"hostPorts":   yamldoc.Scalars(f.Document, &t.HostPorts, parseHostPort),
		"metadata":    yamldoc.Scalar(f.Document, &t.Metadata, yamldoc.Bool),
		"nat":         yamldoc.Scalar(f.Document, &t.NAT, yamldoc.Bool),
		"ranges":      f.List(f.addressRange(&t)),
		"claimRanges": yamldoc.Scalars(f.Document, &t.ClaimRanges, parsePrefix),
		"claimMACs":   yamldoc.Scalars(f.Document, &t.ClaimMACs, parseMACs),
		"cooldown":    yamldoc.Scalar(f.Document, &t.Cooldown, yamldoc.DurationOrZero),
		"limits":      f.limits(&t.Limits),
		"segments": f.Object(map[string]yamldoc.Key{
			"modes": yamldoc.Scalars(f.Document, &t.Segments.Modes, parseSegmentMode),
			"span":  yamldoc.Scalar(f.Document, &t.Segments.Span, ParseSpan),
		}),
		"volumes":          yamldoc.Scalar(f.Document, &t.Volumes, parseDirectory),
		"volumesUnbounded": yamldoc.Scalar(f.Document, &t.VolumesUnbounded, yamldoc.Bool),
		"vhostPoll":        yamldoc.Scalar(f.Document, &t.VHostPoll, yamldoc.Microseconds(MaxVHostPoll)),
		"queues":           yamldoc.Scalar(f.Document, &t.Queues, yamldoc.Count(1, MaxQueues)),
		"podRanges":        yamldoc.Scalars(f.Document, &t.PodRanges, parsePrefix),
		"nodeRanges":       yamldoc.Scalars(f.Document, &t.NodeRanges, parsePrefix),
		"networkPolicy":    yamldoc.Scalar(f.Document, &t.NetworkPolicy, parseNetworkPolicy),
	})
	if !f.Has(path + ".limits.addresses") {
		t.Limits.Addresses = t.Limits.NICs * addressesPerNIC
	}
	f.config.Tenants = append(f.config.Tenants, t)
}

func (f *file) addressRange(t *Tenant) func(string, ast.Node) {
	return func(path string, n ast.Node) {
		var r ipam.Range
		f.Mapping(path, n, map[string]yamldoc.Key{
			"subnet":  yamldoc.Scalar(f.Document, &r.Subnet, parsePrefix),
			"first":   yamldoc.Scalar(f.Document, &r.First, yamldoc.Or(parseAddr, "")),
			"last":    yamldoc.Scalar(f.Document, &r.Last, yamldoc.Or(parseAddr, "")),
			"gateway": yamldoc.Scalar(f.Document, &r.Gateway, yamldoc.Or(parseAddr, "")),
		})
		t.Ranges = append(t.Ranges, r)
	}
}

func (f *file) limits(l *Limits) yamldoc.Key {
	count := yamldoc.Count(0, maxCount)
	return f.Object(map[string]yamldoc.Key{
		"nics":              yamldoc.Scalar(f.Document, &l.NICs, count),
		"addresses":         yamldoc.Scalar(f.Document, &l.Addresses, count),
		"tenantNICs":        yamldoc.Scalar(f.Document, &l.TenantNICs, count),
		"requestsPerSecond": yamldoc.Scalar(f.Document, &l.RequestsPerSecond, count),
		"burst":             yamldoc.Scalar(f.Document, &l.Burst, count),
		"attachesPerSecond": yamldoc.Scalar(f.Document, &l.AttachesPerSecond, count),
		"connections":       yamldoc.Scalar(f.Document, &l.Connections, count),
		"segments":          yamldoc.Scalar(f.Document, &l.Segments, count),
		"endpoints":         yamldoc.Scalar(f.Document, &l.Endpoints, yamldoc.Count(0, MaxEndpoints)),
		"broadcasts":        yamldoc.Scalar(f.Document, &l.Broadcasts, count),
		"volumes":           yamldoc.Scalar(f.Document, &l.Volumes, count),
		"volumeDirectories": yamldoc.Scalar(f.Document, &l.VolumeDirectories, count),
		"sharedMemory":      yamldoc.Scalar(f.Document, &l.SharedMemory, count),
		"multicasts":        yamldoc.Scalar(f.Document, &l.Multicasts, count),
		"queueMemory":       yamldoc.Scalar(f.Document, &l.QueueMemory, count),
		"flows":             yamldoc.Scalar(f.Document, &l.Flows, count),
		"bandwidth": f.Object(map[string]yamldoc.Key{
			"ingress": yamldoc.Scalar(f.Document, &l.Bandwidth.Ingress, parseRate),
			"egress":  yamldoc.Scalar(f.Document, &l.Bandwidth.Egress, parseRate),
		}),
	})
}

func (f *file) guest(path string, n ast.Node) {
	var g Guest
	f.Mapping(path, n, map[string]yamldoc.Key{
		"name":        yamldoc.Scalar(f.Document, &g.Name, parseLabel),
		"tenant":      yamldoc.Scalar(f.Document, &g.Tenant, parseLabel),
		"qmp":         yamldoc.Scalar(f.Document, &g.QMP, parsePath),
		"libvirt":     f.domain(&g),
		"ports":       yamldoc.Scalars(f.Document, &g.Ports, parsePort),
		"pool":        yamldoc.Scalar(f.Document, &g.Pool, yamldoc.Count(0, maxPorts)),
		"index":       yamldoc.Scalar(f.Document, &g.Index, yamldoc.Count(1, MaxIndex)),
		"tap":         yamldoc.Scalar(f.Document, &g.TAP, parseInterface),
		"mac":         yamldoc.Scalar(f.Document, &g.MAC, parseMAC),
		"addresses":   yamldoc.Scalars(f.Document, &g.Addresses, parseAddr),
		"unguarded":   yamldoc.Scalar(f.Document, &g.Unguarded, yamldoc.Bool),
		"export":      yamldoc.Scalar(f.Document, &g.Export, parseDirectory),
		"node":        yamldoc.Scalar(f.Document, &g.Node, parseNode),
		"credentials": yamldoc.Scalar(f.Document, &g.Credentials, parseCredentials),
	})
	f.config.Guests = append(f.config.Guests, g)
}

func (f *file) domain(g *Guest) yamldoc.Key {
	return func(path string, n ast.Node) {
		g.Libvirt = &Domain{Socket: DefaultSocket}
		f.Mapping(path, n, map[string]yamldoc.Key{
			"socket": yamldoc.Scalar(f.Document, &g.Libvirt.Socket, parsePath),
			"domain": yamldoc.Scalar(f.Document, &g.Libvirt.Domain, yamldoc.Text),
		})
	}
}
