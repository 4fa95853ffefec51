package daemon

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"unnest/internal/hostapi/hostdpb"
)

// buckets are for what takes from half a millisecond, a NIC out of the pool, to
// the seconds of a guest that does not give one up.
var buckets = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}

// metrics are what Prometheus is told.
type metrics struct {
	registry *prometheus.Registry
	requests *prometheus.CounterVec
	latency  *prometheus.HistogramVec
	attach   *prometheus.HistogramVec
	detach   *prometheus.HistogramVec
	lost     *prometheus.CounterVec
	refused  prometheus.Counter
}

func newMetrics() *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "unnest_hostd_requests_total", Help: "Requests of guests, by verb and gRPC code.",
		}, []string{"verb", "code"}),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "unnest_hostd_request_seconds", Help: "Time to answer a request.", Buckets: buckets,
		}, []string{"verb"}),
		attach: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "unnest_hostd_attach_seconds", Help: "Time to attach a NIC; source is pool, plug, trunk or segment.", Buckets: buckets,
		}, []string{"source", "result"}),
		detach: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "unnest_hostd_detach_seconds", Help: "Time until a guest has given a NIC up.", Buckets: buckets,
		}, []string{"mode", "result"}),
		lost: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "unnest_hostd_lost_nics_total", Help: "NICs that a guest has given up unasked.",
		}, []string{"guest"}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "unnest_hostd_refused_connections_total", Help: "Connections closed because their address had too many.",
		}),
	}
	m.registry.MustRegister(m.requests, m.latency, m.attach, m.detach, m.lost, m.refused,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

func (m *metrics) request(verb string, code codes.Code, begin time.Time) {
	m.requests.WithLabelValues(verb, code.String()).Inc()
	m.latency.WithLabelValues(verb).Observe(time.Since(begin).Seconds())
}

func (m *metrics) attached(mode hostdpb.Mode, warm bool, begin time.Time, err error) {
	source := "plug"
	switch {
	case mode == hostdpb.Mode_MODE_TRUNK:
		source = "trunk"
	case warm:
		source = "pool"
	}
	m.attach.WithLabelValues(source, status.Code(err).String()).Observe(time.Since(begin).Seconds())
}

func (m *metrics) joined(begin time.Time, err error) {
	m.attach.WithLabelValues("segment", status.Code(err).String()).Observe(time.Since(begin).Seconds())
}

func (m *metrics) detached(vlan, endpoint bool, begin time.Time, err error) {
	mode := "hotplug"
	switch {
	case vlan:
		mode = "trunk"
	case endpoint:
		mode = "segment"
	}
	m.detach.WithLabelValues(mode, status.Code(err).String()).Observe(time.Since(begin).Seconds())
}

// levels are read when Prometheus asks.
type levels struct {
	daemon *daemon

	nics, slots, pool, target, up, addresses, drops *prometheus.Desc
	segments, endpoints, frames, bytes, dropped     *prometheus.Desc
}

func newLevels(d *daemon) *levels {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("unnest_hostd_"+name, help, labels, nil)
	}
	return &levels{
		daemon:    d,
		nics:      desc("attachments", "Attachments of a guest.", "guest", "tenant"),
		slots:     desc("slots", "NIC slots of a guest, by state.", "guest", "state"),
		pool:      desc("pool_nics", "Warm NICs of a guest.", "guest"),
		target:    desc("pool_target", "Warm NICs that a guest shall have.", "guest"),
		up:        desc("guest_up", "1 when the guest's VMM answers.", "guest"),
		addresses: desc("addresses", "Addresses of a tenant, by state.", "tenant", "state"),
		drops:     desc("dropped_frames_total", "Frames that guests were not to send, by reason.", "reason"),
		segments:  desc("segments", "Segments of a tenant.", "tenant"),
		endpoints: desc("segment_endpoints", "Endpoints of a segment; member is no for those on their way in or out.", "tenant", "pod", "member"),
		frames:    desc("segment_frames_total", "Frames that a segment has passed on.", "tenant", "pod"),
		bytes:     desc("segment_bytes_total", "Bytes that a segment has passed on.", "tenant", "pod"),
		dropped:   desc("segment_dropped_frames_total", "Frames that a segment has not passed on, by reason.", "tenant", "pod", "reason"),
	}
}

// Describe implements prometheus.Collector.
func (l *levels) Describe(c chan<- *prometheus.Desc) { prometheus.DescribeByCollect(l, c) }

// Collect implements prometheus.Collector.
func (l *levels) Collect(c chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*statusTime)
	defer cancel()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		c <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	s := l.daemon.status(ctx)
	for _, g := range s.Guests {
		if g.Error != "" {
			gauge(l.up, 0, g.Name)
			continue
		}
		gauge(l.up, 1, g.Name)
		gauge(l.nics, float64(g.Attachments), g.Name, g.Tenant)
		gauge(l.slots, float64(g.Slots), g.Name, "all")
		gauge(l.slots, float64(g.SlotsFree), g.Name, "free")
		gauge(l.slots, float64(g.SlotsQuarantined), g.Name, "quarantined")
		gauge(l.pool, float64(g.Pool), g.Name)
		gauge(l.target, float64(g.PoolTarget), g.Name)
	}
	for _, t := range s.Tenants {
		gauge(l.addresses, float64(t.AddressesInUse), t.Name, "in use")
		gauge(l.addresses, float64(t.AddressesCooling), t.Name, "cooling")
	}
	l.collectSegments(c, s)
	for reason, n := range l.daemon.host.drops() {
		c <- prometheus.MustNewConstMetric(l.drops, prometheus.CounterValue, float64(n), reason)
	}
}

func (l *levels) collectSegments(c chan<- prometheus.Metric, s Status) {
	send := func(d *prometheus.Desc, kind prometheus.ValueType, v uint64, labels ...string) {
		c <- prometheus.MustNewConstMetric(d, kind, float64(v), labels...)
	}
	for _, t := range s.Tenants {
		send(l.segments, prometheus.GaugeValue, uint64(t.Segments), t.Name)
	}
	for _, p := range s.Segments {
		member := map[bool]uint64{}
		for _, f := range p.Fractions {
			member[f.Member]++
		}
		all := p.Total()
		send(l.endpoints, prometheus.GaugeValue, member[true], p.Tenant, p.Pod, "yes")
		send(l.endpoints, prometheus.GaugeValue, member[false], p.Tenant, p.Pod, "no")
		send(l.frames, prometheus.CounterValue, all.Frames, p.Tenant, p.Pod)
		send(l.bytes, prometheus.CounterValue, all.Bytes, p.Tenant, p.Pod)
		for reason, n := range map[string]uint64{"spoofed": all.Spoofed, "limited": all.Limited, "oversize": all.Oversize, "unknown": all.Unknown} {
			send(l.dropped, prometheus.CounterValue, n, p.Tenant, p.Pod, reason)
		}
	}
}
