package api_test

import (
	"bufio"
	"encoding/json/v2"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-kms/sluice/kms"
)

// newSecret makes a secret of a tenant and returns its path under /v1.
func (w *world) newSecret(of tenant, path, value string) string {
	w.t.Helper()
	body := object(map[string]any{"path": path, "provider": "openai", "value": value, "metadata": map[string]any{"region": "eu"}})
	return "/v1/secrets/" + w.must(201, "POST", "/v1/secrets", of.token, body).text("id")
}

// fetch returns the items of a fetch of paths.
func (w *world) fetch(token string, paths ...string) []map[string]any {
	w.t.Helper()
	var items []map[string]any
	for _, p := range paths {
		items = append(items, map[string]any{"path": p})
	}
	a := w.must(200, "POST", "/v1/secret-values/fetch", token, object(map[string]any{"items": items}))
	var list []map[string]any
	for _, it := range a.fields["items"].([]any) {
		list = append(list, it.(map[string]any))
	}
	return list
}

// values are the versions of a fetched item with weights and values, as text.
func values(item map[string]any) string {
	text := fmt.Sprint(item["status"])
	versions, _ := item["versions"].([]any)
	for _, v := range versions {
		v := v.(map[string]any)
		text += fmt.Sprintf(" %v:%v=%v", v["version"], v["weight"], v["value"])
	}
	return text
}

func (w *world) wantFetched(t *testing.T, path, want string) {
	t.Helper()
	if got := values(w.fetch(w.acme.token, path)[0]); got != want {
		t.Errorf("%s: fetched %q, want %q", path, got, want)
	}
}

// minted mints a credential with scopes.
func (w *world) minted(of tenant, scopes ...string) (id, token string) {
	w.t.Helper()
	a := w.must(201, "POST", "/v1/credentials", of.token, object(map[string]any{"name": "gateway", "scopes": scopes}))
	return a.text("id"), a.text("credential")
}

func TestSecretLivesItsLife(t *testing.T) { newWorld(t).secretLife(t) }

func (w *world) secretLife(t *testing.T) {
	const path = "life/openai"
	// What JSON escapes and what takes several bytes comes back as it went in.
	const value = "sk-\"first\"\\\u2028 \u00e9"
	one := w.newSecret(w.acme, path, value)
	described := w.must(200, "GET", one, w.acme.token, "")
	for _, a := range []*answer{described, w.must(200, "GET", "/v1/secrets?prefix=life/", w.acme.token, "")} {
		if strings.Contains(string(a.body), "first") {
			t.Errorf("metadata shows the value: %s", a.body)
		}
	}
	w.wantFetched(t, path, "ok 1:100="+value)

	staged := w.must(201, "POST", one+"/versions", w.acme.token, `{"value":"sk-second"}`)
	if staged.fields["version"] != 2.0 {
		t.Errorf("the second version: %s", staged.body)
	}
	w.wantFetched(t, path, "ok 1:100="+value)
	again := w.must(201, "POST", one+"/versions", w.acme.token, `{"value":"sk-second"}`)
	if again.fields["version"] != 2.0 || again.fields["revision"] != staged.fields["revision"] {
		t.Errorf("the same value again: %s", again.body)
	}
	stale := fmt.Sprintf(`{"version":2,"expected_revision":%v}`, described.fields["revision"])
	if a := w.send("POST", one+"/activate", w.acme.token, stale); a.status != 412 || a.code() != "revision" {
		t.Errorf("an old revision: %d %s", a.status, a.body)
	}

	w.must(200, "POST", one+"/activate", w.acme.token, `{"version":2,"steps":[10,30,100],"step_interval":3600}`)
	w.wantFetched(t, path, "ok 1:90="+value+" 2:10=sk-second")
	if a := w.send("POST", one+"/activate", w.acme.token, `{"version":1}`); a.status != 409 {
		t.Errorf("another activation meanwhile: %d %s", a.status, a.body)
	}
	w.must(200, "POST", one+"/rollback", w.acme.token, "")
	w.wantFetched(t, path, "ok 1:100="+value)
	w.must(200, "POST", one+"/activate", w.acme.token, `{"version":2}`)
	w.wantFetched(t, path, "ok 2:100=sk-second")
	w.must(200, "POST", one+"/rollback", w.acme.token, "")
	w.wantFetched(t, path, "ok 1:100="+value)

	if a := w.send("POST", one+"/versions/1/destroy", w.acme.token, ""); a.status != 409 {
		t.Errorf("destroying what is in use: %d %s", a.status, a.body)
	}
	w.must(200, "POST", one+"/versions/1/disable", w.acme.token, "")
	w.wantFetched(t, path, "disabled")
	w.must(200, "POST", one+"/versions/1/destroy", w.acme.token, `{"days":7}`)
	w.must(200, "POST", one+"/versions/1/restore", w.acme.token, "")
	w.wantFetched(t, path, "disabled") // STAGED: nothing is in use by mistake
	w.must(200, "POST", one+"/activate", w.acme.token, `{"version":1,"steps":[50,100]}`)
	w.wantFetched(t, path, "ok 1:100="+value) // there is nothing to take over from

	w.must(200, "DELETE", one, w.acme.token, "")
	w.wantFetched(t, path, "disabled")
	if a := w.send("POST", one+"/versions", w.acme.token, `{"value":"sk-third"}`); a.status != 409 || a.code() != "pending_deletion" {
		t.Errorf("a version of a deleted secret: %d %s", a.status, a.body)
	}
	w.must(200, "POST", one+"/versions/1/restore", w.acme.token, "")
	w.must(200, "POST", one+"/activate", w.acme.token, `{"version":1}`)
	w.wantFetched(t, path, "ok 1:100="+value)
	third := w.must(201, "POST", one+"/versions", w.acme.token, `{"value":"sk-third"}`)
	if third.fields["version"] != 3.0 {
		t.Errorf("the third version: %s", third.body)
	}
}

