package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-kms/sluice/bench/target"
	"github.com/sluice-kms/sluice/cmd/sluice/wire/wiretest"
)

const scenario = `name: short
about: a few encryptions
duration: 500ms
patience: 30s
streams:
  - name: encrypt
    operation: encrypt
    spec: AES_256
    bytes: 64
    keys: 2
    arrivals: poisson
    rate: 50
`

// The third server is one that answers as Transit does; there is no Vault or
// OpenBao to test with.
func TestSluiceTheWrapperAndATransitServerAreComparedUnderOneLoad(t *testing.T) {
	wiretest.Require(t)
	dir := t.TempDir()
	c := config{sluice: filepath.Join(dir, "sluice"), scenario: filepath.Join(dir, "short.yaml"), out: filepath.Join(dir, "out"),
		tokenFile: filepath.Join(dir, "token"), transit: target.Options{Kind: target.Transit}}
	if out, err := exec.Command("go", "build", "-o", c.sluice, "github.com/sluice-kms/sluice/cmd/sluice").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for file, text := range map[string]string{c.scenario: scenario, c.tokenFile: "s.secret-token\n"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Vault-Token") != "s.secret-token" || !strings.HasPrefix(r.URL.Path, "/v1/transit/") {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		fmt.Fprint(w, `{"data":{"ciphertext":"vault:v1:abcd"}}`)
	}))
	defer server.Close()
	c.transit.URL = server.URL
	if err := run(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	report, err := os.ReadFile(filepath.Join(c.out, "short-compared.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range target.Kinds() {
		if !strings.Contains(string(report), "| 1 | encrypt | "+kind+" at http://127.0.0.1:") {
			t.Errorf("%s is not in the comparison:\n%s", kind, report)
		}
	}
	files, err := filepath.Glob(filepath.Join(c.out, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if text, err := os.ReadFile(f); err != nil || strings.Contains(string(text), "secret-token") || strings.Contains(string(text), "slk_") {
			t.Errorf("%s has a credential in it, or cannot be read: %v", f, err)
		}
	}
}
