package api_test

import (
	"context"
	"encoding/json/v2"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/api"
	"github.com/sluice-kms/sluice/kms"
)

// request is one that a test sends.
type request struct{ method, path, token, body string }

// doable has, for every route that changes state, a request that can be
// carried out. A new route needs an entry, or the matrices fail.
func (w *world) doable() map[string]func() request {
	name := 0
	unique := func() string {
		name++
		return "unique-" + string(rune('a'+name/26)) + string(rune('a'+name%26))
	}
	key := func(before ...string) string {
		path := "/v1/keys/" + w.key(w.acme, kms.SpecAES256, "", "")
		for _, verb := range before {
			w.must(200, "POST", path+verb, w.acme.token, "")
		}
		return path
	}
	secretBody := func(path string) string { return `{"path":"` + path + `","provider":"openai","value":"sk-1"}` }
	secret := func() string {
		return "/v1/secrets/" + w.must(201, "POST", "/v1/secrets", w.acme.token, secretBody(unique())).text("id")
	}
	credential := func() string {
		return w.must(201, "POST", "/v1/credentials", w.acme.token, `{"name":"c","scopes":["key:*"]}`).text("id")
	}
	flagged := func() string {
		id := credential()
		guard := &kms.Guard{Flagged: time.Now(), Action: kms.AbuseAlert}
		if _, err := w.UpdateCredential(context.Background(), uuid.Nil(), uuid.MustParse(id), 1, kms.CredentialChange{Guard: guard}); err != nil {
			w.t.Fatal(err)
		}
		return id
	}
	post := func(path, body string) request { return request{"POST", path, w.acme.token, body} }
	asOperator := func(method, path, body string) request { return request{method, path, w.operator, body} }
	suspended := func() string {
		path := "/v1/tenants/" + w.newTenant(unique()).name
		w.must(200, "POST", path+"/suspend", w.operator, "")
		return path
	}
	second := sync.OnceValue(w.secondOperator)
	return map[string]func() request{
		"create-key":                   func() request { return post("/v1/keys", `{"spec":"AES_256"}`) },
		"import-key":                   w.importable,
		"update-key":                   func() request { return request{"PATCH", key(), w.acme.token, `{"description":"x"}`} },
		"delete-key":                   func() request { return request{"DELETE", key(), w.acme.token, ""} },
		"rotate-key":                   func() request { return post(key()+"/rotate", "") },
		"enable-key":                   func() request { return post(key("/disable")+"/enable", "{}") },
		"disable-key":                  func() request { return post(key()+"/disable", "") },
		"schedule-key-deletion":        func() request { return post(key()+"/schedule-deletion", `{"days":7}`) },
		"cancel-key-deletion":          func() request { return post(key("/schedule-deletion")+"/cancel-deletion", "") },
		"enable-key-version":           func() request { return post(key("/rotate")+"/versions/1/enable", "") },
		"disable-key-version":          func() request { return post(key("/rotate")+"/versions/1/disable", "") },
		"schedule-version-destruction": func() request { return post(key("/rotate")+"/versions/1/schedule-destruction", "") },
		"cancel-version-destruction": func() request {
			return post(key("/rotate", "/versions/1/schedule-destruction")+"/versions/1/cancel-destruction", "")
		},
		"set-alias": func() request {
			return request{"PUT", "/v1/aliases/" + unique(), w.acme.token, `{"key":"` + strings.TrimPrefix(key(), "/v1/keys/") + `"}`}
		},
		"delete-alias": func() request {
			path := "/v1/aliases/" + unique()
			w.must(200, "PUT", path, w.acme.token, `{"key":"`+strings.TrimPrefix(key(), "/v1/keys/")+`"}`)
			return request{"DELETE", path, w.acme.token, ""}
		},
		"create-project": func() request { return post("/v1/projects", `{"name":"`+unique()+`"}`) },
		"lift-cost":      func() request { return post("/v1/quota/cost-breaker/reset", "") },
		"tenant-lift-cost": func() request {
			return asOperator("POST", "/v1/tenants/"+w.acme.name+"/quota/cost-breaker/reset", "")
		},
		"create-webhook": func() request { return post("/v1/webhooks", `{"url":"https://93.184.215.14/"}`) },
		"delete-webhook": func() request {
			id := w.must(201, "POST", "/v1/webhooks", w.acme.token, `{"url":"https://93.184.215.14/"}`).text("id")
			return request{method: "DELETE", path: "/v1/webhooks/" + id, token: w.acme.token}
		},
		"create-secret":      func() request { return post("/v1/secrets", secretBody(unique())) },
		"update-secret":      func() request { return request{"PATCH", secret(), w.acme.token, `{"metadata":{"a":"b"}}`} },
		"delete-secret":      func() request { return request{method: "DELETE", path: secret(), token: w.acme.token} },
		"add-secret-version": func() request { return post(secret()+"/versions", `{"value":"sk-2"}`) },
		"activate-secret": func() request {
			one := secret()
			w.must(201, "POST", one+"/versions", w.acme.token, `{"value":"sk-2"}`)
			return post(one+"/activate", `{"version":2,"steps":[10,100]}`)
		},
		"rollback-secret": func() request {
			one := secret()
			w.must(201, "POST", one+"/versions", w.acme.token, `{"value":"sk-2"}`)
			w.must(200, "POST", one+"/activate", w.acme.token, `{"version":2}`)
			return post(one+"/rollback", "")
		},
		"disable-secret-version": func() request { return post(secret()+"/versions/1/disable", "") },
		"destroy-secret-version": func() request {
			one := secret()
			w.must(200, "POST", one+"/versions/1/disable", w.acme.token, "")
			return post(one+"/versions/1/destroy", `{"days":7}`)
		},
		"restore-secret-version": func() request {
			one := secret()
			w.must(200, "POST", one+"/versions/1/disable", w.acme.token, "")
			return post(one+"/versions/1/restore", "")
		},
		"create-job": func() request { return post("/v1/jobs", samples["create-job"]) },
		"cancel-job": func() request {
			id := w.must(202, "POST", "/v1/jobs", w.acme.token, samples["create-job"]).text("id")
			return request{method: "DELETE", path: "/v1/jobs/" + id, token: w.acme.token}
		},
		"put-route": func() request {
			return request{"PUT", "/v1/routes/" + unique(), w.acme.token, samples["put-route"]}
		},
		"delete-route": func() request {
			path := "/v1/routes/" + unique()
			w.must(200, "PUT", path, w.acme.token, samples["put-route"])
			return request{method: "DELETE", path: path, token: w.acme.token}
		},
		"set-secret-grants": func() request {
			return request{"PUT", secret() + "/grants", w.acme.token, `{"credentials":["` + credential() + `"]}`}
		},
		"create-credential": func() request { return post("/v1/credentials", `{"name":"c","scopes":["key:*"]}`) },
		"rotate-credential": func() request { return post("/v1/credentials/"+credential()+"/rotate", "") },
		"revoke-credential": func() request { return post("/v1/credentials/"+credential()+"/revoke", "") },
		"clear-credential":  func() request { return post("/v1/credentials/"+flagged()+"/clear", "") },
		"enrol-one-time-code": func() request {
			return post("/v1/credentials/"+credential()+"/one-time-code", "")
		},
		"create-tenant":  func() request { return asOperator("POST", "/v1/tenants", `{"name":"`+unique()+`"}`) },
		"update-tenant":  func() request { return asOperator("PATCH", "/v1/tenants/rival", `{"tier":"silver"}`) },
		"suspend-tenant": func() request { return asOperator("POST", "/v1/tenants/rival/suspend", "") },
		"resume-tenant":  func() request { return asOperator("POST", "/v1/tenants/rival/resume", "") },
		"delete-tenant":  func() request { return asOperator("DELETE", suspended(), "") },
		"approve": func() request {
			id := uuid.NewV7()
			w.CreateApproval(context.Background(), &kms.Approval{ID: id, Op: kms.OpDeleteTenant, Resource: "tenant x",
				RequestedBy: uuid.NewV7(), Created: time.Now(), Expires: time.Now().Add(time.Hour)})
			return request{"POST", "/v1/approvals/" + id.String() + "/approve", second(), ""}
		},
		"set-node-mode": func() request {
			return asOperator("POST", "/v1/hsm/nodes/"+string(memoryNode)+"/mode", `{"mode":"standby"}`)
		},
		"put-policy": func() request {
			p := w.must(200, "GET", "/v1/policy", w.operator, "")
			document, err := json.Marshal(p.fields["document"])
			if err != nil {
				w.t.Fatal(err)
			}
			return asOperator("PUT", "/v1/policy", fmt.Sprintf(`{"document":%s,"previous":%v}`, document, p.fields["stored"]))
		},
		"rollback-policy":       func() request { return asOperator("POST", "/v1/policy/rollback", `{"version":0}`) },
		"tenant-create-project": func() request { return asOperator("POST", "/v1/tenants/acme/projects", `{"name":"`+unique()+`"}`) },
		"tenant-create-credential": func() request {
			return asOperator("POST", "/v1/tenants/acme/credentials", `{"name":"c","scopes":["key:*"]}`)
		},
		"tenant-rotate-credential": func() request {
			return asOperator("POST", "/v1/tenants/acme/credentials/"+credential()+"/rotate", `{"overlap_hours":1}`)
		},
		"tenant-clear-credential": func() request {
			return asOperator("POST", "/v1/tenants/acme/credentials/"+flagged()+"/clear", "")
		},
		"tenant-enrol-one-time-code": func() request {
			return asOperator("POST", "/v1/tenants/acme/credentials/"+credential()+"/one-time-code", "")
		},
		"tenant-revoke-credential": func() request {
			return asOperator("POST", "/v1/tenants/acme/credentials/"+credential()+"/revoke", "")
		},
	}
}

