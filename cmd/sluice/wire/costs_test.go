package wire_test

import (
	"encoding/base64"
	"encoding/json/v2"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/cmd/sluice/wire/wiretest"
	"github.com/sluice-kms/sluice/kms"
	"github.com/sluice-kms/sluice/quota"
)

// tenCredits is a body that costs ten credits to encrypt.
var tenCredits = `{"plaintext":"` + base64.StdEncoding.EncodeToString(make([]byte, 10*4096)) + `"}`

// hasty is a policy in which stages come after seconds, and in which a tenant
// has a day that is short for its rate and far from its end.
func hasty(tenant uuid.UUID, factor int64) func(*quota.Policy) {
	return func(p *quota.Policy) {
		p.CostBreaker.WindowSeconds, p.CostBreaker.RecoverySeconds = 1, 1
		gold := p.Tiers[kms.TierGold]
		gold.DayCredits, gold.PoolCredits, gold.CreditsPerSecond, gold.BurstCredits, gold.OverdraftCredits = 100_000, 0, 2000, 4000, 0
		gold.RampFromPercent, gold.KeyPercent, gold.CostFactorPermille = 100, 100, factor
		zone := "Etc/GMT+12"
		if hour := time.Now().UTC().Hour(); 4 <= hour && hour < 16 {
			zone = ""
		}
		p.Tenants = map[uuid.UUID]*quota.TenantPolicy{tenant: {TimeZone: zone}}
	}
}

// costReply is what the tests of the cost breaker look at.
type costReply struct {
	status int
	header http.Header
	body   []byte
	reason string
}

func ask(t testing.TB, s *wiretest.Service, credential, method, path, body string, header ...string) costReply {
	t.Helper()
	req, err := http.NewRequest(method, s.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+credential)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := s.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	r := costReply{status: resp.StatusCode, header: resp.Header}
	if r.body, err = io.ReadAll(resp.Body); err != nil {
		t.Fatal(err)
	}
	var problem struct {
		Reasons []struct{ Code string } `json:"reasons"`
	}
	if resp.StatusCode >= 400 && json.Unmarshal(r.body, &problem, json.MatchCaseInsensitiveNames(true)) == nil && len(problem.Reasons) == 1 {
		r.reason = problem.Reasons[0].Code
	}
	return r
}

