package wire_test

import (
	"bufio"
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/cmd/sluice/wire/wiretest"
	"github.com/sluice-kms/sluice/kms"
	"github.com/sluice-kms/sluice/quota"
)

// newSecret makes a secret through the API and returns its address.
func newSecret(t testing.TB, s *wiretest.Service, credential, path, value string) string {
	t.Helper()
	status, _, made := raw(t, s, credential, http.MethodPost, "/v1/secrets", fmt.Sprintf(`{"path":%q,"provider":"openai","value":%q}`, path, value))
	if status != http.StatusCreated {
		t.Fatalf("%d %v", status, made)
	}
	return "/v1/secrets/" + made["id"].(string)
}

// change makes a change of a secret that must be made.
func change(t testing.TB, s *wiretest.Service, credential, path, body string) map[string]any {
	t.Helper()
	status, _, answer := raw(t, s, credential, http.MethodPost, path, body)
	if status/100 != 2 {
		t.Fatalf("%s: %d %v", path, status, answer)
	}
	return answer
}

// fetched is what a fetch of one path gives: its status and version:weight=value.
func fetched(t testing.TB, s *wiretest.Service, credential, path string) string {
	t.Helper()
	item := change(t, s, credential, "/v1/secret-values/fetch", `{"items":[{"path":"`+path+`"}]}`)["items"].([]any)[0].(map[string]any)
	text := item["status"].(string)
	versions, _ := item["versions"].([]any)
	for _, v := range versions {
		v := v.(map[string]any)
		text += fmt.Sprintf(" %v:%v=%v", v["version"], v["weight"], v["value"])
	}
	return text
}

// A fetch is priced by the values that it hands out.
func TestAFetchIsPricedByItem(t *testing.T) {
	s := service(t)
	newSecret(t, s, s.Demo, "priced/a", "sk-a")
	newSecret(t, s, s.Demo, "priced/b", "sk-b")
	both := change(t, s, s.Demo, "/v1/secret-values/fetch", `{"items":[{"path":"priced/a"},{"path":"priced/b"},{"path":"priced/none"}]}`)
	have := func(i int) any { return both["items"].([]any)[i].(map[string]any)["revision"] }
	again := change(t, s, s.Demo, "/v1/secret-values/fetch",
		fmt.Sprintf(`{"items":[{"path":"priced/a","have_revision":%v},{"path":"priced/b","have_revision":%v}]}`, have(0), have(1)))
	if both["cost"] != 2.0 || again["cost"] != 0.0 {
		t.Errorf("two values cost %v, none %v", both["cost"], again["cost"])
	}
}

// A rollout goes on by itself, and the version that was replaced is retired.
func TestARolloutAdvancesByItself(t *testing.T) {
	s := service(t)
	one := newSecret(t, s, s.Demo, "rollout/advances", "sk-old")
	change(t, s, s.Demo, one+"/versions", `{"value":"sk-new"}`)
	change(t, s, s.Demo, one+"/activate", `{"version":2,"steps":[10,100],"step_interval":1}`)
	if got := fetched(t, s, s.Demo, "rollout/advances"); got != "ok 1:90=sk-old 2:10=sk-new" {
		t.Errorf("at first: %s", got)
	}
	within(t, 20*time.Second, "the end of the rollout", func() bool {
		_, _, now := raw(t, s, s.Demo, http.MethodGet, one, "")
		return now["rollout"].(map[string]any)["state"] == "DONE"
	})
	if got := fetched(t, s, s.Demo, "rollout/advances"); got != "ok 2:100=sk-new" {
		t.Errorf("at the end: %s", got)
	}
	change(t, s, s.Demo, one+"/rollback", "")
	if got := fetched(t, s, s.Demo, "rollout/advances"); got != "ok 1:100=sk-old" {
		t.Errorf("rolled back: %s", got)
	}
}

