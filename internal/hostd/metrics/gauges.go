package metrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"unnest/internal/hostd/status"
)

// scrapeTime bounds one scrape.
const scrapeTime = 4 * time.Second

// gauges reads the daemon's state at each scrape.
type gauges struct {
	source Source

	nics, slots, pool, target, up, addresses, drops *prometheus.Desc
	segments, endpoints, frames, bytes, dropped     *prometheus.Desc
}

func newGauges(s Source) *gauges {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("unnest_hostd_"+name, help, labels, nil)
	}
	return &gauges{
		source:    s,
		nics:      desc("attachments", "Attachments of a guest.", "guest", "tenant"),
		slots:     desc("slots", "NIC slots of a guest, by state.", "guest", "state"),
		pool:      desc("pool_nics", "Warm NICs of a guest.", "guest"),
		target:    desc("pool_target", "Warm NICs wanted for a guest.", "guest"),
		up:        desc("guest_up", "1 when the guest's VMM answers.", "guest"),
		addresses: desc("addresses", "Addresses of a tenant, by state.", "tenant", "state"),
		drops:     desc("dropped_frames_total", "Frames of guests that the packet filter dropped, by reason.", "reason"),
		segments:  desc("segments", "Segments of a tenant.", "tenant"),
		endpoints: desc("segment_endpoints", "Endpoints of a segment; member is no while one joins or leaves.", "tenant", "pod", "member"),
		frames:    desc("segment_frames_total", "Frames that a segment has passed on.", "tenant", "pod"),
		bytes:     desc("segment_bytes_total", "Bytes that a segment has passed on.", "tenant", "pod"),
		dropped:   desc("segment_dropped_frames_total", "Frames that a segment has not passed on, by reason.", "tenant", "pod", "reason"),
	}
}

// Describe implements prometheus.Collector.
func (g *gauges) Describe(c chan<- *prometheus.Desc) { prometheus.DescribeByCollect(g, c) }

// Collect implements prometheus.Collector.
func (g *gauges) Collect(c chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTime)
	defer cancel()
	send := func(d *prometheus.Desc, v float64, labels ...string) {
		c <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	s := g.source.Status(ctx)
	for _, guest := range s.Guests {
		if guest.Error != "" {
			send(g.up, 0, guest.Name)
			continue
		}
		send(g.up, 1, guest.Name)
		send(g.nics, float64(guest.Attachments), guest.Name, guest.Tenant)
		send(g.slots, float64(guest.Slots), guest.Name, "all")
		send(g.slots, float64(guest.SlotsFree), guest.Name, "free")
		send(g.slots, float64(guest.SlotsQuarantined), guest.Name, "quarantined")
		send(g.pool, float64(guest.Pool), guest.Name)
		send(g.target, float64(guest.PoolTarget), guest.Name)
	}
	for _, t := range s.Tenants {
		send(g.addresses, float64(t.AddressesInUse), t.Name, "in use")
		send(g.addresses, float64(t.AddressesCooling), t.Name, "cooling")
	}
	g.collectSegments(c, s)
	for reason, n := range g.source.Drops() {
		c <- prometheus.MustNewConstMetric(g.drops, prometheus.CounterValue, float64(n), reason)
	}
}

func (g *gauges) collectSegments(c chan<- prometheus.Metric, s status.Status) {
	send := func(d *prometheus.Desc, kind prometheus.ValueType, v uint64, labels ...string) {
		c <- prometheus.MustNewConstMetric(d, kind, float64(v), labels...)
	}
	for _, t := range s.Tenants {
		send(g.segments, prometheus.GaugeValue, uint64(t.Segments), t.Name)
	}
	for _, p := range s.Segments {
		member := map[bool]uint64{}
		for _, f := range p.Fractions {
			member[f.Member]++
		}
		all := p.Total()
		send(g.endpoints, prometheus.GaugeValue, member[true], p.Tenant, p.Pod, "yes")
		send(g.endpoints, prometheus.GaugeValue, member[false], p.Tenant, p.Pod, "no")
		send(g.frames, prometheus.CounterValue, all.Frames, p.Tenant, p.Pod)
		send(g.bytes, prometheus.CounterValue, all.Bytes, p.Tenant, p.Pod)
		for reason, n := range map[string]uint64{"spoofed": all.Spoofed, "limited": all.Limited, "oversize": all.Oversize, "unknown": all.Unknown} {
			send(g.dropped, prometheus.CounterValue, n, p.Tenant, p.Pod, reason)
		}
	}
}
