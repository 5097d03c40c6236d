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

// cluster is what API nodes share: the tokens of one domain, one for each of
// two nodes, and one PostgreSQL database.
type cluster struct {
	dir        string
	urls       pgtest.URLs
	toDatabase *line    // of the second node
	tokens     []string // configurations, of node 1 and node 2
	more       string   // of every node's configuration
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	wiretest.Require(t)
	c := &cluster{dir: t.TempDir(), urls: pgtest.Require(t).EmptyDatabase(t)}
	c.toDatabase = newLine(t, c.urls.Service)
	put(t, c.dir, "service-1.url", []byte(c.urls.Service))
	put(t, c.dir, "service-2.url", []byte(c.toDatabase.url))
	put(t, c.dir, "owner.url", []byte(c.urls.Owner))
	ceremony := "name: two\nfile: " + filepath.Join(c.dir, "domain.json") + "\nmembers:\n"
	for _, id := range []string{"node-1", "node-2", "backup-1", "backup-2"} {
		token, err := softhsm.Provision(filepath.Join(c.dir, id), id)
		if err != nil {
			t.Fatal(err)
		}
		entry := fmt.Sprintf("{id: %s, module: %s, serial: %q, pin_file: %s/%s/user.pin, so_pin_file: %s/%s/so.pin, env: {SOFTHSM2_CONF: %s}}\n",
			id, token.Module, token.Serial, c.dir, id, c.dir, id, token.Env["SOFTHSM2_CONF"])
		c.tokens = append(c.tokens, entry)
		if id == "backup-1" {
			ceremony += "backups:\n"
		}
		ceremony += "  - " + entry
	}
	put(t, c.dir, "ceremony.yaml", []byte(ceremony))
	if _, err := wire.InitDomain(context.Background(), filepath.Join(c.dir, "ceremony.yaml"), func(string, string) error { return nil }, func(string) {}); err != nil {
		t.Fatal(err)
	}
	return c
}

// open opens the service of node i, 1 or 2, without its API.
func (c *cluster) open(t *testing.T, i int, log *slog.Logger) (*wire.App, error) {
	t.Helper()
	data := filepath.Join(c.dir, fmt.Sprintf("data-%d", i))
	if err := os.MkdirAll(data, 0o700); err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("node-%d.yaml", i)
	put(t, c.dir, name, fmt.Appendf(nil, `
node: api-%d
data_dir: %s
database: {driver: postgres, url_file: %s/service-%d.url, owner_url_file: %s/owner.url, staleness: 2s}
hsm:
  domains:
    - file: %s/domain.json
      tokens:
        - %s%s`, i, data, c.dir, i, c.dir, c.dir, c.tokens[i-1], c.more))
	config, err := wire.LoadConfig(filepath.Join(c.dir, name), func() []string { return nil })
	if err != nil {
		t.Fatal(err)
	}
	return wire.Open(context.Background(), config, log)
}

// start starts node i, 1 or 2, until the test ends.
func (c *cluster) start(t *testing.T, i int) *apiNode {
	t.Helper()
	n, stop := c.startStoppable(t, i)
	t.Cleanup(stop)
	return n
}

// startStoppable starts node i, 1 or 2, until stop is called.
func (c *cluster) startStoppable(t *testing.T, i int) (n *apiNode, stop func()) {
	t.Helper()
	app, err := c.open(t, i, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	handler, err := app.API("test")
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(handler.Handler())
	n = &apiNode{&wiretest.Service{URL: server.URL}, app}
	return n, func() {
		app.Service.EndWatches() // they end with nothing else
		server.Close()
		if err := app.Close(); err != nil {
			t.Errorf("closing a node: %v", err)
		}
	}
}

// operator returns the credential of an operator, whom the first call makes.
func (c *cluster) operator(t *testing.T, app *wire.App) string {
	t.Helper()
	file := filepath.Join(c.dir, "operator")
	if err := app.OperatorCredential(context.Background(), file); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw[:len(raw)-1])
}

// twoNodes starts two API nodes, each with an HSM token of one domain, on one
// PostgreSQL database, which the second reaches through a line that can be
// cut.
func twoNodes(t *testing.T) (a, b *apiNode, toDatabase *line) {
	t.Helper()
	c := newCluster(t)
	a, b = c.start(t, 1), c.start(t, 2)
	a.Operator = c.operator(t, a.app)
	return a, b, c.toDatabase
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