// Where calls are reported, a step lasts until the new version has a success;
// refusals end the rollout at once.
func TestAReportedRolloutWaitsForItsCanary(t *testing.T) {
	s := service(t)
	one := newSecret(t, s, s.Demo, "rollout/held", "sk-old")
	change(t, s, s.Demo, one+"/versions", `{"value":"sk-new"}`)
	change(t, s, s.Demo, one+"/activate", `{"version":2,"steps":[10,100],"step_interval":1}`)
	id := strings.TrimPrefix(one, "/v1/secrets/")
	report := func(version int, counts string) {
		change(t, s, s.Demo, "/v1/secret-values/report", fmt.Sprintf(`{"items":[{"secret_id":%q,"version":%d,%s}]}`, id, version, counts))
	}
	report(1, `"transient":100`)
	began := time.Now()
	report(2, `"credential":3`)
	_, _, now := raw(t, s, s.Demo, http.MethodGet, one, "")
	if state := now["rollout"].(map[string]any)["state"]; state != "ROLLED_BACK" {
		t.Errorf("%v after %v", state, time.Since(began))
	}
	if got := fetched(t, s, s.Demo, "rollout/held"); got != "ok 1:100=sk-old" {
		t.Errorf("afterwards: %s", got)
	}
}

// The number of a tenant's secrets is limited, as the store counts them.
func TestSecretsAreLimitedThroughTheAPI(t *testing.T) {
	s, err := wiretest.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.App.Policies.Apply(1, policy(t, func(p *quota.Policy) { p.Tiers[kms.TierFree].Secrets = 2 })); err != nil {
		t.Fatal(err)
	}
	credential := newTenant(t, s, "small", "free")
	for i := range 2 {
		newSecret(t, s, credential, fmt.Sprint("limited/", i), "sk")
	}
	status, _, answer := raw(t, s, credential, http.MethodPost, "/v1/secrets", `{"path":"limited/2","provider":"p","value":"sk"}`)
	if status != http.StatusPaymentRequired || !strings.Contains(fmt.Sprint(answer["reasons"]), quota.ReasonStorage) {
		t.Errorf("one more: %d %v", status, answer)
	}
	if have, limit := stored(t, s, credential, "secrets"); have != 2 || limit != 2 {
		t.Errorf("%v of %v secrets", have, limit)
	}
}

// What is at rest, the journal included, holds no value, and secrets are the
// same after a restart.
func TestValuesAreSealedAtRestAndSurviveARestart(t *testing.T) {
	dir := t.TempDir()
	s, err := wiretest.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	const value = "sk-canary-at-rest"
	one := newSecret(t, s, s.Demo, "rest/a", value)
	change(t, s, s.Demo, one+"/versions", `{"value":"`+value+`-2"}`)
	change(t, s, s.Demo, one+"/activate", `{"version":2,"steps":[10,100],"step_interval":3600}`)
	want := fetched(t, s, s.Demo, "rest/a")
	s.Close()
	files := 0
	err = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if bytes.Contains(content, []byte("canary-at-rest")) {
			t.Errorf("%s holds a value", filepath.Base(path))
		}
		files++
		return err
	})
	if err != nil || files < 5 {
		t.Fatalf("%d files, %v", files, err)
	}
	again, err := wiretest.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if got := fetched(t, again, again.Demo, "rest/a"); got != want || !strings.Contains(got, value) {
		t.Errorf("after a restart: %s, before: %s", got, want)
	}
}

// watchSecrets reads the events of a watch, as "kind path", until the test ends.
func watchSecrets(t *testing.T, s *wiretest.Service, credential string) <-chan string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/v1/secret-values/watch", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+credential)
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { response.Body.Close() })
	if response.StatusCode != http.StatusOK {
		t.Fatalf("watching: %d", response.StatusCode)
	}
	events := make(chan string, 64)
	go func() {
		defer close(events)
		kind := ""
		for lines := bufio.NewScanner(response.Body); lines.Scan(); {
			if name, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
				kind = name
			} else if _, path, ok := strings.Cut(lines.Text(), `"path":`); ok && kind != "" {
				events <- kind + " " + strings.Trim(path, `"}`)
			}
		}
	}()
	return events
}

