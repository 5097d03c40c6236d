package wire_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-kms/sluice/cmd/sluice/wire/wiretest"
)

// newRoute makes a route of two targets with keys of their own.
func newRoute(t testing.TB, s *wiretest.Service, credential, name string) {
	t.Helper()
	for _, target := range []string{"one", "two"} {
		newSecret(t, s, credential, name+"/"+target, "sk-"+target)
	}
	body := strings.ReplaceAll(`{"models":["gpt-5"],
		"primary":{"name":"one","provider":"openai","base_url":"https://93.184.215.14/v1","region":"eu","secret":"NAME/one"},
		"fallbacks":[{"name":"two","provider":"openai","base_url":"https://93.184.215.15/v1","region":"eu","secret":"NAME/two"}]}`, "NAME", name)
	if status, _, answer := raw(t, s, credential, http.MethodPut, "/v1/routes/"+name, body); status != http.StatusOK {
		t.Fatalf("%d %v", status, answer)
	}
}

// shares is how an answer spreads calls, and who has a lease.
func shares(answer map[string]any) (text string, leases int) {
	order := answer["order"].(map[string]any)
	by := map[string]string{}
	for _, c := range order["targets"].([]any) {
		c := c.(map[string]any)
		by[c["target"].(string)] = fmt.Sprintf("%v %v", c["state"], c["weight"])
		if c["lease"] != nil {
			leases++
		}
	}
	return "one " + by["one"] + ", two " + by["two"], leases
}

func reported(t testing.TB, s *wiretest.Service, credential, name, items string) map[string]any {
	t.Helper()
	return change(t, s, credential, "/v1/routes/"+name+"/report", `{"generation":1,"items":[`+items+`]}`)
}

const oneFails = `{"target":"one","model":"gpt-5","version":1,"transient":1}`

// Reports at two API nodes at the same time all count, and both nodes give the
// order that follows; a lease is given once.
func TestTwoNodesDecideOnARouteAsOne(t *testing.T) {
	a, b, _ := twoNodes(t)
	status, tenant := call(t, a.Service, a.Operator, http.MethodPost, "/v1/tenants", object{"name": "acme", "tier": "gold"})
	if status != http.StatusCreated {
		t.Fatalf("%d %s", status, tenant.Detail)
	}
	_, c := call(t, a.Service, a.Operator, http.MethodPost, "/v1/tenants/acme/credentials", object{"name": "app", "scopes": []string{"secret:*", "route:*"}})
	newRoute(t, a.Service, c.Credential, "chat")
	nodes := []*apiNode{a, b}
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() { reported(t, nodes[i%2].Service, c.Credential, "chat", oneFails) })
	}
	all.Wait()
	look := func(n *apiNode) string {
		_, _, answer := raw(t, n.Service, c.Credential, http.MethodGet, "/v1/routes/chat", "")
		text, _ := shares(answer)
		return text
	}
	for _, n := range nodes {
		if got := look(n); got != "one healthy 100, two healthy 0" {
			t.Errorf("after four failures: %s", got)
		}
	}
	reported(t, b.Service, c.Credential, "chat", oneFails)
	for _, n := range nodes {
		if got := look(n); got != "one unhealthy 90, two healthy 10" {
			t.Errorf("after the fifth: %s", got)
		}
	}
	_, leases := shares(reported(t, a.Service, c.Credential, "chat", `{"target":"two","model":"gpt-5","version":1,"transient":5}`))
	var mu sync.Mutex
	for i := range 8 {
		all.Go(func() {
			_, n := shares(reported(t, nodes[i%2].Service, c.Credential, "chat", ""))
			mu.Lock()
			defer mu.Unlock()
			leases += n
		})
	}
	all.Wait()
	if leases != 1 {
		t.Errorf("%d leases at once in a panic", leases)
	}
}

func TestTheHealthOfARouteSurvivesARestart(t *testing.T) {
	dir := t.TempDir()
	s := wiretest.Start(t, dir)
	newRoute(t, s, s.Demo, "chat")
	reported(t, s, s.Demo, "chat", strings.Replace(oneFails, `"transient":1`, `"transient":5`, 1))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	again := wiretest.Start(t, dir)
	_, _, answer := raw(t, again, again.Demo, http.MethodGet, "/v1/routes/chat", "")
	if got, _ := shares(answer); got != "one unhealthy 90, two healthy 10" {
		t.Errorf("after a restart: %s", got)
	}
}

// What a gateway says of a version in a report of a route counts for the
// version's rollout.
func TestAReportOfARouteCountsForARollout(t *testing.T) {
	s := service(t)
	newRoute(t, s, s.Demo, "rolls")
	_, _, list := raw(t, s, s.Demo, http.MethodGet, "/v1/secrets?prefix=rolls/one", "")
	one := "/v1/secrets/" + list["secrets"].([]any)[0].(map[string]any)["id"].(string)
	change(t, s, s.Demo, one+"/versions", `{"value":"sk-new"}`)
	change(t, s, s.Demo, one+"/activate", `{"version":2,"steps":[10,100],"step_interval":600}`)
	reported(t, s, s.Demo, "rolls", `{"target":"one","model":"gpt-5","version":1,"ok":100},{"target":"one","model":"gpt-5","version":2,"credential":3}`)
	within(t, 5*time.Second, "the rollback", func() bool {
		_, _, now := raw(t, s, s.Demo, http.MethodGet, one, "")
		return now["rollout"].(map[string]any)["state"] == "ROLLED_BACK"
	})
	_, _, answer := raw(t, s, s.Demo, http.MethodGet, "/v1/routes/rolls", "")
	if got, _ := shares(answer); got != "one healthy 100, two healthy 0" {
		t.Errorf("the route is %s: a refused key is no fault of the endpoint, and there is another version", got)
	}
}
