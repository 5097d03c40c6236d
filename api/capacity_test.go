package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/sluice-kms/sluice/quota"
)

// Who sells more than there is reads why, with numbers and what still fits, and
// can force it; whoever is no operator sees nothing of the capacity.
func TestSellingMoreThanThereIsReadsWhyAndCanBeForced(t *testing.T) {
	w := newWorldOfOne(t) // two platinum tenants
	document := policyDocument(t, func(p *quota.Policy) { p.Capacity.CreditsPerSecond = 57_500 })
	w.must(200, "PUT", "/v1/policy", w.operator, `{"previous":0,"document":`+document+`}`)
	got := w.must(200, "GET", "/v1/capacity", w.operator, "")
	for field, want := range map[string]any{"source": "configured", "credits_per_second": 57_500.0, "safety_percent": 80.0, "sellable": 46_000.0,
		"committed": 40_000.0, "available": 6000.0, "oversold": false, "slot_ns_per_credit": nil, "measured_at": nil} {
		if got.fields[field] != want {
			t.Errorf("%s is %v, want %v", field, got.fields[field], want)
		}
	}
	if gold := got.fields["tiers"].([]any)[1].(map[string]any); gold["tier"] != "gold" || gold["fits"] != 1.0 || gold["tenants"] != 0.0 || gold["credits_per_second"] != 5000.0 {
		t.Errorf("%v", gold)
	}
	sales := []struct{ method, path, body string }{
		{"POST", "/v1/tenants", `{"name":"third","tier":"platinum"`},
		{"PATCH", "/v1/tenants/small", `{"tier":"platinum"`},
		{"PUT", "/v1/policy", `{"previous":1,"document":` + policyDocument(t, func(p *quota.Policy) {
			p.Capacity.CreditsPerSecond = 57_500
			p.Tiers["platinum"].CreditsPerSecond = 40_000
		})},
	}
	w.must(201, "POST", "/v1/tenants", w.operator, `{"name":"small","tier":"free"}`)
	for _, sale := range sales {
		a := w.must(http.StatusConflict, sale.method, sale.path, w.operator, sale.body+`}`)
		reasons, _ := a.fields["reasons"].([]any)
		if a.code() != "conflict" || len(reasons) != 1 || !strings.Contains(a.text("detail"), "there still fit 0 platinum or 1 gold or 5 silver or 29 free tenants") {
			t.Fatalf("%s %s: %s", sale.method, sale.path, a.body)
		}
		reason := reasons[0].(map[string]any)
		if reason["code"] != "capacity" || reason["limit"] != 46_000.0 || reason["have"] != 5800.0 || reason["need"].(float64) <= 5800 {
			t.Errorf("%s %s: %v", sale.method, sale.path, reason)
		}
	}
	for _, sale := range sales {
		status := map[string]int{"POST": 201}[sale.method]
		w.must(max(status, 200), sale.method, sale.path, w.operator, sale.body+`,"force":true}`)
	}
	if got := w.must(200, "GET", "/v1/capacity", w.operator, ""); got.fields["oversold"] != true || got.fields["available"].(float64) >= 0 {
		t.Errorf("%s", got.body)
	}
	w.must(403, "GET", "/v1/capacity", w.acme.token, "")
	if !strings.Contains(w.logs.String(), "more was sold than the HSMs can do, by force") {
		t.Error("the log does not warn")
	}
}
