package quota

import (
	"testing"

	"github.com/sluice-kms/sluice/kms"
)

// TestRequestThatHasLeftHoldsNoConcurrency, though it is charged when it is
// settled, once.
func TestRequestThatHasLeftHoldsNoConcurrency(t *testing.T) {
	e := newTestEngine(t, kms.TierFree, func(p *Policy) { p.Tiers[kms.TierFree].Concurrency = 2 })
	first := e.must(e.costing(1))
	e.must(e.costing(1))
	e.refused(e.costing(1), kms.KindQuotaExceeded, ReasonConcurrency)
	e.Leave(first)
	e.Leave(first) // frees nothing more
	e.must(e.costing(1))
	e.refused(e.costing(1), kms.KindQuotaExceeded, ReasonConcurrency)
	e.Settle(first, kms.Settlement{State: kms.Settled, Charged: first.Cost})
	e.refused(e.costing(1), kms.KindQuotaExceeded, ReasonConcurrency)
	e.Leave(first) // is over
	e.Leave(kms.Reservation{RequestID: first.RequestID})
	e.refused(e.costing(1), kms.KindQuotaExceeded, ReasonConcurrency)
}
