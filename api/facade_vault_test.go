package api_test

import (
	"encoding/json/v2"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-kms/sluice/api"
	"github.com/sluice-kms/sluice/kms"
)

const denied = `{"errors":["permission denied"]}`

// vault sends a request as a client of Vault, with a token in its header.
func (w *world) vault(method, path, token string, header ...string) *answer {
	w.t.Helper()
	return w.exchange(false, method, path, "", "", append([]string{"X-Vault-Token", token}, header...)...)
}

// wantVault expects a status and, unless it is "", a body.
func (w *world) wantVault(t *testing.T, a *answer, status int, body string) {
	t.Helper()
	if a.status != status || body != "" && string(a.body) != body {
		t.Errorf("%d %s, want %d %s", a.status, a.body, status, body)
	}
}

// vaultData decodes an answer strictly into its type and returns its data.
func vaultData[R any](t *testing.T, a *answer) (r R) {
	t.Helper()
	if err := json.Unmarshal(a.body, &r, json.RejectUnknownMembers(true)); err != nil || a.status != 200 {
		t.Errorf("%d %s: %v", a.status, a.body, err)
	}
	return r
}

// readVault reads a secret and returns its value and version.
func (w *world) readVault(t *testing.T, path, token string) (value string, version uint32) {
	t.Helper()
	r := vaultData[api.VaultReadResponse](t, w.vault("GET", "/v1/secret/data/"+path, token))
	if r.Data.Data == nil {
		t.Fatalf("%s has no value", path)
	}
	return string(r.Data.Data.Key), r.Data.Metadata.Version
}

// login logs in with a credential and returns the token.
func (w *world) login(t *testing.T, credential string) string {
	t.Helper()
	parts := strings.Split(credential, "_")
	a := w.must(200, "POST", "/v1/auth/approle/login", "", object(map[string]any{"role_id": parts[1], "secret_id": parts[2]}))
	return vaultData[api.VaultLoginResponse](t, a).Auth.ClientToken
}

func TestVaultFacadeWantsACredential(t *testing.T) {
	w := newWorld(t)
	token := w.login(t, w.acme.token)
	tried := 0
	for _, r := range api.Routes() {
		if r.Vault == nil || r.Public {
			continue
		}
		path := paths(&r, missing)[0]
		w.outcomes()
		for _, h := range []http.Header{
			nil, {"X-Vault-Token": {""}}, {"X-Vault-Token": {w.acme.token + "x"}}, {"X-Vault-Token": {token + "x"}},
			{"X-Vault-Token": {w.acme.token, w.acme.token}}, {"X-Vault-Token": {w.acme.token}, "Authorization": {"Bearer " + w.acme.token}},
			{"Authorization": {"Basic " + w.acme.token}}, {"Cookie": {"token=" + w.acme.token}},
			{"X-Vault-Token": {strings.Replace(token, "slt_", "slk_", 1)}},
		} {
			tried++
			w.wantVault(t, w.raw(r.Method, path, "", nil, h), 403, denied)
		}
		entries := w.outcomes()
		if len(entries) != 9 || entries[0].Outcome != "unauthenticated" || entries[0].Op != r.Op {
			t.Errorf("%s: the journal has %d entries, the first %+v", r.Name, len(entries), entries[0])
		}
	}
	if tried < 80 {
		t.Errorf("only %d were tried", tried)
	}
	// A login is for the facade only.
	if a := w.send("GET", "/v1/keys", token, ""); a.status != 401 {
		t.Errorf("a native route with a login's token: %d", a.status)
	}
}