// intents counts the changes that the journal has announced, and forgets them.
func (m *memory) intents() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for _, e := range m.entries {
		if e.Phase == kms.PhaseIntent {
			n++
		}
	}
	m.entries = nil
	return n
}

// object is what an answer tells of its object: all but what it cost.
func (a *answer) object() string {
	fields := map[string]any{}
	for name, v := range a.fields {
		if name != "cost" && name != "request_id" {
			fields[name] = v
		}
	}
	return object(fields)
}

func (w *world) once(r request, key string) *answer {
	w.t.Helper()
	return w.send(r.method, r.path, r.token, r.body, "Idempotency-Key", key)
}

func TestEveryChangeHappensOnceUnderItsKey(t *testing.T) {
	w := newWorldOfOne(t)
	doable := w.doable()
	for _, route := range api.Routes() {
		if route.Public || !route.Op.Info().Changes {
			continue
		}
		t.Run(route.Name, func(t *testing.T) {
			request := doable[route.Name]
			if request == nil {
				t.Fatal("it has no request that can be carried out: add one, so that it is tested")
			}
			r := request()
			w.intents()
			key := "once-" + route.Name
			first := w.once(r, key)
			intents := 1
			if route.Op == kms.OpSetSecretGrants {
				intents++ // of the credential that is given one
			}
			if first.status != route.Success || w.intents() != intents || first.header.Get("Idempotent-Replayed") != "" {
				t.Fatalf("first: %d %s %v", first.status, first.body, first.header)
			}
			for range 2 {
				again := w.once(r, key)
				if n := w.intents(); n != 0 {
					t.Errorf("the repetition made %d changes", n)
				}
				if route.Secret {
					if again.status != 409 || again.code() != "conflict" || !strings.Contains(again.text("detail"), first.text("id")) ||
						strings.Contains(string(again.body), "slk_") {
						t.Errorf("a secret again: %d %s", again.status, again.body)
					}
					continue
				}
				if again.status != first.status || again.object() != first.object() || again.header.Get("Idempotent-Replayed") != "true" ||
					again.header.Get("Location") != first.header.Get("Location") {
					t.Errorf("again: %d %s %v\nfirst: %d %s", again.status, again.body, again.header, first.status, first.body)
				}
				if again.fields["request_id"] == first.fields["request_id"] {
					t.Error("two requests have one id")
				}
			}
			other := w.send("POST", "/v1/projects", r.token, `{"name":"another"}`, "Idempotency-Key", key)
			if other.status != 422 || other.code() != "invalid_argument" || w.intents() != 0 {
				t.Errorf("another request under the key: %d %s", other.status, other.body)
			}
		})
	}
}

