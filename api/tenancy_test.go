package api_test

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"uuid"

	"github.com/sluice-kms/sluice/api"
	"github.com/sluice-kms/sluice/kms"
)

// sample is a body that a route accepts, for every route that takes one. A
// new route needs an entry, or TestForeignAndMissingObjectsLookTheSame fails.
var samples = map[string]string{
	"create-key":                   `{"spec":"AES_256"}`,
	"import-parameters":            `{"wrapping":"RSA_AES_KEY_WRAP_SHA_256"}`,
	"import-key":                   `{"spec":"AES_256","wrapping":"RSA_AES_KEY_WRAP_SHA_256","token":"AAAA","wrapped_key":"AAAA"}`,
	"update-key":                   `{"description":"changed"}`,
	"rotate-key":                   ``,
	"enable-key":                   ``,
	"disable-key":                  `{}`,
	"schedule-key-deletion":        `{"days":7}`,
	"cancel-key-deletion":          ``,
	"enable-key-version":           ``,
	"disable-key-version":          ``,
	"schedule-version-destruction": `{"days":7}`,
	"cancel-version-destruction":   ``,
	"set-alias":                    `{"key":"shared-nobody/key"}`,
	"reencrypt":                    `{"ciphertext":"aGVsbG8=","source_key":"shared-nobody/key"}`,
	"wrap":                         `{"plaintext":"aGVsbG8="}`,
	"unwrap":                       `{"wrapped":"aGVsbG8="}`,
	"shared-secret":                `{"public_key":"aGVsbG8="}`,
	"derive":                       `{"context":"aGVsbG8=","bytes":32}`,
	"encapsulate":                  ``,
	"decapsulate":                  `{"ciphertext":"aGVsbG8="}`,
	"csr":                          `{"subject":{"common_name":"orders.example.com","organization":["Example Ltd"]},"dns_names":["orders.example.com"],"addresses":["192.0.2.1"],"uris":["https://orders.example.com/"]}`,
	"encrypt":                      `{"plaintext":"aGVsbG8="}`,
	"decrypt":                      `{"ciphertext":"aGVsbG8="}`,
	"sign":                         `{"message":"aGVsbG8="}`,
	"verify":                       `{"message":"aGVsbG8=","signature":"MAA="}`,
	"mac":                          `{"message":"aGVsbG8="}`,
	"verify-mac":                   `{"message":"aGVsbG8=","mac":"AAAA"}`,
	"data-key":                     `{"spec":"AES_256"}`,
	"wrapped-data-key":             `{"bytes":32}`,
	"batch":                        `{"items":[{"op":"random","bytes":16}]}`,
	"random":                       `{"bytes":16}`,
	"digest":                       `{"algorithm":"SM3","data":""}`,
	"create-project":               `{"name":"sample"}`,
	"create-credential":            `{"name":"sample","scopes":["key:*"]}`,
	"rotate-credential":            `{"overlap_hours":1}`,
	"revoke-credential":            ``,
	"clear-credential":             ``,
	"enrol-one-time-code":          ``,
	"create-webhook":               `{"url":"https://93.184.215.14/hook","types":["quota.day_soft_limit"]}`,
	"test-webhook":                 ``,
	"create-secret":                `{"path":"sample/path","provider":"openai","value":"sk-sample","metadata":{"region":"eu"}}`,
	"update-secret":                `{"metadata":{"region":"us"},"fresh_seconds":60}`,
	"add-secret-version":           `{"value":"sk-another"}`,
	"activate-secret":              `{"version":1,"steps":[10,100],"step_interval":60,"observe":3600}`,
	"rollback-secret":              ``,
	"disable-secret-version":       `{}`,
	"destroy-secret-version":       `{"days":7}`,
	"restore-secret-version":       ``,
	"set-secret-grants":            `{"credentials":[]}`,
	"create-job":                   `{"op":"random","bytes":1}` + "\n",
	"put-route":                    `{"models":["sample"],"primary":{"name":"one","provider":"openai","base_url":"https://93.184.215.14/v1","region":"eu","secret":"sample/path"}}`,
	"report-route":                 `{"generation":1,"items":[{"target":"one","model":"sample","version":1,"ok":1}]}`,
	"fetch-secrets":                `{"items":[{"path":"sample/path","have_revision":1}]}`,
	"report-secrets":               `{"items":[{"secret_id":"018f0000-0000-7000-8000-000000000000","version":1,"ok":1,"credential":0,"quota":0,"rate_limit":0,"transient":0}]}`,
	"create-tenant":                `{"name":"sample"}`,
	"update-tenant":                `{"tier":"silver"}`,
	"suspend-tenant":               ``,
	"resume-tenant":                ``,
	"approve":                      ``,
	"set-node-mode":                `{"mode":"drained"}`,
	"self-test-node":               ``,
	"check-policy":                 `{"document":{"gate":{"safe_percent":85}}}`,
	"diff-policy":                  `{"version":0}`,
	"put-policy":                   `{"document":{"gate":{"safe_percent":85}},"comment":"more for gold"}`,
	"rollback-policy":              `{"version":0}`,
	"tenant-create-project":        `{"name":"sample2"}`,
	"tenant-create-credential":     `{"name":"sample2","scopes":["key:*"]}`,
	"tenant-rotate-credential":     ``,
	"tenant-revoke-credential":     ``,
	"tenant-clear-credential":      ``,
	"tenant-enrol-one-time-code":   ``,
	"lift-cost":                    ``,
	"tenant-lift-cost":             ``,
}

