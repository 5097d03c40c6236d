package wire

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-kms/sluice/kms"
	"github.com/sluice-kms/sluice/watch"
)

// observer turns what happened to requests into metrics. Labels come from
// closed sets only: tiers, operations, specs, outcomes, nodes.
type observer struct {
	requests *prometheus.CounterVec
	refused  *prometheus.CounterVec
	specs    *prometheus.CounterVec
	total    *prometheus.HistogramVec
	slot     *prometheus.HistogramVec
	wait     prometheus.Histogram
	credits  *prometheus.CounterVec
	reasons  *prometheus.CounterVec

	// What nearly every request reports, looked up once: labels are found by
	// hashing, which costs as much as the rest of the observation.
	byOp   map[kms.Op]*[tierCount]atomic.Pointer[opMetrics]
	bySpec map[kms.Spec]prometheus.Counter // those that were not refused
	byNode sync.Map                        // :: kms.NodeID → prometheus.Observer
}

// tierNames are the values of the label tier: the tiers, and none for requests
// of which nobody knows whose they are.
var tierNames = [tierCount]string{string(kms.TierPlatinum), string(kms.TierGold), string(kms.TierSilver), string(kms.TierFree), "none"}

const (
	tierCount = 5
	noTier    = tierCount - 1
)

func tierOf(t *kms.Ticket) int {
	if t.By == nil || t.By.Tenant == nil {
		return noTier
	}
	if i := slices.Index(tierNames[:noTier], string(t.By.Tenant.Tier)); i >= 0 {
		return i
	}
	return noTier
}

// opMetrics are the metrics of an operation in a tier: they exist from the
// first request on.
type opMetrics struct {
	ok      prometheus.Counter
	total   prometheus.Observer
	refused prometheus.Counter
	credits prometheus.Counter
}

// latencyBuckets, in seconds, run from a warm symmetric call (tens of
// microseconds) to the longest wait of a bulk request (30 s).
var latencyBuckets = []float64{25e-6, 50e-6, 1e-4, 25e-5, 5e-4, 1e-3, 25e-4, 5e-3, 1e-2, 25e-3, 5e-2, .1, .2, .5, 1, 2, 5, 10, 30}

func newObserver(r prometheus.Registerer) *observer {
	o := &observer{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "sluice_requests_total",
			Help: "Requests by tier, operation and outcome; the outcome is ok or the code of the error."}, []string{"tier", "op", "outcome"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "sluice_refused_total",
			Help: "Requests refused by quota or because the HSMs were too busy, by tier and operation."}, []string{"tier", "op"}),
		specs: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "sluice_key_requests_total",
			Help: "Requests with a key by its spec: refused as in sluice_refused_total, or served."}, []string{"spec", "outcome"}),
		total: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "sluice_request_seconds",
			Help: "Time of a request on the route, by tier and operation.", Buckets: latencyBuckets}, []string{"tier", "op"}),
		slot: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "sluice_slot_seconds",
			Help: "Slot time of an operation, by node.", Buckets: latencyBuckets}, []string{"node"}),
		wait: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "sluice_wait_seconds",
			Help: "Time that a request waited for a slot.", Buckets: latencyBuckets}),
		credits: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "sluice_credits_total",
			Help: "Credits charged, by operation."}, []string{"op"}),
		reasons: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "sluice_reasons_total",
			Help: "Requests that waited or were refused, by class at the gate (none: they did not come to it) and reason; one of several reasons counts for each."},
			[]string{"class", "reason"}),
	}
	r.MustRegister(o.requests, o.refused, o.specs, o.total, o.slot, o.wait, o.credits, o.reasons)
	o.byOp = make(map[kms.Op]*[tierCount]atomic.Pointer[opMetrics], len(kms.Ops()))
	for _, info := range kms.Ops() {
		o.byOp[info.Op] = new([tierCount]atomic.Pointer[opMetrics])
	}
	o.bySpec = make(map[kms.Spec]prometheus.Counter, len(kms.Specs()))
	for _, info := range kms.Specs() {
		o.bySpec[info.Spec] = o.specs.WithLabelValues(string(info.Spec), "served")
	}
	return o
}

// of returns the metrics of an operation in a tier, nil for an operation that
// the table lacks. Two first requests make the same.
func (o *observer) of(op kms.Op, tier int) *opMetrics {
	tiers := o.byOp[op]
	if tiers == nil {
		return nil
	}
	if m := tiers[tier].Load(); m != nil {
		return m
	}
	name := tierNames[tier]
	m := &opMetrics{
		ok: o.requests.WithLabelValues(name, string(op), outcomeOK), total: o.total.WithLabelValues(name, string(op)),
		refused: o.refused.WithLabelValues(name, string(op)), credits: o.credits.WithLabelValues(string(op)),
	}
	tiers[tier].Store(m)
	return m
}

// outcomeOK is the outcome of a request that succeeded.
const outcomeOK = "ok"

