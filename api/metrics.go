package api

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics counts requests by route and class of status. Both label sets are
// closed: no label holds anything that a client chose.
type metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	inFlight prometheus.Gauge
	routes   map[*Route]routeMetrics // looked up once: a label is found by hashing
}

// routeMetrics are what nearly every request of a route reports.
type routeMetrics struct {
	ok      prometheus.Counter // status 2xx
	seconds prometheus.Observer
}

// latencyBuckets reach from a cached operation to the longest wait, in seconds.
var latencyBuckets = []float64{.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30, 60}

// newMetrics registers the metrics; without a registerer they go nowhere.
func newMetrics(r prometheus.Registerer, table []Route) *metrics {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_http_requests_total", Help: "Requests by route and class of status.",
		}, []string{"route", "status"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "sluice_http_request_duration_seconds", Help: "Time from headers to answer by route.",
			Buckets: latencyBuckets,
		}, []string{"route"}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "sluice_http_requests_in_flight", Help: "Requests under way.",
		}),
	}
	if r != nil {
		r.MustRegister(m.requests, m.seconds, m.inFlight)
	}
	m.routes = make(map[*Route]routeMetrics, len(table))
	for i := range table {
		name := table[i].template()
		m.routes[&table[i]] = routeMetrics{m.requests.WithLabelValues(name, statusClass(200)), m.seconds.WithLabelValues(name)}
	}
	return m
}

// observe counts a request that is over.
func (m *metrics) observe(x *exchange, took time.Duration) {
	if route, ok := m.routes[x.route]; ok && x.status/100 == 2 {
		route.ok.Inc()
		route.seconds.Observe(took.Seconds())
		return
	}
	m.requests.WithLabelValues(x.template(), statusClass(x.status)).Inc()
	m.seconds.WithLabelValues(x.template()).Observe(took.Seconds())
}

// statusClass is "2xx" to "5xx", or "aborted" for a request that was never
// answered.
func statusClass(status int) string {
	if status == 0 {
		return "aborted"
	}
	return strconv.Itoa(status/100) + "xx"
}