// objectsOf gives, per kind of object, the references under which an object
// of a tenant is known.
func (w *world) objectsOf(of tenant) map[api.Object][]string {
	w.t.Helper()
	name := "shared-" + of.name
	key := w.key(of, kms.SpecAES256, "", name+"/key")
	credential := w.must(201, "POST", "/v1/credentials", of.token, `{"name":"`+name+`","scopes":["key:sign"]}`).text("id")
	webhook := w.must(201, "POST", "/v1/webhooks", of.token, `{"url":"https://93.184.215.14/`+name+`"}`).text("id")
	secret := w.must(201, "POST", "/v1/secrets", of.token, `{"path":"`+name+`","provider":"openai","value":"sk-`+name+`"}`).text("id")
	w.must(200, "PUT", "/v1/routes/"+name, of.token, samples["put-route"])
	w.must(200, "PUT", "/v1/aliases/"+name+"%2Falias", of.token, `{"key":"`+key+`"}`)
	return map[api.Object][]string{
		api.ObjectKey:        {key, name + "%2Fkey"},
		api.ObjectCredential: {credential},
		api.ObjectVersion:    {"1"},
		api.ObjectAlias:      {name + "%2Falias"},
		api.ObjectTenant:     {of.id, of.name},
		api.ObjectWebhook:    {webhook},
		api.ObjectSecret:     {secret},
		api.ObjectPath:       {name, name + "/"},
		api.ObjectRoute:      {name},
		api.ObjectIncident:   {w.incident(of).ID.String()},
		api.ObjectJob:        {w.must(202, "POST", "/v1/jobs", of.token, samples["create-job"]).text("id")},
		api.ObjectApproval:   {credential},         // operators' only
		api.ObjectNode:       {"node-1"},           // the same
		api.ObjectPolicy:     {"4711471147114711"}, // the same
		api.ObjectRequest:    {w.must(200, "POST", "/v1/keys/"+key+"/encrypt", of.token, `{"plaintext":"aGVsbG8="}`).text("request_id")},
	}
}

var missing = map[api.Object][]string{
	api.ObjectKey:        {"018f0000-0000-7000-8000-000000000000", "shared-nobody%2Fkey"},
	api.ObjectCredential: {"018f0000-0000-7000-8000-000000000000", "no-uuid"},
	api.ObjectVersion:    {"1", "7", "0", "01", "x"},
	api.ObjectAlias:      {"shared-nobody%2Falias"},
	api.ObjectTenant:     {"018f0000-0000-7000-8000-000000000000", "nobody"},
	api.ObjectWebhook:    {"018f0000-0000-7000-8000-000000000000", "no-uuid"},
	api.ObjectSecret:     {"018f0000-0000-7000-8000-000000000000", "no-uuid"},
	api.ObjectPath:       {"shared-nobody", "shared-nobody/", "shared-nobody/deeper"},
	api.ObjectRoute:      {"shared-nobody", "another-nobody"},
	api.ObjectIncident:   {"018f0000-0000-7000-8000-000000000000", "no-uuid"},
	api.ObjectJob:        {"018f0000-0000-7000-8000-000000000000", "no-uuid"},
	api.ObjectApproval:   {"018f0000-0000-7000-8000-000000000000", "no-uuid"},
	api.ObjectNode:       {"node-9"},
	api.ObjectRequest:    {"018f0000-0000-7000-8000-000000000000", "no-uuid"},
	api.ObjectPolicy:     {"9", "-1", "00", "x", "18446744073709551615", "18446744073709551616"},
}