func TestOnlyWhoMayListTellsDeniedFromMissing(t *testing.T) { newWorld(t).grantsHold(t) }

func (w *world) grantsHold(t *testing.T) {
	w.newSecret(w.acme, "grants/mine/a", "sk-mine")
	one := w.newSecret(w.acme, "grants/other", "sk-other")
	w.newSecret(w.rival, "grants/rival", "sk-rival")
	id, reader := w.minted(w.acme, "secret:read:grants/mine/*")
	_, lister := w.minted(w.acme, "secret:read:grants/mine/*", "secret:list")
	paths := []string{"grants/mine/a", "grants/other", "grants/rival", "grants/nobody", "grants/mine/missing"}
	for _, c := range []struct{ token, want string }{
		{reader, "ok 1:100=sk-mine|not_found|not_found|not_found|not_found"},
		{lister, "ok 1:100=sk-mine|denied|not_found|not_found|not_found"},
	} {
		var got []string
		for i, item := range w.fetch(c.token, paths...) {
			got = append(got, values(item))
			if i > 0 && len(item) != 2 {
				t.Errorf("%s: more than a status: %v", paths[i], item)
			}
		}
		if strings.Join(got, "|") != c.want {
			t.Errorf("fetched %q, want %q", got, c.want)
		}
	}
	// Reading implies nothing else, and nothing else implies reading.
	requests := map[string]request{
		"list":     {"GET", "/v1/secrets", "", ""},
		"describe": {"GET", one, "", ""},
		"create":   {"POST", "/v1/secrets", "", `{"path":"grants/new","provider":"x","value":"y"}`},
		"update":   {"PATCH", one, "", `{"metadata":{}}`},
		"stage":    {"POST", one + "/versions", "", `{"value":"y"}`},
		"disable":  {"POST", one + "/versions/7/disable", "", ""},
		"delete":   {"DELETE", one, "", ""},
		"grants":   {"GET", one + "/grants", "", ""},
		"fetch":    {"POST", "/v1/secret-values/fetch", "", `{"items":[{"path":"grants/other"}]}`},
		"watch":    {"GET", "/v1/secret-values/watch?from_revision=x", "", ""},
		"report":   {"POST", "/v1/secret-values/report", "", samples["report-secrets"]},
	}
	for scope, may := range map[string][]string{
		"secret:read":     {"fetch", "watch"},
		"secret:list":     {"list", "describe"},
		"secret:manage":   {"describe", "create", "update", "stage", "disable"},
		"secret:destroy":  {"delete"},
		"secret:report":   {"report"},
		"tenant:admin":    {"grants"},
		"key:*":           nil,
		"secret:read:x/*": {"fetch", "watch"},
	} {
		_, token := w.minted(w.acme, scope)
		for name, r := range requests {
			a := w.sendBad(r.method, r.path, token, r.body)
			// The watch's revision is malformed, so that no stream begins.
			if allowed := a.status != 403; name != "watch" && allowed != slices.Contains(may, name) {
				t.Errorf("%s: %s gives %d %s", scope, name, a.status, a.body)
			}
		}
	}
	// A grant is a scope of a credential, given and taken by the administrator.
	w.must(200, "POST", one+"/versions/1/restore", w.acme.token, "")
	w.must(200, "POST", one+"/activate", w.acme.token, `{"version":1}`)
	given := w.must(200, "PUT", one+"/grants", w.acme.token, `{"credentials":["`+id+`"]}`)
	if !strings.Contains(string(given.body), `"scope":"secret:read:grants/other"`) {
		t.Errorf("grants: %s", given.body)
	}
	if got := values(w.fetch(reader, "grants/other")[0]); got != "ok 1:100=sk-other" {
		t.Errorf("with a grant: %s", got)
	}
	w.must(200, "PUT", one+"/grants", w.acme.token, `{"credentials":[]}`)
	if got := values(w.fetch(reader, "grants/other")[0]); got != "not_found" {
		t.Errorf("without the grant: %s", got)
	}
	if a := w.send("PUT", one+"/grants", w.acme.token, `{"credentials":["018f0000-0000-7000-8000-000000000000"]}`); a.status != 422 {
		t.Errorf("a grant to nobody: %d %s", a.status, a.body)
	}
}