func TestReplayShowsTheObjectAsItIsNow(t *testing.T) {
	w := newWorld(t)
	w.replays(t)
}

func (w *world) replays(t *testing.T) {
	r := request{"POST", "/v1/keys", w.acme.token, `{"spec":"AES_256","name":"replayed/key"}`}
	first := w.once(r, "replay-create")
	if first.status != 201 {
		t.Fatalf("%d %s", first.status, first.body)
	}
	rotate := request{"POST", "/v1/keys/replayed%2Fkey/rotate", w.acme.token, ""}
	for range 3 {
		if a := w.once(rotate, "replay-rotate"); a.status != 200 || a.fields["primary_version"] != 2.0 {
			t.Errorf("rotated: %d %s", a.status, a.body)
		}
	}
	// A slash may be spelt in two ways: the request is the same.
	rotate.path = "/v1/keys/replayed%2fkey/rotate"
	if a := w.once(rotate, "replay-rotate"); a.status != 200 || a.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("in another spelling: %d %s", a.status, a.body)
	}
	now := w.once(r, "replay-create")
	if now.status != 201 || now.text("id") != first.text("id") || now.fields["primary_version"] != 2.0 || now.header.Get("Location") != first.header.Get("Location") {
		t.Errorf("created again: %d %s", now.status, now.body)
	}
	if a := w.send("POST", "/v1/keys", w.acme.token, r.body+" ", "Idempotency-Key", "replay-create"); a.status != 422 {
		t.Errorf("another body: %d %s", a.status, a.body)
	}
	if a := w.send("PATCH", "/v1/keys/replayed%2Fkey", w.acme.token, `{"description":"x"}`, "Idempotency-Key", "replay-rotate"); a.status != 422 {
		t.Errorf("another route: %d %s", a.status, a.body)
	}
}