// paths fills the objects of a route's path in from a table of references, in
// every combination.
func paths(r *api.Route, references map[api.Object][]string) []string {
	list := []string{r.Path}
	for _, o := range r.Objects() {
		var next []string
		for _, path := range list {
			for _, reference := range references[o] {
				next = append(next, strings.Replace(path, "{"+string(o)+"}", reference, 1))
			}
		}
		list = next
	}
	return list
}

// makes are the routes that make what is missing, and where that is tested.
var makes = map[string]string{"put-route": "TestRoutesOfTenantsHaveNamesOfTheirOwn"}

// TestForeignAndMissingObjectsLookTheSame sends, for every route that names an
// object and every way of naming it, a reference to another tenant's object
// and to one that does not exist: status, headers and body must be the same,
// and nothing may have changed.
func TestForeignAndMissingObjectsLookTheSame(t *testing.T) {
	w := newWorld(t)
	w.foreignAndMissing(t)
}

func (w *world) foreignAndMissing(t *testing.T) {
	foreign := w.objectsOf(w.rival)
	covered := 0
	for _, r := range api.Routes() {
		if r.Public {
			continue
		}
		body, known := samples[r.Name]
		if r.Request != nil && !known {
			t.Errorf("%s has no sample: add one, so that it is tested", r.Name)
			continue
		}
		if len(r.Objects()) == 0 || makes[r.Name] != "" {
			continue
		}
		for _, o := range r.Objects() {
			if foreign[o] == nil || missing[o] == nil {
				t.Fatalf("the path of %s names a kind of object that the matrix lacks: %s", r.Name, o)
			}
		}
		t.Run(r.Name, func(t *testing.T) {
			var status int
			var header http.Header
			var text string
			for i, path := range append(paths(&r, missing), paths(&r, foreign)...) {
				a := w.send(r.Method, path, w.acme.token, body)
				s, h, b := a.anonymous()
				if i == 0 {
					status, header, text = s, h, b
				}
				if s != status || b != text || !maps.EqualFunc(h, header, slices.Equal) {
					t.Errorf("%s: %d %v %s\nbut a missing one: %d %v %s", path, s, h, b, status, header, text)
				}
				covered++
			}
			want := http.StatusNotFound
			if r.Name == "vault-mount" { // a mount that there is not is denied
				want = http.StatusForbidden
			}
			if r.Op.Info().Family == "operator" || strings.HasPrefix(r.Path, "/v1/tenants") {
				want = http.StatusForbidden // for operators only, whatever it names
			}
			if status != want {
				t.Errorf("status %d, want %d: %s", status, want, text)
			}
		})
	}
	if covered < 100 {
		t.Errorf("the matrix has only %d cells", covered)
	}
	key := w.must(200, "GET", "/v1/keys/"+foreign[api.ObjectKey][0], w.rival.token, "")
	if key.fields["revision"] != 1.0 || key.text("state") != "ENABLED" {
		t.Errorf("the other tenant's key was changed: %s", key.body)
	}
	credential := w.must(200, "GET", "/v1/credentials/"+foreign[api.ObjectCredential][0], w.rival.token, "")
	if credential.fields["revision"] != 1.0 || credential.fields["revoked_at"] != nil {
		t.Errorf("the other tenant's credential was changed: %s", credential.body)
	}
	if webhook := w.must(200, "GET", "/v1/webhooks/"+foreign[api.ObjectWebhook][0], w.rival.token, ""); webhook.fields["revision"] != 1.0 {
		t.Errorf("the other tenant's webhook was changed: %s", webhook.body)
	}
}

func TestListsShowTheOwnTenantOnly(t *testing.T) {
	w := newWorld(t)
	foreign := w.objectsOf(w.rival)
	w.objectsOf(w.acme)
	for _, path := range []string{"/v1/keys", "/v1/aliases", "/v1/credentials", "/v1/projects", "/v1/webhooks", "/v1/secrets", "/v1/routes", "/v1/jobs"} {
		a := w.must(200, "GET", path, w.acme.token, "")
		for kind, references := range foreign {
			if kind == api.ObjectVersion {
				continue // a number, which says nothing of whose it is
			}
			for _, reference := range references {
				if strings.Contains(string(a.body), strings.ReplaceAll(reference, "%2F", "/")) {
					t.Errorf("%s shows another tenant's %s", path, reference)
				}
			}
		}
	}
	if a := w.must(200, "GET", "/v1/keys?project=default", w.acme.token, ""); !strings.Contains(string(a.body), "shared-acme/key") {
		t.Errorf("the own keys are missing: %s", a.body)
	}
}

