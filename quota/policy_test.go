package quota

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

func document(t testing.TB, p *Policy) []byte {
	t.Helper()
	d, err := p.Document()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// overriding returns the default policy with numbers of their own for a tenant.
func overriding(tenant uuid.UUID, o TenantPolicy) *Policy {
	p := DefaultPolicy()
	p.Tenants = map[uuid.UUID]*TenantPolicy{tenant: &o}
	return p
}

func ptr[T any](v T) *T { return &v }

func TestDefaultPolicyIsValidAndSurvivesEncoding(t *testing.T) {
	p := DefaultPolicy()
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	back, err := ParsePolicy(document(t, p))
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(p, back) {
		t.Error("the policy changed on its way through JSON")
	}
}

// The published numbers once more, not taken from the code.
func TestDefaultPolicyHasThePublishedNumbers(t *testing.T) {
	type row [4]int64 // platinum, gold, silver, free
	rows := map[string]row{
		"CreditsPerSecond":  {20_000, 5_000, 1_000, 200},
		"BurstCredits":      {60_000, 15_000, 3_000, 600},
		"OverdraftCredits":  {20_000, 5_000, 500, 0},
		"RequestsPerSecond": {0, 0, 2_000, 200},
		"DayCredits":        {600e6, 150e6, 20e6, 1e6},
		"PoolCredits":       {300e6, 75e6, 10e6, 0},
		"BandwidthBytes":    {1 << 40, 256 << 30, 32 << 30, 1 << 30},
		"Concurrency":       {256, 128, 64, 16},
		"Keys":              {100_000, 10_000, 1_000, 100},
		"Secrets":           {10_000, 2_000, 500, 20},
		"Credentials":       {1_000, 200, 50, 5},
		"VersionsPerKey":    {1_000, 1_000, 200, 20},
		"KeyPercent":        {100, 50, 50, 50},
		"LoadPercent":       {100, 100, 70, 40},
		"EmergencyPercent":  {80, 60, 40, 20},
		"RampFromPercent":   {100, 50, 25, 25},
	}
	waits := [4]WaitTimes{{1000, 2000, 30000}, {1000, 2000, 30000}, {2000, 5000, 60000}, {2000, 5000, 60000}}
	classes := [4]Classes{{"HIGH", "HIGH", "MID"}, {"HIGH", "MID", "LOW"}, {"MID", "MID", "LOW"}, {"MID", "LOW", "LOW"}}
	p := DefaultPolicy()
	for i, tier := range kms.Tiers() {
		v := reflect.ValueOf(p.Tiers[tier]).Elem()
		for name, row := range rows {
			if got := v.FieldByName(name).Int(); got != row[i] {
				t.Errorf("%s %s is %d, want %d", tier, name, got, row[i])
			}
		}
		if p.Tiers[tier].MaxWait != waits[i] || p.Tiers[tier].Class != classes[i] {
			t.Errorf("%s: waits %v, classes %v", tier, p.Tiers[tier].MaxWait, p.Tiers[tier].Class)
		}
	}
}

// Each mistake alone is refused, and the refusal names its place.
func TestMistakeInAPolicyIsRefusedByItsPath(t *testing.T) {
	tenant := uuid.MustParse("01890000-0000-7000-8000-000000000001")
	of := "tenants." + tenant.String()
	tests := []struct {
		path string
		make func(p *Policy)
	}{
		{"costs.version", func(p *Policy) { p.Costs.Version = "" }},
		{"costs.block_bytes", func(p *Policy) { p.Costs.BlockBytes = 0 }},
		{"costs.operations.random", func(p *Policy) { p.Costs.Operations[kms.OpRandom] = -1 }},
		{"costs.specs.SM2.private", func(p *Policy) { p.Costs.Specs[kms.SpecSM2] = SpecCosts{Private: 2_000_000} }},
		{"costs.specs.SM2.apart.decrypt", func(p *Policy) { p.Costs.Specs[kms.SpecSM2].Apart[kms.OpDecrypt] = -1 }},
		{"tiers.gold", func(p *Policy) { delete(p.Tiers, kms.TierGold) }},
		{"tiers.gold", func(p *Policy) { p.Tiers[kms.TierGold] = nil }},
		{"tiers", func(p *Policy) { p.Tiers["lead"] = p.Tiers[kms.TierFree] }},
		{"tiers.free.credits_per_second", func(p *Policy) { p.Tiers[kms.TierFree].CreditsPerSecond = 0 }},
		{"tiers.free.credits_per_second", func(p *Policy) { p.Tiers[kms.TierFree].CreditsPerSecond = 1_000_001 }},
		{"tiers.free.burst_credits", func(p *Policy) { p.Tiers[kms.TierFree].BurstCredits = 199 }},
		{"tiers.free.overdraft_credits", func(p *Policy) { p.Tiers[kms.TierFree].OverdraftCredits = 601 }},
		{"tiers.free.burst_requests", func(p *Policy) { p.Tiers[kms.TierFree].BurstRequests = 0 }},
		{"tiers.free.day_credits", func(p *Policy) { p.Tiers[kms.TierFree].DayCredits = 500 }},
		{"tiers.platinum.day_credits", func(p *Policy) { p.Tiers[kms.TierPlatinum].DayCredits = 90_000_000_001 }},
		{"tiers.free.pool_credits", func(p *Policy) { p.Tiers[kms.TierFree].PoolCredits = 1_000_001 }},
		{"tiers.gold.max_wait_ms.normal", func(p *Policy) { p.Tiers[kms.TierGold].MaxWait.Normal = 999 }},
		{"tiers.gold.max_wait_ms.bulk", func(p *Policy) { p.Tiers[kms.TierGold].MaxWait.Bulk = 1999 }},
		{"tiers.gold.emergency_percent", func(p *Policy) { p.Tiers[kms.TierGold].EmergencyPercent = 0 }},
		{"tiers.gold.emergency_percent", func(p *Policy) { p.Tiers[kms.TierGold].EmergencyPercent = 101 }},
		{"tiers.gold.class.bulk", func(p *Policy) { p.Tiers[kms.TierGold].Class.Bulk = "low" }},
		{"hot_spot_breaker.min_bad", func(p *Policy) { p.HotSpot.MinBad = 101 }},
		{"failure_breaker.max_open_seconds", func(p *Policy) { p.Failures.OpenSeconds = 61 }},
		{"cost_breaker.recover_percent", func(p *Policy) { p.CostBreaker.RecoverPercent = 200 }},
		{"gate.safe_percent", func(p *Policy) { p.Gate.SafePercent = 95 }},
		{"gate.hysteresis_percent", func(p *Policy) { p.Gate.SafePercent, p.Gate.HysteresisPercent = 3, 3 }},
		{"gate.capacity_percent", func(p *Policy) { p.Gate.CapacityPercent = 0 }},
		{"gate.capacity_percent", func(p *Policy) { p.Gate.CapacityPercent = 101 }},
		{"capacity.credits_per_second", func(p *Policy) { p.Capacity.CreditsPerSecond = -1 }},
		{"capacity.credits_per_second", func(p *Policy) { p.Capacity.CreditsPerSecond = 1_000_000_001 }},
		{"leases.period_ms", func(p *Policy) { p.Leases.PeriodMs = 199 }},
		{"leases.slots_ttl_ms", func(p *Policy) { p.Leases.SlotsTTLMs = 199 }},
		{"leases.down_ms", func(p *Policy) { p.Leases.DownMs = 249 }},
		{"secrets.client_expiry_seconds", func(p *Policy) { p.Secrets.ClientExpirySeconds = 299 }},
		{"secrets.breaker_max_seconds", func(p *Policy) { p.Secrets.BreakerMaxSeconds = 119 }},
		{"secrets.switch_percents", func(p *Policy) { p.Secrets.SwitchPercents = Steps{30, 10, 100} }},
		{"secrets.switch_percents.1", func(p *Policy) { p.Secrets.SwitchPercents = Steps{10, 101} }},
		{"secrets.failback_percents", func(p *Policy) { p.Secrets.FailbackPercents = nil }},
		{"alerts.utilisation_low_percent", func(p *Policy) { p.Alerts.UtilisationLowPercent = 85 }},
		{of, func(p *Policy) { p.Tenants[tenant] = nil }},
		{of + ".time_zone", func(p *Policy) { p.Tenants[tenant].TimeZone = "Mars/Olympus" }},
		{of + ".time_zone", func(p *Policy) { p.Tenants[tenant].TimeZone = "Local" }},
		{of + ".limits.concurrency", func(p *Policy) { p.Tenants[tenant].Limits.Concurrency = ptr(int64(0)) }},
		{of + ".limits.burst_credits", func(p *Policy) { p.Tenants[tenant].Limits.CreditsPerSecond = ptr(int64(100_000)) }},
		{of + ".packs.0.expires", func(p *Policy) { p.Tenants[tenant].Packs = []Pack{{ID: "a", Credits: 1}} }},
		{of + ".packs.0.credits", func(p *Policy) { p.Tenants[tenant].Packs = []Pack{{ID: "a", Expires: time.Unix(1, 0)}} }},
		{of + ".packs.1.id", func(p *Policy) {
			pack := Pack{ID: "a", Credits: 1, Expires: time.Unix(1, 0)}
			p.Tenants[tenant].Packs = []Pack{pack, pack}
		}},
		{of + ".projects", func(p *Policy) { p.Tenants[tenant].Projects = map[string]*ScopeLimits{"a/": {}} }},
		{of + ".projects.a.burst_credits", func(p *Policy) { p.Tenants[tenant].Projects = map[string]*ScopeLimits{"a": {CreditsPerSecond: 1}} }},
		{of + ".projects.a", func(p *Policy) { p.Tenants[tenant].Projects = map[string]*ScopeLimits{"a": nil} }},
		{of + ".keys." + tenant.String() + ".burst_requests", func(p *Policy) {
			p.Tenants[tenant].Keys = map[uuid.UUID]*ScopeLimits{tenant: {RequestsPerSecond: 2, BurstRequests: 1}}
		}},
		{of + ".credentials." + tenant.String() + ".concurrency", func(p *Policy) {
			p.Tenants[tenant].Credentials = map[uuid.UUID]*ScopeLimits{tenant: {Concurrency: -1}}
		}},
	}
	for _, tt := range tests {
		t.Run(tt.path, func(t *testing.T) {
			p := overriding(tenant, TenantPolicy{})
			if err := p.Validate(); err != nil {
				t.Fatal(err)
			}
			tt.make(p)
			mistake, ok := errors.AsType[*PolicyError](p.Validate())
			if !ok || mistake.Path != tt.path {
				t.Errorf("got %v, want a mistake at %s", mistake, tt.path)
			}
		})
	}
}

// A policy that was stored before there was a capacity in it stays valid: then
// nobody knows it.
func TestPolicyWithoutACapacityKnowsNone(t *testing.T) {
	whole := string(document(t, DefaultPolicy()))
	without := strings.Replace(whole, `"capacity":{"credits_per_second":1000000},`, "", 1)
	if without == whole {
		t.Fatal("the policy has no capacity")
	}
	p, err := ParsePolicy([]byte(without))
	if err != nil {
		t.Fatal(err)
	}
	if c := PlanCapacity(nil, p.Baselines(), 8, kms.Sold{Committed: 1e9}); c.Source != kms.CapacityUnknown || c.Oversold() {
		t.Errorf("%+v", c)
	}
}

func TestPolicyIsDecodedStrictly(t *testing.T) {
	good := string(document(t, DefaultPolicy()))
	tests := []struct{ name, from, to, path string }{
		{"unknown field", `"ramp":`, `"rampe":`, "rampe"},
		{"unknown nested field", `"hours":24`, `"hours":24,"minutes":1`, "ramp.minutes"},
		{"another case", `"hours":24`, `"Hours":24`, "ramp.Hours"},
		{"left out", `"hours":24`, ``, "ramp.hours"},
		{"twice", `"hours":24`, `"hours":24,"hours":24`, ""},
		{"a string", `"hours":24`, `"hours":"24"`, "ramp.hours"},
		{"a fraction", `"hours":24`, `"hours":24.5`, "ramp.hours"},
		{"too large for a number", `"hours":24`, `"hours":99999999999999999999`, "ramp.hours"},
		{"null", `"hours":24`, `"hours":null`, "ramp.hours"},
		{"something behind", good, good + "{}", ""},
		{"nothing", good, "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			bad := strings.Replace(good, tt.from, tt.to, 1)
			if bad == good {
				t.Fatal("nothing was changed")
			}
			_, err := ParsePolicy([]byte(bad))
			if mistake, ok := errors.AsType[*PolicyError](err); !ok || mistake.Path != tt.path {
				t.Errorf("got %v, want a mistake at %q", err, tt.path)
			}
		})
	}
}