// TestReplayIsAuthorisedAnew takes the caller's rights between the request
// and its repetition.
func TestReplayIsAuthorisedAnew(t *testing.T) {
	w := newWorld(t)
	minted := w.must(201, "POST", "/v1/credentials", w.acme.token, `{"name":"app","scopes":["key:*"]}`)
	key := w.key(w.acme, kms.SpecAES256, "", "mine/key")
	r := request{"POST", "/v1/keys/" + key + "/rotate", minted.text("credential"), ""}
	if a := w.once(r, "k"); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	for id, c := range w.credentials {
		if id.String() == minted.text("id") {
			less := *c
			less.Scopes = []string{"key:rotate:other/*", "key:describe"}
			w.credentials[id] = &less
		}
	}
	if a := w.once(r, "k"); a.status != 403 || strings.Contains(string(a.body), "mine/key") {
		t.Errorf("without the right: %d %s", a.status, a.body)
	}
}

func TestKeysOfTwoCredentialsNeverMeet(t *testing.T) {
	w := newWorld(t)
	second := w.must(201, "POST", "/v1/credentials", w.acme.token, `{"name":"second","scopes":["key:*"]}`).text("credential")
	seen := map[string]bool{}
	for _, token := range []string{w.acme.token, second, w.rival.token} {
		a := w.once(request{"POST", "/v1/keys", token, `{"spec":"AES_256"}`}, "the same")
		if a.status != 201 || seen[a.text("id")] {
			t.Errorf("%d %s", a.status, a.body)
		}
		seen[a.text("id")] = true
	}
}