func TestPathsThatCouldMeanSomethingElseAreRefused(t *testing.T) {
	w := newWorld(t)
	for _, path := range []string{"", "/", "a/", "/a", "a//b", ".", "..", "a/../b", "./a", "a b", "a\tb", "a\nb", "a\x00b", "a\u0085b", "a\u2028b", "a\u2029b",
		"a*b", "a:b", `a\b`, "a%2Fb", "a?b", "a#b", "\u00e9", "a\u202eb", strings.Repeat("a", kms.MaxSecretPath+1)} {
		for what, a := range map[string]*answer{
			"create": w.sendBad("POST", "/v1/secrets", w.acme.token, object(map[string]any{"path": path, "provider": "p", "value": "v"})),
			"fetch":  w.sendBad("POST", "/v1/secret-values/fetch", w.acme.token, object(map[string]any{"items": []any{map[string]any{"path": path}}})),
		} {
			if a.status != 422 && a.status != 400 {
				t.Errorf("%s of %q: %d %s", what, path, a.status, a.body)
			}
		}
	}
	for _, path := range []string{"OPENAI_API_KEY", "llm/openai", "a.b/c-d_e", "a@b/c+d=e~f", "..a", strings.Repeat("a", kms.MaxSecretPath)} {
		w.newSecret(w.acme, path, "v")
	}
}

func TestEveryFetchedItemIsInTheJournal(t *testing.T) {
	w := newWorld(t)
	one := w.newSecret(w.acme, "journal/a", "sk-a")
	id := strings.TrimPrefix(one, "/v1/secrets/")
	w.must(201, "POST", one+"/versions", w.acme.token, `{"value":"sk-b"}`)
	active := w.must(200, "POST", one+"/activate", w.acme.token, `{"version":2,"steps":[10,100],"step_interval":3600}`)
	w.outcomes()
	a := w.must(200, "POST", "/v1/secret-values/fetch", w.acme.token,
		fmt.Sprintf(`{"items":[{"path":"journal/a"},{"path":"journal/missing"},{"path":"journal/a","have_revision":%v}]}`, active.fields["revision"]))
	entries := w.outcomes()
	if len(entries) != 1 || len(entries[0].Items) != 3 {
		t.Fatalf("the journal has %+v", entries)
	}
	items := a.fields["items"].([]any)
	for i, want := range []kms.FetchStatus{kms.FetchOK, kms.FetchNotFound, kms.FetchUnchanged} {
		it := entries[0].Items[i]
		if it.Status != want || items[i].(map[string]any)["status"] != string(want) {
			t.Errorf("item %d: %+v", i, it)
			continue
		}
		if want == kms.FetchNotFound {
			continue
		}
		end := items[i].(map[string]any)["lease_end"].(string)
		if it.Secret.String() != id || !slices.Equal(it.Versions, []uint32{1, 2}) || it.LeaseEnd.UTC().Format(time.RFC3339Nano) != end {
			t.Errorf("item %d: %+v, lease end %s", i, it, end)
		}
	}
	if a := w.must(200, "GET", "/v1/usage", w.acme.token, ""); strings.Contains(string(a.body), "sk-") {
		t.Error("usage shows a value")
	}
}