// Request implements kms.Observer. A ticket's operation is always one of the
// table's, so that the labels stay a closed set.
func (o *observer) Request(t *kms.Ticket, err error) {
	tier := tierOf(t)
	m := o.of(t.Op, tier)
	if m == nil {
		return
	}
	refused := watch.Refused(err)
	if err == nil {
		m.ok.Inc()
	} else {
		o.requests.WithLabelValues(tierNames[tier], string(t.Op), kms.KindOf(err).String()).Inc()
	}
	if refused {
		m.refused.Inc()
	}
	if t.Key != nil {
		o.spec(t.Key.Spec, refused)
	}
	for i := range t.Reasons {
		o.reason(t.Class, &t.Reasons[i])
	}
	m.total.Observe(t.Elapsed.Seconds())
	if t.Attempts > 0 {
		o.node(t.Node).Observe(t.SlotTime.Seconds())
		o.wait.Observe(t.Wait.Seconds())
	}
	if t.Settled.Charged > 0 {
		m.credits.Add(float64(t.Settled.Charged) / float64(kms.Credit))
	}
}

// spec counts a request with a key of a spec of the table.
// JobSubmitted implements kms.Observer: its items are counted as the requests they are.
func (o *observer) JobSubmitted(*kms.Ticket, kms.JobMix) {}

func (o *observer) spec(spec kms.Spec, refused bool) {
	served, ok := o.bySpec[spec]
	switch {
	case !ok:
	case refused:
		o.specs.WithLabelValues(string(spec), "refused").Inc()
	default:
		served.Inc()
	}
}

// reason counts a reason; one that the table lacks has no label of its own.
func (o *observer) reason(class kms.Class, r *kms.Reason) {
	code := r.Code
	if r.Info() == nil {
		code = "other"
	}
	if class == "" {
		class = "none"
	}
	o.reasons.WithLabelValues(string(class), code).Inc()
}

func (o *observer) node(id kms.NodeID) prometheus.Observer {
	if n, ok := o.byNode.Load(id); ok {
		return n.(prometheus.Observer)
	}
	n := o.slot.WithLabelValues(string(id))
	o.byNode.Store(id, n)
	return n
}

// pool reports the nodes of the device when it is scraped.
type pool struct {
	device interface{ Status() []kms.NodeStatus }
	up, slots, given, busy, busySeconds, epoch, handles, loads,
	hits, misses, operations, errors, faults *prometheus.Desc
}

func newPool(device interface{ Status() []kms.NodeStatus }) *pool {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("sluice_node_"+name, help, append([]string{"node"}, labels...), nil)
	}
	return &pool{device: device,
		up:         desc("up", "1 while the node serves."),
		slots:      desc("slots", "Concurrent operations that the node can run."),
		given:      desc("slots_now", "Concurrent operations that the node is given now."),
		busy:       desc("busy", "Operations that run on the node now."),
		epoch:      desc("epoch", "How often the node's handles were invalidated, from 1."),
		handles:    desc("handles", "Keys loaded on the node."),
		hits:       desc("handle_hits_total", "Look-ups of a loaded key."),
		misses:     desc("handle_misses_total", "Keys that had to be loaded."),
		operations: desc("operations_total", "Operations started on the node."),
		errors:     desc("errors_total", "Errors of the node's module that no input caused."),

		busySeconds: desc("busy_seconds_total", "Slot time used on the node."),
		loads:       desc("loads_total", "Keys loaded on the node."),
		faults:      desc("faults_total", "Errors of the node's module by class.", "class"),
	}
}

// Describe implements prometheus.Collector.
func (p *pool) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{p.up, p.slots, p.given, p.busy, p.busySeconds, p.epoch, p.handles, p.loads,
		p.hits, p.misses, p.operations, p.errors, p.faults} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (p *pool) Collect(ch chan<- prometheus.Metric) {
	for _, s := range p.device.Status() {
		up := 0.0
		if s.State == kms.NodeUp {
			up = 1
		}
		gauge := func(d *prometheus.Desc, v float64) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, string(s.ID))
		}
		counter := func(d *prometheus.Desc, v uint64) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), string(s.ID))
		}
		gauge(p.up, up)
		gauge(p.slots, float64(s.Slots))
		gauge(p.given, float64(s.SlotsNow))
		gauge(p.busy, float64(s.Busy))
		gauge(p.epoch, float64(s.Epoch))
		gauge(p.handles, float64(s.Handles))
		counter(p.hits, s.Hits)
		counter(p.misses, s.Misses)
		counter(p.operations, s.Operations)
		counter(p.errors, s.Errors)
		counter(p.loads, s.Loads)
		ch <- prometheus.MustNewConstMetric(p.busySeconds, prometheus.CounterValue, s.BusyTime.Seconds(), string(s.ID))
		for class, n := range s.Faults {
			ch <- prometheus.MustNewConstMetric(p.faults, prometheus.CounterValue, float64(n), string(s.ID), class)
		}
	}
}
