package audit

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-kms/sluice/kms"
)

// Causes of the errors counter.
const (
	causeBacklog = "backlog" // refused: too much waits
	causeSpace   = "space"   // refused: the disk is full
	causeWrite   = "write"   // refused: a write failed and was taken back
	causeRotate  = "rotate"  // a new segment could not be made; the old one goes on
	causeTrim    = "trim"    // a full segment keeps its spare space
	causeStop    = "stop"    // the log stopped
)

// metrics are what the log tells of itself. They exist, unregistered, when
// nobody asked for them.
type metrics struct {
	batch      prometheus.Histogram
	sync       prometheus.Histogram
	backlog    prometheus.Gauge
	reserve    prometheus.Gauge
	entries    *prometheus.CounterVec
	aggregated prometheus.Counter
	errors     *prometheus.CounterVec

	intents, outcomes prometheus.Counter
}

func newMetrics() *metrics {
	m := &metrics{
		batch: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "sluice_audit_batch_entries",
			Help:    "Entries made durable by one fdatasync.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 13),
		}),
		sync: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "sluice_audit_fsync_seconds",
			Help:    "Time of one fdatasync of the journal.",
			Buckets: prometheus.ExponentialBuckets(50e-6, 2, 15),
		}),
		backlog: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "sluice_audit_backlog_entries",
			Help: "Entries accepted and not yet durable when the last batch was begun.",
		}),
		reserve: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "sluice_audit_reserve_bytes",
			Help: "Disk space held for entries of state changes; 0 also where the file system cannot hold any.",
		}),
		entries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_audit_entries_total",
			Help: "Entries made durable, by phase.",
		}, []string{"phase"}),
		aggregated: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "sluice_audit_aggregated_requests_total",
			Help: "Refused requests that share an entry with others.",
		}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_audit_errors_total",
			Help: "Entries refused and other failures of the journal, by cause.",
		}, []string{"cause"}),
	}
	m.intents = m.entries.WithLabelValues(string(kms.PhaseIntent))
	m.outcomes = m.entries.WithLabelValues(string(kms.PhaseOutcome))
	for _, cause := range []string{causeBacklog, causeSpace, causeWrite, causeRotate, causeTrim, causeStop} {
		m.errors.WithLabelValues(cause)
	}
	return m
}

func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.batch, m.sync, m.backlog, m.reserve, m.entries, m.aggregated, m.errors}
}

func (m *metrics) register(r prometheus.Registerer) error { return registerAll(r, m.collectors()) }

func (m *metrics) unregister(r prometheus.Registerer) { unregisterAll(r, m.collectors()) }

// registerAll registers all or none; a nil Registerer registers none.
func registerAll(r prometheus.Registerer, collectors []prometheus.Collector) error {
	if r == nil {
		return nil
	}
	for i, c := range collectors {
		if err := r.Register(c); err != nil {
			unregisterAll(r, collectors[:i])
			return err
		}
	}
	return nil
}

func unregisterAll(r prometheus.Registerer, collectors []prometheus.Collector) {
	if r == nil {
		return
	}
	for _, c := range collectors {
		r.Unregister(c)
	}
}

func (m *metrics) failed(cause string, n int) {
	m.errors.WithLabelValues(cause).Add(float64(n))
}
