package quota

import (
	"slices"
	"testing"
	"time"
	"unsafe"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// A tenant is among those that operators see when it is near a limit, owes, or
// has drawn on its pool, and not before; the nearest comes first.
func TestStandingsAreThoseNearALimitTheNearestFirst(t *testing.T) {
	e := newTestEngine(t, kms.TierFree, func(p *Policy) {
		free := p.Tiers[kms.TierFree]
		free.CreditsPerSecond, free.BurstCredits, free.DayCredits = 1000, 1000, 1000
		free.PoolCredits = 500
	})
	use := func(id uuid.UUID, credits int64) {
		t.Helper()
		r := e.costing(credits)
		r.Principal = &kms.Principal{Tenant: &kms.Tenant{ID: id, Tier: kms.TierFree}, Project: kms.DefaultProject}
		e.Settle(e.must(r), kms.Settlement{State: kms.Settled, Charged: kms.Credits(credits) * kms.Credit})
	}
	quiet, near, beyond := requestID(1), requestID(2), requestID(3)
	use(quiet, 799)
	use(near, 800)
	use(beyond, 1000)
	e.clock.pass(time.Second)
	use(beyond, 100) // from the pool
	list, all := e.Standings(10)
	var order []uuid.UUID
	for _, s := range list {
		order = append(order, s.Tenant)
	}
	if all != 2 || !slices.Equal(order, []uuid.UUID{beyond, near}) {
		t.Fatalf("%d, %v", all, order)
	}
	if first := list[0]; first.Near != 1100 || first.Drawn != 100*kms.Credit || first.Lowered || first.Admitted != 2 {
		t.Errorf("the first is %+v", first)
	}
	if list[1].Near != 800 || list[1].Drawn != 0 {
		t.Errorf("the second is %+v", list[1])
	}
	if list, all := e.Standings(1); len(list) != 1 || all != 2 || list[0].Tenant != beyond {
		t.Errorf("of one: %d, %+v", all, list)
	}
}

func TestDebtOfABucketIsSeen(t *testing.T) {
	e := newTestEngine(t, kms.TierGold, nil)
	for e.accounts0().Debt == 0 {
		r := e.costing(1000)
		if _, err := e.AdmitRequest(r); err != nil {
			t.Fatal("it came to no debt")
		}
	}
	if list, _ := e.Standings(10); len(list) != 1 || list[0].Debt <= 0 {
		t.Errorf("%+v", list)
	}
}

// accounts0 is accounts of a tenant that may be unknown.
func (e *testEngine) accounts0() Accounts {
	a, _ := e.Accounts(e.tenant.ID)
	return a
}

func TestRetryShareCountsWhoComesTooEarly(t *testing.T) {
	e := newTestEngine(t, kms.TierFree, nil)
	e.must(e.costing(600))
	share := func() (early uint64) {
		s := e.shardOf(testTenant)
		return s.tenants[testTenant].retries.early
	}
	told := e.refused(e.costing(400), kms.KindQuotaExceeded, ReasonRate).RetryAfter
	if share() != 0 {
		t.Errorf("%d were early before anybody was told", share())
	}
	for range 3 {
		e.clock.pass(time.Millisecond)
		_, _ = e.AdmitRequest(e.costing(400))
	}
	if share() != 3 {
		t.Errorf("%d were early, want 3", share())
	}
	e.clock.pass(10*told + 10*time.Minute)
	e.must(e.costing(400))
	if share() != 3 {
		t.Errorf("who obeyed counts: %d", share())
	}
	standing := kms.QuotaStanding{Admitted: 6, Refused: 4, Early: 3}
	if standing.RetryShare() != 300 || (&kms.QuotaStanding{}).RetryShare() != 0 {
		t.Errorf("the share is %d", standing.RetryShare())
	}
}

func TestRetriesTakeSixteenBytesOfATenant(t *testing.T) {
	if size := unsafe.Sizeof(retries{}); size != 16 {
		t.Errorf("%d bytes", size)
	}
}