// inRollout makes a secret whose version 2 takes over from version 1.
func (w *world) inRollout(path string) (one, id string) {
	w.t.Helper()
	one = w.newSecret(w.acme, path, "sk-old")
	w.must(201, "POST", one+"/versions", w.acme.token, `{"value":"sk-new"}`)
	w.must(200, "POST", one+"/activate", w.acme.token, `{"version":2,"steps":[10,100],"step_interval":3600}`)
	return one, strings.TrimPrefix(one, "/v1/secrets/")
}

func report(id string, version int, counts string) string {
	return fmt.Sprintf(`{"items":[{"secret_id":"%s","version":%d,%s}]}`, id, version, counts)
}

func TestACanaryThatIsRefusedIsRolledBackWithOneEvent(t *testing.T) {
	w := newWorld(t)
	one, id := w.inRollout("rollout/a")
	send := func(version int, counts string) {
		t.Helper()
		w.must(200, "POST", "/v1/secret-values/report", w.acme.token, report(id, version, counts))
	}
	state := func() string {
		t.Helper()
		return w.must(200, "GET", one, w.acme.token, "").fields["rollout"].(map[string]any)["state"].(string)
	}
	send(1, `"ok":900`)
	send(2, `"transient":1000,"rate_limit":50,"quota":7`)
	send(2, `"ok":10,"credential":2`)
	if got := state(); got != "RUNNING" {
		t.Fatalf("a provider's outage and two refusals end it: %s", got)
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() { send(2, `"credential":3`) })
	}
	all.Wait()
	if got := state(); got != "ROLLED_BACK" {
		t.Errorf("after more refusals: %s", got)
	}
	w.wantFetched(t, "rollout/a", "ok 1:100=sk-old")
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.published) != 1 || w.published[0].Type != kms.EventSecretRolledBack || w.published[0].Tenant.String() != w.acme.id {
		t.Errorf("events: %+v", w.published)
	}
}

func TestAProviderThatRefusesEverybodyBlamesNoVersion(t *testing.T) {
	w := newWorld(t)
	one, id := w.inRollout("rollout/b")
	w.must(200, "POST", "/v1/secret-values/report", w.acme.token, report(id, 1, `"ok":10,"credential":80`))
	w.must(200, "POST", "/v1/secret-values/report", w.acme.token, report(id, 2, `"ok":1,"credential":9`))
	if a := w.must(200, "GET", one, w.acme.token, ""); !strings.Contains(string(a.body), `"state":"RUNNING"`) {
		t.Errorf("it was rolled back: %s", a.body)
	}
	// Who may not read a secret cannot end its rollout, nor another tenant.
	_, reporter := w.minted(w.acme, "secret:report", "secret:read:elsewhere/*")
	for _, token := range []string{reporter, w.rival.token} {
		w.must(200, "POST", "/v1/secret-values/report", token, report(id, 2, `"credential":1000`))
	}
	if a := w.must(200, "GET", one, w.acme.token, ""); !strings.Contains(string(a.body), `"state":"RUNNING"`) {
		t.Errorf("a stranger's report ended it: %s", a.body)
	}
}

