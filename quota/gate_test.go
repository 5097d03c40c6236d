package quota

import (
	"encoding/binary"
	"math"
	"sync"
	"testing"
	"uuid"

	"pgregory.net/rapid"

	"github.com/sluice-kms/sluice/kms"
)

func principal(tenant uuid.UUID) *kms.Principal {
	return &kms.Principal{Tenant: &kms.Tenant{ID: tenant}}
}

// requestID makes the request id of a number.
func requestID(n uint64) (id uuid.UUID) {
	binary.BigEndian.PutUint64(id[8:], n)
	return id
}

func admit(t testing.TB, g *Gate, tenant, request uuid.UUID, op kms.Op, spec kms.Spec) kms.Reservation {
	t.Helper()
	r, err := g.Admit(&kms.AdmitRequest{RequestID: request, Principal: principal(tenant), Op: op, Spec: spec})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestReservationCarriesIdTenantAndPrice(t *testing.T) {
	g := NewGate(DefaultCostTable())
	tenant, request := uuid.NewV7(), uuid.NewV7()
	r, err := g.Admit(&kms.AdmitRequest{
		RequestID: request, Principal: principal(tenant), Op: kms.OpSign, Spec: kms.SpecSM2, Bytes: 5000,
	})
	want := kms.Reservation{RequestID: request, Tenant: tenant, Cost: 13 * kms.Credit}
	if err != nil || r != want {
		t.Errorf("got %+v, %v, want %+v", r, err, want)
	}
}

func TestReencryptionPaysForBothKeys(t *testing.T) {
	g := NewGate(DefaultCostTable())
	r, err := g.Admit(&kms.AdmitRequest{
		RequestID: uuid.NewV7(), Principal: principal(uuid.NewV7()),
		Op: kms.OpReencrypt, Source: kms.SpecRSA2048, Spec: kms.SpecSM2, Bytes: 200,
	})
	if want := 24 * kms.Credit; err != nil || r.Cost != want { // decrypt 20, encrypt 4
		t.Errorf("reserved %d µcr, %v, want %d", r.Cost, err, want)
	}
}

func TestSettlementCharges(t *testing.T) {
	const cost = 12 * kms.Credit // SM2 signature
	tests := []struct {
		name    string
		outcome kms.Settlement
		want    kms.Credits
	}{
		{"settled", kms.Settlement{State: kms.Settled, Charged: cost}, cost},
		{"partial", kms.Settlement{State: kms.Partial, Charged: 3 * kms.Credit}, 3 * kms.Credit},
		{"cancelled", kms.Settlement{State: kms.Cancelled}, 0},
		{"more than was reserved", kms.Settlement{State: kms.Settled, Charged: cost + 1}, cost},
		{"partial charged in full", kms.Settlement{State: kms.Partial, Charged: cost}, 3 * kms.Credit},
		{"cancelled yet charged", kms.Settlement{State: kms.Cancelled, Charged: cost}, 0},
		{"negative charge", kms.Settlement{State: kms.Settled, Charged: -cost}, 0},
		{"unknown state", kms.Settlement{State: "HALF", Charged: cost}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := NewGate(DefaultCostTable())
			tenant := uuid.NewV7()
			r := admit(t, g, tenant, uuid.NewV7(), kms.OpSign, kms.SpecSM2)
			if n, reserved := g.Reserved(tenant); n != 1 || reserved != cost {
				t.Errorf("in flight: %d requests for %d µcr", n, reserved)
			}
			for range 2 { // the second time must not count
				g.Settle(r, tt.outcome)
			}
			if n, charged := g.Usage(tenant); n != 1 || charged != tt.want {
				t.Errorf("%d requests were charged %d µcr, want 1 and %d", n, charged, tt.want)
			}
			if n, reserved := g.Reserved(tenant); n != 0 || reserved != 0 {
				t.Errorf("after settling %d requests hold %d µcr", n, reserved)
			}
		})
	}
}

