package wire_test

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sluice-kms/sluice/cmd/sluice/wire/wiretest"
	"github.com/sluice-kms/sluice/kms"
	"github.com/sluice-kms/sluice/quota"
)

// few lets a free tenant have five keys of three versions, and four
// credentials.
func few(p *quota.Policy) {
	free := p.Tiers[kms.TierFree]
	free.Keys, free.VersionsPerKey, free.Credentials = 5, 3, 4
}

// stored reads how many objects of a kind the tenant has and may have.
func stored(t *testing.T, s *wiretest.Service, credential, kind string) (have, limit float64) {
	t.Helper()
	_, _, account := raw(t, s, credential, "GET", "/v1/quota", "")
	for _, entry := range account["storage"].([]any) {
		if e := entry.(map[string]any); e["kind"] == kind {
			return e["used"].(float64), e["limit"].(float64)
		}
	}
	t.Fatalf("the account has no %s: %v", kind, account)
	return 0, 0
}

// The keys, versions and credentials of a tenant are limited through the API,
// as the store counts them: exactly, whoever comes at once, and after a restart.
func TestStoredObjectsAreLimitedThroughTheAPI(t *testing.T) {
	dir := t.TempDir()
	s, err := wiretest.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.App.Policies.Apply(1, policy(t, few)); err != nil {
		t.Fatal(err)
	}
	credential := newTenant(t, s, "small", "free") // with one key, and this credential
	refused := func(s *wiretest.Service, path, body, code string) {
		t.Helper()
		status, header, answer := raw(t, s, credential, http.MethodPost, path, body)
		reasons, _ := answer["reasons"].([]any)
		if status != http.StatusPaymentRequired || len(reasons) != 1 || reasons[0].(map[string]any)["code"] != code || header.Get("Retry-After") != "" {
			t.Errorf("%s: %d %v, want only %s", path, status, answer, code)
		}
	}
	for range 3 {
		if status, _, answer := raw(t, s, credential, http.MethodPost, "/v1/keys", `{"spec":"AES_256"}`); status != 201 {
			t.Fatal(status, answer)
		}
	}
	var made atomic.Int64
	var all sync.WaitGroup
	for range 12 {
		all.Go(func() {
			if status, _, _ := raw(t, s, credential, http.MethodPost, "/v1/keys", `{"spec":"AES_256"}`); status == 201 {
				made.Add(1)
			}
		})
	}
	all.Wait()
	if made.Load() != 1 {
		t.Errorf("%d of twelve were made at once where one had room", made.Load())
	}
	refused(s, "/v1/keys", `{"spec":"AES_256"}`, quota.ReasonStorage)
	for range 2 {
		if status, _, answer := raw(t, s, credential, http.MethodPost, "/v1/keys/k/rotate", ""); status != 200 {
			t.Fatal(status, answer)
		}
	}
	refused(s, "/v1/keys/k/rotate", "", quota.ReasonVersions)
	if have, limit := stored(t, s, credential, "keys"); have != 5 || limit != 5 {
		t.Errorf("the account has %v of %v keys", have, limit)
	}

	admin := adminOf(t, s, "small") // the second credential
	ids := []string{}
	for i := range 2 {
		status, _, answer := raw(t, s, admin, http.MethodPost, "/v1/credentials", fmt.Sprintf(`{"name":"c%d","scopes":["key:sign"]}`, i))
		if status != 201 {
			t.Fatal(status, answer)
		}
		ids = append(ids, answer["id"].(string))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	s = wiretest.Start(t, dir)
	if err := s.App.Policies.Apply(1, policy(t, few)); err != nil {
		t.Fatal(err)
	}
	refused(s, "/v1/keys", `{"spec":"AES_256"}`, quota.ReasonStorage)
	credential = admin
	refused(s, "/v1/credentials", `{"name":"more","scopes":["key:sign"]}`, quota.ReasonStorage)
	if status, _, answer := raw(t, s, admin, http.MethodPost, "/v1/credentials/"+ids[0]+"/revoke", ""); status != 200 {
		t.Fatal(status, answer)
	}
	if status, _, answer := raw(t, s, admin, http.MethodPost, "/v1/credentials", `{"name":"more","scopes":["key:sign"]}`); status != 201 {
		t.Errorf("after one was revoked: %d %v", status, answer)
	}
	// What an operator gives a tenant is his to decide.
	if status, _, answer := raw(t, s, s.Operator, http.MethodPost, "/v1/tenants/small/credentials", `{"name":"given","scopes":["key:sign"]}`); status != 201 {
		t.Errorf("an operator is held to the tenant's limit: %d %v", status, answer)
	}
}

// adminOf returns a credential that administers a tenant.
func adminOf(t *testing.T, s *wiretest.Service, tenant string) string {
	t.Helper()
	status, _, answer := raw(t, s, s.Operator, http.MethodPost, "/v1/tenants/"+tenant+"/credentials", `{"name":"admin","scopes":["tenant:admin","usage:read"]}`)
	if status != 201 {
		t.Fatal(status, answer)
	}
	return answer["credential"].(string)
}
