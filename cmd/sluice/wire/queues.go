package wire

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-kms/sluice/kms"
	"github.com/sluice-kms/sluice/scheduler"
)

// hsmDomain names the scheduler's domain of the HSM nodes, which has no name
// of its own, in metrics and answers.
const hsmDomain = "hsm"

func poolName(d string) string {
	if d == "" {
		return hsmDomain
	}
	return d
}

// classNames are the policy's names of the scheduler's classes.
var classNames = [...]string{scheduler.High: "HIGH", scheduler.Mid: "MID", scheduler.Low: "LOW"}

// bandNames are the bands of the gate.
var bandNames = [...]string{scheduler.BelowSafe: "below_safe", scheduler.BelowHard: "below_hard", scheduler.FromHard: "from_hard"}

// queues reports the scheduler when it is scraped. Its labels are closed sets:
// domains of the configuration, classes, reasons.
type queues struct {
	snapshot func() scheduler.Snapshot
	waited, refused, waiting, slots, busy, utilisation, band, waitingTenants,
	oldest, capped, trips *prometheus.Desc
}

func newQueues(snapshot func() scheduler.Snapshot) *queues {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("sluice_scheduler_"+name, help, labels, nil)
	}
	return &queues{snapshot: snapshot,
		waited:      desc("waited_seconds_total", "Time that requests waited, by domain, class and reason.", "domain", "class", "reason"),
		refused:     desc("refused_total", "Requests that the utilisation gate refused, by domain and class.", "domain", "class"),
		waiting:     desc("waiting", "Requests that wait for a slot.", "domain"),
		slots:       desc("slots", "Slots of the nodes that serve.", "domain"),
		busy:        desc("busy", "Slots in use.", "domain"),
		utilisation: desc("utilisation", "Part of the slots in use, 0 to 1: the fast and the slow average.", "domain", "average"),
		band:        desc("gate_band", "1 for the band that the utilisation gate is in.", "domain", "band"),
		trips:       desc("gate_trips_total", "Times that utilisation came to the gate's hard line.", "domain"),
		capped:      desc("cap_applies", "1 while a tenant may not have all slots.", "domain"),

		waitingTenants: desc("waiting_tenants", "Tenants with requests that wait, counted by domain."),
		oldest:         desc("oldest_seconds", "How long the longest waiting request has waited."),
	}
}

// Describe implements prometheus.Collector.
func (q *queues) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{q.waited, q.refused, q.waiting, q.slots, q.busy, q.utilisation, q.band, q.trips, q.capped, q.waitingTenants, q.oldest} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (q *queues) Collect(ch chan<- prometheus.Metric) {
	s := q.snapshot()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
	}
	gauge(q.waitingTenants, float64(s.Tenants))
	gauge(q.oldest, s.Oldest.Seconds())
	for i := range s.Domains {
		d := &s.Domains[i]
		name := poolName(d.Name)
		gauge(q.waiting, float64(d.Queued), name)
		gauge(q.slots, float64(d.Slots), name)
		gauge(q.busy, float64(d.Busy), name)
		gauge(q.utilisation, d.Fast, name, "fast")
		gauge(q.utilisation, d.Slow, name, "slow")
		gauge(q.capped, truth(d.Capped), name)
		counter(q.trips, float64(d.Trips), name)
		for b, band := range bandNames {
			gauge(q.band, truth(d.Band == scheduler.Band(b)), name, band)
		}
		for c, class := range classNames {
			counter(q.refused, float64(d.Refused[c]), name, class)
			for r, code := range waitCodes {
				counter(q.waited, d.Waited[c][r].Seconds(), name, class, code)
			}
		}
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// Queues implements kms.Queues.
func (s slots) Queues() kms.QueueState {
	snap := s.Snapshot()
	state := kms.QueueState{Waiting: snap.Queued, MaxWaiting: snap.MaxQueue, MaxTenant: snap.MaxTenant,
		WaitingTenants: snap.Tenants, Oldest: snap.Oldest}
	for i := range snap.Nodes {
		n := &snap.Nodes[i]
		state.Nodes = append(state.Nodes, kms.QueueNode{Node: kms.NodeID(n.ID), Domain: poolName(n.Domain), Down: n.Down || n.Removed,
			Slots: n.Slots, Busy: n.Busy, Waiting: n.Waiting, Granted: n.Granted, Away: n.Away, Behind: n.Behind})
	}
	for i := range snap.Domains {
		state.Domains = append(state.Domains, queueDomain(&snap.Domains[i]))
	}
	return state
}

func queueDomain(d *scheduler.DomainSnapshot) kms.QueueDomain {
	out := kms.QueueDomain{Name: poolName(d.Name), Slots: d.Slots, Busy: d.Busy, Waiting: d.Queued, Band: bandNames[d.Band],
		Fast: d.Fast, Slow: d.Slow, MaxInFlight: d.MaxInFlight, Capped: d.Capped, LoadCost: d.LoadCost}
	for c, class := range classNames {
		of := kms.QueueClass{Class: kms.Class(class), Refused: d.Refused[c]}
		for r, waited := range d.Waited[c] {
			if waited > 0 {
				of.Waited = append(of.Waited, kms.QueueWait{Code: waitCodes[r], Time: waited})
			}
		}
		out.Classes = append(out.Classes, of)
	}
	for i := range d.Tenants {
		t := &d.Tenants[i]
		of := kms.QueueTenant{Tenant: t.Tenant, Weight: t.Weight, Running: t.Running,
			Interactive: t.Waiting[scheduler.Interactive], Normal: t.Waiting[scheduler.Normal], Bulk: t.Waiting[scheduler.Bulk],
			Used: t.Used, Share: t.Share, Lag: t.Lag, Over: t.Over}
		if t.Parked {
			of.Parked = waitCodes[t.Why]
		}
		out.Tenants = append(out.Tenants, of)
	}
	return out
}