// TestRequestThatChangedNothingMayBeSentAgain lets a request fail in ways that
// come to an end, and sends it again under its key.
func TestRequestThatChangedNothingMayBeSentAgain(t *testing.T) {
	w := newWorld(t)
	key := w.key(w.acme, kms.SpecAES256, "", "again/key")
	rotate := request{"POST", "/v1/keys/" + key + "/rotate", w.acme.token, ""}
	for _, c := range []struct {
		name   string
		begin  func()
		end    func()
		status int
	}{
		{"over quota", func() { w.quotaFault = kms.Errorf(kms.KindQuotaExceeded, "too fast") }, func() { w.quotaFault = nil }, 429},
		{"no slot", func() { w.quotaFault = kms.Errorf(kms.KindWaitExceeded, "no slot") }, func() { w.quotaFault = nil }, 504},
		{"no HSM", func() { w.quotaFault = kms.Errorf(kms.KindHSMUnavailable, "no node") }, func() { w.quotaFault = nil }, 503},
		{"disabled", func() { w.must(200, "POST", "/v1/keys/"+key+"/disable", w.acme.token, "") },
			func() { w.must(200, "POST", "/v1/keys/"+key+"/enable", w.acme.token, "") }, 409},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.begin()
			if a := w.once(rotate, c.name); a.status != c.status {
				t.Errorf("%d %s, want %d", a.status, a.body, c.status)
			}
			c.end()
			w.intents()
			if a := w.once(rotate, c.name); a.status != 200 || a.header.Get("Idempotent-Replayed") != "" || w.intents() != 1 {
				t.Errorf("again: %d %s", a.status, a.body)
			}
		})
	}
	if n := len(w.claims); n != 4 {
		t.Errorf("%d claims are left of 4 requests", n)
	}
	// What was refused before it was understood, or before the caller was
	// known, claims nothing.
	w.sendBad("POST", "/v1/keys", w.acme.token, `{`, "Idempotency-Key", "malformed")
	w.sendBad("POST", "/v1/keys", "nobody", `{"spec":"AES_256"}`, "Idempotency-Key", "stranger")
	w.sendBad("GET", "/v1/keys", w.acme.token, "", "Idempotency-Key", "read")
	if n := len(w.claims); n != 4 {
		t.Errorf("%d claims are left after refusals", n)
	}
}

// TestUnknownOutcomeKeepsItsClaim: when nobody knows whether the change was
// made, its repetition is told to wait and does not make it twice.
func TestUnknownOutcomeKeepsItsClaim(t *testing.T) {
	for _, c := range []struct {
		name  string
		begin func(*world)
		code  string
	}{
		{"journal lost", func(w *world) { w.journalFault = errors.New("disk full") }, "audit_unavailable"},
		{"store lost", func(w *world) { w.storeFault = kms.Errorf(kms.KindStoreUnavailable, "down") }, "store_unavailable"},
		{"internal", func(w *world) { w.quotaFault = errors.New("unknown") }, "internal"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			r := request{"POST", "/v1/keys/" + w.key(w.acme, kms.SpecAES256, "", "") + "/rotate", w.acme.token, ""}
			c.begin(w)
			if a := w.once(r, "k"); a.code() != c.code {
				t.Fatalf("%d %s", a.status, a.body)
			}
			w.journalFault, w.storeFault, w.quotaFault = nil, nil, nil
			w.intents()
			if a := w.once(r, "k"); a.status != 409 || a.header.Get("Retry-After") != "1" || w.intents() != 0 {
				t.Errorf("again: %d %s", a.status, a.body)
			}
		})
	}
}