func TestChargeRule(t *testing.T) {
	tests := []struct {
		name  string
		cost  kms.Credits
		state kms.SettlementState
		want  kms.Credits
	}{
		{"settled is all of it", 120 * kms.Credit, kms.Settled, 120 * kms.Credit},
		{"partial is a quarter", 120 * kms.Credit, kms.Partial, 30 * kms.Credit},
		{"of four credits it is one", 4 * kms.Credit, kms.Partial, kms.Credit},
		{"and at least one", 2 * kms.Credit, kms.Partial, kms.Credit},
		{"but not more than the cost", kms.Credit / 10, kms.Partial, kms.Credit / 10},
		{"of nothing it is nothing", 0, kms.Partial, 0},
		{"cancelled is free", 120 * kms.Credit, kms.Cancelled, 0},
		{"no state is free", 120 * kms.Credit, "", 0},
		{"a negative cost is free", -kms.Credit, kms.Settled, 0},
		{"the greatest cost", math.MaxInt64, kms.Settled, math.MaxInt64},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.state.Charge(tt.cost); got != tt.want {
				t.Errorf("charged %d µcr, want %d", got, tt.want)
			}
		})
	}
}

func TestRequestIdInFlightIsNotAdmittedAgain(t *testing.T) {
	g := NewGate(DefaultCostTable())
	tenant, request := uuid.NewV7(), uuid.NewV7()
	r := admit(t, g, tenant, request, kms.OpSign, kms.SpecSM2)
	again := &kms.AdmitRequest{RequestID: request, Principal: principal(tenant), Op: kms.OpSign, Spec: kms.SpecSM2}
	if _, err := g.Admit(again); kms.KindOf(err) != kms.KindInternal || err == nil {
		t.Errorf("admitted twice: %v", err)
	}
	if n, reserved := g.Reserved(tenant); n != 1 || reserved != r.Cost {
		t.Errorf("the refused request holds something: %d requests, %d µcr", n, reserved)
	}
}

func TestReservationOfAnotherTenantIsIgnored(t *testing.T) {
	g := NewGate(DefaultCostTable())
	var mine, theirs uuid.UUID // of one shard, so that the id alone is found
	mine[0], theirs[0] = 1, 2
	r := admit(t, g, mine, uuid.NewV7(), kms.OpSign, kms.SpecSM2)
	forged := r
	forged.Tenant = theirs
	g.Settle(forged, kms.Settlement{State: kms.Settled, Charged: r.Cost})
	if _, charged := g.Usage(theirs); charged != 0 {
		t.Errorf("the other tenant was charged %d µcr", charged)
	}
	if n, _ := g.Reserved(mine); n != 1 {
		t.Error("the reservation was ended")
	}
}