func TestVaultReadIsOneFetchWithItsPriceAndEntry(t *testing.T) {
	w := newWorld(t)
	const value = "sk-\"first\"\\\u2028 \u00e9"
	w.newSecret(w.acme, "llm/openai", value)
	w.must(201, "POST", "/v1/secrets", w.acme.token, `{"path":"llm/bare","provider":"x","value":"v"}`)
	w.outcomes()
	a := w.send("GET", "/v1/secret/data/llm%2Fopenai", w.acme.token, "")
	r := vaultData[api.VaultReadResponse](t, a)
	for name, got := range map[string]api.SecretText{"key": r.Data.Data.Key, "value": r.Data.Data.Value, "api_key": r.Data.Data.APIKey, "apiKey": r.Data.Data.Camel} {
		if string(got) != value {
			t.Errorf("%s is %q", name, got)
		}
	}
	m := r.Data.Metadata
	if m.Version != 1 || m.DeletionTime != "" || m.Destroyed || !maps.Equal(m.CustomMetadata, map[string]string{"region": "eu"}) || m.CreatedTime.IsZero() {
		t.Errorf("metadata: %+v", m)
	}
	if r.MountType != "kv" || r.LeaseID != "" || r.RequestID.String() != a.header.Get("X-Request-Id") {
		t.Errorf("envelope: %+v", r.VaultEnvelope)
	}
	e := w.outcomes()
	if len(e) != 1 || e[0].Op != kms.OpFetchSecrets || e[0].Outcome != "ok" || len(e[0].Items) != 1 || a.header.Get("Sluice-Cost") == "" {
		t.Errorf("entries %+v, cost %q", e, a.header.Get("Sluice-Cost"))
	}
	if a := w.vault("GET", "/v1/secret/data/llm/bare", w.acme.token); !strings.Contains(string(a.body), `"custom_metadata":null`) {
		t.Errorf("without metadata: %s", a.body)
	}
	flat := vaultData[api.VaultFlatResponse](t, w.send("GET", "/v1/kv/llm%2Fopenai", w.acme.token, ""))
	if string(flat.Data.Key) != value || flat.LeaseDuration < 290 || flat.LeaseDuration > 300 {
		t.Errorf("version 1 of the engine: %+v", flat)
	}
}

func TestVaultHandsOutOneVersionOfARolloutAndRecordsIt(t *testing.T) {
	w := newWorld(t)
	one := w.newSecret(w.acme, "shared", "sk-1")
	w.must(201, "POST", one+"/versions", w.acme.token, `{"value":"sk-2"}`)
	w.must(200, "POST", one+"/activate", w.acme.token, `{"version":2,"steps":[50,100],"step_interval":3600}`)
	seen := map[uint32]bool{}
	for range 20 { // all of them alike in one of half a million runs
		_, token := w.minted(w.acme, "secret:read")
		w.outcomes()
		value, version := w.readVault(t, "shared", token)
		if again, _ := w.readVault(t, "shared", token); value != fmt.Sprint("sk-", version) || again != value {
			t.Errorf("version %d is %q, then %q", version, value, again)
		}
		for _, e := range w.outcomes() {
			if len(e.Items) != 1 || !slices.Equal(e.Items[0].Versions, []uint32{version}) {
				t.Errorf("version %d was handed out, recorded is %+v", version, e.Items)
			}
		}
		seen[version] = true
	}
	if len(seen) != 2 {
		t.Errorf("all 20 gateways have %v", seen)
	}
	for number, want := range map[string]uint32{"1": 1, "2": 2} {
		r := vaultData[api.VaultReadResponse](t, w.vault("GET", "/v1/secret/data/shared?version="+number, w.acme.token))
		if r.Data.Metadata.Version != want {
			t.Errorf("version %s: %+v", number, r.Data.Metadata)
		}
	}
}