// A disabled version reaches watches on another API node within a second, and
// its values are not handed out there any more; a revoked credential's stream
// ends there within a second.
func TestRevocationReachesWatchesOnTheOtherNodeWithinASecond(t *testing.T) {
	a, b, _ := twoNodes(t)
	status, tenant := call(t, a.Service, a.Operator, http.MethodPost, "/v1/tenants", object{"name": "acme", "tier": "gold"})
	if status != http.StatusCreated {
		t.Fatalf("%d %s", status, tenant.Detail)
	}
	mint := func(scopes ...string) answer {
		t.Helper()
		status, c := call(t, a.Service, a.Operator, http.MethodPost, "/v1/tenants/acme/credentials", object{"name": "app", "scopes": scopes})
		if status != http.StatusCreated {
			t.Fatalf("%d %s", status, c.Detail)
		}
		return c
	}
	manager, gateway := mint("secret:*"), mint("secret:read:llm/*")
	one := newSecret(t, a.Service, manager.Credential, "llm/openai", "sk-first")
	within(t, time.Second, "creating a secret", func() bool { return fetched(t, b.Service, gateway.Credential, "llm/openai") == "ok 1:100=sk-first" })

	events := watchSecrets(t, b.Service, gateway.Credential)
	next := func(want string) time.Duration {
		t.Helper()
		began := time.Now()
		select {
		case got := <-events:
			if got != want {
				t.Errorf("event %q, want %q", got, want)
			}
		case <-time.After(time.Second):
			t.Errorf("no event %q within a second", want)
		}
		return time.Since(began)
	}
	var took []time.Duration
	for i := range 20 {
		version := change(t, a.Service, manager.Credential, one+"/versions", fmt.Sprintf(`{"value":"sk-%d"}`, i))["version"]
		next("changed llm/openai")
		change(t, a.Service, manager.Credential, one+"/activate", fmt.Sprintf(`{"version":%v}`, version))
		next("changed llm/openai")
		answer := change(t, a.Service, manager.Credential, fmt.Sprintf("%s/versions/%v/disable", one, version), "")
		took = append(took, next("revoked llm/openai"))
		// Whoever heard of it is never answered with what was there before.
		item := change(t, b.Service, gateway.Credential, "/v1/secret-values/fetch",
			fmt.Sprintf(`{"items":[{"path":"llm/openai"}],"min_revision":%v}`, answer["revision"]))["items"].([]any)[0].(map[string]any)
		if item["status"] != "disabled" {
			t.Errorf("after the event: %v", item)
		}
	}
	slices.Sort(took)
	t.Logf("after its answer, a revocation reaches a watch on the other node in %v, at most %v", took[len(took)/2], took[len(took)-1])

	if status, _ := call(t, a.Service, a.Operator, http.MethodPost, "/v1/tenants/acme/credentials/"+gateway.ID+"/revoke", nil); status != http.StatusOK {
		t.Fatalf("revoking: %d", status)
	}
	select {
	case e, open := <-events:
		if open {
			t.Errorf("event %q after the revocation", e)
		}
	case <-time.After(time.Second):
		t.Error("the stream of a revoked credential goes on for more than a second")
	}
}

// Whoever changes a secret on one node and fetches on the other with the
// revision of the change gets what was changed.
func TestAFetchAfterAChangeOnTheOtherNodeIsNeverOlder(t *testing.T) {
	a, b, _ := twoNodes(t)
	if status, tenant := call(t, a.Service, a.Operator, http.MethodPost, "/v1/tenants", object{"name": "acme", "tier": "gold"}); status != http.StatusCreated {
		t.Fatalf("%d %s", status, tenant.Detail)
	}
	_, c := call(t, a.Service, a.Operator, http.MethodPost, "/v1/tenants/acme/credentials", object{"name": "app", "scopes": []string{"secret:*"}})
	one := newSecret(t, a.Service, c.Credential, "llm/fresh", "sk-0")
	nodes := []*wiretest.Service{a.Service, b.Service}
	for i := range 20 { // fewer than versions that a secret may have
		here, there := nodes[i%2], nodes[(i+1)%2]
		staged := change(t, here, c.Credential, one+"/versions", fmt.Sprintf(`{"value":"sk-%d"}`, i+1))
		within(t, time.Second, "staging", func() bool {
			status, _, _ := raw(t, there, c.Credential, http.MethodPost, one+"/activate",
				fmt.Sprintf(`{"version":%v,"expected_revision":%v}`, staged["version"], staged["revision"]))
			return status == http.StatusOK
		})
		_, _, now := raw(t, there, c.Credential, http.MethodGet, one, "")
		item := change(t, here, c.Credential, "/v1/secret-values/fetch",
			fmt.Sprintf(`{"items":[{"path":"llm/fresh"}],"min_revision":%v}`, now["revision"]))["items"].([]any)[0].(map[string]any)
		if got := item["versions"].([]any)[0].(map[string]any)["value"]; got != fmt.Sprint("sk-", i+1) {
			t.Fatalf("round %d: fetched %v", i, got)
		}
	}
}

