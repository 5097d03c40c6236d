package watch

import (
	"encoding/binary"
	"testing"
	"time"
	"uuid"

	"github.com/prometheus/client_golang/prometheus"
	"pgregory.net/rapid"

	"github.com/sluice-kms/sluice/kms"
)

// noon is a time at the start of a period.
var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// tenantID is the n-th tenant; neighbours fall to different shards.
func tenantID(n int) (id uuid.UUID) {
	binary.BigEndian.PutUint64(id[8:], uint64(n))
	return id
}

// ran is a request of a tenant that ran and took so long.
func ran(n int, at time.Time, took, slot time.Duration) *kms.Ticket {
	return &kms.Ticket{By: &kms.Principal{Tenant: &kms.Tenant{ID: tenantID(n)}}, Op: kms.OpSign,
		Received: at.Add(-took), Elapsed: took, SlotTime: slot, Attempts: 1}
}

func TestLatencyIsToldToAQuarter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.Int64Range(1<<firstBit, 1<<lastBit-1).Draw(t, "d"))
		class := latencyClass(d)
		if end := classEnd(class); d >= end || float64(end) > float64(d)*1.25+1 {
			t.Errorf("%v is in class %d, which ends at %v", d, class, end)
		}
		if class > 0 && d < classEnd(class-1) {
			t.Errorf("%v is in class %d, and the one before ends at %v", d, class, classEnd(class-1))
		}
	})
	if latencyClass(0) != 0 || latencyClass(time.Hour) != latencyClasses-1 {
		t.Error("times outside have no class")
	}
}

// Whoever uses most is seen as long as it does, whatever number of others come
// and go; the rest has no series.
func TestLargestUsersAreSeenInAFloodOfTenants(t *testing.T) {
	w, at := new(Tenants), noon
	for i := range 100_000 {
		w.Note(ran(1000+i, at, time.Millisecond, 10*time.Microsecond), nil)
		if i%10 == 0 { // three that use much
			for big := range 3 {
				w.Note(ran(big, at, time.Millisecond, time.Duration(3-big)*time.Millisecond), nil)
			}
		}
	}
	seen := w.Seen(at, 3)
	if seen.Watched > tenantShards*shardTenants {
		t.Errorf("%d tenants are watched", seen.Watched)
	}
	for i, u := range seen.Top {
		if u.Tenant != tenantID(i) || u.Calls < 9000 {
			t.Errorf("place %d has %+v", i, u)
		}
	}
	if seen = w.Seen(at.Add(2*span), 3); seen.Watched != 0 || len(seen.Top) != 0 {
		t.Errorf("after two minutes of nothing there are %+v", seen)
	}
}

// A tenant with more than a 1/32 of its shard's slot time is always watched.
func TestHeavyTenantIsNeverForgotten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := new(Tenants)
		use, all := map[int]int64{}, int64(0)
		for range rapid.IntRange(1, 2000).Draw(t, "requests") {
			n := 16 * rapid.OneOf(rapid.IntRange(0, 5), rapid.IntRange(0, 500)).Draw(t, "tenant") // one shard
			slot := rapid.Int64Range(1, 1000).Draw(t, "slot")
			use[n] += slot
			all += slot
			w.Note(ran(n, noon, time.Millisecond, time.Duration(slot)), nil)
		}
		watched := map[uuid.UUID]bool{}
		for _, u := range w.Seen(noon, 1000).Top {
			watched[u.Tenant] = true
		}
		for n, slot := range use {
			if slot*shardTenants > all && !watched[tenantID(n)] {
				t.Errorf("tenant %d with %d of %d is not watched", n, slot, all)
			}
		}
	})
}

func TestSpreadIsTheWorstTenantOverTheMedian(t *testing.T) {
	w := new(Tenants)
	for n := range 5 {
		took := time.Millisecond
		if n == 4 {
			took = 10 * time.Millisecond
		}
		for range fewCalls {
			w.Note(ran(n, noon, took, time.Millisecond), nil)
		}
	}
	w.Note(ran(5, noon, time.Minute, time.Millisecond), nil) // too few to count
	if s := w.Seen(noon, 0).Spread; s < 8 || s > 12.5 {
		t.Errorf("the spread of 1 and 10 ms is %v", s)
	}
	if s := new(Tenants).Seen(noon, 0).Spread; s != 1 {
		t.Errorf("the spread of nothing is %v", s)
	}
}

func TestRefusedTenantsAreCounted(t *testing.T) {
	w := new(Tenants)
	refusal := kms.Errorf(kms.KindQuotaExceeded, "slow down")
	for i := range 1000 {
		var err error
		if i%100 == 0 {
			err = refusal
		}
		w.Note(ran(1, noon, time.Millisecond, time.Millisecond), err)
		w.Note(ran(2, noon, time.Millisecond, time.Millisecond), nil)
		w.Note(ran(3, noon, time.Millisecond, time.Millisecond), kms.Errorf(kms.KindDecryptionFailed, "no"))
	}
	if r := w.Seen(noon, 0).Refused; len(r) != 1 || r[0].Tenant != tenantID(1) || r[0].Refused != 10 {
		t.Errorf("refused are %+v", r)
	}
}

// What is forgotten leaves the metrics; the number of series has a bound.
func TestSeriesOfTenantsThatLeftDisappear(t *testing.T) {
	w, now := new(Tenants), noon
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(NewCollector(w, NewAlarms(quiet(), nil, "api"), 10, func() time.Time { return now }))
	series := func() (n int) {
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
	none := series()
	for i := range 100_000 {
		w.Note(ran(i%5000, now, time.Millisecond, time.Millisecond), nil)
	}
	if n := series(); n <= none || n > none+4*10 {
		t.Errorf("5000 tenants make %d series more", n-none)
	}
	now = now.Add(2 * span)
	if n := series(); n != none {
		t.Errorf("%d series more remain", n-none)
	}
}

func TestNotingARequestAllocatesNothing(t *testing.T) {
	w, k, n := new(Tenants), NewFailing(), 0
	tickets := make([]*kms.Ticket, 5000)
	for i := range tickets {
		tickets[i] = ran(i, noon, time.Millisecond, time.Millisecond)
	}
	if got := testing.AllocsPerRun(20_000, func() {
		w.Note(tickets[n%len(tickets)], nil)
		k.Note(tickets[n%len(tickets)], nil)
		n++
	}); got != 0 {
		t.Errorf("it allocates %v times", got)
	}
}

func BenchmarkNote(b *testing.B) {
	for name, tenants := range map[string]int{"few": 100, "flood": 100_000} {
		b.Run(name, func(b *testing.B) {
			w, ticket := new(Tenants), ran(0, noon, time.Millisecond, time.Millisecond)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				ticket.By.Tenant.ID = tenantID(i % tenants)
				w.Note(ticket, nil)
			}
		})
	}
}