// A number without a range would take any value.
func TestEveryNumberOfAPolicyHasARange(t *testing.T) {
	seen := make(map[reflect.Type]bool)
	var walk func(typ reflect.Type, tag reflect.StructTag, path string)
	walk = func(typ reflect.Type, tag reflect.StructTag, path string) {
		switch typ.Kind() {
		case reflect.Int64:
			if tag.Get("range") == "" {
				t.Errorf("%s has no range", path)
			}
		case reflect.Int, reflect.Int32, reflect.Uint64, reflect.Float64:
			t.Errorf("%s is a %s, which is not checked", path, typ)
		case reflect.Pointer, reflect.Slice, reflect.Map:
			walk(typ.Elem(), tag, path)
		case reflect.Struct:
			// An override is checked as what it overrides.
			if seen[typ] || typ == reflect.TypeFor[time.Time]() || typ == reflect.TypeFor[TierOverride]() {
				return
			}
			seen[typ] = true
			for f := range typ.Fields() {
				walk(f.Type, f.Tag, path+"."+f.Name)
			}
		}
	}
	walk(reflect.TypeFor[Policy](), "", "Policy")
	for f := range reflect.TypeFor[TierOverride]().Fields() {
		if of, ok := reflect.TypeFor[TierLimits]().FieldByName(f.Name); !ok || of.Tag.Get("json")+",omitzero" != f.Tag.Get("json") {
			t.Errorf("%s overrides nothing", f.Name)
		}
	}
}