func TestVaultNamespaceIsTheTenantOrIsDenied(t *testing.T) {
	w := newWorld(t)
	w.newSecret(w.acme, "ns", "v")
	w.newSecret(w.rival, "ns", "v")
	for _, c := range []struct {
		path, header string
		status       int
	}{
		{"/v1/secret/data/ns", "", 200}, {"/v1/secret/data/ns", "acme", 200}, {"/v1/secret/data/ns", "acme/", 200}, {"/v1/secret/data/ns", "/", 200},
		{"/v1/acme/secret/data/ns", "", 200}, {"/v1/acme/secret/data/ns", "acme", 200}, {"/v1/acme/kv/ns", "", 200}, {"/v1/acme/auth/token/lookup-self", "", 200},
		{"/v1/secret/data/ns", "rival", 403}, {"/v1/secret/data/ns", w.rival.id, 403}, {"/v1/secret/data/ns", w.acme.id, 403},
		{"/v1/secret/data/ns", "Acme", 403}, {"/v1/secret/data/ns", "acme/rival", 403}, {"/v1/secret/data/ns", "root", 403},
		{"/v1/rival/secret/data/ns", "", 403}, {"/v1/rival/secret/data/ns", "acme", 403}, {"/v1/acme/secret/data/ns", "rival", 403},
		{"/v1/acme/rival/secret/data/ns", "", 403}, {"/v1/nobody/secret/data/ns", "", 403}, {"/v1/nobody/auth/token/lookup-self", "", 403},
	} {
		a := w.vault("GET", c.path, w.acme.token, "X-Vault-Namespace", c.header)
		if a.status != c.status || c.status == 403 && string(a.body) != denied {
			t.Errorf("%s in %q: %d %s", c.path, c.header, a.status, a.body)
		}
	}
	parts := strings.Split(w.acme.token, "_")
	body := object(map[string]any{"role_id": parts[1], "secret_id": parts[2]})
	if a := w.sendBad("POST", "/v1/rival/auth/approle/login", "", body); a.status != 403 || string(a.body) != denied {
		t.Errorf("login in another's namespace: %d %s", a.status, a.body)
	}
	// Native routes keep their names from being namespaces.
	if a := w.raw("GET", "/v1/keys/secret/data/ns", w.acme.token, nil, nil); a.code() != "not_found" {
		t.Errorf("below a native route: %s", a.body)
	}
}

func TestVaultDeniedAndMissingLookTheSameToWhoMayNotList(t *testing.T) {
	w := newWorld(t)
	w.newSecret(w.acme, "mine/a", "sk-mine")
	w.newSecret(w.acme, "other/a", "sk-other")
	w.newSecret(w.rival, "rival/a", "sk-rival")
	_, reader := w.minted(w.acme, "secret:read:mine/*")
	_, lister := w.minted(w.acme, "secret:read:mine/*", "secret:list")
	_, nobody := w.minted(w.acme, "key:*")
	const none = `{"errors":[]}`
	for _, at := range []string{"/v1/secret/data/", "/v1/kv/"} {
		for path, want := range map[string][3]int{ // reader, lister, who may not read at all
			"mine/a": {200, 200, 403}, "mine/missing": {403, 404, 403}, "other/a": {403, 403, 403}, "other/missing": {403, 404, 403}, "rival/a": {403, 404, 403},
		} {
			for i, token := range []string{reader, lister, nobody} {
				a := w.vault("GET", at+path, token)
				body := map[int]string{403: denied, 404: none}[want[i]]
				if a.status != want[i] || body != "" && string(a.body) != body {
					t.Errorf("%s%s for %d: %d %s, want %d", at, path, i, a.status, a.body, want[i])
				}
			}
		}
	}
	for _, path := range []string{"/v1/secret/metadata/mine/a", "/v1/secret/metadata/nobody", "/v1/secret/metadata/mine?list=true", "/v1/secret/metadata/nobody?list=true"} {
		w.wantVault(t, w.vault("GET", path, reader), 403, denied)
	}
	w.wantVault(t, w.vault("GET", "/v1/secret/metadata/mine/a", lister), 200, "")
	w.wantVault(t, w.vault("GET", "/v1/secret/metadata/nobody", lister), 404, none)
	w.wantVault(t, w.vault("GET", "/v1/secret/metadata/nobody?list=true", lister), 404, none)
}

