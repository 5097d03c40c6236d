package wire_test

import (
	"encoding/json/v2"
	"io"
	"math"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-kms/sluice/cmd/sluice/wire/wiretest"
	"github.com/sluice-kms/sluice/softhsm/fault"
)

// decision is what the header Sluice-Decision tells.
type decision struct {
	Cost  float64 `json:"cost"`
	Gates []struct {
		Code  string  `json:"code"`
		Limit float64 `json:"limit"`
		Need  float64 `json:"need"`
		Have  float64 `json:"have"`
	} `json:"gates"`
	Class string `json:"class"`
	Node  string `json:"node"`
}

// need is what a gate was asked for, in credits.
func (d *decision) need(t *testing.T, gate string) float64 {
	t.Helper()
	for _, g := range d.Gates {
		if g.Code == gate {
			if g.Have < g.Need || g.Limit < g.Have && gate != "DAY_HARD" {
				t.Errorf("%s: %v of %v, of which %v are there", gate, g.Need, g.Limit, g.Have)
			}
			return g.Need / 1e6
		}
	}
	t.Errorf("the decision has no %s: %+v", gate, d)
	return 0
}

// sms is what component SMS of tenant A does: it signs.
type sms struct {
	s          *wiretest.Service
	credential string
}

// sign signs with SM2, and returns the answer's headers and body.
func (c *sms) sign(t *testing.T) (http.Header, map[string]any) {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, c.s.URL+"/v1/keys/sms-signing/sign", strings.NewReader(`{"message":"aGVsbG8="}`))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{"Authorization": "Bearer " + c.credential, "Content-Type": "application/json", "Sluice-Debug": "1"} {
		req.Header.Set(name, value)
	}
	resp, err := c.s.Client().Do(req)
	if err != nil {
		t.Error(err)
		return http.Header{}, nil
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	var fields map[string]any
	if err == nil {
		err = json.Unmarshal(content, &fields)
	}
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("%d %s %v", resp.StatusCode, content, err)
	}
	return resp.Header, fields
}

// get reads what a credential may.
func (c *sms) get(t *testing.T, credential, path string) map[string]any {
	t.Helper()
	status, _, fields := raw(t, c.s, credential, http.MethodGet, path, "")
	if status != http.StatusOK {
		t.Fatalf("%s: %d %v", path, status, fields)
	}
	return fields
}

func list(fields map[string]any, name string) (all []map[string]any) {
	rows, _ := fields[name].([]any)
	for _, row := range rows {
		all = append(all, row.(map[string]any))
	}
	return all
}

