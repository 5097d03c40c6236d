package wire_test

import (
	"encoding/json/v2"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-kms/sluice/cmd/sluice/wire/wiretest"
	"github.com/sluice-kms/sluice/quota/redis/redistest"
)

// raw makes a request and returns its answer with its headers.
func raw(t testing.TB, s *wiretest.Service, credential, method, path, body string) (int, http.Header, map[string]any) {
	t.Helper()
	req, err := http.NewRequest(method, s.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+credential)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := s.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(content, &fields); err != nil {
		t.Fatalf("%s %s: %v in %s", method, path, err, content)
	}
	return resp.StatusCode, resp.Header, fields
}

// newTenant makes a tenant of a tier with a key "k" and returns a credential.
func newTenant(t testing.TB, s *wiretest.Service, name, tier string) string {
	t.Helper()
	made := func(credential, path, body string) map[string]any {
		t.Helper()
		status, _, answer := raw(t, s, credential, http.MethodPost, path, body)
		if status != 201 {
			t.Fatalf("%s: %d %v", path, status, answer)
		}
		return answer
	}
	made(s.Operator, "/v1/tenants", fmt.Sprintf(`{"name":%q,"tier":%q}`, name, tier))
	credential := made(s.Operator, "/v1/tenants/"+name+"/credentials", `{"name":"app","scopes":["key:*","secret:*","route:*","usage:read"]}`)["credential"].(string)
	made(credential, "/v1/keys", `{"name":"k","spec":"AES_256"}`)
	return credential
}

const helloBody = `{"plaintext":"aGVsbG8="}`

// A tenant that is at its limit is refused with the reason, its numbers and the
// time after which to come back; then it is served. Another tenant notices
// nothing.
func TestTenantAtItsLimitReadsWhyAndComesBack(t *testing.T) {
	s := wiretest.Start(t, t.TempDir())
	small, other := newTenant(t, s, "small", "free"), newTenant(t, s, "other", "free")
	status, header, _ := raw(t, s, small, "POST", "/v1/keys/k/encrypt", helloBody)
	for _, name := range []string{"RateLimit-Policy", "RateLimit", "X-RateLimit-Weighted"} {
		if status != 200 || header.Get(name) == "" {
			t.Errorf("%d, and the header %s is missing", status, name)
		}
	}
	if got := header.Get("RateLimit-Policy"); !strings.HasPrefix(got, `"tenant";q=200;qu="hsm-credits";w=1, "day";q=`) {
		t.Errorf("RateLimit-Policy: %s", got)
	}
	var refused map[string]any
	for i := 0; status == 200; i++ {
		if status, header, refused = raw(t, s, small, "POST", "/v1/keys/k/encrypt", helloBody); i > 5000 {
			t.Fatal("a free tenant has no limit")
		}
	}
	if status != 429 || refused["code"] != "quota_exceeded" || refused["type"] == "about:blank" {
		t.Fatalf("%d %v", status, refused)
	}
	reasons, _ := refused["reasons"].([]any)
	if len(reasons) == 0 {
		t.Fatalf("no reasons: %v", refused)
	}
	reason := reasons[0].(map[string]any)
	if !strings.HasSuffix(reason["code"].(string), "_RATE") || reason["need"] != 1e6 || reason["limit"] == nil {
		t.Errorf("the reason is %v", reason)
	}
	if header.Get("Retry-After") == "" {
		t.Error("it does not say when to come back")
	}
	if status, _, _ := raw(t, s, other, "POST", "/v1/keys/k/encrypt", helloBody); status != 200 {
		t.Errorf("the other tenant gets %d", status)
	}
	within(t, recovery, "coming back", func() bool {
		status, _, _ := raw(t, s, small, "POST", "/v1/keys/k/encrypt", helloBody)
		return status == 200
	})
	var account map[string]any
	within(t, recovery, "reading the quota", func() bool {
		status, _, account = raw(t, s, small, "GET", "/v1/quota", "")
		return status == 200
	})
	if account["refused"].(float64) < 1 || account["tier"] != "free" {
		t.Errorf("the account is %v", account)
	}
	// What can never fit says so, and nothing of coming back.
	status, header, refused = raw(t, s, small, "POST", "/v1/keys", `{"spec":"RSA_4096"}`)
	if status != 422 || refused["code"] != "unsatisfiable" || header.Get("Retry-After") != "" {
		t.Errorf("a request that costs more than the bucket holds: %d %v", status, refused)
	}
}

// Totals are there again after a restart.
func TestTotalsAreThereAfterARestart(t *testing.T) {
	dir := t.TempDir()
	used := func(s *wiretest.Service) float64 {
		_, _, account := raw(t, s, s.Demo, "GET", "/v1/quota", "")
		return account["month"].(map[string]any)["used"].(float64)
	}
	s, err := wiretest.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	must(t, s, "/v1/keys", object{"name": "k", "spec": "ECC_NIST_P256"})
	for range 20 {
		must(t, s, "/v1/keys/k/sign", object{"message": "aGVsbG8="})
	}
	before := used(s)
	if before < 200 {
		t.Errorf("only %v credits are counted", before)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	again := wiretest.Start(t, dir)
	if after := used(again); after != before+1 { // reading it costs one
		t.Errorf("%v credits were used before the restart, %v after it", before, after)
	}
}

// Two API nodes with one Redis hold a tenant to one limit between them, however
// the load is spread.
func TestTwoNodesShareATenantsLimit(t *testing.T) {
	c := newCluster(t)
	c.more = fmt.Sprintf("quota: {redis: {addresses: [%q]}}\n", redistest.Start(t).Address())
	a, b := c.start(t, 1), c.start(t, 2)
	a.Operator = c.operator(t, a.app)
	credential := newTenant(t, a.Service, "shared", "silver")
	_, _, account := raw(t, a.Service, credential, "GET", "/v1/quota", "")
	perSecond, burst := account["per_second"].(float64), account["burst"].(float64)
	if perSecond <= 0 || burst <= 0 {
		t.Fatalf("%v", account)
	}
	var admitted, asked atomic.Int64
	started := time.Now()
	const lasts = 4 * time.Second
	var all sync.WaitGroup
	for i, node := range []*apiNode{a, a, a, b} { // three quarters come to one node
		for range 4 {
			all.Go(func() {
				for time.Since(started) < lasts {
					asked.Add(1)
					status, _, _ := raw(t, node.Service, credential, "POST", "/v1/keys/k/encrypt", helloBody)
					switch status {
					case 200:
						admitted.Add(1)
					case 429:
					default:
						t.Errorf("node %d: %d", i, status)
						return
					}
				}
			})
		}
	}
	all.Wait()
	// One key may take half of what its tenant may.
	limit := (burst + perSecond*time.Since(started).Seconds()) / 2
	t.Logf("%d of %d admitted, the limit is %.0f", admitted.Load(), asked.Load(), limit)
	// At the start each node is lent a part before it knows of the other.
	if got := float64(admitted.Load()); got > 1.3*limit {
		t.Errorf("%v were admitted, the limit is %.0f", got, limit)
	}
	if asked.Load() < int64(1.3*limit) {
		t.Fatalf("only %d requests could be sent: the limit was not reached", asked.Load())
	}
	if got := float64(admitted.Load()); got < 0.8*limit {
		t.Errorf("only %v were admitted of a limit of %.0f", got, limit)
	}
}
