package kms_test

import (
	"context"
	"maps"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// stageSales is the planner of a pool that can do unmeasured credits/s, and the
// tenants that there are. Its zero value knows no figure, so that nothing is
// refused.
type stageSales struct {
	mu      sync.Mutex
	can     int64
	tenants map[kms.Tier]int64
	apart   map[uuid.UUID]int64
	counted int
}

// Baselines are 100 for gold and 10 for free; of the document "dear", ten times
// that; "poor" has the capacity of the one in force, halved.
func (s *stageSales) Baselines(document []byte) (*kms.Baselines, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := &kms.Baselines{Tiers: map[kms.Tier]int64{kms.TierGold: 100, kms.TierFree: 10}, Tenants: s.apart, Unmeasured: s.can, SafetyPercent: 100}
	switch string(document) {
	case "dear":
		b.Tiers = map[kms.Tier]int64{kms.TierGold: 1000, kms.TierFree: 100}
	case "poor":
		b.Unmeasured /= 2
	}
	return b, nil
}

func (s *stageSales) Plan(b *kms.Baselines, slots int, sold kms.Sold) *kms.Capacity {
	c := &kms.Capacity{Source: kms.CapacityConfigured, Slots: slots, PerSecond: b.Unmeasured, Sellable: b.Unmeasured, Committed: sold.Committed}
	if b.Unmeasured == 0 {
		c.Source = kms.CapacityUnknown
	}
	for _, tier := range []kms.Tier{kms.TierGold, kms.TierFree} {
		c.Tiers = append(c.Tiers, kms.CapacityTier{Tier: tier, Fits: max(c.Available(), 0) / b.Tiers[tier]})
	}
	return c
}

func (s stageTenants) CountTenants(context.Context) (map[kms.Tier]int64, error) {
	s.sales.mu.Lock()
	counts := maps.Clone(s.sales.tenants)
	s.sales.counted++
	s.sales.mu.Unlock()
	runtime.Gosched() // others may sell meanwhile
	return counts, s.step("count tenants")
}

func (s stageTenants) CreateTenant(_ context.Context, t *kms.Tenant) error {
	s.sales.mu.Lock()
	defer s.sales.mu.Unlock()
	s.sales.tenants[t.Tier]++
	return s.step("create tenant")
}

func (s stageTenants) UpdateTenant(_ context.Context, _ uuid.UUID, _ uint64, c kms.TenantChange) (*kms.Tenant, error) {
	changed := *s.key.Tenant
	if c.Tier != nil {
		changed.Tier = *c.Tier
	}
	return &changed, s.step("update tenant")
}

func (s stageDevice) NewSealingKey(_ context.Context, tenant, domain uuid.UUID) (kms.SealingKey, error) {
	return kms.SealingKey{Tenant: tenant, Domain: domain}, nil
}

// newSelling is a stage whose pool can do so many credits/s, of which it sold a
// gold tenant's hundred.
func newSelling(t *testing.T, can int64) *stage {
	t.Helper()
	s := newStage(t)
	s.sales.can, s.sales.tenants = can, map[kms.Tier]int64{kms.TierGold: 1}
	return s
}

func (s *stage) create(t *testing.T, tier kms.Tier, force bool) (*kms.Ticket, error) {
	t.Helper()
	ticket := s.operatorTicket(t)
	_, err := s.svc.CreateTenant(t.Context(), ticket, kms.CreateTenantInput{Name: "new", Tier: tier, Force: force})
	return ticket, err
}

// wantOversale checks that an act was refused with the numbers, and that its
// entry has them.
func wantOversale(t *testing.T, s *stage, err error, limit, need, have int64) {
	t.Helper()
	if kms.KindOf(err) != kms.KindConflict {
		t.Fatalf("%v, want a conflict", err)
	}
	want := kms.Reason{Code: kms.ReasonCapacity, Limit: limit, Need: need, Have: have}
	if e := err.(*kms.Error); len(e.Reasons) != 1 || e.Reasons[0] != want {
		t.Errorf("the reasons are %+v, want %+v", e.Reasons, want)
	}
	wantSaleInEntry(t, s, want, "conflict")
}

func wantSaleInEntry(t *testing.T, s *stage, want kms.Reason, outcome string) {
	t.Helper()
	entry := s.entries[len(s.entries)-1]
	if entry.Outcome != outcome || len(entry.Reasons) != 1 || entry.Reasons[0] != want {
		t.Errorf("the entry has the outcome %q and the reasons %+v, want %q and %+v", entry.Outcome, entry.Reasons, outcome, want)
	}
}

func TestTenantBeyondTheCapacityIsRefusedUnlessForced(t *testing.T) {
	s := newSelling(t, 250)
	if _, err := s.create(t, kms.TierGold, false); err != nil {
		t.Fatalf("the second of two that fit: %v", err)
	}
	_, err := s.create(t, kms.TierGold, false)
	wantOversale(t, s, err, 250, 100, 50)
	if !strings.Contains(err.Error(), "0 gold or 5 free") {
		t.Errorf("it does not say what still fits: %v", err)
	}
	if _, err := s.create(t, kms.TierFree, false); err != nil {
		t.Errorf("a smaller one that fits: %v", err)
	}
	if _, err = s.create(t, kms.TierGold, true); err != nil {
		t.Fatalf("forced: %v", err)
	}
	wantSaleInEntry(t, s, kms.Reason{Code: kms.ReasonCapacity, Limit: 250, Need: 100, Have: 40}, "ok")
	_, err = s.create(t, kms.TierFree, false)
	wantOversale(t, s, err, 250, 10, 0) // the pool is oversold
	c, err := s.svc.Capacity(t.Context(), s.operatorTicket(t))
	if err != nil || !c.Oversold() || c.Committed != 310 || c.Available() != -60 {
		t.Errorf("%+v, %v", c, err)
	}
}

// A dry run says what the act would.
func TestDryRunOfASaleSaysWhetherThereIsRoom(t *testing.T) {
	s := newSelling(t, 150)
	for tier, want := range map[kms.Tier]bool{kms.TierGold: false, kms.TierFree: true} {
		ticket := s.operatorTicket(t)
		ticket.DryRun = true
		_, err := s.svc.CreateTenant(t.Context(), ticket, kms.CreateTenantInput{Name: "new", Tier: tier})
		if (err == nil) != want {
			t.Errorf("%s: %v", tier, err)
		}
	}
	if s.sales.tenants[kms.TierFree] != 0 {
		t.Error("it was made")
	}
}

// Nothing is refused while nobody knows what the pool can do.
func TestNothingIsRefusedWithoutAFigure(t *testing.T) {
	s := newSelling(t, 0)
	for range 5 {
		if _, err := s.create(t, kms.TierGold, false); err != nil {
			t.Fatal(err)
		}
	}
}

func TestHigherTierBeyondTheCapacityIsRefusedUnlessForced(t *testing.T) {
	change := func(s *stage, to kms.Tier, force bool) error {
		_, err := s.svc.UpdateTenant(t.Context(), s.operatorTicket(t), "acme", kms.TenantChange{Tier: &to}, force)
		return err
	}
	s := newSelling(t, 150)
	s.key.Tenant.Tier, s.sales.tenants = kms.TierFree, map[kms.Tier]int64{kms.TierFree: 10}
	wantOversale(t, s, change(s, kms.TierGold, false), 150, 90, 50)
	if err := change(s, kms.TierGold, true); err != nil {
		t.Errorf("forced: %v", err)
	}
	s.sales.can = 200
	if err := change(s, kms.TierGold, false); err != nil {
		t.Errorf("with room: %v", err)
	}
	s.sales.can = 10 // oversold: what sells nothing goes on
	s.key.Tenant.Tier = kms.TierGold
	if err := change(s, kms.TierFree, false); err != nil {
		t.Errorf("a lower tier: %v", err)
	}
	active := kms.TenantActive
	if _, err := s.svc.UpdateTenant(t.Context(), s.operatorTicket(t), "acme", kms.TenantChange{State: &active}, false); err != nil {
		t.Errorf("resuming: %v", err)
	}
	// Whose rate the policy sets apart has it in every tier.
	s.sales.apart = map[uuid.UUID]int64{s.key.Tenant.ID: 7}
	s.key.Tenant.Tier = kms.TierFree
	if err := change(s, kms.TierGold, false); err != nil {
		t.Errorf("a tenant with a rate of its own: %v", err)
	}
}

// A tenant that the policy sets apart is counted with its own rate, while it is
// there.
func TestRatesOfTheirOwnAreCounted(t *testing.T) {
	s := newSelling(t, 1000)
	committed := func() int64 {
		t.Helper()
		c, err := s.svc.Capacity(t.Context(), s.operatorTicket(t))
		if err != nil {
			t.Fatal(err)
		}
		return c.Committed
	}
	if got := committed(); got != 100 {
		t.Errorf("%d credits/s are committed to one gold tenant", got)
	}
	s.sales.apart = map[uuid.UUID]int64{s.key.Tenant.ID: 777}
	if got := committed(); got != 777 {
		t.Errorf("%d credits/s are committed to a gold tenant that has 777", got)
	}
	s.key.Tenant.Deletion, s.sales.tenants = &kms.Deletion{}, nil
	if got := committed(); got != 0 {
		t.Errorf("%d credits/s are committed to a deleted tenant", got)
	}
	s.key.Tenant.Deletion = nil
	s.fail["read tenant"] = kms.ErrNotFound
	if got := committed(); got != 0 {
		t.Errorf("%d credits/s are committed to a tenant that is not there", got)
	}
	s.fail["read tenant"] = kms.Errorf(kms.KindStoreUnavailable, "the database is away")
	if _, err := s.svc.Capacity(t.Context(), s.operatorTicket(t)); kms.KindOf(err) != kms.KindStoreUnavailable {
		t.Errorf("with a database that is away: %v", err)
	}
}

func TestPolicyThatOversellsIsRefusedUnlessForced(t *testing.T) {
	s := newSelling(t, 500)
	put := func(document string, force bool) error {
		_, err := s.svc.PutPolicy(t.Context(), s.operatorTicket(t), kms.PutPolicyInput{
			Previous: uint64(len(s.policies.list)), Document: []byte(document), Force: force})
		return err
	}
	wantOversale(t, s, put("dear", false), 500, 900, 400)
	if len(s.policies.list) != 0 {
		t.Error("it was stored")
	}
	// What raises no rate sells nothing, even if less may be sold under it.
	s.sales.can = 50
	if err := put("poor", false); err != nil {
		t.Errorf("a policy of less capacity: %v", err)
	}
	if err := put("dear", true); err != nil {
		t.Errorf("forced: %v", err)
	}
	wantSaleInEntry(t, s, kms.Reason{Code: kms.ReasonCapacity, Limit: 50, Need: 900}, "ok")
	_, err := s.svc.RollbackPolicy(t.Context(), s.operatorTicket(t), 2, "", false)
	wantOversale(t, s, err, 50, 900, 0)
	if _, err := s.svc.RollbackPolicy(t.Context(), s.operatorTicket(t), 2, "", true); err != nil {
		t.Errorf("a forced return: %v", err)
	}
}

// A second operator approves an oversale as one: an approval of the same policy
// without force is none of it.
func TestApprovalOfAPolicyTellsThatItOversells(t *testing.T) {
	s := newStageFor(t, true)
	s.sales.can, s.sales.tenants = 500, map[kms.Tier]int64{kms.TierGold: 1}
	s.credentials = []*kms.Credential{{ID: uuid.NewV7()}, {ID: uuid.NewV7()}}
	ask := func(force bool) {
		t.Helper()
		_, err := s.svc.PutPolicy(t.Context(), s.operatorTicket(t), kms.PutPolicyInput{Document: []byte("cheap"), Force: force})
		if kms.KindOf(err) != kms.KindApprovalRequired {
			t.Fatal(err)
		}
	}
	ask(false)
	ask(true)
	list, _, err := s.approvals.ListApprovals(t.Context(), kms.Page{Size: 10})
	if err != nil || len(list) != 2 {
		t.Fatalf("%v, %v", list, err)
	}
	if strings.Contains(list[0].Resource, "sells more") || !strings.Contains(list[1].Resource, "sells more") || list[0].Fingerprint == list[1].Fingerprint {
		t.Errorf("the approvals are of %q and %q", list[0].Resource, list[1].Resource)
	}
}

// On one API node two acts at once never both sell what is left.
func TestConcurrentSalesSellNoMoreThanThereIs(t *testing.T) {
	const room, asked = 3, 12
	s := newSelling(t, 100+room*100)
	var all sync.WaitGroup
	var mu sync.Mutex
	made := 0
	for range asked {
		all.Go(func() {
			if _, err := s.create(t, kms.TierGold, false); err == nil {
				mu.Lock()
				made++
				mu.Unlock()
			} else if kms.KindOf(err) != kms.KindConflict {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if made != room {
		t.Errorf("%d of %d tenants were made, there is room for %d", made, asked, room)
	}
}

// An API node looks every minute whether the pool is oversold.
func TestCapacityWatchSeesAnOversoldPool(t *testing.T) {
	s := newSelling(t, 100)
	synctest.Test(t, func(t *testing.T) {
		if s.svc.CapacitySeen() != nil {
			t.Error("something was seen before the first look")
		}
		looks := 0
		watch := s.svc.StartCapacityWatch(func() { looks++ })
		synctest.Wait()
		if c := s.svc.CapacitySeen(); c == nil || c.Oversold() || looks != 1 {
			t.Fatalf("at the start it sees %+v, after %d looks", c, looks)
		}
		s.sales.mu.Lock()
		s.sales.can = 99 // the pool became slow
		s.sales.mu.Unlock()
		time.Sleep(time.Minute)
		synctest.Wait()
		if c := s.svc.CapacitySeen(); !c.Oversold() || looks != 2 {
			t.Errorf("after a minute it sees %+v, after %d looks", c, looks)
		}
		if err := watch.Close(); err != nil {
			t.Error(err)
		}
	})
}
