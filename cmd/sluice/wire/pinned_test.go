package wire_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/sluice-kms/sluice/cmd/sluice/wire"
	"github.com/sluice-kms/sluice/cmd/sluice/wire/wiretest"
	"github.com/sluice-kms/sluice/kms"
)

// A tenant that is pinned to a domain has its keys there and nowhere else: the
// other domain's nodes do none of its work and cannot stand in, and the loss
// of its domain touches no other tenant.
func TestTenantPinnedToADomainIsServedThereOnly(t *testing.T) {
	wiretest.Require(t)
	// Two domains, made apart, in one service.
	var config *wire.Config
	dir := t.TempDir()
	for i, where := range []string{dir, t.TempDir()} {
		dev := &wire.Dev{Dir: where, Nodes: 1, Log: slog.New(slog.DiscardHandler)}
		app, c, err := dev.Open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := app.Close(); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			config = c
			continue
		}
		c.HSM.Domains[0].Tokens[0].ID = "other-1"
		config.HSM.Domains = append(config.HSM.Domains, c.HSM.Domains...)
	}
	app, err := wire.Open(t.Context(), config, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	api, err := app.API("test")
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(api.Handler())
	t.Cleanup(func() {
		server.Close()
		if err := app.Close(); err != nil {
			t.Error(err)
		}
	})
	operator, err := os.ReadFile(dir + "/" + wire.OperatorCredentialFile)
	if err != nil {
		t.Fatal(err)
	}
	s := &wiretest.Service{App: app, URL: server.URL, Operator: strings.TrimSpace(string(operator))}
	domains := app.Device.Domains()
	if len(domains) != 2 || domains[1].Nodes[0] != "other-1" {
		t.Fatalf("the domains are %+v", domains)
	}
	tenant := func(name, domain string) string {
		t.Helper()
		if status, a := call(t, s, s.Operator, http.MethodPost, "/v1/tenants", object{"name": name, "domain": domain, "tier": "platinum"}); status != 201 {
			t.Fatalf("%s: %d %s", name, status, a.Detail)
		}
		status, a := call(t, s, s.Operator, http.MethodPost, "/v1/tenants/"+name+"/credentials", object{"name": "app", "scopes": []string{"key:*"}})
		if status != 201 {
			t.Fatalf("%s: %d %s", name, status, a.Detail)
		}
		return a.Credential
	}
	pinned, free := tenant("pinned", domains[1].ID.String()), tenant("free", "")
	operations := func() map[kms.NodeID]uint64 {
		m := map[kms.NodeID]uint64{}
		for _, n := range app.Device.Status() {
			m[n.ID] = n.Operations
		}
		return m
	}
	before := operations()
	for _, spec := range []string{"AES_256", "ECC_NIST_P256"} {
		if status, a := call(t, s, pinned, http.MethodPost, "/v1/keys", object{"name": spec, "spec": spec}); status != 201 || a.Protection != "HSM" {
			t.Fatalf("%s: %d %s", spec, status, a.Detail)
		}
	}
	use := func(credential string) int {
		t.Helper()
		status, _ := call(t, s, credential, http.MethodPost, "/v1/keys/AES_256/encrypt", object{"plaintext": "aGVsbG8="})
		return status
	}
	if status := use(pinned); status != 200 {
		t.Fatalf("using a key: %d", status)
	}
	now := operations()
	if now["node-1"] != before["node-1"] || now["other-1"] == before["other-1"] {
		t.Errorf("operations before %v and after %v", before, now)
	}
	if status, a := call(t, s, free, http.MethodPost, "/v1/keys", object{"name": "AES_256", "spec": "AES_256"}); status != 201 {
		t.Fatalf("%d %s", status, a.Detail)
	}
	if err := app.Device.SetMode("other-1", kms.NodeDrained); err != nil {
		t.Fatal(err)
	}
	within(t, recovery, "draining", func() bool {
		for _, n := range app.Device.Status() {
			if n.ID == "other-1" {
				return n.State == kms.NodeClosed
			}
		}
		return false
	})
	if status := use(pinned); status != 503 {
		t.Errorf("without its domain the pinned tenant gets %d", status)
	}
	if status := use(free); status != 200 {
		t.Errorf("without the other domain a tenant gets %d", status)
	}
}
