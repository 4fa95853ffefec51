package quota

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
)

// Reasons to refuse a request.
var (
	ErrBridge      = errors.New("bridge does not belong to the tenant")
	ErrLimit       = errors.New("limit reached")
	ErrMAC         = errors.New("MAC not allowed")
	ErrMTU         = errors.New("MTU out of bounds")
	ErrNoVolumes   = errors.New("tenant has no volumes")
	ErrSegmentMode = errors.New("segment mode not allowed")
	ErrSpan        = errors.New("segment span not possible")
)

// BridgeFor returns the bridge of a NIC for the requested one, "" for the default. The
// error wraps ErrBridge. It does not reveal the bridges of other tenants.
func (t Tenant) BridgeFor(asked string) (string, error) {
	if asked == "" || asked == t.Bridge || slices.Contains(t.Bridges, asked) {
		return cmp.Or(asked, t.Bridge), nil
	}
	return "", fmt.Errorf("%w: %.40q: want %s", ErrBridge, asked, strings.Join(t.AllBridges(), ", "))
}

// MTUFor returns the MTU of a NIC for the requested one, 0 for the default. The error
// wraps ErrMTU.
func (t Tenant) MTUFor(asked int) (int, error) {
	if asked == 0 {
		return t.MTU, nil
	}
	if asked < t.minMTU() || asked > t.MTU {
		return 0, fmt.Errorf("%w: %d: want 0 or %d to %d", ErrMTU, asked, t.minMTU(), t.MTU)
	}
	return asked, nil
}

// MACFor returns the MAC of a pod for the requested one, "" for that of its NIC. The error wraps ErrMAC.
func (t Tenant) MACFor(asked string) (string, error) {
	if asked == "" {
		return "", nil
	}
	mac := strings.ToLower(strings.ReplaceAll(asked, "-", ":"))
	switch {
	case len(mac) != len("02:42:00:00:00:00") || !macBytes.MatchString(mac):
		return "", fmt.Errorf("%w: %.40q: want that of one machine, such as 02:42:0a:c9:00:09", ErrMAC, asked)
	case slices.ContainsFunc(t.ClaimMACs, func(begin string) bool { return strings.HasPrefix(mac+":", begin+":") }):
		return mac, nil
	case len(t.ClaimMACs) == 0:
		return "", fmt.Errorf("%w: %s: tenant %s has no claimMACs in the host daemon's configuration", ErrMAC, mac, t.Name)
	}
	return "", fmt.Errorf("%w: %s: want one of the tenant's claimMACs, which begin with %s", ErrMAC, mac, strings.Join(t.ClaimMACs, " or "))
}

// The least MTU of a link in bytes: RFC 791, RFC 8200 §5.
const (
	minMTU4 = 68
	minMTU6 = 1280
)

func (t Tenant) minMTU() int {
	if slices.ContainsFunc(t.Subnets(), func(s netip.Prefix) bool { return s.Addr().Is6() }) {
		return minMTU6
	}
	return minMTU4
}

// Bandwidth limits a NIC, seen from the pod. A rate of 0 means no limit, a burst of 0
// a default.
type Bandwidth struct {
	IngressRate  uint64 // bit/s
	IngressBurst uint64 // bit
	EgressRate   uint64 // bit/s
	EgressBurst  uint64 // bit
}

// BandwidthFor returns the smaller of the requested bandwidth and the tenant's limit.
// The limit is also that of the burst, in bit: an unlimited burst would be an
// unlimited rate.
func (t Tenant) BandwidthFor(asked Bandwidth) Bandwidth {
	var b Bandwidth
	b.IngressRate, b.IngressBurst = t.Limits.Bandwidth.Ingress.bound(asked.IngressRate, asked.IngressBurst)
	b.EgressRate, b.EgressBurst = t.Limits.Bandwidth.Egress.bound(asked.EgressRate, asked.EgressBurst)
	return b
}

func (r Rate) bound(rate, burst uint64) (uint64, uint64) {
	limit := uint64(r)
	switch {
	case rate == 0: // a burst without a rate has no meaning
		return limit, 0
	case limit == 0:
		return rate, burst
	}
	return min(rate, limit), min(burst, limit)
}

// VolumesIn returns the directory of the tenant's volumes. The error wraps
// ErrNoVolumes.
func (t Tenant) VolumesIn() (string, error) {
	if t.Volumes == "" {
		return "", fmt.Errorf("%w: give tenant %s a directory in the configuration, volumes: PATH", ErrNoVolumes, t.Name)
	}
	return t.Volumes, nil
}

// SegmentModes returns the modes of the tenant's segments, the default first.
func (t Tenant) SegmentModes() []string {
	if len(t.Segments.Modes) == 0 {
		return []string{SegmentUnicast, SegmentPlain}
	}
	return t.Segments.Modes
}

