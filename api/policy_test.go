package api_test

import (
	"encoding/json/jsontext"
	"encoding/json/v2"
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-kms/sluice/kms"
	"github.com/sluice-kms/sluice/quota"
)

// policyDocument is a good policy with one change.
func policyDocument(t testing.TB, change func(*quota.Policy)) string {
	t.Helper()
	p := quota.DefaultPolicy()
	change(p)
	document, err := p.Document()
	if err != nil {
		t.Fatal(err)
	}
	return string(document)
}

func goldBurst(credits int64) func(*quota.Policy) {
	return func(p *quota.Policy) { p.Tiers[kms.TierGold].BurstCredits = credits }
}

// The way of a change: checked, compared, put, in force, seen in the history,
// taken back.
func TestPolicyIsPutIntoForceAndTakenBack(t *testing.T) {
	w := newWorldOfOne(t)
	current := func() map[string]any { return w.must(200, "GET", "/v1/policy", w.operator, "").fields }
	gold := func() any {
		return current()["document"].(map[string]any)["tiers"].(map[string]any)["gold"].(map[string]any)["burst_credits"]
	}
	if p := current(); p["version"] != 0.0 || p["stored"] != 0.0 || p["problem"] != nil || p["created_by"] != nil || p["created_at"] != nil || gold() != 15000.0 {
		t.Errorf("at the beginning: %v", p)
	}
	document := policyDocument(t, goldBurst(20_000))
	checked := w.must(200, "POST", "/v1/policy/check", w.operator, `{"document":`+document+`}`)
	if checked.fields["valid"] != true || len(checked.text("sha256")) != 64 || checked.fields["errors"] != nil {
		t.Errorf("%s", checked.body)
	}
	diff := w.must(200, "POST", "/v1/policy/diff", w.operator, `{"document":`+document+`}`)
	if got := fmt.Sprint(diff.fields["version"], diff.fields["changes"]); got != "0 [map[from:15000 path:tiers.gold.burst_credits to:20000]]" {
		t.Errorf("%s", got)
	}
	body := `{"document":` + document + `,"previous":0,"comment":"gold bursts more"}`
	if a := w.must(200, "PUT", "/v1/policy?dry_run=true", w.operator, body); a.fields["dry_run"] != true || gold() != 15000.0 {
		t.Errorf("a dry run: %s", a.body)
	}
	put := w.must(200, "PUT", "/v1/policy", w.operator, body)
	if put.fields["version"] != 1.0 || put.fields["sha256"] != checked.fields["sha256"] || put.text("comment") != "gold bursts more" || put.fields["created_by"] == nil {
		t.Errorf("%s", put.body)
	}
	if p := current(); p["version"] != 1.0 || p["stored"] != 1.0 || p["created_at"] != put.fields["created_at"] || gold() != 20000.0 {
		t.Errorf("%v", p)
	}
	if a := w.must(412, "PUT", "/v1/policy", w.operator, body); a.code() != "revision" {
		t.Errorf("%s", a.body)
	}
	if a := w.must(200, "POST", "/v1/policy/rollback", w.operator, `{"version":0}`); a.fields["version"] != 2.0 || a.text("comment") != "back to version 0" || gold() != 15000.0 {
		t.Errorf("%s", a.body)
	}
	w.must(200, "POST", "/v1/policy/rollback", w.operator, `{"version":1,"comment":"again"}`)
	w.must(404, "POST", "/v1/policy/rollback", w.operator, `{"version":9}`)
	page := w.must(200, "GET", "/v1/policy/versions?page_size=2", w.operator, "").fields
	versions := page["versions"].([]any)
	if len(versions) != 2 || versions[0].(map[string]any)["version"] != 3.0 || versions[0].(map[string]any)["comment"] != "again" || page["next_page_token"] == nil {
		t.Errorf("%v", page)
	}
	old := w.must(200, "GET", "/v1/policy/versions/1", w.operator, "")
	if sent, shown := canonicalJSON(t, document), canonicalJSON(t, old.fields["document"]); sent != shown {
		t.Errorf("version 1 is shown as %s", shown)
	}
	for _, path := range missing["policy"] {
		w.must(404, "GET", "/v1/policy/versions/"+path, w.operator, "")
	}
}

// canonicalJSON is the one spelling of a JSON text, or of a value.
func canonicalJSON(t *testing.T, v any) string {
	t.Helper()
	if text, ok := v.(string); ok {
		var decoded any
		if err := json.Unmarshal([]byte(text), &decoded); err != nil {
			t.Fatal(err)
		}
		v = decoded
	}
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	value := jsontext.Value(raw)
	if err := value.Canonicalize(); err != nil {
		t.Fatal(err)
	}
	return string(value)
}

