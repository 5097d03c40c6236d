package wire_test

import (
	"fmt"
	"math"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-kms/sluice/audit"
	"github.com/sluice-kms/sluice/cmd/sluice/wire/wiretest"
	"github.com/sluice-kms/sluice/kms"
)

// trailSite is a running service with callers.
type trailSite struct {
	*wiretest.Service
	dir string
}

func (s *trailSite) call(t *testing.T, method, path, token, body string) (int, map[string]any) {
	t.Helper()
	status, _, fields := raw(t, s.Service, token, method, path, body)
	return status, fields
}

func (s *trailSite) must(t *testing.T, method, path, token, body string) map[string]any {
	t.Helper()
	status, fields := s.call(t, method, path, token, body)
	if status/100 != 2 {
		t.Fatalf("%s %s: %d %v", method, path, status, fields)
	}
	return fields
}

// settle waits until the trail has everything that was recorded so far.
func (s *trailSite) settle(t *testing.T) {
	t.Helper()
	head := s.App.Journal.Head().Sequence
	for {
		nodes, err := s.App.Store.ShippedNodes(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(nodes) == 1 && nodes[0].Head.Sequence >= head {
			return
		}
		<-time.After(20 * time.Millisecond)
	}
}

// micro is an amount of an answer in micro-credits.
func micro(credits any) int64 { return int64(math.Round(credits.(float64) * float64(kms.Credit))) }

func newTrailSite(t *testing.T) *trailSite {
	t.Helper()
	wiretest.Require(t)
	dir := t.TempDir()
	s := &trailSite{Service: wiretest.Start(t, dir), dir: dir}
	s.must(t, "POST", "/v1/tenants", s.Operator, `{"name":"acme","tier":"gold"}`)
	return s
}

func (s *trailSite) credential(t *testing.T, name, more string) string {
	t.Helper()
	return s.must(t, "POST", "/v1/tenants/acme/credentials", s.Operator, fmt.Sprintf(`{"name":%q,%s}`, name, more))["credential"].(string)
}

// The bill of a day is, to the micro-credit, what the day's entries were
// charged, and each of its lines what the entries were that it names. Refusals,
// floods, dry runs and failures are counted and charged as they were.
func TestEveryCreditOfABillIsInTheTrail(t *testing.T) {
	s := newTrailSite(t)
	shop := s.credential(t, "shop", `"component":"shop","scopes":["key:*","usage:read"]`)
	gateway := s.credential(t, "gateway", `"component":"gateway","scopes":["key:*"]`)
	auditor := s.credential(t, "auditor", `"scopes":["role:tenant-auditor"]`)
	began := time.Now().UTC()
	for i, name := range []string{"a", "b"} {
		s.must(t, "POST", "/v1/keys", shop, `{"name":"`+name+`","spec":"AES_256"}`)
		for range 3 + i {
			s.must(t, "POST", "/v1/keys/"+name+"/encrypt", shop, `{"plaintext":"aGVsbG8="}`)
			s.must(t, "POST", "/v1/keys/"+name+"/encrypt", gateway, `{"plaintext":"`+strings.Repeat("aGVsbG8h", 4096)+`"}`)
		}
	}
	if status, _ := s.call(t, "POST", "/v1/keys/a/decrypt", shop, `{"ciphertext":"U0xDMQEAAAA="}`); status/100 != 4 {
		t.Errorf("a bad ciphertext: %d", status)
	}
	s.must(t, "POST", "/v1/keys/a/encrypt?dry_run=true", gateway, `{"plaintext":"aGVsbG8="}`)
	for range 60 {
		s.call(t, "GET", "/v1/keys/nobody", gateway, "")
	}
	<-time.After(1500 * time.Millisecond) // the flood's number is written every second
	s.settle(t)

	for day := kms.ByDay.Start(began); !day.After(time.Now()); day = day.AddDate(0, 0, 1) {
		date := day.Format(time.DateOnly)
		bill := s.must(t, "GET", "/v1/usage/bill?day="+date, auditor, "")
		window := "?from=" + date + "&to=" + day.AddDate(0, 0, 1).Format(time.DateOnly) + "&page_size=1000"
		// What came after the bill was made is not in it.
		made := uint64(bill["api_nodes"].([]any)[0].(map[string]any)["sequence"].(float64))
		charged := func(query string) (sum, requests int64) {
			s.settle(t)
			for _, entry := range s.must(t, "GET", "/v1/audit"+window+query, auditor, "")["entries"].([]any) {
				e := entry.(map[string]any)
				if uint64(e["sequence"].(float64)) > made || e["phase"] != "outcome" {
					continue
				}
				sum += micro(e["charged"])
				n, many := e["count"].(float64)
				if !many {
					n = 1
				}
				requests += int64(n)
			}
			return sum, requests
		}
		total := bill["total"].(map[string]any)
		if sum, requests := charged(""); sum != micro(total["credits"]) || requests != int64(total["requests"].(float64)) || sum == 0 {
			t.Errorf("the bill has %v, the entries %d µcr for %d requests", total, sum, requests)
		}
		traced := 0
		for _, line := range bill["lines"].([]any) {
			l := line.(map[string]any)
			component, _ := l["component"].(string)
			key, _ := l["key"].(string)
			if component == "" || key == "" {
				continue // a query without them is for all
			}
			traced++
			if sum, _ := charged("&component=" + url.QueryEscape(component) + "&key=" + key); sum != micro(l["credits"]) {
				t.Errorf("the line %v: its entries were charged %d µcr", l, sum)
			}
		}
		if traced != 4 {
			t.Errorf("%d lines have a component and a key, want two of each", traced)
		}
	}

	by := map[string]float64{}
	rows := s.must(t, "GET", "/v1/usage?by=reason&from="+began.AddDate(0, 0, -1).Format(time.DateOnly), auditor, "")["rows"].([]any)
	for _, row := range rows {
		r := row.(map[string]any)
		reason, _ := r["reason"].(string)
		by[reason] += r["requests"].(float64)
	}
	if by["not_found"] != 60 || by["dry_run"] != 1 || by["decryption_failed"]+by["invalid_argument"]+by["malformed"] != 1 {
		t.Errorf("requests by reason: %v", by)
	}
	aggregated := 0
	err := audit.Read(filepath.Join(s.dir, "journal"), 1, func(e *kms.Entry, _ audit.Position) error {
		if e.Count > 1 {
			aggregated++
		}
		return nil
	})
	if err != nil || aggregated == 0 {
		t.Errorf("%d entries stand for several requests, %v: the flood tests nothing", aggregated, err)
	}
}

// Who reads the trail and usage sees what he may, and is himself in the trail.
func TestTheTrailShowsEachHisOwn(t *testing.T) {
	s := newTrailSite(t)
	s.must(t, "POST", "/v1/tenants/acme/projects", s.Operator, `{"name":"else"}`)
	app := s.credential(t, "app", `"scopes":["key:*"]`)
	other := s.credential(t, "other", `"project":"else","scopes":["key:*","audit:read","usage:read"]`)
	auditor := s.credential(t, "auditor", `"scopes":["role:tenant-auditor"]`)
	operators := s.must(t, "POST", "/v1/credentials", s.Operator, `{"name":"auditor","scopes":["role:operator-auditor"]}`)["credential"].(string)
	clerk := s.must(t, "POST", "/v1/credentials", s.Operator, `{"name":"clerk","scopes":["audit:read","usage:read"]}`)["credential"].(string)
	for name, token := range map[string]string{"mine": app, "elses": other} {
		s.must(t, "POST", "/v1/keys", token, `{"name":"`+name+`","spec":"AES_256"}`)
	}
	s.call(t, "GET", "/v1/keys", "slk_bad", "")
	acme := s.must(t, "GET", "/v1/tenants/acme", s.Operator, "")["id"].(string)
	s.settle(t)

	// seen tells whose entries an answer has.
	seen := func(path, token string) (tenants, projects map[string]bool) {
		tenants, projects = map[string]bool{}, map[string]bool{}
		for _, entry := range s.must(t, "GET", path, token, "")["entries"].([]any) {
			e := entry.(map[string]any)
			tenant, _ := e["tenant"].(string)
			project, _ := e["project"].(string)
			tenants[tenant], projects[project] = true, true
		}
		return tenants, projects
	}
	if tenants, projects := seen("/v1/audit", auditor); len(tenants) != 1 || !tenants[acme] || !projects["default"] || !projects["else"] {
		t.Errorf("the tenant's auditor sees %v of %v", projects, tenants)
	}
	if _, projects := seen("/v1/audit", other); len(projects) != 1 || !projects["else"] {
		t.Errorf("a credential of a project sees %v", projects)
	}
	if tenants, _ := seen("/v1/audit?page_size=1000", operators); !tenants[acme] || !tenants[""] || len(tenants) < 3 {
		t.Errorf("the operators' auditor sees %v", tenants)
	}
	if tenants, _ := seen("/v1/tenants/acme/audit", operators); len(tenants) != 1 || !tenants[acme] {
		t.Errorf("the operators' auditor, of one tenant, sees %v", tenants)
	}
	if tenants, _ := seen("/v1/audit", clerk); tenants[acme] || tenants[""] {
		t.Errorf("who is no auditor of the operators sees %v", tenants)
	}
	for path, token := range map[string]string{"/v1/audit": app, "/v1/usage": app, "/v1/usage/bill": app, "/v1/tenants/acme/audit": auditor,
		"/v1/tenants/acme/usage": clerk, "/v1/tenants/acme/usage/bill": auditor} {
		if status, _ := s.call(t, "GET", path, token, ""); status != http.StatusForbidden {
			t.Errorf("%s without the right: %d", path, status)
		}
	}
	for path, status := range map[string]int{"/v1/audit?project=default": 404, "/v1/usage?project=default": 404, "/v1/audit?after=dev/1": 422,
		"/v1/audit?order=arrival&after=dev": 422, "/v1/audit?key=mine": 422, "/v1/audit?from=2026": 422, "/v1/usage?by=tenant": 422,
		"/v1/usage?by=key,key": 422, "/v1/usage?granularity=minute&from=2020-01-01": 422, "/v1/usage?from=2030-01-01": 422, "/v1/usage/bill?day=today": 422} {
		if got, answer := s.call(t, "GET", path, other, ""); got != status {
			t.Errorf("%s: %d %v, want %d", path, got, answer, status)
		}
	}
	if rows := s.must(t, "GET", "/v1/usage?by=tenant", operators, "")["rows"].([]any); len(rows) < 3 {
		t.Errorf("the operators' auditor sees the usage of %d", len(rows))
	}
	if bill := s.must(t, "GET", "/v1/tenants/acme/usage/bill", operators, ""); bill["tenant"] != acme {
		t.Errorf("the bill is of %v", bill["tenant"])
	}

	read := s.must(t, "GET", "/v1/audit?outcome=ok", auditor, "")["request_id"].(string)
	s.settle(t)
	if found := s.must(t, "GET", "/v1/audit?request="+read, auditor, "")["entries"].([]any); len(found) != 1 || found[0].(map[string]any)["operation"] != "read-audit" {
		t.Errorf("the reading is in the trail as %v", found)
	}
}