func TestVaultSecretOutOfUseIsMissingWithItsMetadata(t *testing.T) {
	w := newWorld(t)
	one := w.newSecret(w.acme, "gone", "sk-1")
	w.must(201, "POST", one+"/versions", w.acme.token, `{"value":"sk-2"}`)
	read := func(path string) (*answer, api.VaultSecret) {
		t.Helper()
		a := w.vault("GET", path, w.acme.token)
		var r api.VaultReadResponse
		if err := json.Unmarshal(a.body, &r, json.RejectUnknownMembers(true)); err != nil && a.status != 403 {
			t.Errorf("%d %s: %v", a.status, a.body, err)
		}
		return a, r.Data
	}
	if a, s := read("/v1/secret/data/gone?version=1"); a.status != 200 || s.Metadata.Version != 1 {
		t.Errorf("a version by its number: %d %s", a.status, a.body)
	}
	if a, s := read("/v1/secret/data/gone?version=0"); a.status != 200 || s.Metadata.Version != 1 {
		t.Errorf("version 0: %d %s", a.status, a.body)
	}
	if a, s := read("/v1/secret/data/gone?version=2"); a.status != 404 || s.Metadata.Version != 2 || s.Data != nil || s.Metadata.DeletionTime == "" {
		t.Errorf("a version that is not in use: %d %s", a.status, a.body)
	}
	w.wantVault(t, w.vault("GET", "/v1/secret/data/gone?version=9", w.acme.token), 404, `{"errors":[]}`)
	w.wantVault(t, w.vault("GET", "/v1/secret/data/gone?version=x", w.acme.token), 400, "")
	w.must(200, "POST", one+"/versions/1/disable", w.acme.token, "")
	a, s := read("/v1/secret/data/gone")
	if a.status != 404 || s.Data != nil || s.Metadata.DeletionTime == "" || s.Metadata.Destroyed || strings.Contains(string(a.body), "sk-") {
		t.Errorf("disabled: %d %s", a.status, a.body)
	}
	w.wantVault(t, w.vault("GET", "/v1/kv/gone", w.acme.token), 404, `{"errors":[]}`)
	m := vaultData[api.VaultMetadataResponse](t, w.vault("GET", "/v1/secret/metadata/gone", w.acme.token)).Data
	if m.CurrentVersion != 2 || m.OldestVersion != 1 || len(m.Versions) != 2 || m.Versions["1"].DeletionTime == "" || m.Versions["1"].Destroyed {
		t.Errorf("metadata: %+v", m)
	}
	w.must(200, "POST", one+"/activate", w.acme.token, `{"version":2}`)
	if value, version := w.readVault(t, "gone", w.acme.token); value != "sk-2" || version != 2 {
		t.Errorf("after the rotation: %s, %d", value, version)
	}
}

// TestVaultOutageIsNeverMissing lets everything fail that a read needs. An
// answer of 404 would make an operator delete what he copied, one of 403 stop a
// gateway for good.
func TestVaultOutageIsNeverMissing(t *testing.T) {
	w := newWorld(t)
	w.newSecret(w.acme, "llm", "sk")
	token := w.login(t, w.acme.token)
	const sealed = `{"errors":["Vault is sealed"]}`
	away := func(kind kms.Kind) error { return kms.Errorf(kind, "away") }
	w.sealFault = away(kms.KindHSMUnavailable) // no data key is open yet
	w.wantVault(t, w.vault("GET", "/v1/secret/data/llm", token), 503, sealed)
	w.wantVault(t, w.vault("GET", "/v1/kv/llm", token), 503, sealed)
	w.sealFault = nil
	for name, fault := range map[string]*error{"the database": &w.storeFault, "the journal": &w.journalFault, "the scheduler": &w.quotaFault} {
		for _, kind := range []kms.Kind{kms.KindStoreUnavailable, kms.KindReducedCapacity, kms.KindWaitExceeded, kms.KindAuditUnavailable} {
			*fault = away(kind)
			for _, path := range []string{"/v1/secret/data/llm", "/v1/secret/data/nobody", "/v1/kv/llm", "/v1/secret/metadata/llm", "/v1/auth/token/lookup-self"} {
				a := w.vault("GET", path, token)
				if fault == &w.storeFault && path == "/v1/auth/token/lookup-self" {
					continue // it asks for nothing stored
				}
				if a.status != 503 || string(a.body) != sealed {
					t.Errorf("without %s (%v): %s: %d %s", name, kind, path, a.status, a.body)
				}
			}
			*fault = nil
		}
	}
	w.quotaFault = errors.New("unknown")
	w.wantVault(t, w.vault("GET", "/v1/secret/data/llm", token), 500, `{"errors":["internal error"]}`)
	for kind, text := range map[kms.Kind]string{kms.KindQuotaExceeded: "rate limit quota exceeded", kms.KindQuotaExhausted: "quota exhausted"} {
		w.quotaFault = &kms.Error{Kind: kind, RetryAfter: 1200 * time.Millisecond}
		a := w.vault("GET", "/v1/secret/data/llm", token)
		if a.status != 429 || a.header.Get("Retry-After") != "2" || !strings.Contains(string(a.body), text) {
			t.Errorf("%v: %d %v %s", kind, a.status, a.header, a.body)
		}
	}
	w.quotaFault, w.panicOnAuth = nil, true
	w.wantVault(t, w.vault("GET", "/v1/secret/data/llm", token), 500, `{"errors":["internal error"]}`)
	w.panicOnAuth = false
}

