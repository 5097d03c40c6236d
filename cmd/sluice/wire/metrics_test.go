package wire

import (
	"fmt"
	"testing"
	"time"
	"uuid"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-kms/sluice/abuse"
	"github.com/sluice-kms/sluice/kms"
	"github.com/sluice-kms/sluice/quota"
	"github.com/sluice-kms/sluice/watch"
)

// newMeasuring makes the whole observer of a service, with its metrics.
func newMeasuring(t testing.TB, top int) (measuring, *prometheus.Registry) {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	seen := newWatched(nil, abuse.Hasher{})
	alarms := watch.NewAlarms(watch.Sources{
		Pools: func() []watch.Pool { return nil }, HotKeys: func() []watch.Key { return nil },
		Retrying: func(int, int) ([]watch.Retrying, watch.Retrying) { return nil, watch.Retrying{} },
		Failing:  seen.failing, Capacity: func() *kms.Capacity { return nil }, Lag: func() time.Duration { return 0 },
	}, nil, "api-1")
	r.MustRegister(watch.NewCollector(seen.tenants, alarms, top, time.Now))
	return measuring{newObserver(r), quota.NewThroughput(nil), seen}, r
}

// series counts the series of a registry.
func series(t testing.TB, r *prometheus.Registry) (n int) {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		n += len(f.Metric)
	}
	return n
}

// strange is a request of which everything that a client or tenant can choose
// is its own.
func strange(i int) *kms.Ticket {
	text := fmt.Sprintf("strange-%d", i)
	ops, specs := kms.Ops(), kms.Specs()
	return &kms.Ticket{
		RequestID: uuid.New(), ClientRequestID: text, TraceID: text, UserAgent: text, Resource: text,
		By: &kms.Principal{Tenant: &kms.Tenant{ID: uuid.New(), Name: text, Tier: kms.Tiers()[i%4]}, Project: text, Component: text, Subject: text, Credential: uuid.New()},
		Op: ops[i%len(ops)].Op, Key: &kms.Key{ID: uuid.New(), Name: text, Spec: specs[i%len(specs)].Spec, Tenant: &kms.Tenant{ID: uuid.New()}},
		Node: "hsm-1", Attempts: 1, Class: kms.Class("MID"), Received: time.Now(), Elapsed: time.Millisecond, SlotTime: time.Millisecond,
		Reasons: []kms.Reason{{Code: text}}, Settled: kms.Settlement{Charged: kms.Credit},
	}
}

// Unknown cardinality cannot grow metrics: 100,000 tenants, keys, user agents,
// names and reasons make as many series as the first thousands did.
func TestSeriesAreBoundedWhateverTenantsSend(t *testing.T) {
	const top = 10
	m, r := newMeasuring(t, top)
	kinds := kms.Kinds()
	flood := func(from, to int) {
		for i := from; i < to; i++ {
			ticket := strange(i)
			var err error
			if i%3 == 0 {
				err = kms.Errorf(kinds[i/3%len(kinds)], "no")
			}
			m.Request(ticket, err)
			// What no table has is not even counted.
			ticket.Op, ticket.Key.Spec, ticket.By.Tenant.Tier = kms.Op(ticket.UserAgent), kms.Spec(ticket.UserAgent), kms.Tier(ticket.UserAgent)
			m.Request(ticket, err)
		}
	}
	// Every pair of operation and tier, every outcome: the least common multiple
	// of the tables' lengths is below that.
	flood(0, 60_000)
	before := series(t, r)
	flood(60_000, 160_000)
	if after := series(t, r); after > before+top {
		t.Errorf("%d series became %d", before, after)
	}
	// Nothing but the tables' product can ever be.
	tables := tierCount*len(kms.Ops())*(len(kinds)+1+1+len(latencyBuckets)) + 1000
	if before > tables {
		t.Errorf("%d series, the tables allow %d", before, tables)
	}
}

func TestRefusedShareIsToldByTierAndOperation(t *testing.T) {
	m, r := newMeasuring(t, 1)
	ticket := strange(0)
	ticket.Op, ticket.Key.Spec, ticket.By.Tenant.Tier = kms.OpSign, kms.Specs()[0].Spec, kms.TierGold
	refusals := 0
	for _, kind := range kms.Kinds() {
		err := kms.Errorf(kind, "no")
		if watch.Refused(err) {
			refusals++
		}
		m.Request(ticket, err)
	}
	m.Request(ticket, nil)
	m.Request(&kms.Ticket{Op: kms.OpSign}, kms.ErrUnauthenticated)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, s := range f.Metric {
			name := f.GetName()
			for _, l := range s.Label {
				name += " " + l.GetValue()
			}
			got[name] = s.GetCounter().GetValue() + float64(s.GetHistogram().GetSampleCount())
		}
	}
	spec := string(kms.Specs()[0].Spec)
	for name, want := range map[string]float64{
		"sluice_refused_total sign gold":                  float64(refusals),
		"sluice_key_requests_total refused " + spec:       float64(refusals),
		"sluice_key_requests_total served " + spec:        float64(len(kms.Kinds()) + 1 - refusals),
		"sluice_requests_total sign ok gold":              1,
		"sluice_requests_total sign quota_exceeded gold":  1,
		"sluice_requests_total sign unauthenticated none": 1,
		"sluice_request_seconds sign gold":                float64(len(kms.Kinds()) + 1),
		"sluice_request_seconds sign none":                1,
	} {
		if got[name] != want || refusals != 5 {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
}

func TestObservingARequestAllocatesNothing(t *testing.T) {
	m, _ := newMeasuring(t, 10)
	ticket := strange(0)
	ticket.Reasons = nil
	m.Request(ticket, nil)
	if n := testing.AllocsPerRun(1000, func() { m.Request(ticket, nil) }); n != 0 {
		t.Errorf("it allocates %v times", n)
	}
}

func BenchmarkObserve(b *testing.B) {
	m, _ := newMeasuring(b, 10)
	ticket := strange(0)
	ticket.Reasons = nil
	b.ReportAllocs()
	for b.Loop() {
		m.Request(ticket, nil)
	}
}
