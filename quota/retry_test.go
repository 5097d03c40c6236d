package quota

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/sluice-kms/sluice/kms"
)

// Clients that obey come back when they were told, in whole seconds and a part
// of one that the network adds. Meraki.Api#374: they all came back at once.
func TestObeyedRetryAfterSucceedsAndDoesNotComeBackAsASpike(t *testing.T) {
	const clients = 5000
	tests := map[string]struct {
		tier    kms.Tier
		edit    func(p *Policy)
		request func(e *testEngine) *Request
	}{
		"credits": {kms.TierSilver, nil, (*testEngine).sign},
		"requests": {kms.TierSilver, func(p *Policy) {
			p.Tiers[kms.TierSilver].RequestsPerSecond, p.Tiers[kms.TierSilver].BurstRequests = 100, 100
		}, func(e *testEngine) *Request { return e.costing(1) }},
		"one key": {kms.TierSilver, nil, func(e *testEngine) *Request { r := e.sign(); r.Key = requestID(1); return r }},
		"debt":    {kms.TierGold, nil, func(e *testEngine) *Request { return e.costing(40) }},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			e := newTestEngine(t, tt.tier, func(p *Policy) {
				p.Tiers[tt.tier].Concurrency = 65536
				p.HotSpot.MinCalls = 1_000_000 // the breaker has a test of its own
				if tt.edit != nil {
					tt.edit(p)
				}
			})
			type attempt struct {
				at    time.Duration
				first bool
			}
			attempts := make([]attempt, clients)
			for i := range attempts {
				attempts[i] = attempt{0, true}
			}
			seed := rand.New(rand.NewPCG(1, 2))
			var told, obeyed int
			perSecond := make(map[time.Duration]int)
			for len(attempts) > 0 {
				a := attempts[0]
				attempts = attempts[1:]
				e.clock.pass(morning.Add(a.at).Sub(e.clock.now()))
				r, err := e.AdmitRequest(tt.request(e))
				if err == nil {
					e.Settle(r, settledInFull(r))
				}
				if !a.first {
					perSecond[a.at.Truncate(time.Second)]++
					if err == nil {
						obeyed++
					}
					continue
				}
				if refusal, ok := errors.AsType[*kms.Error](err); ok {
					told++
					next := attempt{a.at + refusal.RetryAfter + time.Duration(seed.Int64N(int64(200*time.Millisecond))), false}
					i, _ := slices.BinarySearchFunc(attempts, next, func(x, y attempt) int { return int(x.at - y.at) })
					attempts = slices.Insert(attempts, i, next)
				}
			}
			var peak int
			for _, n := range perSecond {
				peak = max(peak, n)
			}
			mean := float64(told) / float64(len(perSecond))
			t.Logf("%d were refused, %.2f %% succeeded at the first retry, over %d s; peak %d, mean %.0f a second",
				told, 100*float64(obeyed)/float64(told), len(perSecond), peak, mean)
			if told < clients/2 {
				t.Fatalf("%d were refused only", told)
			}
			if obeyed*100 < told*95 {
				t.Errorf("%d of %d that obeyed succeeded", obeyed, told)
			}
			if float64(peak) > 2*mean {
				t.Errorf("%d came back in one second, the mean is %.0f", peak, mean)
			}
		})
	}
}

// A client that never comes back, or comes at once again and again, spoils no
// more than the policy's horizon for others.
func TestRetryAfterIsBounded(t *testing.T) {
	e := newTestEngine(t, kms.TierFree, nil)
	e.must(e.costing(600))
	var last time.Duration
	for range 20_000 {
		last = e.refused(e.costing(100), kms.KindQuotaExceeded, ReasonRate).RetryAfter
	}
	if last < 300*time.Second || last > 361*time.Second {
		t.Errorf("after 20,000 refusals Retry-After is %v", last)
	}
	e.clock.pass(5 * time.Second)
	e.must(e.costing(100))
}