// operations are the calls that reached nodes.
func operations(t testing.TB, s *wiretest.Service) (sum float64) {
	t.Helper()
	families, err := s.App.Metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "sluice_node_operations_total" {
			for _, m := range f.Metric {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

// A loop of one component goes through the stages in their order and is
// stopped; the other component goes on; what is refused reaches no HSM; the
// stop is lifted; when it is over the report is there as JSON, page and PDF.
func TestRunawayComponentIsStoppedAndLeavesAReport(t *testing.T) {
	s := wiretest.Start(t, t.TempDir())
	newTenant(t, s, "loopy", "gold")
	tenant, err := s.App.Store.TenantByRef(t.Context(), "loopy")
	if err != nil {
		t.Fatal(err)
	}
	put := func(previous int, factor int64) {
		t.Helper()
		if r := ask(t, s, s.Operator, "PUT", "/v1/policy", fmt.Sprintf(`{"previous":%d,"document":%s}`, previous, policy(t, hasty(tenant.ID, factor)))); r.status != 200 {
			t.Fatalf("putting a policy: %d %s", r.status, r.body)
		}
	}
	put(0, 1000)
	minted := func(component, scopes string) string {
		t.Helper()
		_, _, made := raw(t, s, s.Operator, "POST", "/v1/tenants/loopy/credentials", fmt.Sprintf(`{"name":"c","component":%q,"scopes":%s}`, component, scopes))
		return made["credential"].(string)
	}
	loop, app := minted("loop", `["key:*"]`), minted("app", `["key:*"]`)
	admin := minted("", `["tenant:admin","usage:read"]`)
	receiver := newHook(t)
	_, secret := createHook(t, s, admin, receiver.URL, `["cost.risk","cost.stopped","cost.recovered"]`)

	var seen []string
	note := func(what string) {
		if !slices.Contains(seen, what) {
			seen = append(seen, what)
		}
	}
	within(t, recovery, "the stop", func() bool {
		if r := ask(t, s, loop, "POST", "/v1/keys/k/encrypt", `{"plaintext":""}`, "Sluice-Urgency", "bulk"); r.reason == "COST_BULK_REFUSED" {
			note("bulk refused")
		}
		r := ask(t, s, loop, "POST", "/v1/keys/k/encrypt", tenCredits)
		if r.status == 200 && strings.HasPrefix(r.header.Get("Sluice-Cost-Warning"), "exhausted_at=") {
			note("marked")
		}
		if r.reason == "COST_STOPPED" {
			note("stopped")
			if r.status != 429 || r.header.Get("Retry-After") == "" {
				t.Errorf("%d without Retry-After: %s", r.status, r.body)
			}
		}
		return r.reason == "COST_STOPPED"
	})
	if want := []string{"bulk refused", "marked", "stopped"}; !slices.Equal(seen, want) {
		t.Errorf("the stages were seen as %q, want %q", seen, want)
	}
	var events []string
	told := func(want string) map[string]string { // waits for an event, and returns what it says
		for {
			var event struct {
				Type string
				Data map[string]string
			}
			if err := json.Unmarshal([]byte(receiver.next(t, secret)), &event, json.MatchCaseInsensitiveNames(true)); err != nil {
				t.Fatal(err)
			}
			if events = append(events, event.Type+" "+event.Data["stage"]); event.Type == want {
				return event.Data
			}
		}
	}
	if stop := told("cost.stopped"); stop["component"] != "loop" || stop["whole_tenant"] != "false" {
		t.Errorf("the stop is told as %v", stop)
	}
	if want := []string{"cost.risk no_bulk", "cost.risk marked", "cost.stopped stopped"}; !slices.Equal(events, want) {
		t.Errorf("%q were told, want %q", events, want)
	}
	// The service has operations of its own, such as the signature of the
	// journal's head, but not beside every round of calls.
	reached := math.Inf(1)
	for round := 0; round < 5 && reached > 0; round++ {
		before := operations(t, s)
		for range 20 {
			if r := ask(t, s, loop, "POST", "/v1/keys/k/encrypt", tenCredits); r.reason != "COST_STOPPED" || r.header.Get("Sluice-Cost") != "" && r.header.Get("Sluice-Cost") != "0" {
				t.Fatalf("while it is stopped: %d %s, %s credits", r.status, r.body, r.header.Get("Sluice-Cost"))
			}
		}
		reached = min(reached, float64(operations(t, s)-before))
	}
	if reached > 0 {
		t.Errorf("at least %v of 20 calls that are refused reach a node", reached)
	}
	if r := ask(t, s, app, "POST", "/v1/keys/k/encrypt", `{"plaintext":""}`); r.status != 200 {
		t.Errorf("another component: %d %s", r.status, r.body)
	}
	if r := ask(t, s, admin, "GET", "/v1/quota", ""); !strings.Contains(string(r.body), `"stage":"stopped"`) || !strings.Contains(string(r.body), `"component":"loop"`) {
		t.Errorf("the quota is %s", r.body)
	}

	if r := ask(t, s, admin, "POST", "/v1/quota/cost-breaker/reset", "{}"); r.status != 200 || !strings.Contains(string(r.body), `"lifted":true`) {
		t.Fatalf("lifting the stop: %d %s", r.status, r.body)
	}
	if r := ask(t, s, loop, "POST", "/v1/keys/k/encrypt", tenCredits); r.status != 200 || r.header.Get("Sluice-Cost-Warning") == "" {
		t.Errorf("after the lift: %d %s", r.status, r.body)
	}
	put(1, 0)                                // it is off, so its risk is nothing
	ask(t, s, admin, "GET", "/v1/quota", "") // the tenant's next request is under it
	recovered := told("cost.recovered")
	list := ask(t, s, admin, "GET", "/v1/quota/incidents", "")
	if !strings.Contains(string(list.body), recovered["incident"]) {
		t.Errorf("the incidents are %s", list.body)
	}
	for accept, want := range map[string]string{"application/json": `"component":"loop"`, "text/html": "<!DOCTYPE html>", "application/pdf": "%PDF-"} {
		r := ask(t, s, admin, "GET", "/v1/quota/incidents/"+recovered["incident"], "", "Accept", accept)
		if r.status != 200 || !strings.Contains(string(r.body), want) {
			t.Errorf("as %s: %d %.300s", accept, r.status, r.body)
		}
	}
}
