package audit

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Labels of the failures; anchors have their names.
const (
	sinkSign = "sign" // the HSM
	sinkFile = "file" // beside the segments
)

// signerMetrics are what the signer tells of itself.
type signerMetrics struct {
	signed   prometheus.Counter
	unsigned prometheus.GaugeFunc
	failures *prometheus.CounterVec
}

func newSignerMetrics(s *Signer, anchors []Anchor) *signerMetrics {
	m := &signerMetrics{
		signed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "sluice_audit_heads_signed_total",
			Help: "Heads of the journal that were signed and written.",
		}),
		unsigned: prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "sluice_audit_unsigned_seconds",
			Help: "For how long the journal has had entries that no signed head proves; 0 when it has none.",
		}, s.unsignedSeconds),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_audit_head_failures_total",
			Help: "Heads that could not be signed, written beside the segments, or anchored, by where they went.",
		}, []string{"sink"}),
	}
	m.failures.WithLabelValues(sinkSign)
	m.failures.WithLabelValues(sinkFile)
	for _, a := range anchors {
		m.failures.WithLabelValues(a.Name)
	}
	return m
}

func (s *Signer) unsignedSeconds() float64 {
	since := s.behind.Load()
	if since == 0 {
		return 0
	}
	return max(s.journal.config.Clock().Sub(time.Unix(0, since)), 0).Seconds()
}

func (m *signerMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.signed, m.unsigned, m.failures}
}

func (m *signerMetrics) register(r prometheus.Registerer) error {
	return registerAll(r, m.collectors())
}

func (m *signerMetrics) unregister(r prometheus.Registerer) { unregisterAll(r, m.collectors()) }
