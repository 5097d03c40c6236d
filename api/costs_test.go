package api_test

import (
	"strings"
	"testing"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

func TestReportOfAnIncidentComesInThreeForms(t *testing.T) {
	w := newWorld(t)
	i := w.incident(w.acme)
	for _, who := range []struct{ prefix, token string }{{"/v1", w.acme.token}, {"/v1/tenants/" + w.acme.name, w.operator}} {
		list := w.must(200, "GET", who.prefix+"/quota/incidents", who.token, "")
		if !strings.Contains(string(list.body), i.ID.String()) || !strings.Contains(string(list.body), kms.CauseRetryLoop) {
			t.Errorf("the list is %s", list.body)
		}
		one := who.prefix + "/quota/incidents/" + i.ID.String()
		a := w.must(200, "GET", one, who.token, "")
		if a.fields["used"] != 5000.0 || a.fields["over"] != 4000.0 || a.text("component") != "loop <1>" || a.text("stopped_at") != "2030-03-10T06:03:00Z" {
			t.Errorf("the report is %s", a.body)
		}
		page := w.must(200, "GET", one, who.token, "", "Accept", "text/html,application/xhtml+xml;q=0.9")
		if page.header.Get("Content-Type") != "text/html; charset=utf-8" || !strings.HasPrefix(string(page.body), "<!DOCTYPE html>") ||
			!strings.Contains(string(page.body), "loop &lt;1&gt;") {
			t.Errorf("%s: %s", page.header.Get("Content-Type"), page.body)
		}
		if policy := page.header.Get("Content-Security-Policy"); !strings.Contains(policy, "default-src 'none'") || !strings.Contains(policy, "sandbox") {
			t.Errorf("a page may do what %q lets it", policy)
		}
		pdf := w.must(200, "GET", one, who.token, "", "Accept", "application/pdf")
		if pdf.header.Get("Content-Type") != "application/pdf" || !strings.HasPrefix(string(pdf.body), "%PDF-") {
			t.Errorf("%s: %.20q", pdf.header.Get("Content-Type"), pdf.body)
		}
	}
}

func TestStopIsLiftedByTheTenantAndByOperators(t *testing.T) {
	w := newWorld(t)
	acme := uuid.MustParse(w.acme.id)
	for n, who := range []struct{ prefix, token string }{{"/v1", w.acme.token}, {"/v1/tenants/" + w.acme.name, w.operator}} {
		w.must(200, "POST", who.prefix+"/quota/cost-breaker/reset", who.token, "")
		if at, err := w.CostLifted(t.Context(), acme); err != nil || at.IsZero() || w.liftedHere(acme) != n+1 {
			t.Errorf("%s: noted at %v, %v, lifted here %d times", who.prefix, at, err, w.liftedHere(acme))
		}
		if e := w.entries[len(w.entries)-1]; e.Op != kms.OpLiftCost || e.Outcome != "ok" {
			t.Errorf("the journal has %+v", e)
		}
	}
	if at, _ := w.CostLifted(t.Context(), uuid.MustParse(w.rival.id)); !at.IsZero() {
		t.Error("another tenant's was lifted")
	}
	reader := w.must(201, "POST", "/v1/credentials", w.acme.token, `{"name":"reader","scopes":["usage:read"]}`).text("credential")
	w.must(200, "GET", "/v1/quota/incidents", reader, "")
	w.must(403, "POST", "/v1/quota/cost-breaker/reset", reader, "")
	w.must(403, "POST", "/v1/tenants/"+w.acme.name+"/quota/cost-breaker/reset", w.rival.token, "")
}

func TestMarkedAnswersSayWhenAllIsUsedUp(t *testing.T) {
	w := newWorld(t)
	if a := w.must(200, "POST", "/v1/random", w.acme.token, `{"bytes":16}`); a.header.Get("Sluice-Cost-Warning") != "" {
		t.Errorf("a calm tenant is warned: %s", a.header.Get("Sluice-Cost-Warning"))
	}
	w.exhausted = time.Date(2030, 3, 10, 18, 0, 0, 0, time.UTC)
	if a := w.must(200, "POST", "/v1/random", w.acme.token, `{"bytes":16}`); a.header.Get("Sluice-Cost-Warning") != "exhausted_at=2030-03-10T18:00:00Z" {
		t.Errorf("the warning is %q", a.header.Get("Sluice-Cost-Warning"))
	}
}