// TestBooksBalance drives the gate with any order of admissions and
// settlements, double, foreign and unknown ones included, beside books kept
// in the simplest way.
func TestBooksBalance(t *testing.T) {
	states := []kms.SettlementState{kms.Settled, kms.Partial, kms.Cancelled, "", "?"}
	rapid.Check(t, func(t *rapid.T) {
		g := NewGate(DefaultCostTable())
		tenants := make([]uuid.UUID, 3)
		for i := range tenants {
			tenants[i][15] = byte(i % 2) // the first and the third share a shard
			tenants[i][0] = byte(i)
		}
		type books struct {
			requests              uint64
			reservedEver, charged kms.Credits
			open                  map[uuid.UUID]kms.Reservation
		}
		kept := make(map[uuid.UUID]*books)
		for _, id := range tenants {
			kept[id] = &books{open: make(map[uuid.UUID]kms.Reservation)}
		}
		var ever []kms.Reservation

		for i := range rapid.IntRange(1, 60).Draw(t, "steps") {
			if len(ever) == 0 || rapid.Bool().Draw(t, "admit") {
				tenant := rapid.SampledFrom(tenants).Draw(t, "tenant")
				r, err := g.Admit(&kms.AdmitRequest{
					RequestID: requestID(uint64(i)),
					Principal: principal(tenant),
					Op:        rapid.SampledFrom(kms.Ops()).Draw(t, "op").Op,
					Spec:      rapid.SampledFrom(kms.Specs()).Draw(t, "spec").Spec,
					Bytes:     rapid.IntRange(0, 1<<20).Draw(t, "bytes"),
				})
				if err != nil {
					t.Fatal(err)
				}
				b := kept[tenant]
				b.requests++
				b.reservedEver += r.Cost
				b.open[r.RequestID] = r
				ever = append(ever, r)
			} else {
				r := rapid.SampledFrom(ever).Draw(t, "reservation")
				outcome := kms.Settlement{
					State:   rapid.SampledFrom(states).Draw(t, "state"),
					Charged: kms.Credits(rapid.Int64().Draw(t, "charged")),
				}
				if rapid.IntRange(0, 9).Draw(t, "forge") == 0 {
					r.RequestID = requestID(1 << 40)
				}
				g.Settle(r, outcome)
				b := kept[r.Tenant]
				if made, ok := b.open[r.RequestID]; ok {
					delete(b.open, r.RequestID)
					b.charged += min(max(0, outcome.Charged), outcome.State.Charge(made.Cost))
				}
			}
			for _, id := range tenants {
				b := kept[id]
				var open kms.Credits
				for _, r := range b.open {
					open += r.Cost
				}
				requests, charged := g.Usage(id)
				inFlight, reserved := g.Reserved(id)
				if requests != b.requests || charged != b.charged || inFlight != len(b.open) || reserved != open {
					t.Fatalf("tenant %v: gate says %d requests, %d charged, %d open for %d; books say %d, %d, %d for %d",
						id, requests, charged, inFlight, reserved, b.requests, b.charged, len(b.open), open)
				}
				if charged < 0 || charged+reserved > b.reservedEver {
					t.Fatalf("tenant %v: charged %d and reserved %d of %d ever reserved", id, charged, reserved, b.reservedEver)
				}
			}
		}
	})
}

func TestConcurrentRequestsAreCountedOnce(t *testing.T) {
	const workers, each = 8, 500
	g := NewGate(DefaultCostTable())
	tenants := [...]uuid.UUID{uuid.NewV7(), uuid.NewV7(), uuid.NewV7()}
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for i := range each {
				r, err := g.Admit(&kms.AdmitRequest{
					RequestID: uuid.NewV7(), Principal: principal(tenants[i%len(tenants)]), Op: kms.OpSign, Spec: kms.SpecSM2,
				})
				if err != nil {
					t.Error(err)
					return
				}
				var both sync.WaitGroup
				for range 2 {
					both.Go(func() { g.Settle(r, kms.Settlement{State: kms.Settled, Charged: r.Cost}) })
				}
				both.Wait()
			}
		})
	}
	wg.Wait()
	var requests uint64
	var charged kms.Credits
	for _, id := range tenants {
		n, c := g.Usage(id)
		requests, charged = requests+n, charged+c
		if open, reserved := g.Reserved(id); open != 0 || reserved != 0 {
			t.Errorf("%d requests are left with %d µcr", open, reserved)
		}
	}
	if requests != workers*each || charged != workers*each*12*kms.Credit {
		t.Errorf("%d requests were charged %d µcr", requests, charged)
	}
}

func TestAdmitAndSettleAllocateNothing(t *testing.T) {
	g := NewGate(DefaultCostTable())
	r := &kms.AdmitRequest{RequestID: uuid.NewV7(), Principal: principal(uuid.NewV7()), Op: kms.OpSign, Spec: kms.SpecSM2}
	if got := testing.AllocsPerRun(1000, func() {
		reservation, err := g.Admit(r)
		if err != nil {
			t.Fatal(err)
		}
		g.Settle(reservation, kms.Settlement{State: kms.Settled, Charged: reservation.Cost})
	}); got != 0 {
		t.Errorf("%v allocations per request", got)
	}
}

func BenchmarkAdmitSettle(b *testing.B) {
	g := NewGate(DefaultCostTable())
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		r := &kms.AdmitRequest{Principal: principal(uuid.NewV7()), RequestID: uuid.NewV7(), Op: kms.OpSign, Spec: kms.SpecSM2}
		for pb.Next() {
			reservation, err := g.Admit(r)
			if err != nil {
				b.Error(err)
				return
			}
			g.Settle(reservation, kms.Settlement{State: kms.Settled, Charged: reservation.Cost})
		}
	})
}
