package wire_test

import (
	"net/http"
	"testing"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// The level of service of a month counts, by tier, what the service failed, and
// neither what tenants asked wrongly or beyond their limits, nor other months.
func TestServiceLevelCountsWhatTheServiceFailed(t *testing.T) {
	s := newTrailSite(t) // acme is gold
	must := func(name, tier string) uuid.UUID {
		return uuid.MustParse(s.must(t, "POST", "/v1/tenants", s.Operator, `{"name":"`+name+`","tier":"`+tier+`"}`)["id"].(string))
	}
	good, bad, free := must("good", "gold"), must("bad", "gold"), must("small", "free")
	month := time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC)
	batch := &kms.TrailBatch{Node: "elsewhere", Head: kms.TrailHead{Sequence: 1, Hash: [32]byte{1}}, Until: time.Now(), Ended: true,
		Entries: []kms.TrailEntry{{Sequence: 1, Payload: []byte("{}"), Entry: &kms.Entry{Time: month, Tenant: good}}}, Usage: map[kms.Granularity][]kms.UsageRow{}}
	add := func(tenant uuid.UUID, day time.Time, reason string, requests int64) {
		batch.Usage[kms.ByDay] = append(batch.Usage[kms.ByDay], kms.UsageRow{Start: day, UsageKey: kms.UsageKey{Tenant: tenant, Operation: kms.OpSign, Reason: reason},
			UsageSum: kms.UsageSum{Requests: requests}})
	}
	last := month.AddDate(0, 1, -1)
	add(good, month, "", 9_000)
	add(good, last, "internal", 1)
	add(good, last, "TENANT_RATE", 999) // its own limit
	add(bad, month, "", 994)
	add(bad, last, kms.ReasonGate, 5)
	add(bad, last, "hsm_unavailable", 1)
	add(free, month, "not_found", 100) // asked wrongly
	add(free, month.AddDate(0, 0, -1), "internal", 100)
	add(free, month.AddDate(0, 1, 0), "internal", 100)
	add(uuid.Nil(), month, "unauthenticated", 1_000_000)
	if err := s.App.Store.Ship(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	level := s.must(t, "GET", "/v1/service-level?month=2026-02", s.Operator, "")
	if level["month"] != "2026-02" || level["promise"] != 0.995 || level["kept"] != true || level["final"] != true {
		t.Errorf("the month is %v", level)
	}
	want := map[string][4]float64{"platinum": {0, 0, 0, 1}, "gold": {2, 11_000, 7, 0.9993}, "silver": {0, 0, 0, 1}, "free": {1, 100, 0, 1}}
	for _, tier := range level["tiers"].([]any) {
		l := tier.(map[string]any)
		got := [4]float64{l["tenants"].(float64), l["requests"].(float64), l["failed"].(float64), l["success"].(float64)}
		if got != want[l["tier"].(string)] {
			t.Errorf("%v: %v, want %v", l["tier"], got, want[l["tier"].(string)])
		}
		if below := l["tenants_below"].(float64); (l["tier"] == "gold") != (below == 1) {
			t.Errorf("%v: %v tenants are below the line", l["tier"], below)
		}
	}
	march := s.must(t, "GET", "/v1/service-level?month=2026-03", s.Operator, "")
	if march["kept"] != false {
		t.Errorf("a tier of which everything failed: %v", march)
	}
	now := s.must(t, "GET", "/v1/service-level", s.Operator, "")
	if now["final"] != false || now["month"] != time.Now().UTC().Format("2006-01") {
		t.Errorf("this month is %v", now)
	}
	if status, _ := s.call(t, "GET", "/v1/service-level", s.Demo, ""); status != http.StatusForbidden {
		t.Errorf("a tenant is answered with %d", status)
	}
	for _, month := range []string{"2026", "2999-01", "2026-13"} {
		if status, _ := s.call(t, "GET", "/v1/service-level?month="+month, s.Operator, ""); status != http.StatusUnprocessableEntity {
			t.Errorf("the month %s is answered with %d", month, status)
		}
	}
}