func TestAnHSMThatIsAwayIsNotAMissingSecret(t *testing.T) {
	w := newWorld(t)
	w.newSecret(w.acme, "hsm/warm", "sk-warm")
	w.newSecret(w.acme, "hsm/cold", "sk-cold")
	w.wantFetched(t, "hsm/warm", "ok 1:100=sk-warm")
	w.sealFault = kms.Errorf(kms.KindHSMUnavailable, "no node is up")
	w.wantFetched(t, "hsm/warm", "ok 1:100=sk-warm")
	a := w.send("POST", "/v1/secret-values/fetch", w.acme.token, `{"items":[{"path":"hsm/cold"}]}`)
	if a.status != 503 || a.code() != "hsm_unavailable" {
		t.Errorf("what no HSM opens: %d %s", a.status, a.body)
	}
	items := w.fetch(w.acme.token, "hsm/cold", "hsm/warm", "hsm/none")
	if got := values(items[0]) + "|" + values(items[1]) + "|" + values(items[2]); got != "unavailable|ok 1:100=sk-warm|not_found" {
		t.Errorf("together: %s", got)
	}
	if items[0]["retry_after_ms"] != 1000.0 {
		t.Errorf("when to ask again: %v", items[0])
	}
	w.sealFault = nil
	w.wantFetched(t, "hsm/cold", "ok 1:100=sk-cold")
}

func TestARevisionThatNobodyKnowsIsAStaleReplica(t *testing.T) {
	w := newWorld(t)
	w.newSecret(w.acme, "stale/a", "sk-a")
	a := w.send("POST", "/v1/secret-values/fetch", w.acme.token, `{"items":[{"path":"stale/a"}],"min_revision":1}`)
	if a.status != 200 {
		t.Errorf("one that it knows: %d %s", a.status, a.body)
	}
	a = w.send("POST", "/v1/secret-values/fetch", w.acme.token, `{"items":[{"path":"stale/a"}],"min_revision":2}`)
	if a.status != 412 || a.code() != "stale_replica" {
		t.Errorf("one that it does not: %d %s", a.status, a.body)
	}
}

// event is one server-sent event.
type event struct {
	kind, id string
	data     map[string]any
}

// watch begins a watch; its events come until it ends.
func (w *world) watch(token, query string, header ...string) (<-chan event, *http.Response) {
	w.t.Helper()
	request, err := http.NewRequestWithContext(w.t.Context(), "GET", w.url+"/v1/secret-values/watch"+query, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	response, err := w.client.Do(request)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { response.Body.Close() })
	events := make(chan event, 16)
	go func() {
		defer close(events)
		var e event
		for lines := bufio.NewScanner(response.Body); lines.Scan(); {
			name, value, _ := strings.Cut(lines.Text(), ": ")
			switch name {
			case "event":
				e.kind = value
			case "id":
				e.id = value
			case "data":
				if json.Unmarshal([]byte(value), &e.data) != nil {
					return
				}
			case "":
				if lines.Text() == "" && e.kind != "" {
					events <- e
					e = event{}
				}
			}
		}
	}()
	return events, response
}

// within is the time in which a change has to reach a watch.
const within = time.Second

// next is the next event of a watch; its kind is "" when the watch ended, and
// "nothing" when there is none in time.
func next(events <-chan event) event {
	select {
	case e := <-events:
		return e
	case <-time.After(within):
		return event{kind: "nothing"}
	}
}

func wantEvent(t *testing.T, events <-chan event, kind, path string) event {
	t.Helper()
	e := next(events)
	if shown, _ := e.data["path"].(string); e.kind != kind || shown != path || fmt.Sprint(e.data["revision"]) != e.id {
		t.Errorf("event %+v, want %s of %q", e, kind, path)
	}
	return e
}

func TestChangesReachWatches(t *testing.T) { newWorld(t).watches(t) }

