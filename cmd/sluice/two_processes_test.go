package main

import (
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluice-kms/sluice/cmd/sluice/wire/wiretest"
)

// effective is how soon a change must take effect on every other API node
// while the notification channel is up.
const effective = time.Second

// TestChangesTakeEffectInTheOtherProcessWithinASecond has two processes of the
// real program on one database and one token: what is disabled, revoked or
// destroyed through the one is refused by the other, which had it cached.
func TestChangesTakeEffectInTheOtherProcessWithinASecond(t *testing.T) {
	wiretest.Require(t)
	dir := t.TempDir()
	program := buildProgram(t, filepath.Join(dir, "bin"))
	configure := postgresSite(t, dir)
	first, _ := configure("first")
	second, _ := configure("second")
	a := startServer(t, program, dir, "--config", first, "--operator-credential", filepath.Join(dir, "operator"))
	operator := a.credential(t, "operator")
	admin := a.newTenant(t, operator)
	b := startServer(t, program, dir, "--config", second)

	must := func(p *devProcess, credential, path string, body map[string]any) map[string]any {
		t.Helper()
		status, answer := p.post(credential, path, body)
		if status/100 != 2 {
			t.Fatalf("%s: %d %v", path, status, answer)
		}
		return answer
	}
	minted := must(a, admin, "/v1/credentials", map[string]any{"name": "app", "scopes": []string{"key:*"}})
	app := minted["credential"].(string)
	must(a, admin, "/v1/keys", map[string]any{"name": "k", "spec": "AES_256"})
	use := func(p *devProcess) int {
		status, _ := p.post(app, "/v1/keys/k/encrypt", map[string]any{"plaintext": "aGVsbG8="})
		return status
	}
	for range 3 { // cached by both
		if use(a) != http.StatusOK || use(b) != http.StatusOK {
			t.Fatal("the key does not work")
		}
	}
	// until waits for the other process to see a change and returns how long
	// that took.
	until := func(what string, seen func() bool) {
		t.Helper()
		started := time.Now()
		for !seen() {
			if took := time.Since(started); took > effective {
				t.Fatalf("%s: not effective after %v", what, took)
			}
		}
		t.Logf("%s: effective after %v", what, time.Since(started).Round(time.Millisecond))
	}
	must(a, admin, "/v1/keys/k/disable", nil)
	until("disabled", func() bool { return use(b) == http.StatusConflict })
	must(b, admin, "/v1/keys/k/enable", nil)
	until("enabled", func() bool { return use(a) == http.StatusOK })
	must(a, admin, "/v1/keys/k/schedule-deletion", map[string]any{"days": 7})
	until("to be destroyed", func() bool { return use(b) == http.StatusConflict })
	must(b, admin, "/v1/keys/k/cancel-deletion", nil)
	must(b, admin, "/v1/keys/k/enable", nil)
	until("kept", func() bool { return use(a) == http.StatusOK })
	must(a, admin, "/v1/credentials/"+minted["id"].(string)+"/revoke", nil)
	until("revoked", func() bool { return use(b) == http.StatusUnauthorized })
	must(b, operator, "/v1/tenants/acme/suspend", nil)
	until("suspended", func() bool {
		status, _ := a.post(admin, "/v1/keys/k/encrypt", map[string]any{"plaintext": "aGVsbG8="})
		return status == http.StatusForbidden
	})
	for _, p := range []*devProcess{a, b} {
		if err := p.stop(t); err != nil {
			t.Errorf("stopping: %v", err)
		}
	}
}
