package wire_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluice-kms/sluice/cmd/sluice/wire"
	"github.com/sluice-kms/sluice/cmd/sluice/wire/wiretest"
	"github.com/sluice-kms/sluice/keystore/postgres/pgtest"
	"github.com/sluice-kms/sluice/softhsm"
)

// apiNode is one of several API nodes.
type apiNode struct {
	*wiretest.Service
	app *wire.App
}

// twoNodes starts two API nodes, each with an HSM token of one domain, on one
// PostgreSQL database, which the second reaches through a line that can be
// cut.
func twoNodes(t *testing.T) (a, b *apiNode, toDatabase *line) {
	t.Helper()
	wiretest.Require(t)
	urls := pgtest.Require(t).EmptyDatabase(t)
	dir := t.TempDir()
	toDatabase = newLine(t, urls.Service)
	put(t, dir, "service-1.url", []byte(urls.Service))
	put(t, dir, "service-2.url", []byte(toDatabase.url))
	put(t, dir, "owner.url", []byte(urls.Owner))
	ceremony := "name: two\nfile: " + filepath.Join(dir, "domain.json") + "\nmembers:\n"
	var tokens []string
	for _, id := range []string{"node-1", "node-2", "backup-1", "backup-2"} {
		token, err := softhsm.Provision(filepath.Join(dir, id), id)
		if err != nil {
			t.Fatal(err)
		}
		entry := fmt.Sprintf("{id: %s, module: %s, serial: %q, pin_file: %s/%s/user.pin, so_pin_file: %s/%s/so.pin, env: {SOFTHSM2_CONF: %s}}\n",
			id, token.Module, token.Serial, dir, id, dir, id, token.Env["SOFTHSM2_CONF"])
		tokens = append(tokens, entry)
		if id == "backup-1" {
			ceremony += "backups:\n"
		}
		ceremony += "  - " + entry
	}
	put(t, dir, "ceremony.yaml", []byte(ceremony))
	ctx := context.Background()
	if _, err := wire.InitDomain(ctx, filepath.Join(dir, "ceremony.yaml"), func(string, string) error { return nil }, func(string) {}); err != nil {
		t.Fatal(err)
	}
	start := func(i int) *apiNode {
		data := filepath.Join(dir, fmt.Sprintf("data-%d", i))
		if err := os.MkdirAll(data, 0o700); err != nil {
			t.Fatal(err)
		}
		name := fmt.Sprintf("node-%d.yaml", i)
		put(t, dir, name, []byte(fmt.Sprintf(`
node: api-%d
data_dir: %s
database: {driver: postgres, url_file: %s/service-%d.url, owner_url_file: %s/owner.url, staleness: 2s}
hsm:
  domains:
    - file: %s/domain.json
      tokens:
        - %s`, i, data, dir, i, dir, dir, tokens[i-1])))
		config, err := wire.LoadConfig(filepath.Join(dir, name), func() []string { return nil })
		if err != nil {
			t.Fatal(err)
		}
		app, err := wire.Open(ctx, config, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		handler, err := app.API("test")
		if err != nil {
			t.Fatal(err)
		}
		server := httptest.NewServer(handler.Handler())
		t.Cleanup(func() {
			server.Close()
			if err := app.Close(); err != nil {
				t.Errorf("closing a node: %v", err)
			}
		})
		return &apiNode{&wiretest.Service{URL: server.URL}, app}
	}
	a, b = start(1), start(2)
	operator := filepath.Join(dir, "operator")
	if err := a.app.OperatorCredential(ctx, operator); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(operator)
	if err != nil {
		t.Fatal(err)
	}
	a.Operator = string(raw[:len(raw)-1])
	return a, b, toDatabase
}

// within calls f until it holds, and fails when that takes longer than the
// time that the product promises.
func within(t *testing.T, promise time.Duration, what string, f func() bool) {
	t.Helper()
	deadline := time.After(promise)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !f() {
		select {
		case <-deadline:
			t.Fatalf("%s did not take effect on the other node within %v", what, promise)
		case <-tick.C:
		}
	}
}

// Disable, revoke and suspend take effect on every API node within a second.
func TestChangeTakesEffectOnTheOtherNodeWithinASecond(t *testing.T) {
	a, b, _ := twoNodes(t)
	status, tenant := call(t, a.Service, a.Operator, http.MethodPost, "/v1/tenants", object{"name": "acme", "tier": "gold"})
	if status != http.StatusCreated {
		t.Fatalf("%d %s", status, tenant.Detail)
	}
	credential := func() (id, token string) {
		t.Helper()
		status, c := call(t, a.Service, a.Operator, http.MethodPost, "/v1/tenants/acme/credentials",
			object{"name": "app", "scopes": []string{"key:*", "key:manage"}})
		if status != http.StatusCreated || c.Credential == "" {
			t.Fatalf("%d %s", status, c.Detail)
		}
		return c.ID, c.Credential
	}
	id, token := credential()
	a.Demo, b.Demo = token, token
	must(t, a.Service, "/v1/keys", object{"name": "orders", "spec": "AES_256"})
	ciphertext := must(t, a.Service, "/v1/keys/orders/encrypt", object{"plaintext": []byte("x")}).Ciphertext
	decrypt := func(n *apiNode) int {
		status, _ := call(t, n.Service, token, http.MethodPost, "/v1/keys/orders/decrypt", object{"ciphertext": ciphertext})
		return status
	}
	if decrypt(b) != http.StatusOK {
		t.Fatal("what one node encrypted the other does not decrypt")
	}

	must(t, a.Service, "/v1/keys/orders/disable", nil)
	within(t, time.Second, "disabling the key", func() bool { return decrypt(b) == http.StatusConflict })
	must(t, a.Service, "/v1/keys/orders/enable", nil)
	within(t, time.Second, "enabling the key", func() bool { return decrypt(b) == http.StatusOK })

	if status, _ := call(t, a.Service, a.Operator, http.MethodPost, "/v1/tenants/acme/suspend", nil); status != http.StatusOK {
		t.Fatalf("suspending: %d", status)
	}
	within(t, time.Second, "suspending the tenant", func() bool { return decrypt(b) == http.StatusForbidden })
	if status, _ := call(t, a.Service, a.Operator, http.MethodPost, "/v1/tenants/acme/resume", nil); status != http.StatusOK {
		t.Fatalf("resuming: %d", status)
	}
	within(t, time.Second, "resuming the tenant", func() bool { return decrypt(b) == http.StatusOK })

	if status, _ := call(t, a.Service, a.Operator, http.MethodPost, "/v1/tenants/acme/credentials/"+id+"/revoke", nil); status != http.StatusOK {
		t.Fatalf("revoking: %d", status)
	}
	within(t, time.Second, "revoking the credential", func() bool { return decrypt(b) == http.StatusUnauthorized })
}