// TestTenantComesFromTheCredentialOnly names another tenant in every place
// that could hold one.
func TestTenantComesFromTheCredentialOnly(t *testing.T) {
	w := newWorld(t)
	foreign := w.key(w.rival, kms.SpecAES256, "", "")
	for _, header := range []string{"X-Tenant", "X-Tenant-Id", "Sluice-Tenant", "X-Sluice-Tenant", "Tenant", "X-Vault-Namespace"} {
		if a := w.send("GET", "/v1/keys/"+foreign, w.acme.token, "", header, w.rival.id); a.status != 404 {
			t.Errorf("%s: %d", header, a.status)
		}
	}
	for _, query := range []string{"tenant", "tenant_id", "namespace"} {
		if a := w.sendBad("GET", "/v1/keys/"+foreign+"?"+query+"="+w.rival.id, w.acme.token, ""); a.status != 400 {
			t.Errorf("%s: %d", query, a.status)
		}
	}
	for _, field := range []string{"tenant", "tenant_id"} {
		if a := w.sendBad("POST", "/v1/keys", w.acme.token, `{"spec":"SM4","`+field+`":"`+w.rival.id+`"}`); a.status != 400 {
			t.Errorf("%s: %d", field, a.status)
		}
	}
}

// TestEveryRouteButTheDocumentWantsACredential goes through the table with
// everything that is no valid credential. The body is never looked at.
func TestEveryRouteButTheDocumentWantsACredential(t *testing.T) {
	w := newWorld(t)
	broken := strings.Replace(w.acme.token, "slk_", "slk-", 1)
	for _, r := range api.Routes() {
		path := paths(&r, missing)[0]
		if r.Public {
			if public := []string{"/openapi.json", "/v1/auth/approle/login", "/v1/sys/health", "/v1/sys/seal-status"}; !slices.Contains(public, r.Path) {
				t.Errorf("%s is public", r.Name)
			}
			continue
		}
		if r.Vault != nil {
			continue // see TestVaultFacadeWantsACredential
		}
		w.outcomes()
		var first string
		for i, authorization := range [][]string{
			nil, {""}, {"Bearer"}, {"Bearer "}, {"Bearer " + broken}, {"Bearer " + w.acme.token + "x"}, {"Basic " + w.acme.token},
			{w.acme.token}, {"Bearer " + w.acme.token, "Bearer " + w.acme.token}, {"Bearer  " + w.acme.token},
		} {
			header := http.Header{"Content-Type": {"application/json"}}
			if authorization != nil {
				header["Authorization"] = authorization
			}
			var body *strings.Reader
			if r.Request != nil {
				body = strings.NewReader(`{"` + canary)
			} else {
				body = strings.NewReader("")
			}
			a := w.raw(r.Method, path, "", body, header)
			status, h, text := a.anonymous()
			if i == 0 {
				first = text
			}
			if status != 401 || h.Get("WWW-Authenticate") != "Bearer" || text != first {
				t.Errorf("%s with %d: %d %s", r.Name, i, status, text)
			}
		}
		entries := w.outcomes()
		if len(entries) != 10 || entries[0].Outcome != "unauthenticated" || entries[0].Op != r.Op || entries[0].Credential != (uuid.UUID{}) {
			t.Errorf("%s: the journal has %d entries, the first %+v", r.Name, len(entries), entries[0])
		}
	}
	for _, r := range api.Routes() {
		// A credential anywhere else is none.
		if r.Public || len(r.Query) == 0 || r.Vault != nil {
			continue
		}
		a := w.raw(r.Method, paths(&r, missing)[0]+"?access_token="+w.acme.token, "", nil,
			http.Header{"Cookie": {"authorization=" + w.acme.token}, "X-Vault-Token": {w.acme.token}, "X-Api-Key": {w.acme.token}})
		if a.status != 401 {
			t.Errorf("%s with a credential elsewhere: %d", r.Name, a.status)
		}
	}
}

func TestSuspendedTenantIsDeniedAndNamedInTheJournal(t *testing.T) {
	w := newWorld(t)
	w.must(200, "POST", "/v1/tenants/acme/suspend", w.operator, "")
	w.outcomes()
	a := w.send("GET", "/v1/keys", w.acme.token, "")
	if a.status != 403 || a.code() != "permission_denied" {
		t.Errorf("%d %s", a.status, a.body)
	}
	if e := w.outcomes(); len(e) != 1 || e[0].Tenant.String() != w.acme.id || e[0].Credential == (uuid.UUID{}) || e[0].Op != kms.OpListKeys {
		t.Errorf("the journal has %+v", e)
	}
	w.must(200, "POST", "/v1/tenants/acme/resume", w.operator, "")
	w.must(200, "GET", "/v1/keys", w.acme.token, "")
}