func TestVaultListsDirectories(t *testing.T) {
	w := newWorld(t)
	for _, path := range []string{"a", "a-b", "a/x", "a/y/1", "a/y/2", "b/z"} {
		w.newSecret(w.acme, path, "v")
	}
	w.newSecret(w.rival, "a/rival", "v")
	for directory, want := range map[string]string{"": "a a-b a/ b/", "a": "x y/", "a/y": "1 2", "b": "z"} {
		var got []string
		for _, at := range []string{"/v1/secret/metadata", "/v1/kv", "/v1/acme/secret/metadata"} {
			for _, slash := range []string{"", "/"} {
				path := strings.TrimSuffix(at+"/"+directory, "/") + slash
				for _, a := range []*answer{w.vault("LIST", path, w.acme.token), w.vault("GET", path+"?list=true", w.acme.token), w.vault("GET", path+"?list=1", w.acme.token)} {
					got = append(got, strings.Join(vaultData[api.VaultListResponse](t, a).Data.Keys, " "))
				}
			}
		}
		if got = slices.Compact(got); len(got) != 1 || got[0] != want {
			t.Errorf("%q holds %q, want %q", directory, got, want)
		}
	}
	w.wantVault(t, w.vault("LIST", "/v1/secret/metadata/a/x", w.acme.token), 404, `{"errors":[]}`)
}

func TestVaultTakesWhatClientsSend(t *testing.T) {
	w := newWorld(t)
	w.newSecret(w.acme, "llm/openai", "v")
	parts := strings.Split(w.acme.token, "_")
	for _, method := range []string{"PUT", "POST"} {
		for _, contentType := range []string{"", "application/json", "text/plain", "application/x-www-form-urlencoded"} {
			body := object(map[string]any{"role_id": parts[1], "secret_id": parts[2], "more": map[string]any{"a": nil}})
			a := w.sendBad(method, "/v1/auth/approle/login", "", body, "Content-Type", contentType)
			w.wantVault(t, a, 200, "")
		}
	}
	token := w.login(t, w.acme.token)
	for _, c := range []struct{ method, path, body, contentType string }{
		{"PUT", "/v1/auth/token/renew-self", `{"increment":3600}`, ""},
		{"POST", "/v1/auth/token/renew-self", "", "application/x-www-form-urlencoded"},
		{"POST", "/v1/auth/token/renew-self/", "", ""},
		{"GET", "/v1/secret/data/llm/openai", `{}`, "application/json"},
		{"GET", "/v1/secret/data/llm/openai/", "", ""},
		{"GET", "/v1/secret/data/llm/openai?unknown=1", "", ""},
		{"GET", "/v1/kv/llm/openai", `{}`, "application/json"},
		{"GET", "/v1/secret/data/%6Clm/openai", "", ""},
	} {
		h := http.Header{"X-Vault-Token": {token}, "X-Vault-Request": {"true"}}
		if c.contentType != "" {
			h.Set("Content-Type", c.contentType)
		}
		w.wantVault(t, w.raw(c.method, c.path, "", strings.NewReader(c.body), h), 200, "")
	}
}

