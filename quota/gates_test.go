package quota

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// Every code that this package can give has a row in the table of reasons,
// with a unit where there are numbers, and says its numbers.
func TestEveryReasonOfTheQuotaIsExplained(t *testing.T) {
	codes := slices.Concat(rateReasons[:], requestReasons[:], dayReasons[:], concurrencyReasons[:], []string{
		ReasonDebt, ReasonMonth, ReasonNotch, ReasonBandwidth, ReasonStorage, ReasonVersions, ReasonHotKey, ReasonFailingKey,
		ReasonLease, ReasonStoreAway, GateOverdraft, GateRamp, GateLoad})
	for _, code := range codes {
		r := kms.Reason{Code: code, Limit: 3e6, Need: 2e6, Have: 1e6}
		text, _ := r.Explain()
		if text == "" || strings.ContainsAny(text, "{$") {
			t.Errorf("%s: %q", code, text)
		}
		if numbers := code != ReasonHotKey && code != ReasonFailingKey; (r.Unit() != kms.UnitNone) != numbers {
			t.Errorf("%s has the unit %q", code, r.Unit())
		}
	}
}

// The list of gates is what the request met, and asking for it changes nothing.
func TestGatesAreThoseThatTheRequestMeets(t *testing.T) {
	e := newTestEngine(t, kms.TierGold, nil)
	request := e.sign()
	request.Principal.Credential, request.Key = uuid.New(), uuid.New()
	var gates []kms.Reason
	request.Gates = &gates
	reservation, err := e.AdmitRequest(request)
	if err != nil {
		t.Fatal(err)
	}
	if day := gates[slices.IndexFunc(gates, func(r kms.Reason) bool { return r.Code == ReasonDay })]; kms.Credits(day.Have) != reservation.DayLeft+reservation.Cost {
		t.Errorf("the day has %+v, and after it %+v", day, reservation)
	}
	find := func(code string) kms.Reason {
		t.Helper()
		i := slices.IndexFunc(gates, func(r kms.Reason) bool { return r.Code == code })
		if i < 0 {
			t.Fatalf("%s is missing in %+v", code, gates)
		}
		return gates[i]
	}
	if r := find(ReasonRate); kms.Credits(r.Need) != reservation.Cost || kms.Credits(r.Have) != reservation.Left+reservation.Cost || kms.Credits(r.Limit) != reservation.Burst {
		t.Errorf("the tenant's bucket is %+v, and after it %+v", r, reservation)
	}
	for _, code := range []string{"KEY_RATE", "CREDENTIAL_RATE", ReasonMonth, ReasonBandwidth, ReasonConcurrency, GateRamp, GateLoad, ReasonHotKey} {
		if r := find(code); code != ReasonHotKey && r.Have > r.Limit {
			t.Errorf("%s has %d of %d", code, r.Have, r.Limit)
		}
	}
}

// Each cause that a tenant can have at its limits yields its own code, and
// nothing but it.
func TestEachCauseOfRefusalYieldsItsReason(t *testing.T) {
	key := uuid.New()
	tests := []struct {
		want string
		edit func(p *Policy)
		last func(e *testEngine) *Request // refused, after as many as fit
	}{
		{ReasonRate, func(p *Policy) { p.Tiers[kms.TierFree].OverdraftCredits = 0 }, func(e *testEngine) *Request { return e.sign() }},
		{ReasonDebt, func(p *Policy) { p.Tiers[kms.TierFree].OverdraftCredits = 100 }, func(e *testEngine) *Request { return e.sign() }},
		{"KEY_RATE", func(p *Policy) { p.Tiers[kms.TierFree].KeyPercent = 10 }, func(e *testEngine) *Request {
			r := e.sign()
			r.Key = key
			return r
		}},
		{ReasonConcurrency, func(p *Policy) { p.Tiers[kms.TierFree].Concurrency = 2 }, func(e *testEngine) *Request { return e.sign() }},
		{ReasonRequests, func(p *Policy) { p.Tiers[kms.TierFree].RequestsPerSecond, p.Tiers[kms.TierFree].BurstRequests = 3, 3 },
			func(e *testEngine) *Request { return e.sign() }},
		{ReasonBandwidth, func(p *Policy) { p.Tiers[kms.TierFree].BandwidthBytes = 10_000 }, func(e *testEngine) *Request { return e.costing(1) }},
	}
	for _, tt := range tests {
		t.Run(tt.want, func(t *testing.T) {
			e := newTestEngine(t, kms.TierFree, func(p *Policy) {
				p.Tiers[kms.TierFree].Concurrency = 1000
				tt.edit(p)
			})
			for range 1000 {
				r := tt.last(e)
				_, err := e.AdmitRequest(r)
				if err == nil {
					continue
				}
				refused, ok := errors.AsType[*kms.Error](err)
				if !ok || len(refused.Reasons) != 1 || refused.Reasons[0].Code != tt.want {
					t.Fatalf("refused for %+v, want %s", refused.Reasons, tt.want)
				}
				if r := refused.Reasons[0]; r.Limit == 0 || r.Have >= r.Need && r.Need > 0 {
					t.Errorf("numbers %+v", r)
				}
				return
			}
			t.Fatal("it is never refused")
		})
	}
}