func TestBadDocumentNeverReplacesAGoodOne(t *testing.T) {
	h, err := NewPolicies(time.Now, 7, DefaultPolicy())
	if err != nil {
		t.Fatal(err)
	}
	was := h.Current()
	if _, err := NewPolicies(time.Now, 1, &Policy{}); err == nil {
		t.Error("an empty policy is taken at the start")
	}
	for name, apply := range map[string]func() error{
		"not JSON":   func() error { return h.Apply(8, []byte("{")) },
		"empty":      func() error { return h.Apply(8, []byte("{}")) },
		"same":       func() error { return h.Apply(7, document(t, DefaultPolicy())) },
		"older":      func() error { return h.Apply(6, document(t, DefaultPolicy())) },
		"impossible": func() error { p := DefaultPolicy(); p.Gate.SafePercent = 99; return h.Apply(8, document(t, p)) },
	} {
		if err := apply(); err == nil || h.Current() != was {
			t.Errorf("%s: %v; version %d holds", name, err, h.Current().Version)
		}
	}
	if err := h.Apply(8, document(t, DefaultPolicy())); err != nil || h.Current().Version != 8 {
		t.Errorf("a good one: %v", err)
	}
}

func TestDifferenceListsEveryChangedPath(t *testing.T) {
	tenant := uuid.MustParse("01890000-0000-7000-8000-000000000001")
	a, b := DefaultPolicy(), overriding(tenant, TenantPolicy{Limits: TierOverride{Concurrency: ptr(int64(7))}, TimeZone: "Asia/Shanghai"})
	b.Tiers[kms.TierGold].DayCredits = 89_999_999_999
	b.Secrets.SwitchPercents = Steps{10, 100}
	delete(b.Costs.Operations, kms.OpRandom)
	got, err := Diff(a, b)
	if err != nil {
		t.Fatal(err)
	}
	want := []Change{
		{"costs.operations.random", "1", ""},
		{"secrets.switch_percents.1", "30", "100"},
		{"secrets.switch_percents.2", "100", ""},
		{"tenants." + tenant.String() + ".limits.concurrency", "", "7"},
		{"tenants." + tenant.String() + ".time_zone", "", "Asia/Shanghai"},
		{"tiers.gold.day_credits", "150000000", "89999999999"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
	if same, err := Diff(a, DefaultPolicy()); err != nil || len(same) != 0 {
		t.Errorf("equal policies differ in %v, %v", same, err)
	}
}

// FuzzPolicy: whatever a document says, it is refused or gives limits that can
// be decided with; what is taken survives being written down.
func FuzzPolicy(f *testing.F) {
	f.Add([]byte("{}"))
	f.Add(document(f, DefaultPolicy()))
	f.Add(document(f, overriding(uuid.MustParse("01890000-0000-7000-8000-000000000001"), TenantPolicy{
		Limits: TierOverride{DayCredits: ptr(int64(1_000_000))}, TimeZone: "Asia/Shanghai",
		Packs:    []Pack{{"p", 1, time.Unix(2e9, 0).UTC()}},
		Projects: map[string]*ScopeLimits{"a/b": {CreditsPerSecond: 1, BurstCredits: 2, Concurrency: 1}},
	})))
	f.Fuzz(func(t *testing.T, doc []byte) {
		p, err := ParsePolicy(doc)
		if err != nil {
			if _, ok := errors.AsType[*PolicyError](err); !ok && !strings.Contains(err.Error(), "(with tier ") {
				t.Fatalf("an error of another kind: %v", err)
			}
			return
		}
		written := document(t, p)
		back, err := ParsePolicy(written)
		if err != nil {
			t.Fatalf("what was taken is refused when written down: %v", err)
		}
		if again := document(t, back); string(again) != string(written) {
			t.Fatalf("written twice it differs:\n%s\n%s", written, again)
		}
		s := NewSnapshot(1, p)
		for tier := range s.tiers {
			l := s.tiers[tier]
			if l.credits.perSecond <= 0 || l.credits.burst < l.credits.perSecond || l.days.total <= 0 || l.month < l.days.total || l.emergency <= 0 {
				t.Fatalf("limits that cannot be: %+v", l)
			}
		}
	})
}

func TestTiersAreInTheirOrder(t *testing.T) {
	for i, tier := range kms.Tiers() {
		if tierIndex(tier) != i {
			t.Errorf("%s is at %d, not %d", tier, tierIndex(tier), i)
		}
	}
	if tierIndex("lead") != tierIndex(kms.TierFree) {
		t.Error("an unknown tier is not free")
	}
}