// SegmentModeFor returns the mode of a new segment for the requested one, "" for the
// default. The error wraps ErrSegmentMode.
func (t Tenant) SegmentModeFor(asked string) (string, error) {
	modes := t.SegmentModes()
	if asked == "" {
		return modes[0], nil
	}
	if !slices.Contains(modes, asked) {
		return "", fmt.Errorf("%w: %.20q: want %s", ErrSegmentMode, asked, strings.Join(modes, " or "))
	}
	return asked, nil
}

// AdmitNIC returns an error that wraps ErrLimit unless a guest with guestNICs, of a
// tenant with tenantNICs, may have another NIC.
func (t Tenant) AdmitNIC(guestNICs, tenantNICs int) error {
	return cmp.Or(
		admit("guest", guestNICs, "NICs", t.Limits.NICs, "remove pods"),
		admit("tenant "+t.Name, tenantNICs, "NICs", t.Limits.TenantNICs, "remove pods"))
}

// FreeNICs returns how many more NICs the limits allow a guest with guestNICs, of a tenant with
// tenantNICs.
func (t Tenant) FreeNICs(guestNICs, tenantNICs int) int {
	return min(free(guestNICs, t.Limits.NICs), free(tenantNICs, t.Limits.TenantNICs))
}

// FreeAddresses returns how many more addresses the limits allow a guest whose pods have held.
func (t Tenant) FreeAddresses(held int) int { return free(held, t.Limits.Addresses) }

// free returns how many more a limit allows; 0: there is no limit.
func free(have, limit int) int {
	if limit == 0 {
		return math.MaxInt
	}
	return max(0, limit-have)
}

// AdmitAddresses returns an error that wraps ErrLimit unless a guest whose other pods have
// held addresses may have a pod with so many.
func (t Tenant) AdmitAddresses(held, asked int) error {
	if l := t.Limits.Addresses; l > 0 && held+asked > l {
		return fmt.Errorf("%w: the other pods of the guest have %d addresses, and this one asks for %d; tenant %s has at most %d for a guest: "+
			"remove pods, or raise the limit addresses in the configuration", ErrLimit, held, asked, t.Name, l)
	}
	return nil
}

// Claimable returns where guests may choose addresses.
func (t Tenant) Claimable() []netip.Prefix {
	if len(t.Ranges) > 0 || len(t.ClaimRanges) > 0 {
		return t.ClaimRanges
	}
	if all := t.Subnets(); len(all) > 0 {
		return all
	}
	return []netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0)}
}

// AdmitSegment returns an error that wraps ErrLimit unless a tenant with so many
// segments may have another.
func (t Tenant) AdmitSegment(segments int) error {
	return admit("tenant "+t.Name, segments, "segments", t.Limits.Segments, "remove pods")
}

// AdmitEndpoint returns an error that wraps ErrLimit unless a segment with so many
// endpoints may have another.
func (t Tenant) AdmitEndpoint(endpoints int) error {
	return admit("segment", endpoints, "endpoints", cmp.Or(t.Limits.Endpoints, MaxEndpoints), "spread the pod over fewer VMs")
}

// AdmitVolume returns an error that wraps ErrLimit unless a tenant with so many
// attached volumes may attach another.
func (t Tenant) AdmitVolume(attached int) error {
	return admit("tenant "+t.Name, attached, "volumes", t.Limits.Volumes, "remove pods")
}

// AdmitVolumeDirectory returns an error that wraps ErrLimit unless a guest that has made so
// many volumes, which still exist, may make another.
func (t Tenant) AdmitVolumeDirectory(made int) error {
	if l := t.Limits.VolumeDirectories; l > 0 && made >= l {
		return fmt.Errorf("%w: the guest has made %d volumes that still exist, of at most %d: "+
			"remove volumes on the host, or raise the limit volumeDirectories in the configuration", ErrLimit, made, l)
	}
	return nil
}

func admit(owner string, have int, what string, limit int, fix string) error {
	if limit > 0 && have >= limit {
		return fmt.Errorf("%w: %s has %d %s of at most %d: %s", ErrLimit, owner, have, what, limit, fix)
	}
	return nil
}

// AdmitQueues returns an error that wraps ErrLimit unless the ports of a tenant, whose
// queues have room for queued bytes, may have another of size.
func (t Tenant) AdmitQueues(queued, size int64) error {
	if l := int64(t.Limits.QueueMemory) << 20; l > 0 && size > 0 && size > l-queued {
		return fmt.Errorf("%w: the bandwidth limits of tenant %s need queues of %d bytes of at most %d, and the pod needs %d: remove pods, or their limits",
			ErrLimit, t.Name, queued, l, size)
	}
	return nil
}

// AdmitMemory returns an error that wraps ErrLimit unless the pods of a tenant, which
// share shared bytes of memory, may share size more.
func (t Tenant) AdmitMemory(shared, size int64) error {
	if l := int64(t.Limits.SharedMemory) << 20; l > 0 && size > l-shared {
		return fmt.Errorf("%w: the pods of tenant %s share %d bytes of memory of at most %d, and ask for %d: remove pods", ErrLimit, t.Name, shared, l, size)
	}
	return nil
}