// An SM2 signature of component SMS of tenant A, in the HSM: all ten waypoints of
// its way are seen by who uses the REST API and by the operator.
func TestTheTenWaypointsOfASignatureAreSeenFromOutside(t *testing.T) {
	v := newVendorSite(t)
	v.ceremony(t, true, false)
	s, stop := v.open(t, true)
	defer stop()
	tenant := change(t, s, s.Operator, "/v1/tenants", `{"name":"tenant-a","tier":"gold"}`)["id"].(string)
	c := &sms{s, change(t, s, s.Operator, "/v1/tenants/tenant-a/credentials",
		`{"name":"sms","component":"SMS","scopes":["key:*","debug","usage:read","audit:read"]}`)["credential"].(string)}
	key := change(t, s, c.credential, "/v1/keys", `{"name":"sms-signing","spec":"SM2"}`)["id"].(string)
	usedToday := func() float64 {
		return c.get(t, c.credential, "/v1/quota")["day"].(map[string]any)["used"].(float64)
	}
	const reading = 1 // a credit for reading the quota
	before := usedToday()
	header, answer := c.sign(t)

	// 2 and 3: the tenant's bucket and the key's give 12 credits.
	var d decision
	if err := json.Unmarshal([]byte(header.Get("Sluice-Decision")), &d); err != nil {
		t.Fatal(err)
	}
	for _, gate := range []string{"TENANT_RATE", "KEY_RATE", "DAY_HARD"} {
		if got := d.need(t, gate); got != 12 {
			t.Errorf("%s was asked for %v credits", gate, got)
		}
	}
	if answer["cost"] != 12.0 || !strings.HasPrefix(header.Get("X-RateLimit-Weighted"), "cost=12; ") {
		t.Errorf("it costs %v, %q", answer["cost"], header.Get("X-RateLimit-Weighted"))
	}
	if used := usedToday() - before; used != 12+reading {
		t.Errorf("the day's total grew by %v", used)
	}
	// 7: it ran in an HSM, not in the service.
	if answer["protection"] != "HSM" || !strings.HasPrefix(d.Node, "node-") || d.Class == "" {
		t.Errorf("%v on %q in class %q", answer["protection"], d.Node, d.Class)
	}

	// 4, 5, 6 and 9: a burst of three times the slots comes out slot by slot, at
	// the key's home first; whoever waited is told for what.
	for _, m := range v.modules {
		m.SetService(fault.Sign, 30*time.Millisecond, 0)
	}
	var mu sync.Mutex
	var all sync.WaitGroup
	var waited []string
	const burst = 24
	for range burst {
		all.Go(func() {
			header, _ := c.sign(t)
			if header.Get("Sluice-Wait-Reason") != "" {
				mu.Lock()
				defer mu.Unlock()
				waited = append(waited, header.Get("X-Request-Id"))
			}
		})
	}
	seen := watchPool(t, c, &all)
	if seen.busy == 0 || seen.busy > seen.slots || seen.fast == 0 {
		t.Errorf("of %v slots at most %v were seen busy, at a utilisation of %v", seen.slots, seen.busy, seen.fast)
	}
	if len(waited) < burst-2*int(seen.slots) {
		t.Fatalf("only %d of %d requests waited for %v slots", len(waited), burst, seen.slots)
	}
	why := c.get(t, c.credential, "/v1/requests/"+waited[0]+"/why")
	sum := 0.0
	for _, r := range list(why, "reasons") {
		sum += r["wait_ms"].(float64)
		if r["code"] == "" || r["explanation"] == "" || r["advice"] == "" {
			t.Errorf("a reason without words: %v", r)
		}
	}
	if math.Abs(sum-why["queue_ms"].(float64)) > 1 {
		t.Errorf("reasons of %v ms make up %v", sum, why)
	}

	// 1, 8 and 10: the trail, usage and the day's bill say whose it was.
	within(t, 20*time.Second, "the bill", func() bool {
		return c.get(t, c.credential, "/v1/usage/bill")["total"].(map[string]any)["requests"].(float64) >= burst+2
	})
	signatures := 0
	for _, e := range list(c.get(t, c.credential, "/v1/audit?page_size=200"), "entries") {
		if e["operation"] != "sign" {
			continue
		}
		signatures++
		if e["tenant"] != tenant || e["component"] != "SMS" || e["key"] != key || e["algorithm"] != "SM2DSA" || e["charged"] != 12.0 || e["node"] == "" {
			t.Errorf("an entry %v", e)
		}
	}
	if signatures != burst+1 {
		t.Errorf("the trail has %d signatures", signatures)
	}
	for _, row := range list(c.get(t, c.credential, "/v1/usage?by=component,key,algorithm,operation"), "rows") {
		if row["operation"] == "sign" && (row["component"] != "SMS" || row["key"] != key || row["requests"] != float64(burst+1) || row["credits"] != float64(12*(burst+1))) {
			t.Errorf("usage %v", row)
		}
	}
	billed := 0.0
	for _, line := range list(c.get(t, c.credential, "/v1/usage/bill"), "lines") {
		if line["component"] == "SMS" && line["key"] == key {
			billed += line["credits"].(float64)
		}
	}
	if billed != 30+12*(burst+1) { // the key was made, too
		t.Errorf("SMS is billed %v credits for its key", billed)
	}
}

// poolSeen is the most that the operator saw of the pool of HSMs.
type poolSeen struct{ slots, busy, fast float64 }

// watchPool looks at the pool until all is over.
func watchPool(t *testing.T, c *sms, all *sync.WaitGroup) (seen poolSeen) {
	t.Helper()
	over := make(chan struct{})
	go func() {
		all.Wait()
		close(over)
	}()
	for {
		for _, domain := range list(c.get(t, c.s.Operator, "/v1/scheduler"), "domains") {
			if domain["name"] == "hsm" {
				seen.slots = domain["slots"].(float64)
				seen.busy = max(seen.busy, domain["busy"].(float64))
				seen.fast = max(seen.fast, domain["utilisation_fast"].(float64))
			}
		}
		select {
		case <-over:
			return seen
		case <-time.After(5 * time.Millisecond):
		}
	}
}
