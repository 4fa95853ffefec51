package metrics

import (
	"context"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"unnest.io/unnest/internal/hostd/status"
)

// scrapeTime bounds one scrape.
const scrapeTime = 4 * time.Second

// gauges reads the daemon's state at each scrape.
type gauges struct{ source Source }

// family is one metric with its label names, comma-separated.
type family struct {
	name, help, labels string
	kind               prometheus.ValueType
}

func gauge(name, help, labels string) family {
	return family{name, help, labels, prometheus.GaugeValue}
}

func counter(name, help, labels string) family {
	return family{name, help, labels, prometheus.CounterValue}
}

var (
	nics      = gauge("attachments", "Attachments of a guest.", "guest,tenant")
	slots     = gauge("slots", "NIC slots of a guest, by state.", "guest,state")
	pool      = gauge("pool_nics", "Warm NICs of a guest.", "guest")
	target    = gauge("pool_target", "Warm NICs wanted for a guest.", "guest")
	up        = gauge("guest_up", "1 when the guest's VMM answers.", "guest")
	addresses = gauge("addresses", "Addresses of a tenant, by state.", "tenant,state")
	stale     = gauge("configuration_stale", "1 when the configuration file is not in use because of a mistake, or some of its keys before a restart.", "cause")
	unguarded = gauge("unguarded_ports", "TAPs on bridges of a tenant that may send anything, unless the configuration says so.", "tenant")
	cut       = gauge("forwarding_problems", "Chains of other programs that drop frames of a tenant's pods.", "tenant")
	drops     = counter("dropped_frames_total", "Frames of guests that the packet filter dropped, by reason.", "reason")
	refused   = counter("guest_dropped_frames_total", "Frames of a guest that the packet filter of its NICs dropped.", "guest")
	valid     = gauge("guest_certificates", "Certificates of a guest, by state: unused, used, superseded, revoked or expired.", "guest,state")
	segments  = gauge("segments", "Segments of a tenant.", "tenant")
	endpoints = gauge("segment_endpoints", "Endpoints of a segment; member is no while one joins or leaves.", "tenant,pod,member")
	frames    = counter("segment_frames_total", "Frames that a segment has passed on.", "tenant,pod")
	bytes     = counter("segment_bytes_total", "Bytes that a segment has passed on.", "tenant,pod")
	dropped   = counter("segment_dropped_frames_total", "Frames that a segment has not passed on, by reason.", "tenant,pod,reason")
)

// They are negative after the certificate has expired.
var (
	expiry       = prometheus.NewDesc("unnest_guest_certificate_expiry_seconds", "Seconds until the certificate of a guest expires.", []string{"guest"}, nil)
	policyExpiry = prometheus.NewDesc("unnest_policy_client_certificate_expiry_seconds", "Seconds until the certificate of a tenant's policy client expires.", []string{"tenant"}, nil)
)

// Describe implements prometheus.Collector.
func (g gauges) Describe(c chan<- *prometheus.Desc) { prometheus.DescribeByCollect(g, c) }

// Collect implements prometheus.Collector.
func (g gauges) Collect(c chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTime)
	defer cancel()
	send := func(f family, v uint64, labels ...string) {
		d := prometheus.NewDesc("unnest_hostd_"+f.name, f.help, strings.Split(f.labels, ","), nil)
		c <- prometheus.MustNewConstMetric(d, f.kind, float64(v), labels...)
	}
	s := g.source.Status(ctx)
	is := map[bool]uint64{true: 1}
	send(stale, is[s.Configuration.Error != ""], "mistake")
	send(stale, is[len(s.Configuration.Restart) > 0], "restart")
	for _, guest := range s.Guests {
		if !guest.CertificateExpires.IsZero() {
			c <- prometheus.MustNewConstMetric(expiry, prometheus.GaugeValue, time.Until(guest.CertificateExpires).Seconds(), guest.Name)
		}
		byState := map[string]uint64{}
		for _, c := range guest.Certificates {
			byState[c.State]++
		}
		for state, n := range byState {
			send(valid, n, guest.Name, state)
		}
		if guest.Error != "" {
			send(up, 0, guest.Name)
			continue
		}
		send(up, 1, guest.Name)
		send(nics, uint64(guest.Attachments), guest.Name, guest.Tenant)
		send(slots, uint64(guest.Slots), guest.Name, "all")
		send(slots, uint64(guest.SlotsFree), guest.Name, "free")
		send(slots, uint64(guest.SlotsQuarantined), guest.Name, "quarantined")
		send(slots, uint64(guest.SlotsForeign), guest.Name, "foreign")
		send(pool, uint64(guest.Pool), guest.Name)
		send(target, uint64(guest.PoolTarget), guest.Name)
	}
	for _, t := range s.Tenants {
		if !t.PolicyClientExpires.IsZero() {
			c <- prometheus.MustNewConstMetric(policyExpiry, prometheus.GaugeValue, time.Until(t.PolicyClientExpires).Seconds(), t.Name)
		}
		send(addresses, uint64(t.AddressesInUse), t.Name, "in use")
		send(addresses, uint64(t.AddressesCooling), t.Name, "cooling")
		send(segments, uint64(t.Segments), t.Name)
		send(unguarded, countUnguarded(s.Unguarded, t.Name), t.Name)
		send(cut, countProblems(s.Problems, t.Name), t.Name)
	}
	for _, p := range s.Segments {
		collectSegment(send, p)
	}
	for guest, n := range g.source.GuestDrops() {
		send(refused, n, guest)
	}
	for reason, n := range g.source.Drops() {
		send(drops, n, reason)
	}
}

func countProblems(problems []status.Problem, tenant string) (n uint64) {
	for _, p := range problems {
		if p.Tenant == tenant {
			n++
		}
	}
	return n
}

func countUnguarded(ports []status.Port, tenant string) (n uint64) {
	for _, p := range ports {
		if p.Tenant == tenant && !p.Intended {
			n++
		}
	}
	return n
}

func collectSegment(send func(family, uint64, ...string), p status.Segment) {
	member := map[bool]uint64{}
	for _, f := range p.Fractions {
		member[f.Member]++
	}
	all := p.Total()
	send(endpoints, member[true], p.Tenant, p.Pod, "yes")
	send(endpoints, member[false], p.Tenant, p.Pod, "no")
	send(frames, all.Frames, p.Tenant, p.Pod)
	send(bytes, all.Bytes, p.Tenant, p.Pod)
	for reason, n := range map[string]uint64{"spoofed": all.Spoofed, "limited": all.Limited, "oversize": all.Oversize, "unknown": all.Unknown, "full": all.Full} {
		send(dropped, n, p.Tenant, p.Pod, reason)
	}
}