func TestBadPolicyIsToldByItsPathAndNeverPut(t *testing.T) {
	w := newWorldOfOne(t)
	for name, c := range map[string]struct{ document, path string }{
		"a range":        {policyDocument(t, func(p *quota.Policy) { p.Gate.SafePercent = 99 }), "gate.safe_percent"},
		"across fields":  {policyDocument(t, goldBurst(1)), "tiers.gold.burst_credits"},
		"unknown field":  {`{"canary-field":1}`, "canary-field"},
		"null":           {strings.Replace(policyDocument(t, goldBurst(20_000)), `{"hours":24}`, `null`, 1), ""},
		"nothing":        {`{}`, "costs"},
		"another type":   {`{"tiers":7}`, "tiers"},
		"what is absent": {`{"tiers":{}}`, "costs"},
	} {
		if name != "null" {
			checked := w.must(200, "POST", "/v1/policy/check", w.operator, `{"document":`+c.document+`}`)
			errors, _ := checked.fields["errors"].([]any)
			if checked.fields["valid"] != false || len(errors) == 0 || !strings.HasPrefix(errors[0].(map[string]any)["path"].(string), c.path) {
				t.Errorf("%s: %s", name, checked.body)
			}
		}
		for _, call := range [][2]string{{"PUT", "/v1/policy"}, {"POST", "/v1/policy/diff"}} {
			a := w.send(call[0], call[1], w.operator, `{"document":`+c.document+`}`)
			if a.status != 422 || strings.Contains(string(a.body), "canary") {
				t.Errorf("%s: %s is answered %d %s", name, call[1], a.status, a.body)
			}
		}
	}
	if n, _ := w.NewestPolicy(t.Context()); n != 0 || w.engine.PolicyVersion() != 0 {
		t.Errorf("version %d is stored", n)
	}
	for _, body := range []string{`{}`, `{"document":` + policyDocument(t, goldBurst(20_000)) + `,"version":0}`} {
		if a := w.send("POST", "/v1/policy/diff", w.operator, body); a.status != 422 {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
}

// A policy may be as large and as deep as it needs to be, and no other body.
func TestLargePolicyFits(t *testing.T) {
	w := newWorldOfOne(t)
	project := `{"credits_per_second":10,"burst_credits":20}`
	var tenants []string
	for i := range 3000 {
		tenants = append(tenants, fmt.Sprintf(`"01920000-0000-7000-8000-%012x":{"projects":{"a":%s}}`, i, project))
	}
	document := policyDocument(t, func(*quota.Policy) {})
	document = strings.TrimSuffix(document, "}") + `,"tenants":{` + strings.Join(tenants, ",") + `}}`
	put := w.must(200, "PUT", "/v1/policy", w.operator, `{"document":`+document+`}`)
	t.Logf("%d tenants in %d bytes are version %v", len(tenants), len(document), put.fields["version"])
	if a := w.send("PUT", "/v1/policy", w.operator, `{"previous":1,"document":{"costs":`+strings.Repeat(`{"a":`, 8)+`1`+strings.Repeat(`}`, 8)+`}}`); a.status != 400 {
		t.Errorf("a deeper one: %d %s", a.status, a.body)
	}
	long := `{"previous":1,"document":{"costs":{"version":"` + strings.Repeat("x", kms.MaxPolicyDocument) + `"}}}`
	if a := w.send("PUT", "/v1/policy", w.operator, long); a.status != 422 {
		t.Errorf("a longer one: %d %.200s", a.status, a.body)
	}
}

func TestPolicyIsPutByTwoOperators(t *testing.T) {
	w := newWorld(t)
	second := w.secondOperator()
	body := `{"document":` + policyDocument(t, goldBurst(20_000)) + `}`
	id := w.required(w.send("PUT", "/v1/policy", w.operator, body))
	if a := w.must(200, "GET", "/v1/approvals/"+id, second, ""); !strings.HasPrefix(a.text("resource"), "policy version 1, SHA-256 ") {
		t.Errorf("%s", a.body)
	}
	w.must(200, "POST", "/v1/approvals/"+id+"/approve", second, "")
	if a := w.must(200, "PUT", "/v1/policy", w.operator, body, "Sluice-Approval", id); a.fields["version"] != 1.0 {
		t.Errorf("%s", a.body)
	}
	w.required(w.send("POST", "/v1/policy/rollback", w.operator, `{"version":0}`))
}

func TestPolicyIsTheOperators(t *testing.T) {
	w := newWorld(t)
	auditor := w.must(201, "POST", "/v1/credentials", w.operator, `{"name":"auditor","scopes":["role:operator-auditor"]}`).text("credential")
	w.must(200, "GET", "/v1/policy", auditor, "")
	w.must(200, "GET", "/v1/policy/versions", auditor, "")
	for _, call := range [][3]string{{"PUT", "/v1/policy", `{"document":{}}`}, {"POST", "/v1/policy/rollback", `{"version":0}`}} {
		if a := w.send(call[0], call[1], auditor, call[2]); a.status != 403 {
			t.Errorf("an auditor: %s is answered %d", call[1], a.status)
		}
	}
	if a := w.send("GET", "/v1/policy", w.acme.token, ""); a.status != 403 {
		t.Errorf("a tenant reads it: %d", a.status)
	}
}