func TestVaultFacadeWritesNothing(t *testing.T) {
	w := newWorld(t)
	w.newSecret(w.acme, "llm", "v")
	w.intents()
	for _, method := range []string{"PUT", "POST", "PATCH", "DELETE", "HEADS"} {
		for _, path := range []string{"/v1/secret/data/llm", "/v1/secret/metadata/llm", "/v1/secret/delete/llm", "/v1/secret/destroy/llm", "/v1/kv/llm", "/v1/acme/secret/data/llm"} {
			a := w.vault(method, path, w.acme.token)
			if a.status != 405 || a.header.Get("Allow") != "GET, LIST" || !strings.Contains(string(a.body), "can only be read") {
				t.Errorf("%s %s: %d %v %s", method, path, a.status, a.header, a.body)
			}
		}
	}
	if n := w.intents(); n != 0 {
		t.Errorf("%d changes", n)
	}
	w.wantVault(t, w.vault("GET", "/v1/secret/config", w.acme.token), 404, `{"errors":["unsupported path"]}`)
	w.wantVault(t, w.vault("GET", "/v1/sys/mounts", w.acme.token), 403, denied)
	w.wantVault(t, w.vault("POST", "/v1/auth/userpass/login/x", w.acme.token), 403, denied)
	w.wantVault(t, w.vault("GET", "/v1/auth/approle/login", w.acme.token), 405, "")
}

