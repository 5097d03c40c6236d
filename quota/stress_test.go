package quota

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"uuid"

	"go.uber.org/goleak"

	"github.com/sluice-kms/sluice/kms"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// generous is a backing that lends what is asked for, when it does not fail.
type generous struct{ calls atomic.Int64 }

func (g *generous) Exchange(_ context.Context, claims []Claim) ([]Grant, error) {
	if g.calls.Add(1)%7 == 0 {
		return nil, errors.New("now and then it fails")
	}
	grants := make([]Grant, len(claims))
	for i, c := range claims {
		grants[i].Nodes = 1
		for _, l := range c.Lines {
			grants[i].Lines = append(grants[i].Lines, LineGrant{Tokens: l.Ask, PerSecond: l.PerSecond, Left: l.Limit, Pool: l.Pool, Born: 1})
		}
	}
	return grants, nil
}

// Everything at once, for the race detector; and the books balance in the end.
func TestEverythingAtOnceLeavesTheBooksBalanced(t *testing.T) {
	for name, backing := range map[string]Backing{"alone": nil, "shared": new(generous)} {
		t.Run(name, func(t *testing.T) {
			const workers, each = 8, 400
			p := DefaultPolicy()
			tenants := make([]*kms.Tenant, 5)
			p.Tenants = make(map[uuid.UUID]*TenantPolicy)
			for i := range tenants {
				tenants[i] = &kms.Tenant{ID: uuid.NewV7(), Tier: kms.Tiers()[i%4], Created: time.Now().Add(-12 * time.Hour)}
				p.Tenants[tenants[i].ID] = &TenantPolicy{
					Projects: map[string]*ScopeLimits{"a": {CreditsPerSecond: 5000, BurstCredits: 9000, DayCredits: 1_000_000, Concurrency: 100}},
					Packs:    []Pack{{"pack", 1000, time.Now().Add(time.Hour)}},
				}
			}
			policies, err := NewPolicies(time.Now, 1, p)
			if err != nil {
				t.Fatal(err)
			}
			e := NewEngine(Options{Policies: policies, Clock: time.Now, Notify: func(Event) {}, Backing: backing, Node: "a"})
			ctx, cancel := context.WithCancel(context.Background())
			var running, working sync.WaitGroup
			running.Go(func() { e.Run(ctx) })
			running.Go(func() {
				for version := uint64(2); ctx.Err() == nil; version++ {
					if err := policies.Apply(version, document(t, p)); err != nil {
						t.Error(err)
					}
					e.SetUtilisation(int64(version%4) * 300)
					e.Sweep()
					e.Reap()
					e.Unresolved()
				}
			})
			var charged, admitted atomic.Int64
			for worker := range workers {
				working.Go(func() {
					seed := rand.New(rand.NewPCG(uint64(worker), 1))
					for range each {
						tenant := tenants[seed.IntN(len(tenants))]
						r := kms.AdmitRequest{
							RequestID: uuid.NewV7(), Key: requestID(seed.Uint64N(4)), Op: kms.OpSign, Spec: kms.SpecSM2, Bytes: 100,
							Principal: &kms.Principal{Tenant: tenant, Project: "a/b", Credential: requestID(seed.Uint64N(4) + 10)},
						}
						res, err := e.Admit(&r)
						if err != nil {
							continue
						}
						admitted.Add(1)
						e.Accounts(tenant.ID)
						o := kms.Settlement{State: []kms.SettlementState{kms.Settled, kms.Partial, kms.Cancelled}[seed.IntN(3)], SlotTime: 1}
						o.Charged = o.State.Charge(res.Cost)
						var both sync.WaitGroup
						for range 2 {
							both.Go(func() { e.Settle(res, o) })
						}
						both.Wait()
						charged.Add(int64(o.Charged))
					}
				})
			}
			working.Wait()
			cancel()
			running.Wait()
			var sum, left kms.Credits
			var requests uint64
			for _, tenant := range tenants {
				a, known := e.Accounts(tenant.ID)
				if !known {
					t.Errorf("a tenant that used something is forgotten")
				}
				sum, left, requests = sum+a.Charged, left+a.Reserved, requests+a.Admitted
				if a.InFlight != 0 || a.Open != 0 {
					t.Errorf("%d in flight, %d open", a.InFlight, a.Open)
				}
			}
			if int64(sum) != charged.Load() || left != 0 || int64(requests) != admitted.Load() || requests == 0 {
				t.Errorf("%d requests were charged %d; the engine says %d and %d, and %d reserved", admitted.Load(), charged.Load(), requests, sum, left)
			}
		})
	}
}

// envoy ratelimit#1077: what was refused once was refused on, by a limit that
// no longer held.
func TestNewLimitHoldsForTheNextRequest(t *testing.T) {
	e := newTestEngine(t, kms.TierFree, func(p *Policy) { p.Tiers[kms.TierFree].DayCredits = 600 })
	e.must(e.costing(600))
	e.clock.pass(time.Minute)
	e.refused(e.costing(1), kms.KindQuotaExhausted, ReasonDay)
	if err := e.policies.Apply(2, document(t, DefaultPolicy())); err != nil {
		t.Fatal(err)
	}
	e.must(e.costing(1))
}