// TestClaimThatCannotBeSettledFailsNoRequest: the change was made, and the log
// tells the operator.
func TestClaimThatCannotBeSettledFailsNoRequest(t *testing.T) {
	w := newWorld(t)
	r := request{"POST", "/v1/keys/" + w.key(w.acme, kms.SpecAES256, "", "") + "/rotate", w.acme.token, ""}
	w.claimFault = errors.New("the store is gone")
	a := w.once(r, "k")
	w.claimFault = nil
	if a.status != 200 || !strings.Contains(w.logs.String(), "idempotency key not settled") {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := w.once(r, "k"); a.status != 409 {
		t.Errorf("again: %d", a.status)
	}
}

// gate is a scheduler that holds requests until it is opened.
type gate struct {
	atOnce
	arrived, open chan struct{}
}

func (g gate) Do(ctx context.Context, f kms.Flow, work func(kms.NodeID)) (kms.Turn, error) {
	g.arrived <- struct{}{}
	<-g.open
	return g.atOnce.Do(ctx, f, work)
}

func TestRepetitionOfWhatIsUnderWayIsToldToWait(t *testing.T) {
	g := gate{arrived: make(chan struct{}), open: make(chan struct{})}
	w := newWorldScheduled(t, g)
	r := request{"POST", "/v1/keys", w.acme.token, `{"spec":"AES_256"}`}
	first := make(chan *answer)
	go func() { first <- w.once(r, "k") }()
	<-g.arrived
	second := w.once(r, "k")
	if second.status != 409 || second.code() != "conflict" || second.header.Get("Retry-After") != "1" {
		t.Errorf("while it is under way: %d %s %v", second.status, second.body, second.header)
	}
	if other := w.send("POST", "/v1/keys", w.acme.token, `{"spec":"SM4"}`, "Idempotency-Key", "k"); other.status != 422 {
		t.Errorf("another request: %d", other.status)
	}
	close(g.open)
	made := <-first
	if a := w.once(r, "k"); made.status != 201 || a.status != 201 || a.text("id") != made.text("id") {
		t.Errorf("first %d %s, afterwards %d %s", made.status, made.body, a.status, a.body)
	}
}

func TestIdempotencyKeyIsOneShortText(t *testing.T) {
	w := newWorld(t)
	key := w.key(w.acme, kms.SpecAES256, "", "")
	for _, c := range []struct {
		name   string
		values []string
		status int
	}{
		{"longest", []string{strings.Repeat("k", 255)}, 200},
		{"any printable", []string{`"quoted" ~!@#`}, 200},
		{"too long", []string{strings.Repeat("k", 256)}, 400},
		{"empty", []string{""}, 400},
		{"two", []string{"a", "b"}, 400},
		{"the same twice", []string{"a", "a"}, 400},
		{"beyond ASCII", []string{canary + "ü"}, 400},
		{"control character", []string{canary + "\x01"}, 400},
	} {
		for _, path := range []string{"/rotate", "/encrypt"} {
			r := httptest.NewRequest("POST", "/v1/keys/"+key+path, nil)
			want := c.status
			if path == "/encrypt" { // an operation: it has no effect
				r = httptest.NewRequest("POST", "/v1/keys/"+key+path, strings.NewReader(`{"plaintext":""}`))
				r.Header.Set("Content-Type", "application/json")
				want = 200
			}
			r.Header.Set("Authorization", "Bearer "+w.acme.token)
			r.Header[http.CanonicalHeaderKey("Idempotency-Key")] = c.values
			recorder := httptest.NewRecorder()
			w.handler.ServeHTTP(recorder, r)
			if recorder.Code != want || leaks(recorder.Body.String()) {
				t.Errorf("%s, %s: %d %s, want %d", c.name, path, recorder.Code, recorder.Body, want)
			}
			if want == 400 {
				if e := w.outcomes(); e[len(e)-1].Outcome != "malformed" {
					t.Errorf("%s: the journal has %+v", c.name, e)
				}
			}
		}
	}
}

// TestForeignAndMissingObjectsLookTheSameUnderAKey: a claim tells nothing of
// what another tenant has.
func TestForeignAndMissingObjectsLookTheSameUnderAKey(t *testing.T) {
	w := newWorld(t)
	foreign := w.key(w.rival, kms.SpecAES256, "", "")
	if a := w.once(request{"POST", "/v1/keys/" + foreign + "/rotate", w.rival.token, ""}, "k"); a.status != 200 {
		t.Fatal(a.status)
	}
	for range 2 {
		_, _, want := w.once(request{"POST", "/v1/keys/018f0000-0000-7000-8000-000000000000/rotate", w.acme.token, ""}, "k").anonymous()
		status, _, got := w.once(request{"POST", "/v1/keys/" + foreign + "/rotate", w.acme.token, ""}, "k").anonymous()
		if status != 404 || got != want {
			t.Errorf("%d %s, missing: %s", status, got, want)
		}
	}
}
