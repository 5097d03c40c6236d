package wire

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
	"github.com/sluice-kms/sluice/quota"
	"github.com/sluice-kms/sluice/scheduler"
)

// newTestSlots makes the slots of nodes under the policy that Sluice comes with.
func newTestSlots(t *testing.T, nodes map[kms.NodeID]int) slots {
	t.Helper()
	policies, err := quota.NewPolicies(time.Now, 0, quota.DefaultPolicy())
	if err != nil {
		t.Fatal(err)
	}
	s, err := newSlots(nodes, policies, uuid.Nil(), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Each cause is staged, and the request that waits for it says so, by the
// code of the product, with what it waited and with numbers. All of a wait is
// accounted for.
func TestEachCauseOfWaitingYieldsItsCode(t *testing.T) {
	const hold = 100 * time.Millisecond
	a, b := uuid.New(), uuid.New()
	flow := func(tenant uuid.UUID, nodes ...kms.NodeID) kms.Flow {
		return kms.Flow{Tenant: tenant, Tier: kms.TierGold, Urgency: kms.UrgencyNormal, Cost: 12 * kms.Credit, Nodes: nodes, MaxWait: time.Minute}
	}
	tests := []struct {
		want  string
		nodes map[kms.NodeID]int
		stage func(s slots, run func(kms.Flow, time.Duration)) kms.Flow // returns the request
	}{
		{"SHARE", map[kms.NodeID]int{"n": 1}, func(s slots, run func(kms.Flow, time.Duration)) kms.Flow {
			run(flow(a, "n"), hold)
			return flow(b, "n")
		}},
		{"OWN_QUEUE", map[kms.NodeID]int{"n": 1}, func(s slots, run func(kms.Flow, time.Duration)) kms.Flow {
			run(flow(a, "n"), hold)
			run(flow(b, "n"), 0)
			return flow(b, "n")
		}},
		{"TENANT_CAP", map[kms.NodeID]int{"n": 3}, func(s slots, run func(kms.Flow, time.Duration)) kms.Flow {
			run(flow(b, "n"), time.Millisecond) // the cap applies while there are others
			run(flow(a, "n"), hold)
			return flow(a, "n")
		}},
		{"NODE_DOWN", map[kms.NodeID]int{"n": 1, "m": 1}, func(s slots, run func(kms.Flow, time.Duration)) kms.Flow {
			if err := s.SetNode(scheduler.Node{ID: "n", Slots: 1, Down: true}); err != nil {
				t.Fatal(err)
			}
			run(flow(a, "m"), hold)
			return flow(b, "n", "m")
		}},
		{"RESERVE", map[kms.NodeID]int{"n": 4}, func(s slots, run func(kms.Flow, time.Duration)) kms.Flow {
			for range 3 {
				run(flow(uuid.New(), "n"), hold)
			}
			return flow(b, "n")
		}},
		{"HOME_BUSY", map[kms.NodeID]int{"n": 1, "m": 1}, func(s slots, run func(kms.Flow, time.Duration)) kms.Flow {
			for range 8 { // so long does an operation take
				run(flow(a, "n"), 10*time.Millisecond)
				time.Sleep(10 * time.Millisecond)
			}
			run(flow(a, "n"), 4*hold)
			time.Sleep(hold)
			run(flow(uuid.New(), "n", "m"), 5*hold) // and so long where its key has to be loaded
			time.Sleep(6 * hold)
			run(flow(a, "n"), hold)
			return flow(b, "n", "m")
		}},
		{"BIG_LIMIT", map[kms.NodeID]int{"n": 8}, func(s slots, run func(kms.Flow, time.Duration)) kms.Flow {
			for range 8 {
				run(flow(a, "n"), time.Millisecond)
				time.Sleep(time.Millisecond)
			}
			big := func() kms.Flow {
				f := flow(uuid.New(), "n")
				f.Cost = 1000 * kms.Credit
				return f
			}
			for range int(8 * scheduler.DefaultBigShare) {
				run(big(), hold)
			}
			return big()
		}},
		{kms.ReasonGate, map[kms.NodeID]int{"n": 40}, func(s slots, run func(kms.Flow, time.Duration)) kms.Flow {
			for range 39 { // of tenants whose urgency may have the slot that is kept
				f := flow(uuid.New(), "n")
				f.Tier, f.Urgency = kms.TierPlatinum, kms.UrgencyInteractive
				run(f, 20*time.Second+hold)
			}
			time.Sleep(20 * time.Second)
			f := flow(b, "n")
			f.Tier, f.Urgency = kms.TierPlatinum, kms.UrgencyInteractive
			return f
		}},
	}
	for _, tt := range tests {
		t.Run(tt.want, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newTestSlots(t, tt.nodes)
				request := tt.stage(s, func(f kms.Flow, length time.Duration) {
					go func() {
						if _, err := s.Do(context.Background(), f, func(kms.NodeID) { time.Sleep(length) }); err != nil {
							t.Errorf("what it waits for: %v", err)
						}
					}()
					synctest.Wait()
				})
				before := time.Now()
				turn, err := s.Do(t.Context(), request, func(kms.NodeID) {})
				took := time.Since(before)
				if err != nil {
					t.Fatal(err)
				}
				if len(turn.Waits) == 0 || turn.Waits[0].Code != tt.want || turn.Waits[0].Info() == nil {
					t.Fatalf("it waited for %+v, want %s first", turn.Waits, tt.want)
				}
				var sum time.Duration
				for _, w := range turn.Waits {
					sum += w.Waited
				}
				if sum != turn.Wait || turn.Wait != took || turn.Waits[0].Waited < took*9/10 {
					t.Errorf("%+v for a wait of %v, which took %v", turn.Waits, turn.Wait, took)
				}
				if turn.Waits[0].Limit == 0 || turn.Class == "" {
					t.Errorf("no numbers: %+v, class %q", turn.Waits[0], turn.Class)
				}
			})
		})
	}
}