func TestOperatorsAdministerTenantsAndTenantsThemselves(t *testing.T) {
	w := newWorld(t)
	w.must(201, "POST", "/v1/projects", w.acme.token, `{"name":"payments"}`)
	if a := w.send("POST", "/v1/projects", w.acme.token, `{"name":"payments"}`); a.status != 409 {
		t.Errorf("the same project again: %d", a.status)
	}
	w.must(201, "POST", "/v1/tenants/acme/projects", w.operator, `{"name":"hr"}`)
	list := w.must(200, "GET", "/v1/tenants/"+w.acme.id+"/projects?page_size=2", w.operator, "")
	if names := list.fields["projects"].([]any); len(names) != 2 || list.text("next_page_token") == "" {
		t.Errorf("first page: %s", list.body)
	}
	rest := w.must(200, "GET", "/v1/tenants/acme/projects?page_size=2&page_token="+list.text("next_page_token"), w.operator, "")
	if names := rest.fields["projects"].([]any); len(names) != 1 || rest.fields["next_page_token"] != nil {
		t.Errorf("last page: %s", rest.body)
	}

	minted := w.must(201, "POST", "/v1/credentials", w.acme.token,
		`{"name":"app","project":"payments","component":"gateway","scopes":["key:*"],"networks":["127.0.0.0/8","::1/128"],"expires_at":"2099-01-01T00:00:00+08:00"}`)
	one := "/v1/credentials/" + minted.text("id")
	if minted.header.Get("Location") != one || minted.text("expires_at") != "2098-12-31T16:00:00Z" {
		t.Errorf("minted %v %s", minted.header, minted.body)
	}
	w.must(200, "GET", "/v1/keys", minted.text("credential"), "")
	rotated := w.must(200, "POST", one+"/rotate", w.acme.token, `{"overlap_hours":1}`)
	w.must(200, "GET", "/v1/keys", minted.text("credential"), "")
	again := w.must(200, "POST", one+"/rotate", w.acme.token, `{"overlap_hours":0}`)
	for _, dead := range []string{minted.text("credential"), rotated.text("credential")} {
		if a := w.send("GET", "/v1/keys", dead, ""); a.status != 401 {
			t.Errorf("a secret outlives a rotation without overlap: %d", a.status)
		}
	}
	shown := w.must(200, "GET", one, w.acme.token, "")
	if strings.Contains(string(shown.body), "slk_") || shown.fields["credential"] != nil {
		t.Errorf("the secret is shown again: %s", shown.body)
	}
	w.must(200, "POST", "/v1/tenants/acme"+strings.TrimPrefix(one, "/v1")+"/revoke", w.operator, "")
	if a := w.send("GET", "/v1/keys", again.text("credential"), ""); a.status != 401 {
		t.Errorf("a revoked credential: %d", a.status)
	}
	if a := w.send("POST", one+"/rotate", w.acme.token, ""); a.status != 409 {
		t.Errorf("rotating a revoked credential: %d", a.status)
	}
	if a := w.send("POST", "/v1/credentials", w.acme.token, `{"name":"x","scopes":["operator:admin"]}`); a.status != 422 {
		t.Errorf("an operator's scope in a tenant: %d %s", a.status, a.body)
	}
	if a := w.must(200, "PATCH", "/v1/tenants/acme", w.operator, `{"tier":"platinum","allow_sealed":false}`); a.text("tier") != "platinum" {
		t.Errorf("changed: %s", a.body)
	}
	if a := w.send("PATCH", "/v1/tenants/acme", w.operator, `{}`); a.status != 422 {
		t.Errorf("a change of nothing: %d", a.status)
	}
	if a := w.send("POST", "/v1/tenants/system/suspend", w.operator, ""); a.status != 409 {
		t.Errorf("suspending the operators: %d", a.status)
	}
	w.must(200, "GET", "/v1/tenants", w.operator, "")
	w.must(200, "GET", "/v1/tenants/acme", w.operator, "")
	w.must(200, "GET", "/v1/hsm/nodes", w.operator, "")
	for _, path := range []string{"/v1/tenants", "/v1/tenants/acme", "/v1/tenants/acme/credentials", "/v1/hsm/nodes", "/v1/policy", "/v1/policy/versions", "/v1/quota/tenants"} {
		if a := w.send("GET", path, w.acme.token, ""); a.status != 403 {
			t.Errorf("a tenant reads %s: %d", path, a.status)
		}
	}
}
