package api_test

import (
	"testing"
)

// A node's mode is changed by operators, kept from leaving a domain without a
// node unless that is forced, and shown where the pool is.
func TestNodeModeIsSetByOperatorsAndNotAgainstTheDomain(t *testing.T) {
	w := newWorld(t)
	path := "/v1/hsm/nodes/" + string(memoryNode) + "/mode"
	if a := w.send("POST", path, w.acme.token, `{"mode":"standby"}`); a.status != 403 {
		t.Errorf("a tenant sets a mode: %d", a.status)
	}
	if a := w.must(409, "POST", path, w.operator, `{"mode":"drained"}`); a.code() != "conflict" {
		t.Errorf("the last node is drained: %s", a.body)
	}
	if a := w.must(200, "POST", path, w.operator, `{"mode":"drained","force":true}`); a.text("mode") != "drained" {
		t.Errorf("%s", a.body)
	}
	if a := w.must(200, "POST", path+"?dry_run=true", w.operator, `{"mode":"active"}`); a.fields["dry_run"] != true {
		t.Errorf("%s", a.body)
	}
	nodes := w.must(200, "GET", "/v1/hsm/nodes", w.operator, "").fields["nodes"].([]any)
	if mode := nodes[0].(map[string]any)["mode"]; mode != "drained" {
		t.Errorf("after a dry run the mode is %v", mode)
	}
	if a := w.must(200, "POST", path, w.operator, `{"mode":"active"}`, "Idempotency-Key", "once"); a.text("mode") != "active" {
		t.Errorf("%s", a.body)
	}
	if a := w.must(200, "POST", path, w.operator, `{"mode":"active"}`, "Idempotency-Key", "once"); a.text("mode") != "active" {
		t.Errorf("%s", a.body)
	}
	if got := len(w.outcomes()); got == 0 {
		t.Error("nothing is in the journal")
	}
	w.must(404, "POST", "/v1/hsm/nodes/nobody/mode", w.operator, `{"mode":"active"}`)
	if a := w.sendBad("POST", path, w.operator, `{"mode":"asleep"}`); a.status != 422 {
		t.Errorf("an unknown mode: %d %s", a.status, a.body)
	}
}

func TestSelfTestIsOfANodeThatIsThere(t *testing.T) {
	w := newWorld(t)
	if a := w.must(200, "POST", "/v1/hsm/nodes/"+string(memoryNode)+"/self-test", w.operator, ""); len(a.fields["families"].([]any)) != 1 {
		t.Errorf("%s", a.body)
	}
	w.must(404, "POST", "/v1/hsm/nodes/nobody/self-test", w.operator, "")
}

// The map tells the way from a tenant to its slots.
func TestMapLeadsFromTenantToSlots(t *testing.T) {
	w := newWorld(t)
	m := w.must(200, "GET", "/v1/hsm/map?page_size=2", w.operator, "").fields
	domain := m["domains"].([]any)[0].(map[string]any)
	tenants := m["tenants"].([]any)
	if domain["name"] != "memory" || len(tenants) != 2 || m["next_page_token"] == nil || m["placed"] != 1.0 {
		t.Errorf("%v", m)
	}
	w.must(403, "GET", "/v1/hsm/map", w.acme.token, "")
}

// A tenant goes to the domain that it is given, which must exist.
func TestTenantIsPinnedToADomainThatExists(t *testing.T) {
	w := newWorld(t)
	w.must(201, "POST", "/v1/tenants", w.operator, `{"name":"pinned","domain":"memory"}`)
	if a := w.must(422, "POST", "/v1/tenants", w.operator, `{"name":"lost","domain":"elsewhere"}`); a.code() != "invalid_argument" {
		t.Errorf("%s", a.body)
	}
}