// A refusal says what refused it, with numbers, and when to come back by the
// queue's own figures, in whole seconds.
func TestEachRefusalOfTheQueueYieldsItsCode(t *testing.T) {
	flow := kms.Flow{Tenant: uuid.New(), Tier: kms.TierGold, Urgency: kms.UrgencyNormal, Cost: 12 * kms.Credit, Nodes: []kms.NodeID{"n"}}
	tests := []struct {
		name    string
		maxWait time.Duration
		queued  int // requests of a second each that are there
		nodes   []kms.NodeID
		want    string
		kind    kms.Kind
		limit   int64
		// retry are the ends of Retry-After: the policy lengthens it by up to a
		// fifth.
		least, most time.Duration
	}{
		{"no hope", 2 * time.Second, 60, nil, kms.ReasonWaitTooLong, kms.KindReducedCapacity, int64(2 * time.Second), 25 * time.Second, 60 * time.Second},
		{"a full queue", time.Minute, 800, nil, kms.ReasonOwnQueueFull, kms.KindReducedCapacity, 768, 4 * time.Second, 6 * time.Second},
		{"no slot in time", 500 * time.Millisecond, 2, nil, kms.ReasonWaitExceeded, kms.KindWaitExceeded, int64(500 * time.Millisecond), time.Second, 10 * time.Second},
		{"the policy's longest wait", 0, 6, nil, kms.ReasonWaitTooLong, kms.KindReducedCapacity, int64(2 * time.Second), time.Second, 10 * time.Second},
		{"no time to wait", -1, 2, nil, kms.ReasonWaitExceeded, kms.KindWaitExceeded, 0, time.Second, 10 * time.Second},
		{"no node", time.Second, 0, []kms.NodeID{"gone", "lost"}, kms.ReasonNodeDown, kms.KindHSMUnavailable, 2, 0, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newTestSlots(t, map[kms.NodeID]int{"n": 2})
				ctx, cancel := context.WithCancel(t.Context())
				full := flow
				full.Cost = 10_000 * kms.Credit // a second each, until it was measured
				if tt.queued > 100 {            // so many fit the longest wait only of bulk work, of 10 ms each
					full.Tier, full.Urgency, full.Cost = kms.TierSilver, kms.UrgencyBulk, 100*kms.Credit
				}
				for range tt.queued {
					go func() { _, _ = s.Do(ctx, full, func(kms.NodeID) { time.Sleep(time.Second) }) }()
					synctest.Wait()
				}
				request := full
				request.MaxWait = tt.maxWait
				if tt.nodes != nil {
					request.Nodes = tt.nodes
				}
				_, err := s.Do(ctx, request, func(kms.NodeID) { t.Error("it ran") })
				e, ok := errors.AsType[*kms.Error](err)
				if !ok || e.Kind != tt.kind || len(e.Reasons) != 1 {
					t.Fatalf("%v", err)
				}
				if r := e.Reasons[0]; r.Code != tt.want || r.Limit != tt.limit || r.Info() == nil {
					t.Errorf("%+v", r)
				}
				if e.RetryAfter < tt.least || e.RetryAfter > tt.most || e.RetryAfter%time.Second != 0 {
					t.Errorf("come back after %v, want %v to %v", e.RetryAfter, tt.least, tt.most)
				}
				cancel()
				time.Sleep(2 * time.Second)
			})
		})
	}
}

// Whatever the scheduler can say has a row in the table of reasons.
func TestEveryReasonOfTheSchedulerIsExplained(t *testing.T) {
	for _, code := range waitCodes {
		r := kms.Reason{Code: code, Have: 1, Limit: 2}
		if text, advice := r.Explain(); text == "" || advice == "" || r.Unit() == kms.UnitNone {
			t.Errorf("%s: %q, %q", code, text, advice)
		}
	}
	if !slices.Contains(waitCodes[:], kms.ReasonGate) || !slices.Contains(waitCodes[:], kms.ReasonNodeDown) {
		t.Errorf("the scheduler's codes are %v", waitCodes)
	}
}

// The explanation costs a request that does not wait no allocation.
func TestTurnOfARequestThatDoesNotWaitAllocatesNothing(t *testing.T) {
	s := newTestSlots(t, map[kms.NodeID]int{"n": 4})
	flow := kms.Flow{Tenant: uuid.New(), Tier: kms.TierGold, Urgency: kms.UrgencyNormal, Cost: kms.Credit, Nodes: []kms.NodeID{"n"}, MaxWait: time.Second}
	ctx := t.Context()
	ran := 0
	work := func(kms.NodeID) { ran++ }
	if n := testing.AllocsPerRun(1000, func() { _, _ = s.Do(ctx, flow, work) }); n != 0 || ran == 0 {
		t.Errorf("%v allocations, %d ran", n, ran)
	}
}

func BenchmarkTurn(b *testing.B) {
	policies, err := quota.NewPolicies(time.Now, 0, quota.DefaultPolicy())
	if err != nil {
		b.Fatal(err)
	}
	s, err := newSlots(map[kms.NodeID]int{"n": 4}, policies, uuid.Nil(), time.Now)
	if err != nil {
		b.Fatal(err)
	}
	flow := kms.Flow{Tenant: uuid.New(), Tier: kms.TierGold, Urgency: kms.UrgencyNormal, Cost: kms.Credit, Nodes: []kms.NodeID{"n"}, MaxWait: time.Second}
	b.ReportAllocs()
	for b.Loop() {
		_, _ = s.Do(b.Context(), flow, func(kms.NodeID) {})
	}
}
