package wire_test

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-kms/sluice/audit"
	"github.com/sluice-kms/sluice/cmd/sluice/wire/wiretest"
	"github.com/sluice-kms/sluice/kms"
	"github.com/sluice-kms/sluice/softhsm/fault"
)

// durations reads a header of metrics with a dur each, in milliseconds.
func durations(t *testing.T, header string) map[string]float64 {
	t.Helper()
	all := map[string]float64{}
	for part := range strings.SplitSeq(header, ", ") {
		name, value, ok := strings.Cut(part, ";dur=")
		ms, err := strconv.ParseFloat(value, 64)
		if !ok || err != nil {
			t.Fatalf("%q in %q", part, header)
		}
		all[name] = ms
	}
	return all
}

// Many requests meet few slots. Each that waited says for what; the parts make
// up the wait, in its headers, when it is asked about, and in the journal.
func TestReasonsMakeUpTheWaitOfEveryRequest(t *testing.T) {
	p := newFaultyPool(t, 1)
	for _, m := range p.modules {
		m.SetService(fault.Encrypt, 10*time.Millisecond, 0)
	}
	s := &wiretest.Service{URL: p.url}
	p.must(t, p.tenants[0], "/v1/keys", `{"name":"orders","spec":"AES_256"}`)
	type seen struct {
		id    string
		queue float64
	}
	var mu sync.Mutex
	var waited []seen
	var all sync.WaitGroup
	urgencies := []string{"interactive", "normal", "bulk"}
	for i := range 48 {
		all.Go(func() {
			req, err := http.NewRequest(http.MethodPost, p.url+"/v1/keys/orders/encrypt", strings.NewReader(helloBody))
			if err != nil {
				t.Error(err)
				return
			}
			req.Header.Set("Authorization", "Bearer "+p.tenants[0])
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set("Sluice-Urgency", urgencies[i%len(urgencies)])
			resp, err := p.client.Do(req)
			if err != nil {
				t.Error(err)
				return
			}
			resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				t.Errorf("status %d", resp.StatusCode)
				return
			}
			queue := durations(t, resp.Header.Get("Server-Timing"))["queue"]
			reasons := resp.Header.Get("Sluice-Wait-Reason")
			if (queue > 0) != (reasons != "") {
				t.Errorf("a wait of %v ms for %q", queue, reasons)
			}
			if queue == 0 {
				return
			}
			sum := 0.0
			for _, ms := range durations(t, reasons) {
				sum += ms
			}
			if math.Abs(sum-queue) > 1 {
				t.Errorf("%q make %v ms of %v", reasons, sum, queue)
			}
			mu.Lock()
			defer mu.Unlock()
			waited = append(waited, seen{resp.Header.Get("X-Request-Id"), queue})
		})
	}
	all.Wait()
	if len(waited) < 20 {
		t.Fatalf("only %d requests waited", len(waited))
	}
	for _, w := range waited[:20] {
		status, _, why := raw(t, s, p.tenants[0], "GET", "/v1/requests/"+w.id+"/why", "")
		if status != 200 || why["outcome"] != "ok" || math.Abs(why["queue_ms"].(float64)-w.queue) > 0.01 || why["node"] == nil || why["class"] == nil {
			t.Fatalf("%d %v", status, why)
		}
		sum, share := 0.0, 0.0
		for _, r := range why["reasons"].([]any) {
			reason := r.(map[string]any)
			sum, share = sum+reason["wait_ms"].(float64), share+reason["share"].(float64)
			if reason["explanation"] == nil || reason["advice"] == nil || reason["unit"] == nil {
				t.Errorf("a reason without an explanation: %v", reason)
			}
		}
		if math.Abs(sum-w.queue) > 1 || math.Abs(share-1) > 0.001 {
			t.Errorf("reasons of %v ms, %v of the wait of %v", sum, share, w.queue)
		}
	}
	journal := map[string]*kms.Entry{}
	if err := audit.Read(p.journal, 0, func(e *kms.Entry, _ audit.Position) error {
		journal[e.RequestID.String()] = e
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for _, w := range waited {
		e := journal[w.id]
		if e == nil {
			t.Fatalf("the journal has no entry of %s", w.id)
		}
		var sum time.Duration
		for _, r := range e.Reasons {
			sum += r.Waited
		}
		if sum != e.Wait || e.Class == "" || e.Urgency == "" {
			t.Errorf("the journal has %+v for a wait of %v, class %q, urgency %q", e.Reasons, e.Wait, e.Class, e.Urgency)
		}
	}
}

// A request that one API node refused can be asked about at the other one: by
// its tenant and by an operator. For anybody else it is as missing as one that
// never was.
func TestOtherNodeTellsWhyARequestWasRefused(t *testing.T) {
	a, b, _ := twoNodes(t)
	small, rival := newTenant(t, a.Service, "small", "free"), newTenant(t, a.Service, "rival", "free")
	var id string
	for status, i := 200, 0; status == 200; i++ {
		var header http.Header
		if status, header, _ = raw(t, a.Service, small, "POST", "/v1/keys/k/encrypt", helloBody); i > 5000 {
			t.Fatal("a free tenant has no limit")
		}
		id = header.Get("X-Request-Id")
	}
	path := "/v1/requests/" + id + "/why"
	var why map[string]any
	ask := func(n *apiNode, credential, path string) (status int) {
		// The tenant is at its limit; what it asks waits for that.
		within(t, recovery, "asking", func() bool {
			status, _, why = raw(t, n.Service, credential, "GET", path, "")
			return status != 429
		})
		return status
	}
	if status := ask(a, small, path); status != 200 || why["outcome"] != "quota_exceeded" {
		t.Fatalf("the node itself: %d %v", status, why)
	}
	within(t, 2*time.Second, "the record", func() bool { return ask(b, a.Operator, path) == 200 })
	for _, credential := range []string{a.Operator, small} {
		if status := ask(b, credential, path); status != 200 || why["request"] != id || why["outcome"] != "quota_exceeded" {
			t.Errorf("the other node: %d %v", status, why)
		}
		reason := why["reasons"].([]any)[0].(map[string]any)
		if code := reason["code"].(string); !strings.HasSuffix(code, "_RATE") || reason["explanation"] == nil || reason["unit"] != "micro-credits" {
			t.Errorf("the reason is %v", reason)
		}
	}
	for _, n := range []*apiNode{a, b} {
		if status := ask(n, rival, path); status != 404 {
			t.Errorf("another tenant gets %d %v", status, why)
		}
		foreign := fmt.Sprint(why["title"], why["detail"], why["code"])
		for _, unknown := range []string{"0198c1a5-0000-7000-8000-000000000001", "none"} {
			if status := ask(n, rival, "/v1/requests/"+unknown+"/why"); status != 404 || fmt.Sprint(why["title"], why["detail"], why["code"]) != foreign {
				t.Errorf("an unknown request: %d %v, another tenant's: %v", status, why, foreign)
			}
		}
	}
}

// A request that neither waited nor was refused is in no record but that of the
// node which served it; the other one tells it from the audit trail.
func TestOtherNodeTellsOfARequestThatDidNotWait(t *testing.T) {
	a, b, _ := twoNodes(t)
	tenant := newTenant(t, a.Service, "asking", "gold")
	status, header, answer := raw(t, a.Service, tenant, "POST", "/v1/keys/k/encrypt", helloBody)
	if status != 200 {
		t.Fatalf("%d %v", status, answer)
	}
	path := "/v1/requests/" + header.Get("X-Request-Id") + "/why"
	var why map[string]any
	for _, credential := range []string{tenant, a.Operator} {
		within(t, 10*time.Second, "the entry", func() bool {
			status, _, why = raw(t, b.Service, credential, "GET", path, "")
			return status == 200
		})
		if why["outcome"] != "ok" || why["operation"] != "encrypt" || why["node"] == nil || why["charged"] == 0.0 {
			t.Errorf("%v", why)
		}
	}
}

// With the scope debug the answer tells the whole decision; without it the
// header changes nothing.
func TestDecisionIsToldToThoseWithTheScope(t *testing.T) {
	s := service(t)
	name := "decided-" + strconv.FormatInt(time.Now().UnixNano(), 36)
	credential := newTenant(t, s, name, "silver")
	status, _, made := raw(t, s, s.Operator, "POST", "/v1/tenants/"+name+"/credentials", `{"name":"debugger","scopes":["key:*","debug"]}`)
	if status != 201 {
		t.Fatalf("%d %v", status, made)
	}
	decision := func(credential, value string) string {
		t.Helper()
		req, err := http.NewRequest(http.MethodPost, s.URL+"/v1/keys/k/encrypt", strings.NewReader(helloBody))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+credential)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Sluice-Debug", value)
		resp, err := s.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != 200 {
			t.Fatalf("status %d", resp.StatusCode)
		}
		return resp.Header.Get("Sluice-Decision")
	}
	told := decision(made["credential"].(string), "1")
	for _, want := range []string{`"TENANT_RATE"`, `"TENANT_REQUESTS"`, `"TENANT_CONCURRENCY"`, `"CREDENTIAL_RATE"`, `"KEY_RATE"`, `"KEY_BREAKER_OPEN"`,
		`"DAY_HARD"`, `"MONTH_HARD"`, `"BANDWIDTH"`, `"OVERDRAFT"`, `"RAMP"`, `"LOAD"`, `"class":"MID"`, `"urgency":"normal"`, `"cost":1`} {
		if !strings.Contains(told, want) {
			t.Errorf("%s is missing in %s", want, told)
		}
	}
	if len(told) > 4096 {
		t.Errorf("the header has %d bytes", len(told))
	}
	for what, got := range map[string]string{
		"without the scope": decision(credential, "1"), "without the wish": decision(made["credential"].(string), ""), "another wish": decision(made["credential"].(string), "true"),
	} {
		if got != "" {
			t.Errorf("%s: %s", what, got)
		}
	}
}