func (w *world) watches(t *testing.T) {
	one := w.newSecret(w.acme, "watch/a", "sk-a")
	id, reader := w.minted(w.acme, "secret:read:watch/*")
	events, response := w.watch(reader, "")
	if got := response.Header.Get("Content-Type"); response.StatusCode != 200 || got != "text/event-stream" {
		t.Fatalf("%d %s", response.StatusCode, got)
	}
	w.newSecret(w.acme, "hidden/a", "sk-h")
	w.newSecret(w.rival, "watch/a", "sk-r")
	w.newSecret(w.acme, "watch/b", "sk-b")
	first := wantEvent(t, events, "changed", "watch/b")
	w.must(200, "POST", one+"/versions/1/disable", w.acme.token, "")
	last := wantEvent(t, events, "revoked", "watch/a")

	resumed, _ := w.watch(reader, "", "Last-Event-ID", first.id)
	if e := wantEvent(t, resumed, "revoked", "watch/a"); e.id != last.id {
		t.Errorf("resumed with %v, want %v", e.id, last.id)
	}
	resumed, _ = w.watch(reader, "?from_revision="+first.id)
	wantEvent(t, resumed, "revoked", "watch/a")
	unknown, _ := w.watch(reader, "?from_revision=1000000")
	if e := next(unknown); e.kind != "resync" && e.kind != "nothing" { // it waits a second for the revision
		t.Errorf("a revision that nobody knows: %+v", e)
	}
	if a := w.sendBad("GET", "/v1/secret-values/watch?from_revision=x", reader, ""); a.status != 400 {
		t.Errorf("no revision: %d %s", a.status, a.body)
	}
	w.must(200, "POST", "/v1/credentials/"+id+"/revoke", w.acme.token, "")
	if e := next(events); e.kind != "" {
		t.Errorf("the stream of a revoked credential goes on: %+v", e)
	}
}

func TestWatchesAreBounded(t *testing.T) {
	w := newWorld(t)
	_, reader := w.minted(w.acme, "secret:read")
	for range kms.MaxWatchesOfCredential {
		if _, response := w.watch(reader, ""); response.StatusCode != 200 {
			t.Fatalf("status %d", response.StatusCode)
		}
	}
	a := w.send("GET", "/v1/secret-values/watch", reader, "")
	if a.status != 429 || a.code() != "quota_exceeded" || a.header.Get("Retry-After") == "" {
		t.Errorf("one more: %d %v %s", a.status, a.header, a.body)
	}
	_, other := w.minted(w.acme, "secret:read")
	if _, response := w.watch(other, ""); response.StatusCode != 200 {
		t.Errorf("of another credential: %d", response.StatusCode)
	}
}

// TestNoSinkShowsAValue sends a value in every way there is, fetches it, and
// looks for it where it must not be.
func TestNoSinkShowsAValue(t *testing.T) {
	w := newWorld(t)
	const value = "sk-" + canary
	one := w.newSecret(w.acme, "sink/a", value)
	var shown strings.Builder
	note := func(a *answer) { fmt.Fprintf(&shown, "%v %s\n", a.header, a.body) }
	note(w.send("POST", one+"/versions", w.acme.token, `{"value":"`+value+`2"}`))
	note(w.send("POST", "/v1/secrets", w.acme.token, `{"path":"sink/a","provider":"openai","value":"`+value+`"}`))
	note(w.sendBad("POST", "/v1/secrets", w.acme.token, `{"path":"`+value+` ","provider":"openai","value":"`+value+`"}`))
	note(w.sendBad("POST", "/v1/secrets", w.acme.token, `{"path":"sink/b","provider":"`+value+`!","value":"`+value+`"}`))
	note(w.sendBad("POST", "/v1/secrets", w.acme.token, `{"path":"sink/b","provider":"p","value":["`+value+`"]}`))
	w.storeFault = kms.Errorf(kms.KindStoreUnavailable, "away")
	note(w.send("POST", one+"/versions", w.acme.token, `{"value":"`+value+`3"}`))
	w.storeFault = nil
	if got := values(w.fetch(w.acme.token, "sink/a")[0]); !strings.Contains(got, value) {
		t.Fatalf("fetched %s", got)
	}
	note(w.must(200, "GET", one, w.acme.token, ""))
	note(w.must(200, "GET", "/v1/secrets", w.acme.token, ""))
	families, err := w.metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for where, text := range map[string]string{"an answer": shown.String(), "the log": w.logs.String(), "the metrics": fmt.Sprint(families),
		"the journal": fmt.Sprintf("%+v", w.entries), "an event": fmt.Sprintf("%+v", w.published)} {
		for _, spelling := range spellings(value) {
			if strings.Contains(text, spelling) {
				t.Errorf("%s shows a value", where)
			}
		}
	}
	if len(w.book.secrets) != 1 {
		t.Errorf("%d secrets are stored", len(w.book.secrets))
	}
}