// BenchmarkFetch is a fetch over the network of this machine, journal on: one
// value that is opened already. It reports the median and the 99th percentile.
func BenchmarkFetch(b *testing.B) {
	s := service(b)
	path := fmt.Sprint("bench/", time.Now().UnixNano())
	newSecret(b, s, s.Demo, path, "sk-0123456789abcdef0123456789abcdef")
	body := `{"items":[{"path":"` + path + `"}]}`
	took := make([]time.Duration, 0, b.N)
	client := s.Client()
	for b.Loop() {
		began := time.Now()
		r, _ := http.NewRequest(http.MethodPost, s.URL+"/v1/secret-values/fetch", strings.NewReader(body))
		r.Header.Set("Authorization", "Bearer "+s.Demo)
		r.Header.Set("Content-Type", "application/json")
		response, err := client.Do(r)
		if err != nil {
			b.Fatal(err)
		}
		answer := new(bytes.Buffer)
		answer.ReadFrom(response.Body)
		response.Body.Close()
		if response.StatusCode != http.StatusOK || !bytes.Contains(answer.Bytes(), []byte("sk-0123")) {
			b.Fatal(response.StatusCode, answer)
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
}

// tenantOf is the id of a credential's tenant.
func tenantOf(t *testing.T, s *wiretest.Service, credential string) uuid.UUID {
	t.Helper()
	by, err := s.App.Authenticator.Authenticate(t.Context(), credential, here)
	if err != nil {
		t.Fatal(err)
	}
	return by.Tenant.ID
}

// A retired version is destroyed when its time is over, by the service itself;
// its number is not used again.
func TestARetiredVersionIsDestroyedWhenItsTimeIsOver(t *testing.T) {
	s := service(t)
	one := newSecret(t, s, s.Demo, "observed/a", "sk-old")
	change(t, s, s.Demo, one+"/versions", `{"value":"sk-new"}`)
	change(t, s, s.Demo, one+"/activate", `{"version":2}`)
	was, err := s.App.Store.SecretByPath(t.Context(), tenantOf(t, s, s.Demo), "observed/a")
	if err != nil {
		t.Fatal(err)
	}
	over := was.Clone()
	over.Version(1).DestroyAt = time.Now().Add(-time.Second)
	if err := s.App.Store.UpdateSecret(t.Context(), was, over, kms.SecretChanged); err != nil {
		t.Fatal(err)
	}
	within(t, 20*time.Second, "the destruction", func() bool {
		_, _, now := raw(t, s, s.Demo, http.MethodGet, one, "")
		return now["versions"].([]any)[0].(map[string]any)["state"] == "DESTROYED"
	})
	if v, err := s.App.Store.SecretByPath(t.Context(), was.Tenant, "observed/a"); err != nil || v.Version(1).Value != nil || v.Version(1).DataKey != nil {
		t.Errorf("what is left: %+v, %v", v.Version(1), err)
	}
	if got := fetched(t, s, s.Demo, "observed/a"); got != "ok 2:100=sk-new" {
		t.Errorf("fetched %s", got)
	}
	if status, _, answer := raw(t, s, s.Demo, http.MethodPost, one+"/rollback", ""); status != http.StatusConflict {
		t.Errorf("rolling back: %d %v", status, answer)
	}
	// The value that is gone is a new one.
	if again := change(t, s, s.Demo, one+"/versions", `{"value":"sk-old"}`); again["version"] != 3.0 {
		t.Errorf("the old value again is version %v", again["version"])
	}
}

// A deleted tenant's secrets and routes are erased.
func TestSecretsAndRoutesOfADeletedTenantAreErased(t *testing.T) {
	dir := t.TempDir()
	s, err := wiretest.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	credential := newTenant(t, s, "doomed", "silver")
	one := newSecret(t, s, credential, "doomed/a", "sk-a")
	tenant := tenantOf(t, s, credential)
	route := `{"models":["m"],"primary":{"name":"a","provider":"openai","base_url":"https://93.184.215.14/v1","region":"eu","secret":"doomed/a"}}`
	if status, _, answer := raw(t, s, credential, http.MethodPut, "/v1/routes/doomed", route); status/100 != 2 {
		t.Fatalf("making a route: %d %v", status, answer)
	}
	for _, act := range []struct{ method, path string }{{http.MethodPost, "/v1/tenants/doomed/suspend"}, {http.MethodDelete, "/v1/tenants/doomed"}} {
		if status, _, answer := raw(t, s, s.Operator, act.method, act.path, ""); status/100 != 2 {
			t.Fatalf("%s: %d %v", act.path, status, answer)
		}
	}
	s.Close()
	again, err := wiretest.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	id := uuid.MustParse(strings.TrimPrefix(one, "/v1/secrets/"))
	within(t, 20*time.Second, "the erasure", func() bool {
		_, err := again.App.Store.Secret(t.Context(), tenant, id)
		return kms.KindOf(err) == kms.KindNotFound && err != nil
	})
	within(t, 20*time.Second, "the erasure of the route", func() bool {
		_, err := again.App.Store.Route(t.Context(), tenant, "doomed")
		return kms.KindOf(err) == kms.KindNotFound && err != nil
	})
}

// Secrets that are made without times of their own have the policy's, and the
// health of routes is decided by its numbers.
func TestSecretsAndRoutesHaveThePolicysNumbers(t *testing.T) {
	wiretest.Require(t)
	s := wiretest.Start(t, t.TempDir())
	if rules := s.App.RouteRules(); !reflect.DeepEqual(rules, kms.DefaultRouteRules()) {
		t.Errorf("at first %+v", rules)
	}
	document := policy(t, func(p *quota.Policy) {
		p.Secrets.ClientFreshSeconds, p.Secrets.ClientExpirySeconds = 7, 90
		p.Secrets.BreakerFailures, p.Secrets.SwitchPercents, p.Secrets.RetriesOnOtherPerReq = 9, quota.Steps{50, 100}, 0
	})
	if err := s.App.Policies.Apply(s.App.Policies.Current().Version+1, document); err != nil {
		t.Fatal(err)
	}
	if rules := s.App.RouteRules(); rules.BreakerFailures != 9 || !slices.Equal(rules.Switch, []uint32{50, 100}) || rules.RetriesPerRequest != 0 {
		t.Errorf("by the policy %+v", rules)
	}
	for body, want := range map[string][2]float64{
		`{"path":"timed/a","provider":"openai","value":"sk-a"}`:                                       {7, 90},
		`{"path":"timed/b","provider":"openai","value":"sk-b","fresh_seconds":3}`:                     {3, 90},
		`{"path":"timed/c","provider":"openai","value":"sk-c","lease_seconds":5}`:                     {5, 5},
		`{"path":"timed/d","provider":"openai","value":"sk-d","fresh_seconds":100}`:                   {100, 100},
		`{"path":"timed/e","provider":"openai","value":"sk-e","fresh_seconds":1,"lease_seconds":600}`: {1, 600},
	} {
		made := change(t, s, s.Demo, "/v1/secrets", body)
		if got := [2]float64{made["fresh_seconds"].(float64), made["lease_seconds"].(float64)}; got != want {
			t.Errorf("%s: %v", body, made)
		}
	}
}