func TestVaultPathThatNoSecretHasIsRefused(t *testing.T) {
	w := newWorld(t)
	w.newSecret(w.acme, "b", "v")
	w.outcomes()
	for _, at := range []string{"/v1/secret/data/", "/v1/kv/", "/v1/secret/metadata/"} {
		for _, path := range []string{"a/../b", "a/%2e%2e/b", "..%2Fb", "./b", "%2e/b", "a//b", "%2Fb", "b%00", "b%0a", "b%7f", "b%E2%80%A8", "b%E2%80%A9", "b%C2%85",
			"b%FF", "b%20", "b%25", "b%5C", "*", "b*", "%C3%A9", strings.Repeat("a", kms.MaxSecretPath+1)} {
			a := w.vault("GET", at+path, w.acme.token)
			if a.status != 400 || strings.Contains(string(a.body), path) && len(path) > 1 {
				t.Errorf("%s%s: %d %s", at, path, a.status, a.body)
			}
		}
	}
	for _, path := range []string{"/v1/secret/../secret/data/b", "/v1/acme/../secret/data/b", "/v1//secret/data/b", "/v1/%73ecret/data/b", "/v1/secret%2Fdata%2Fb", "/V1/secret/data/b"} {
		if a := w.vault("GET", path, w.acme.token); a.status < 400 {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	for _, e := range w.outcomes() {
		if e.Outcome == "ok" {
			t.Errorf("%s was reached", e.Op)
		}
	}
}

func TestVaultLoginLivesAndDies(t *testing.T) {
	w := newWorld(t)
	w.newSecret(w.acme, "llm/openai", "sk")
	id, credential := w.minted(w.acme, "secret:read:llm/*")
	token := w.login(t, credential)
	if value, _ := w.readVault(t, "llm/openai", token); value != "sk" {
		t.Errorf("read %q", value)
	}
	a := w.vault("GET", "/v1/auth/token/lookup-self", token)
	data := vaultData[api.VaultTokenResponse](t, a).Data
	if data.TTL < 3590 || data.TTL > 3600 || data.ExpireTime == nil || data.Type != "service" || !data.Renewable || strings.Contains(string(a.body), token) {
		t.Errorf("lookup: %s", a.body)
	}
	renewed := vaultData[api.VaultLoginResponse](t, w.vault("PUT", "/v1/auth/token/renew-self", token)).Auth
	if renewed.ClientToken != token || renewed.LeaseDuration < 3590 || !renewed.Renewable {
		t.Errorf("renewed: %+v", renewed)
	}
	own := vaultData[api.VaultTokenResponse](t, w.vault("GET", "/v1/auth/token/lookup-self", credential)).Data
	if own.TTL != 0 || own.ExpireTime != nil || own.Renewable {
		t.Errorf("the credential itself: %+v", own)
	}
	w.wantVault(t, w.vault("POST", "/v1/auth/token/renew-self", credential), 400, `{"errors":["lease is not renewable"]}`)
	w.wantVault(t, w.vault("POST", "/v1/auth/token/revoke-self", credential), 400, "")

	other := w.login(t, credential)
	w.wantVault(t, w.vault("PUT", "/v1/auth/token/revoke-self", token), 204, "")
	w.wantVault(t, w.vault("GET", "/v1/secret/data/llm/openai", token), 403, denied)
	w.wantVault(t, w.vault("GET", "/v1/secret/data/llm/openai", other), 200, "")
	w.must(200, "POST", "/v1/credentials/"+id+"/revoke", w.acme.token, "")
	for _, dead := range []string{other, credential} {
		w.wantVault(t, w.vault("GET", "/v1/secret/data/llm/openai", dead), 403, denied)
	}
	parts := strings.Split(credential, "_")
	a = w.sendBad("POST", "/v1/auth/approle/login", "", object(map[string]any{"role_id": parts[1], "secret_id": parts[2]}))
	w.wantVault(t, a, 403, denied)
	for _, body := range []string{"", "x", "{", `{"role_id":1}`, `[]`, `{"role_id":"a","role_id":"b"}`, strings.Repeat(" ", 5000)} {
		a := w.sendBad("POST", "/v1/auth/approle/login", "", body)
		w.wantVault(t, a, 400, "")
	}
}

func TestVaultLoginsAreInTheJournal(t *testing.T) {
	w := newWorld(t)
	w.outcomes()
	token := w.login(t, w.acme.token)
	w.vault("GET", "/v1/auth/token/lookup-self", token)
	w.vault("GET", "/v1/sys/internal/ui/mounts/secret/x", token)
	w.vault("POST", "/v1/auth/token/revoke-self", token)
	w.sendBad("POST", "/v1/auth/approle/login", "", `{"role_id":"x","secret_id":"y"}`)
	var got []string
	for _, e := range w.outcomes() {
		got = append(got, fmt.Sprint(e.Op, " ", e.Outcome, " ", e.Tenant.String() == w.acme.id))
	}
	if want := "login ok true|read-self ok true|read-self ok true|logout ok true|login unauthenticated false"; strings.Join(got, "|") != want {
		t.Errorf("entries: %q", got)
	}
	if strings.Contains(w.logs.String(), token) {
		t.Error("the log shows the token")
	}
}

func TestVaultMountsSayTheirVersion(t *testing.T) {
	w := newWorld(t)
	for path, want := range map[string]string{"secret": "2", "secret/llm/openai": "2", "secret/data/x": "2", "kv/x": "1"} {
		m := vaultData[api.VaultMountResponse](t, w.vault("GET", "/v1/sys/internal/ui/mounts/"+path, w.acme.token)).Data
		if mount, _, _ := strings.Cut(path, "/"); m.Path != mount+"/" || m.Options["version"] != want || m.Type != "kv" {
			t.Errorf("%s: %+v", path, m)
		}
	}
	// 404 would be read as version 1.
	w.wantVault(t, w.vault("GET", "/v1/sys/internal/ui/mounts/other/x", w.acme.token), 403, denied)
}

func TestVaultHealthIsTheServices(t *testing.T) {
	var ready error
	w := newWorldWith(t, atOnce{}, true, func(c *api.Config) { c.Ready = func() error { return ready } })
	for _, sealed := range []bool{false, true} {
		if sealed {
			ready = errors.New("no HSM node is up")
		}
		health, seal := w.send("GET", "/v1/sys/health", "", ""), w.send("GET", "/v1/sys/seal-status", "", "")
		want := map[bool]int{false: 200, true: 503}[sealed]
		if health.status != want || health.fields["sealed"] != sealed || seal.status != 200 || seal.fields["sealed"] != sealed {
			t.Errorf("sealed %v: %d %s, %d %s", sealed, health.status, health.body, seal.status, seal.body)
		}
		if a := w.raw("GET", "/v1/sys/health?standbycode=299&sealedcode=299&activecode=299", "", nil, nil); a.status != 299 || a.fields["sealed"] != sealed {
			t.Errorf("with a status of its own: %d %s", a.status, a.body)
		}
		for _, code := range []string{"x", "204x", "100", "600", "-1", ""} {
			if a := w.raw("GET", "/v1/sys/health?sealedcode="+code+"&activecode="+code, "", nil, nil); a.status != 400 {
				t.Errorf("code %q: %d", code, a.status)
			}
		}
		if a := w.raw("HEAD", "/v1/sys/health?standbyok=true", "", nil, nil); a.status != want {
			t.Errorf("HEAD: %d", a.status)
		}
	}
}