// Metrics count waiting by class and reason, in closed sets.
func TestMetricsCountReasonsByClass(t *testing.T) {
	s := service(t)
	must(t, s, "/v1/random", object{"bytes": 16})
	families, err := s.App.Metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]int{}
	for _, f := range families {
		found[f.GetName()] = len(f.Metric)
	}
	domains := found["sluice_scheduler_slots"]
	for name, want := range map[string]int{
		"sluice_scheduler_waited_seconds_total": domains * 3 * 10, "sluice_scheduler_refused_total": domains * 3,
		"sluice_scheduler_waiting": domains, "sluice_scheduler_utilisation": domains * 2, "sluice_scheduler_gate_band": domains * 3,
	} {
		if found[name] != want || domains < 2 {
			t.Errorf("%s has %d series, want %d", name, found[name], want)
		}
	}
}

// An operator sees nodes, domains and the tenants with work; nobody else does.
func TestOperatorSeesTheQueues(t *testing.T) {
	p := newFaultyPool(t, 1)
	p.must(t, p.tenants[0], "/v1/keys", `{"name":"k","spec":"AES_256"}`)
	s := &wiretest.Service{URL: p.url}
	if status, _, answer := raw(t, s, p.tenants[0], "GET", "/v1/scheduler", ""); status != 403 {
		t.Errorf("a tenant gets %d %v", status, answer)
	}
	var all sync.WaitGroup
	defer all.Wait()
	for _, m := range p.modules {
		m.SetService(fault.Encrypt, 300*time.Millisecond, 0)
	}
	for range 2 * engines {
		all.Go(func() { _, _, _ = p.post(p.tenants[0], "/v1/keys/k/encrypt", helloBody) })
	}
	within(t, recovery, "seeing the queue", func() bool {
		status, _, state := raw(t, s, p.operator, "GET", "/v1/scheduler", "")
		if status != 200 {
			t.Fatalf("%d %v", status, state)
		}
		for _, d := range state["domains"].([]any) {
			domain := d.(map[string]any)
			tenants := domain["tenants"].([]any)
			if domain["name"] == "hsm" && len(tenants) == 1 && domain["busy"].(float64) == engines && domain["waiting"].(float64) > 0 {
				tenant := tenants[0].(map[string]any)
				return tenant["name"] == "demo" && tenant["running"].(float64) == engines && tenant["normal"].(float64) > 0
			}
		}
		return false
	})
}
