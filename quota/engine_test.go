package quota

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// morning is when tests begin: a tenant with little jitter has its day before it.
var morning = time.Date(2030, 3, 10, 6, 0, 0, 0, time.UTC)

// handClock is a clock that a test moves.
type handClock struct {
	mu sync.Mutex
	at time.Time
}

func (c *handClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *handClock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// testEngine is an engine with what a test needs around it.
type testEngine struct {
	*Engine
	t      testing.TB
	clock  *handClock
	tenant *kms.Tenant
	events []Event
	next   uint64
}

var testTenant = uuid.MustParse("01890000-0000-7000-8000-000000000001")

// newTestEngine makes an engine with a tenant of a tier that was made long ago.
// edit changes the policy first.
func newTestEngine(t testing.TB, tier kms.Tier, edit func(p *Policy)) *testEngine {
	t.Helper()
	p := DefaultPolicy()
	if edit != nil {
		edit(p)
	}
	e := &testEngine{t: t, clock: &handClock{at: morning}, tenant: &kms.Tenant{ID: testTenant, Tier: tier}}
	policies, err := NewPolicies(e.clock.now, 1, p)
	if err != nil {
		t.Fatal(err)
	}
	e.Engine = NewEngine(Options{Policies: policies, Clock: e.clock.now, Notify: func(event Event) { e.events = append(e.events, event) }})
	return e
}

// request is one of a credential without a history.
func (e *testEngine) request(op kms.Op, spec kms.Spec) *Request {
	e.next++
	return &Request{AdmitRequest: kms.AdmitRequest{
		RequestID: requestID(e.next), Principal: &kms.Principal{Tenant: e.tenant, Project: kms.DefaultProject}, Op: op, Spec: spec,
	}}
}

// sign is a request for an SM2 signature, of 12 credits.
func (e *testEngine) sign() *Request { return e.request(kms.OpSign, kms.SpecSM2) }

// costing is a request of n credits, 1 to a million.
func (e *testEngine) costing(n int64) *Request {
	r := e.request(kms.OpEncrypt, kms.SpecSM4)
	r.Bytes = int(n * 4096)
	return r
}

func (e *testEngine) must(r *Request) kms.Reservation {
	e.t.Helper()
	res, err := e.AdmitRequest(r)
	if err != nil {
		e.t.Fatalf("refused: %v %+v", err, reasons(err))
	}
	return res
}

// refused expects a refusal of a kind, for the reasons with the codes.
func (e *testEngine) refused(r *Request, kind kms.Kind, codes ...string) *kms.Error {
	e.t.Helper()
	_, err := e.AdmitRequest(r)
	refusal, ok := errors.AsType[*kms.Error](err)
	if !ok || refusal.Kind != kind {
		e.t.Fatalf("got %v, want a refusal of kind %v", err, kind)
	}
	var got []string
	for _, reason := range refusal.Reasons {
		got = append(got, reason.Code)
	}
	if !slices.Equal(got, codes) {
		e.t.Fatalf("reasons %v, want %v", got, codes)
	}
	return refusal
}

func reasons(err error) []kms.Reason {
	if e, ok := errors.AsType[*kms.Error](err); ok {
		return e.Reasons
	}
	return nil
}

func (e *testEngine) accounts() Accounts {
	e.t.Helper()
	a, ok := e.Accounts(e.tenant.ID)
	if !ok {
		e.t.Fatal("the tenant has no accounts")
	}
	return a
}

var settledInFull = func(r kms.Reservation) kms.Settlement {
	return kms.Settlement{State: kms.Settled, Charged: r.Cost, SlotTime: time.Millisecond}
}

func TestBurstThenRateAndRetryAfterSaysWhen(t *testing.T) {
	e := newTestEngine(t, kms.TierSilver, func(p *Policy) { p.Tiers[kms.TierSilver].OverdraftCredits = 0 })
	for range 3000 / 12 {
		e.Settle(e.must(e.sign()), kms.Settlement{State: kms.Settled, Charged: 12 * kms.Credit})
	}
	refusal := e.refused(e.sign(), kms.KindQuotaExceeded, ReasonRate)
	if r := refusal.Reasons[0]; r.Need != 12*micro || r.Have != 0 || r.Limit != 3000*micro || r.RetryIn != 12*time.Millisecond {
		t.Errorf("the reason is %+v", r)
	}
	if refusal.RetryAfter != time.Second {
		t.Errorf("Retry-After is %v: rounded up, at least a second", refusal.RetryAfter)
	}
	e.clock.pass(12*time.Millisecond - time.Nanosecond)
	e.refused(e.sign(), kms.KindQuotaExceeded, ReasonRate)
	e.clock.pass(time.Nanosecond)
	e.must(e.sign())
}

// upstash ratelimit-js#156: a rejected large cost drove a bucket to −1e6.
// envoy ratelimit#427, #348, #185: what one limit refuses, others charged.
func TestRefusalSpendsNothingAnywhere(t *testing.T) {
	key := uuid.New()
	e := newTestEngine(t, kms.TierFree, func(p *Policy) { p.Tiers[kms.TierFree].KeyPercent = 1 })
	r := e.costing(3)
	r.Key = key
	e.must(r)
	before := e.accounts()
	for range 50 {
		r := e.costing(6)
		r.Key = key
		e.refused(r, kms.KindQuotaExceeded, "KEY_RATE")
	}
	after := e.accounts()
	after.Refused = before.Refused
	if !sameAccounts(before, after) {
		t.Errorf("refusals changed the accounts:\n%+v\n%+v", before, after)
	}
}

func sameAccounts(a, b Accounts) bool {
	a.Packs, b.Packs = nil, nil
	return a.Available == b.Available && a.Debt == b.Debt && a.Reserved == b.Reserved && a.Charged == b.Charged &&
		a.DayUsed == b.DayUsed && a.MonthUsed == b.MonthUsed && a.Pool == b.Pool && a.Bytes == b.Bytes && a.InFlight == b.InFlight &&
		a.Open == b.Open && a.Lost == b.Lost
}

func TestAllReasonsAreTold(t *testing.T) {
	project := "a/b"
	e := newTestEngine(t, kms.TierFree, func(p *Policy) {
		p.Tiers[kms.TierFree].Concurrency = 1
		p.Tenants = map[uuid.UUID]*TenantPolicy{testTenant: {Projects: map[string]*ScopeLimits{
			"a": {DayCredits: 10}, "a/b": {CreditsPerSecond: 10, BurstCredits: 10},
		}}}
	})
	r := e.costing(10)
	r.Principal.Project = project
	e.must(r)
	r = e.costing(10)
	r.Principal.Project = project
	refusal := e.refused(r, kms.KindQuotaExhausted, ReasonConcurrency, "PROJECT_DAY_HARD", "PROJECT_RATE")
	if wait := refusal.RetryAfter; wait < 18*time.Hour || wait > 22*time.Hour+time.Minute {
		t.Errorf("Retry-After is %v, the day ends in 18 h, to be lengthened by a fifth at most", wait)
	}
}

func TestNestedProjectsShareTheirParents(t *testing.T) {
	e := newTestEngine(t, kms.TierGold, func(p *Policy) {
		p.Tenants = map[uuid.UUID]*TenantPolicy{testTenant: {Projects: map[string]*ScopeLimits{
			"a": {CreditsPerSecond: 1, BurstCredits: 20}, "a/b/c": {CreditsPerSecond: 1, BurstCredits: 8},
		}}}
	})
	of := func(project string, cost int64) *Request {
		r := e.costing(cost)
		r.Principal.Project = project
		return r
	}
	e.must(of("a/b/c/d", 8))
	e.refused(of("a/b/c", 8), kms.KindQuotaExceeded, "PROJECT_RATE")
	e.must(of("a/b/cd", 8)) // another project
	e.must(of("a", 4))
	e.refused(of("a/x", 1), kms.KindQuotaExceeded, "PROJECT_RATE")
	e.must(of("ab", 100))
}

func TestCostThatCanNeverFitIsRefusedWithoutRetryAfter(t *testing.T) {
	e := newTestEngine(t, kms.TierFree, nil)
	refusal := e.refused(e.costing(601), kms.KindUnsatisfiable, ReasonRate)
	if refusal.RetryAfter != 0 || refusal.Reasons[0].RetryIn != 0 {
		t.Errorf("%+v", refusal)
	}
	e.must(e.costing(600))
}

func TestHundredAtOnceAtOneBelowTheLimitAdmitOne(t *testing.T) {
	key := uuid.New()
	limits := map[string]struct {
		edit func(p *Policy)
		// until brings the tenant to where one more fits.
		until func(e *testEngine)
	}{
		"bucket": {func(p *Policy) {}, func(e *testEngine) { e.must(e.costing(588)) }},
		"requests": {func(p *Policy) { p.Tiers[kms.TierFree].RequestsPerSecond = 1; p.Tiers[kms.TierFree].BurstRequests = 2 },
			func(e *testEngine) { e.must(e.costing(1)) }},
		"key":   {func(p *Policy) {}, func(e *testEngine) { r := e.costing(288); r.Key = key; e.must(r) }},
		"slots": {func(p *Policy) { p.Tiers[kms.TierFree].Concurrency = 2 }, func(e *testEngine) { e.must(e.costing(1)) }},
		"day":   {func(p *Policy) { p.Tiers[kms.TierFree].DayCredits = 600 }, func(e *testEngine) { e.must(e.costing(588)); e.clock.pass(time.Minute) }},
		"bytes": {func(p *Policy) { p.Tiers[kms.TierFree].BandwidthBytes = 8192 }, func(e *testEngine) { e.must(e.costing(1)) }},
		"credential": {func(p *Policy) {
			p.Tenants = map[uuid.UUID]*TenantPolicy{testTenant: {Credentials: map[uuid.UUID]*ScopeLimits{key: {CreditsPerSecond: 12, BurstCredits: 12}}}}
		}, func(e *testEngine) {}},
	}
	for name, tt := range limits {
		t.Run(name, func(t *testing.T) {
			e := newTestEngine(t, kms.TierFree, tt.edit)
			tt.until(e)
			var admitted atomic.Int64
			var wg sync.WaitGroup
			for i := range 100 {
				r := e.sign()
				r.RequestID = requestID(uint64(1_000_000 + i))
				r.Key, r.Bytes, r.Principal.Credential = key, 4096, key
				wg.Go(func() {
					if _, err := e.AdmitRequest(r); err == nil {
						admitted.Add(1)
					}
				})
			}
			wg.Wait()
			if n := admitted.Load(); n != 1 {
				t.Errorf("%d of 100 were admitted", n)
			}
		})
	}
}

func TestOverdraftWhileThePoolIsBelowItsSafeLine(t *testing.T) {
	e := newTestEngine(t, kms.TierSilver, nil)
	for range 3 {
		e.must(e.costing(1000))
	}
	e.SetUtilisation(850)
	e.refused(e.costing(100), kms.KindQuotaExceeded, ReasonRate)
	e.SetUtilisation(821) // within the hysteresis
	e.refused(e.costing(100), kms.KindQuotaExceeded, ReasonRate)
	e.SetUtilisation(820)
	e.must(e.costing(500))
	refusal := e.refused(e.costing(1), kms.KindQuotaExceeded, ReasonDebt)
	if a := e.accounts(); a.Debt != 500*kms.Credit || refusal.Reasons[0].Have != -500*micro {
		t.Errorf("the debt is %d, the reason %+v", a.Debt, refusal.Reasons[0])
	}
	e.clock.pass(time.Second) // 1,000 credits: 300 for the debt
	if a := e.accounts(); a.Debt != 200*kms.Credit || a.Available != 700*kms.Credit {
		t.Errorf("after a second the debt is %d and %d are available", a.Debt, a.Available)
	}
}

func TestRefillOfLowerTiersSlowsDownAboveTheSafeLine(t *testing.T) {
	for tier, want := range map[kms.Tier]kms.Credits{kms.TierGold: 5000, kms.TierSilver: 700, kms.TierFree: 80} {
		e := newTestEngine(t, tier, func(p *Policy) { p.Tiers[tier].OverdraftCredits = 0 })
		e.must(e.costing(e.policies.Current().policy.Tiers[tier].BurstCredits))
		e.SetUtilisation(900)
		e.clock.pass(time.Second)
		e.SetUtilisation(500)
		if got := e.accounts().Available; got != want*kms.Credit {
			t.Errorf("%s: a loaded second brings %d µcr, want %d credits", tier, got, want)
		}
	}
}

func TestTierChangedUnderLoadEarnsByItsNewTierFromThenOn(t *testing.T) {
	e := newTestEngine(t, kms.TierFree, nil)
	e.SetUtilisation(900)
	e.must(e.costing(600))
	e.clock.pass(time.Second) // 80 credits of a free tenant
	e.tenant.Tier = kms.TierSilver
	e.must(e.costing(1))
	e.clock.pass(time.Second) // 700 of a silver one
	if a := e.accounts(); a.Available != 779*kms.Credit {
		t.Errorf("%d are available", a.Available)
	}
}

func TestNewTenantRampsUp(t *testing.T) {
	e := newTestEngine(t, kms.TierSilver, func(p *Policy) { p.Tiers[kms.TierSilver].OverdraftCredits = 0 })
	e.tenant.Created = morning
	e.must(e.costing(750)) // a quarter of the burst
	e.refused(e.costing(1), kms.KindQuotaExceeded, ReasonRate)
	e.clock.pass(time.Second)
	if got := e.accounts().Available; got != 250*kms.Credit {
		t.Errorf("in its first second a tenant earns %d µcr, want 250 credits", got)
	}
}

func TestNewCredentialRampsUpOverADay(t *testing.T) {
	made := uuid.New()
	for hours, earned := range map[time.Duration]int64{0: 250, 12: 625, 24: 1000, 30: 1000} {
		e := newTestEngine(t, kms.TierSilver, func(p *Policy) {
			s := p.Tiers[kms.TierSilver]
			s.CreditsPerSecond, s.BurstCredits = 100_000, 100_000
			p.Tenants = map[uuid.UUID]*TenantPolicy{testTenant: {Credentials: map[uuid.UUID]*ScopeLimits{made: {CreditsPerSecond: 1000, BurstCredits: 3000}}}}
		})
		costing := func(n int64) *Request {
			r := e.costing(n)
			r.Principal.Credential, r.CredentialSince = made, morning
			return r
		}
		e.must(costing(750)) // a quarter of the burst is there at once
		e.refused(costing(1), kms.KindQuotaExceeded, "CREDENTIAL_RATE")
		e.clock.pass(hours * time.Hour)
		if hours > 0 {
			e.must(costing(3000))
		}
		e.clock.pass(time.Second)
		e.refused(costing(earned+1), kms.KindQuotaExceeded, "CREDENTIAL_RATE")
		e.must(costing(earned))
	}
}

func TestIdsOfCredentialsTellWhenTheyWereMade(t *testing.T) {
	if got := madeAt(uuid.NewV7()); time.Since(got) > time.Minute || time.Since(got) < -time.Minute {
		t.Errorf("an id of now is of %v", got)
	}
	if got := madeAt(uuid.NewV4()); !got.IsZero() {
		t.Errorf("a random id is of %v", got)
	}
}

func TestSoftLimitsAreToldOnceADay(t *testing.T) {
	e := newTestEngine(t, kms.TierFree, func(p *Policy) { p.Tiers[kms.TierFree].DayCredits = 1000; p.Totals.MonthDays = 1 })
	use := func() {
		for range 9 {
			e.Settle(e.must(e.costing(100)), kms.Settlement{State: kms.Settled, Charged: 100 * kms.Credit})
			e.clock.pass(time.Second)
		}
	}
	use()
	if len(e.events) != 2 || e.events[0].Kind != EventDaySoft || e.events[0].Used != 800*micro || e.events[0].Limit != 1000*micro ||
		e.events[1].Kind != EventMonthSoft || e.events[1].Window != 203003 {
		t.Fatalf("events %+v", e.events)
	}
	a := e.accounts()
	if !a.NearLimit(e.policies.Current()) {
		t.Error("nobody says that the limit is near")
	}
}

func TestHardTotalRefusesUntilReset(t *testing.T) {
	e := newTestEngine(t, kms.TierFree, func(p *Policy) { p.Tiers[kms.TierFree].DayCredits = 600 })
	e.Settle(e.must(e.costing(590)), kms.Settlement{State: kms.Settled, Charged: 590 * kms.Credit})
	e.clock.pass(time.Hour)
	refusal := e.refused(e.costing(11), kms.KindQuotaExhausted, ReasonDay)
	if r := refusal.Reasons[0]; r.Have != 10*micro || r.RetryIn != 17*time.Hour+time.Second {
		t.Errorf("the reason is %+v: 10 credits remain, the day ends in 17 h and the tenant's jitter of 1 s", r)
	}
	e.clock.pass(refusal.Reasons[0].RetryIn)
	e.must(e.costing(11))
}

func TestPacksAreUsedLastAndTheirRestExpires(t *testing.T) {
	e := newTestEngine(t, kms.TierFree, func(p *Policy) {
		p.Tiers[kms.TierFree].DayCredits, p.Tiers[kms.TierFree].PoolCredits = 600, 100
		p.Tenants = map[uuid.UUID]*TenantPolicy{testTenant: {Packs: []Pack{
			{"late", 100, morning.Add(48 * time.Hour)}, {"soon", 50, morning.Add(2 * time.Hour)}, {"gone", 50, morning},
		}}}
	})
	use := func(cost int64) kms.Reservation {
		r := e.must(e.costing(cost))
		e.clock.pass(10 * time.Second)
		return r
	}
	e.Settle(use(600), kms.Settlement{State: kms.Settled, Charged: 600 * kms.Credit})
	e.Settle(use(100), kms.Settlement{State: kms.Settled, Charged: 100 * kms.Credit})
	if a := e.accounts(); a.Pool != 0 || a.Packs[1].Left != 50*kms.Credit || a.Packs[0].Left != 0 {
		t.Fatalf("the pool has %d, packs %+v", a.Pool, a.Packs)
	}
	r := use(80) // 50 of soon, 30 of late
	if a := e.accounts(); a.Packs[1].Left != 0 || a.Packs[2].Left != 70*kms.Credit || a.MonthUsed != 700*kms.Credit {
		t.Errorf("packs %+v, the month has used %d", a.Packs, a.MonthUsed)
	}
	e.Settle(r, kms.Settlement{State: kms.Partial, Charged: 20 * kms.Credit}) // 60 back: first to late, then to soon
	if a := e.accounts(); a.Packs[1].Left != 30*kms.Credit || a.Packs[2].Left != 100*kms.Credit {
		t.Errorf("after the refund packs are %+v", a.Packs)
	}
	e.clock.pass(2 * time.Hour)
	e.refused(e.costing(101), kms.KindQuotaExhausted, ReasonDay)
	e.must(e.costing(100))
}

// Instawork/llm-proxy#40: a refund hit a later window and erased others' use.
func TestRefundGoesToTheDayOfTheReservation(t *testing.T) {
	e := newTestEngine(t, kms.TierFree, nil)
	late := e.must(e.costing(500))
	e.clock.pass(19 * time.Hour)
	e.must(e.costing(100))
	e.Settle(late, kms.Settlement{State: kms.Cancelled})
	if a := e.accounts(); a.Day != 20300311 || a.DayUsed != 100*kms.Credit || a.MonthUsed != 100*kms.Credit {
		t.Errorf("day %d has used %d, its month %d", a.Day, a.DayUsed, a.MonthUsed)
	}
}

// A pool that is not full in the evening lowers the next day, total, rate and
// burst; unused quota refills it.
func TestElasticPoolOverDays(t *testing.T) {
	e := newTestEngine(t, kms.TierSilver, func(p *Policy) {
		s := p.Tiers[kms.TierSilver]
		s.CreditsPerSecond, s.BurstCredits, s.OverdraftCredits, s.DayCredits, s.PoolCredits = 1000, 1000, 0, 1000, 500
	})
	days := []struct {
		use     int64 // credits, in portions of 100
		pool    int64 // in the evening
		lowered bool  // next morning
		total   int64
		rate    int64
	}{
		{900, 500, false, 1000, 1000},
		{1300, 200, true, 800, 800},
		{800, 200, true, 800, 800},
		{300, 200, true, 800, 800}, // 30 % of 500 come back: 350
		{0, 350, false, 1000, 1000},
	}
	for i, d := range days {
		for used := int64(0); used < d.use; used += 100 {
			e.Settle(e.must(e.costing(100)), kms.Settlement{State: kms.Settled, Charged: 100 * kms.Credit})
			e.clock.pass(time.Second)
		}
		if a := e.accounts(); a.Pool != kms.Credits(d.pool)*kms.Credit || a.DayUsed != kms.Credits(d.use)*kms.Credit {
			t.Errorf("day %d: in the evening the pool has %d, %d are used", i, a.Pool, a.DayUsed)
		}
		e.clock.pass(e.accounts().DayEnds.Sub(e.clock.now()))
		a := e.accounts()
		if a.Lowered != d.lowered || a.DayTotal != kms.Credits(d.total)*kms.Credit || a.PerSecond != kms.Credits(d.rate)*kms.Credit || a.DayUsed != 0 {
			t.Errorf("the morning after day %d: lowered %v, total %d, rate %d", i, a.Lowered, a.DayTotal, a.PerSecond)
		}
		if a.Available != 1000*kms.Credit+a.Granted-a.Lost-a.Charged {
			t.Errorf("the morning after day %d: %d are available of %+v", i, a.Available, a)
		}
		if d.lowered {
			e.refused(e.costing(801), kms.KindQuotaExhausted, ReasonNotch)
		}
	}
}

// The rate of a lowered day holds from its beginning, not from when somebody
// looks.
func TestLoweredDayBeginsWhenItBegins(t *testing.T) {
	e := newTestEngine(t, kms.TierSilver, func(p *Policy) {
		s := p.Tiers[kms.TierSilver]
		s.CreditsPerSecond, s.BurstCredits, s.OverdraftCredits, s.DayCredits, s.PoolCredits = 1000, 3000, 0, 6000, 3000
	})
	use := func(cost int64) {
		e.Settle(e.must(e.costing(cost)), kms.Settlement{State: kms.Settled, Charged: kms.Credits(cost) * kms.Credit})
	}
	use(3000)
	e.clock.pass(time.Minute)
	use(3000) // the pool is full, but the next draws on it
	e.clock.pass(e.accounts().DayEnds.Sub(e.clock.now()) - time.Second)
	use(3000)
	e.clock.pass(2 * time.Second) // one at 1,000, one at 800
	if a := e.accounts(); !a.Lowered || a.Available != 1800*kms.Credit {
		t.Errorf("lowered %v, %d are available", a.Lowered, a.Available)
	}
}

func TestLimitOfAProjectThatChangesHoldsFromThen(t *testing.T) {
	project := func(perSecond int64) *Policy {
		return overriding(testTenant, TenantPolicy{Projects: map[string]*ScopeLimits{"a": {CreditsPerSecond: perSecond, BurstCredits: perSecond}}})
	}
	e := newTestEngine(t, kms.TierGold, func(p *Policy) { *p = *project(100) })
	of := func(cost int64) *Request {
		r := e.costing(cost)
		r.Principal.Project = "a"
		return r
	}
	e.must(of(100))
	e.refused(of(10), kms.KindQuotaExceeded, "PROJECT_RATE")
	if err := e.policies.Apply(2, document(t, project(10))); err != nil {
		t.Fatal(err)
	}
	e.clock.pass(time.Second)
	e.refused(of(11), kms.KindUnsatisfiable, "PROJECT_RATE")
	e.must(of(10))
	if err := e.policies.Apply(3, document(t, DefaultPolicy())); err != nil {
		t.Fatal(err)
	}
	e.must(of(500))
}

func TestHotKeyIsStoppedAndItsAnswerAdvises(t *testing.T) {
	key := uuid.New()
	e := newTestEngine(t, kms.TierFree, func(p *Policy) { p.Tiers[kms.TierFree].RequestsPerSecond, p.Tiers[kms.TierFree].BurstRequests = 0, 0 })
	call := func() error {
		r := e.costing(10)
		r.Key = key
		_, err := e.AdmitRequest(r)
		if err == nil {
			e.Settle(kms.Reservation{RequestID: r.RequestID, Tenant: testTenant}, kms.Settlement{State: kms.Settled, Charged: 10 * kms.Credit, SlotTime: 1})
		}
		return err
	}
	for range 100 {
		_ = call() // 30 fit into the key's bucket
	}
	err := call()
	if got := reasons(err); len(got) != 2 || got[1].Code != ReasonHotKey || got[1].RetryIn != time.Second {
		t.Fatalf("reasons %+v", got)
	}
	if e, _ := errors.AsType[*kms.Error](err); e.Detail != "most calls with this key are refused: use a data key and cache it locally" {
		t.Errorf("the answer says %q", e.Detail)
	}
	e.clock.pass(time.Second)
	if err := call(); err != nil { // the probe, for which the bucket has tokens again
		t.Errorf("the probe is refused: %v", reasons(err))
	}
	if err := call(); err != nil {
		t.Errorf("after it: %v", reasons(err))
	}
}

func TestFailingKeyIsHeldBackAndClientsFaultsDoNotCount(t *testing.T) {
	key := uuid.New()
	e := newTestEngine(t, kms.TierGold, nil)
	call := func(fault Fault) error {
		r := e.sign()
		r.Key = key
		res, err := e.AdmitRequest(r)
		if err == nil {
			state := map[Fault]kms.SettlementState{NoFault: kms.Settled, ClientsOwn: kms.Partial, KeysOwn: kms.Cancelled}[fault]
			e.Finish(res, Outcome{kms.Settlement{State: state, SlotTime: 1}, fault})
		}
		return err
	}
	for range 20 {
		if err := call(ClientsOwn); err != nil {
			t.Fatal(err)
		}
	}
	e.clock.pass(11 * time.Second)
	for range 5 {
		if err := call(KeysOwn); err != nil {
			t.Fatal(err)
		}
	}
	if err := call(NoFault); kms.KindOf(err) != kms.KindReducedCapacity || reasons(err)[0].Code != ReasonFailingKey {
		t.Fatalf("got %v", err)
	}
	e.clock.pass(time.Second)
	if err := call(NoFault); err != nil {
		t.Fatalf("the probe is refused: %v", err)
	}
	if err := call(NoFault); err != nil {
		t.Errorf("after a good probe: %v", err)
	}
}

// trillian#2022: refunds of failures were infinite requests.
func TestFailingWorkDoesNotGetAroundTheRate(t *testing.T) {
	e := newTestEngine(t, kms.TierSilver, func(p *Policy) { p.Tiers[kms.TierSilver].OverdraftCredits = 0 })
	var ran int
	for range 1000 {
		r, err := e.AdmitRequest(e.costing(100))
		if err != nil {
			continue
		}
		ran++
		e.Finish(r, Outcome{kms.Settlement{State: kms.Cancelled, SlotTime: time.Millisecond}, KeysOwn})
	}
	// 3,000 credits of burst and a tenth of it that refunds may give back.
	if ran != 33 {
		t.Errorf("%d of 1,000 failing requests ran", ran)
	}
	if a := e.accounts(); a.Charged != 0 || a.DayUsed != 0 {
		t.Errorf("they were charged %d, the day has used %d", a.Charged, a.DayUsed)
	}
	// What never ran comes back whole.
	e.clock.pass(time.Minute)
	for range 1000 {
		e.Settle(e.must(e.costing(100)), kms.Settlement{State: kms.Cancelled})
	}
}

func TestReservationThatNobodyEndsIsReconciledOrCharged(t *testing.T) {
	e := newTestEngine(t, kms.TierFree, nil)
	a, b := e.must(e.costing(10)), e.must(e.costing(20))
	e.clock.pass(120*time.Second - 1)
	if found, _ := e.Reap(); found != 0 {
		t.Fatalf("%d are taken for lost in time", found)
	}
	e.clock.pass(1)
	if found, charged := e.Reap(); found != 2 || charged != 0 {
		t.Fatalf("found %d, charged %d", found, charged)
	}
	if acc := e.accounts(); acc.InFlight != 0 || acc.Reserved != 30*kms.Credit || acc.Open != 2 {
		t.Errorf("in flight %d, reserved %d", acc.InFlight, acc.Reserved)
	}
	if list := e.Unresolved(); len(list) != 2 {
		t.Errorf("unresolved: %v", list)
	}
	e.Settle(a, kms.Settlement{State: kms.Cancelled}) // the journal tells
	e.clock.pass(24 * time.Hour)
	if _, charged := e.Reap(); charged != 1 {
		t.Errorf("charged %d", charged)
	}
	e.Settle(b, kms.Settlement{State: kms.Cancelled}) // too late
	if acc := e.accounts(); acc.Charged != 20*kms.Credit || acc.Open != 0 || acc.Reserved != 0 {
		t.Errorf("charged %d, open %d, reserved %d", acc.Charged, acc.Open, acc.Reserved)
	}
}

func TestStoredObjectsAreLimited(t *testing.T) {
	e := newTestEngine(t, kms.TierFree, nil)
	e.must(e.costing(1))
	tenant := e.request(kms.OpCreateKey, kms.SpecSM4).Principal.Tenant
	if _, due := e.Uncounted(tenant.ID, Keys); !due {
		t.Error("what nobody has counted counts as known")
	}
	e.SetStored(tenant, Counts{Keys: 99})
	create := func() *Request {
		r := e.request(kms.OpCreateKey, kms.SpecSM4)
		r.Creates = Keys
		return r
	}
	last := e.must(create())
	if creating, due := e.Uncounted(tenant.ID, Keys); !due || creating[Keys] != 1 {
		t.Errorf("near the limit a count is due: %v, with %d being created", due, creating[Keys])
	}
	if _, due := e.Uncounted(tenant.ID, Credentials); due {
		t.Error("far from the limit a count is due")
	}
	refusal := e.refused(create(), kms.KindQuotaExhausted, ReasonStorage)
	if refusal.RetryAfter != 0 {
		t.Error("a retry helps nothing")
	}
	e.Settle(last, kms.Settlement{State: kms.Cancelled})
	e.Settle(e.must(create()), kms.Settlement{State: kms.Settled, Charged: 5 * kms.Credit})
	e.refused(create(), kms.KindQuotaExhausted, ReasonStorage)
	e.clock.pass(countAge)
	if _, due := e.Uncounted(tenant.ID, Credentials); !due {
		t.Error("a count does not grow old")
	}
	r := e.request(kms.OpRotateKey, kms.SpecSM4)
	r.Versions = 20
	e.refused(r, kms.KindQuotaExhausted, ReasonVersions)
}

func TestPolicyChangeHoldsFromWhenItCameAndReservationsKeepTheirs(t *testing.T) {
	e := newTestEngine(t, kms.TierSilver, func(p *Policy) { p.Tiers[kms.TierSilver].OverdraftCredits = 0 })
	open := e.must(e.costing(3000))
	e.clock.pass(time.Second) // 1,000 at the old rate
	p := DefaultPolicy()
	p.Tiers[kms.TierSilver].OverdraftCredits = 0
	p.Tiers[kms.TierSilver].CreditsPerSecond = 100
	p.Costs.Default = 9
	if err := e.policies.Apply(2, document(t, p)); err != nil {
		t.Fatal(err)
	}
	e.clock.pass(time.Second) // 100 at the new one
	if h := e.shardOf(testTenant).holds[open.RequestID]; h.snapshot.Version != 1 {
		t.Errorf("the reservation is of version %d", h.snapshot.Version)
	}
	e.must(e.costing(1))
	if a := e.accounts(); a.Available != 1099*kms.Credit || a.PolicyVersion != 2 {
		t.Errorf("available %d under version %d", a.Available, a.PolicyVersion)
	}
	e.tenant.Tier = kms.TierFree
	e.must(e.costing(1))
	if a := e.accounts(); a.Available != 599*kms.Credit || a.Tier != kms.TierFree {
		t.Errorf("of another tier it has %d", a.Available)
	}
}

func TestRefusedBeforeAdmissionIsNotFree(t *testing.T) {
	e := newTestEngine(t, kms.TierFree, nil)
	credential := uuid.New()
	r := e.costing(100)
	r.Principal.Credential = credential
	e.must(r)
	e.Penalise(e.tenant, credential)
	e.Penalise(&kms.Tenant{ID: uuid.New()}, credential)
	if a := e.accounts(); a.Available != 499_900_000 || a.Charged != 100_000 {
		t.Errorf("available %d, charged %d", a.Available, a.Charged)
	}
}

func TestReservationOfAnotherTenantOrTwiceIsIgnoredByTheEngine(t *testing.T) {
	e := newTestEngine(t, kms.TierFree, nil)
	r := e.must(e.costing(100))
	forged := r
	forged.Tenant = uuid.MustParse("01890000-0000-7000-8000-000000000101") // of the same shard
	e.Settle(forged, settledInFull(r))
	if a := e.accounts(); a.Open != 1 {
		t.Error("another tenant ended it")
	}
	again := e.costing(1)
	again.RequestID = r.RequestID
	if _, err := e.AdmitRequest(again); kms.KindOf(err) != kms.KindInternal {
		t.Errorf("an id that is in flight is admitted: %v", err)
	}
	for range 100 {
		e.Settle(r, settledInFull(r))
	}
	if a := e.accounts(); a.Charged != 100*kms.Credit || a.Open != 0 || a.DayUsed != 100*kms.Credit {
		t.Errorf("charged %d, %d open, day %d", a.Charged, a.Open, a.DayUsed)
	}
}
