// Package metrics counts what the host daemon does, for Prometheus. Counters are
// written as things happen; gauges are read from the daemon's status at each scrape.
//
// The names and labels of the metrics are an interface: dashboards depend on them.
package metrics

import (
	"context"
	"net/http"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"unnest.io/unnest/internal/hostd/status"
)

// buckets range from half a millisecond, for a NIC from the pool, to the seconds that a
// guest takes that does not give a NIC up.
var buckets = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}

// Metrics are the daemon's metrics. The methods may be called from several goroutines.
type Metrics struct {
	registry *prometheus.Registry
	requests *prometheus.CounterVec
	latency  *prometheus.HistogramVec
	attach   *prometheus.HistogramVec
	detach   *prometheus.HistogramVec
	lost     *prometheus.CounterVec
	refused  prometheus.Counter
	rejected *prometheus.CounterVec
	panics   prometheus.Counter
	restores *prometheus.CounterVec
	stopped  *prometheus.CounterVec
}

// The packet filters of the host.
const (
	Antispoof = "antispoof" // of each NIC
	Tenants   = "tenants"   // between tenants, and from them to the host
	Isolation = "isolation" // of the connections of each NIC
)

// New returns metrics that are all zero.
func New() *Metrics {
	m := &Metrics{
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
			Name: "unnest_hostd_detach_seconds", Help: "Time until a guest has given a NIC up; mode is hotplug, trunk or segment.", Buckets: buckets,
		}, []string{"mode", "result"}),
		lost: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "unnest_hostd_lost_nics_total", Help: "NICs that a guest gave up without a request.",
		}, []string{"guest"}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "unnest_hostd_refused_connections_total", Help: "Connections closed because their guest, or their address before the handshake, had too many.",
		}),
		rejected: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "unnest_hostd_refused_certificates_total", Help: "Connections and requests with a certificate of a guest that was superseded, revoked or is not the present guest's.",
		}, []string{"guest"}),
		panics: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "unnest_hostd_panics_total", Help: "Panics, each of which ended one request or the run of one guest.",
		}),
		restores: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "unnest_hostd_filter_restores_total", Help: "Times that another program had changed a packet filter and the daemon restored it; result is error if that failed.",
		}, []string{"filter", "result"}),
	}
	m.stopped = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "unnest_hostd_bridge_nf_restores_total", Help: "Times that another program had turned bridge-nf-call on and the daemon turned it off; result is error if that failed.",
	}, []string{"result"})
	m.stopped.WithLabelValues("ok")
	m.stopped.WithLabelValues("error")
	for _, filter := range []string{Antispoof, Tenants, Isolation} { // an alert needs the value before the first change
		m.restores.WithLabelValues(filter, "ok")
		m.restores.WithLabelValues(filter, "error")
	}
	m.registry.MustRegister(m.requests, m.latency, m.attach, m.detach, m.lost, m.refused, m.rejected, m.panics, m.restores, m.stopped,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Handler serves the metrics to Prometheus.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// Request counts a request that began at begin.
func (m *Metrics) Request(verb string, code codes.Code, begin time.Time) {
	m.requests.WithLabelValues(verb, code.String()).Inc()
	m.latency.WithLabelValues(verb).Observe(time.Since(begin).Seconds())
}

// Attached counts an attach from a source: pool, plug, trunk or segment.
func (m *Metrics) Attached(source string, begin time.Time, err error) {
	m.attach.WithLabelValues(source, grpcstatus.Code(err).String()).Observe(time.Since(begin).Seconds())
}

// Detached counts a detach in a mode: hotplug, trunk or segment.
func (m *Metrics) Detached(mode string, begin time.Time, err error) {
	m.detach.WithLabelValues(mode, grpcstatus.Code(err).String()).Observe(time.Since(begin).Seconds())
}

// Lost counts a NIC that a guest gave up without a request.
func (m *Metrics) Lost(guest string) { m.lost.WithLabelValues(guest).Inc() }

// RefusedConnection counts a connection that was closed at once.
func (m *Metrics) RefusedConnection() { m.refused.Inc() }

// RefusedCertificate counts a connection or request of a guest whose certificate is refused.
func (m *Metrics) RefusedCertificate(guest string) { m.rejected.WithLabelValues(guest).Inc() }

// Panic counts a panic that was contained.
func (m *Metrics) Panic() { m.panics.Inc() }

// FilterRestored counts that a packet filter was restored, or not, after a change.
func (m *Metrics) FilterRestored(filter string, err error) {
	m.restores.WithLabelValues(filter, resultOf(err)).Inc()
}

// CallsStopped counts that bridge-nf-call was turned off, or not, after a change.
func (m *Metrics) CallsStopped(err error) { m.stopped.WithLabelValues(resultOf(err)).Inc() }

func resultOf(err error) string {
	if err != nil {
		return "error"
	}
	return "ok"
}

// Build tells which binary runs.
type Build struct{ Version, Revision string }

// Built makes the build a metric.
func (m *Metrics) Built(b Build) {
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "unnest_build_info", Help: "1, with the version and the git revision of the binary.",
		ConstLabels: prometheus.Labels{"version": b.Version, "revision": b.Revision, "goversion": runtime.Version()},
	})
	info.Set(1)
	m.registry.MustRegister(info)
}

// Source is where the gauges come from.
type Source interface {
	Status(context.Context) status.Status
	// Drops returns how many frames the packet filter has dropped, by reason.
	Drops() map[string]uint64
	// GuestDrops returns how many frames of each guest it has dropped.
	GuestDrops() map[string]uint64
}

// Read makes each scrape read the gauges from s.
func (m *Metrics) Read(s Source) { m.registry.MustRegister(gauges{s}) }
