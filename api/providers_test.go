package api_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/sluice-kms/sluice/api"
	"github.com/sluice-kms/sluice/kms"
)

func TestRoutesOfTenantsHaveNamesOfTheirOwn(t *testing.T) {
	w := newWorld(t)
	before := w.must(200, "PUT", "/v1/routes/chat", w.rival.token, samples["put-route"])
	w.must(200, "PUT", "/v1/routes/chat", w.acme.token, strings.Replace(samples["put-route"], "sample", "other", 1))
	w.must(200, "DELETE", "/v1/routes/chat", w.acme.token, "")
	after := w.must(200, "GET", "/v1/routes/chat", w.rival.token, "")
	if fmt.Sprint(after.fields["models"]) != fmt.Sprint(before.fields["models"]) || after.fields["revision"] != 1.0 {
		t.Errorf("the other tenant's route was changed: %s", after.body)
	}
}

// chat is a route of two providers in one region.
const chat = `{"models":["gpt-5"],"residency":"eu",
	"primary":{"name":"one","provider":"openai","base_url":"https://93.184.215.14/v1","region":"eu-west-1","retention_days":30,"capabilities":["tools"],"secret":"llm/one"},
	"fallbacks":[{"name":"two","provider":"openai","base_url":"https://93.184.215.15/v1","region":"eu","capabilities":[],"secret":"llm/two"}]}`

// litellm's issue 39576: what stood in got what it should never have seen.
func TestAFallbackMayNotDoMoreThanThePrimary(t *testing.T) {
	w := newWorld(t)
	w.must(200, "PUT", "/v1/routes/chat", w.acme.token, chat)
	for name, c := range map[string]struct{ old, new, says string }{
		"a region outside":        {`"region":"eu",`, `"region":"us-east-1",`, "fallbacks[0].region"},
		"a region that begins so": {`"region":"eu",`, `"region":"europa",`, "fallbacks[0].region"},
		"no residency":            {`"residency":"eu",`, ``, "fallbacks[0].region"},
		"the primary outside":     {`"region":"eu-west-1"`, `"region":"us"`, "primary.region"},
		"a longer retention":      {`"capabilities":[]`, `"retention_days":31`, "fallbacks[0].retention_days"},
		"a capability":            {`"capabilities":[]`, `"capabilities":["training"]`, "fallbacks[0].capabilities"},
	} {
		body := strings.Replace(chat, c.old, c.new, 1)
		if body == chat {
			t.Fatal(name)
		}
		if a := w.must(422, "PUT", "/v1/routes/chat", w.acme.token, body); !strings.Contains(a.text("detail"), c.says) {
			t.Errorf("%s: %s", name, a.body)
		}
	}
}

func TestRoutesThatAreNoneAreRefused(t *testing.T) {
	w := newWorld(t)
	for name, c := range map[string]struct{ old, new, says string }{
		"an address inside":     {`https://93.184.215.14/v1`, `https://127.0.0.1/v1`, "primary.base_url"},
		"metadata of a cloud":   {`https://93.184.215.15/v1`, `https://169.254.169.254/`, "fallbacks[0].base_url"},
		"no https":              {`https://93.184.215.14/v1`, `http://93.184.215.14/v1`, "primary.base_url"},
		"a key in the address":  {`93.184.215.14/v1`, `93.184.215.14/v1?key=x`, "primary.base_url"},
		"two of a name":         {`"name":"two"`, `"name":"one"`, "fallbacks[0].name"},
		"no model":              {`["gpt-5"]`, `[]`, "models"},
		"a model twice":         {`["gpt-5"]`, `["gpt-5","gpt-5"]`, "models[1]"},
		"weights":               {`"residency"`, `"weights":{"one":60,"two":50},"residency"`, "weights"},
		"a weight that wraps":   {`"residency"`, `"weights":{"one":4294967295,"two":101},"residency"`, "weights"},
		"a weight of nobody":    {`"residency"`, `"weights":{"three":100},"residency"`, "weights"},
		"a header with a value": {`"residency"`, `"auth_header":"x-key: y","residency"`, "auth_header"},
		"a path":                {`"llm/two"`, `"llm/../two"`, "fallbacks[0].secret"},
	} {
		body := strings.Replace(chat, c.old, c.new, 1)
		if body == chat {
			t.Fatal(name)
		}
		if a := w.must(422, "PUT", "/v1/routes/chat", w.acme.token, body); !strings.Contains(a.text("detail"), c.says) {
			t.Errorf("%s: %s", name, a.body)
		}
	}
	w.must(422, "PUT", "/v1/routes/UPPER", w.acme.token, chat)
	w.must(200, "PUT", "/v1/routes/chat", w.acme.token, chat)
	w.must(412, "PUT", "/v1/routes/chat", w.acme.token, strings.Replace(chat, "{", `{"expected_revision":7,`, 1))
}

// A route follows its reports, over the API alone; health is the tenant's.
func TestReportsDecideOnTheOrder(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"one", "two"} {
		w.must(201, "POST", "/v1/secrets", w.acme.token, `{"path":"llm/`+name+`","provider":"openai","value":"sk-`+name+`"}`)
	}
	w.must(200, "PUT", "/v1/routes/chat", w.acme.token, chat)
	weights := func(a *answer) string {
		order := a.fields["order"].(map[string]any)
		out := map[string]any{}
		for _, c := range order["targets"].([]any) {
			out[c.(map[string]any)["target"].(string)] = c.(map[string]any)["weight"]
		}
		return fmt.Sprint(out)
	}
	report := func(item string) *answer {
		return w.must(200, "POST", "/v1/routes/chat/report", w.acme.token, `{"generation":1,"items":[`+item+`]}`)
	}
	if got := weights(w.must(200, "GET", "/v1/routes/chat", w.acme.token, "")); got != "map[one:100 two:0]" {
		t.Errorf("at first: %s", got)
	}
	report(`{"target":"one","model":"gpt-5","version":1,"credential":2}`)
	if got := weights(report(`{"target":"one","model":"gpt-5","version":1,"transient":5,"connections":5}`)); got != "map[one:90 two:10]" {
		t.Errorf("when it fails: %s", got)
	}
	if got := weights(w.must(200, "GET", "/v1/routes/chat?model=gpt-5", w.acme.token, "")); got != "map[one:90 two:10]" {
		t.Errorf("looked at again: %s", got)
	}
	for name, body := range map[string]string{
		"another model":       `{"items":[{"target":"one","model":"other"}]}`,
		"an order of none":    `{"model":"other"}`,
		"too many retries":    `{"items":[{"target":"one","model":"gpt-5","ok":1,"retries":2}]}`,
		"too many to connect": `{"items":[{"target":"one","model":"gpt-5","transient":1,"connections":2}]}`,
		"a slow one":          `{"items":[{"target":"one","model":"gpt-5","p99_ms":3600001}]}`,
	} {
		if a := w.send("POST", "/v1/routes/chat/report", w.acme.token, body); a.status != 422 {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	w.must(422, "GET", "/v1/routes/chat?model=other", w.acme.token, "")
}

func TestScopesOfRoutesAreApart(t *testing.T) {
	w := newWorld(t)
	w.must(200, "PUT", "/v1/routes/chat", w.acme.token, chat)
	for scope, allowed := range map[string]string{"route:read": "read", "route:manage": "read put", "route:report": "report", "secret:*": "", "route:*": "read put report"} {
		token := w.must(201, "POST", "/v1/credentials", w.acme.token, `{"name":"c","scopes":["`+scope+`"]}`).text("credential")
		for verb, call := range map[string][3]string{"read": {"GET", "/v1/routes/chat", ""}, "put": {"PUT", "/v1/routes/chat", chat},
			"report": {"POST", "/v1/routes/chat/report", `{}`}} {
			want := 403
			if strings.Contains(allowed, verb) {
				want = 200
			}
			if a := w.send(call[0], call[1], token, call[2]); a.status != want {
				t.Errorf("%s with %s: %d, want %d", verb, scope, a.status, want)
			}
		}
	}
}

// keys returns what is known of the keys of a route's target.
func keysOf(a *answer, target string) string {
	for _, c := range a.fields["order"].(map[string]any)["targets"].([]any) {
		if c := c.(map[string]any); c["target"] == target {
			text := ""
			keys, _ := c["keys"].([]any)
			for _, k := range keys {
				k := k.(map[string]any)
				validation, _ := k["validation"].(map[string]any)
				text += fmt.Sprint(k["version"], " ", k["state"], " ", validation["status"], " ", validation["class"], ";")
			}
			return text
		}
	}
	return ""
}

// A key is tried out when a route begins to use it and when it is written, if
// its secret says so; what the provider says is in the route's order, and the key
// is nowhere.
func TestKeysOfRoutesAreTriedOutIfTheirSecretsSaySo(t *testing.T) {
	var service *kms.Service
	w := newWorld(t, func(c *api.Config) { service = c.Service })
	trier := service.StartKeyTrier()
	defer trier.Close()
	w.memory.mu.Lock()
	w.memory.paths.answer = kms.KeyValidation{State: kms.KeyInvalid, Class: "credential", At: time.Now()}
	w.memory.mu.Unlock()
	one := w.must(201, "POST", "/v1/secrets", w.acme.token, `{"path":"llm/one","provider":"openai","value":"sk-canary-one","metadata":{"validate":"models"}}`).text("id")
	w.must(201, "POST", "/v1/secrets", w.acme.token, `{"path":"llm/two","provider":"openai","value":"sk-canary-two"}`)
	w.must(200, "PUT", "/v1/routes/chat", w.acme.token, chat)
	await := func(what, want string) *answer {
		t.Helper()
		for end := time.Now().Add(10 * time.Second); ; runtime.Gosched() {
			a := w.must(200, "GET", "/v1/routes/chat", w.acme.token, "")
			if got := keysOf(a, "one"); got == want || time.Now().After(end) {
				if got != want {
					t.Errorf("%s: %s, want %s", what, got, want)
				}
				return a
			}
		}
	}
	await("a bad key", "1 invalid invalid credential;")
	w.memory.mu.Lock()
	w.memory.paths.answer = kms.KeyValidation{Class: "transient", At: time.Now()}
	w.memory.mu.Unlock()
	w.must(201, "POST", "/v1/secrets/"+one+"/versions", w.acme.token, `{"value":"sk-canary-new"}`)
	last := await("no answer says nothing", "1 invalid invalid credential;2 ok unknown transient;")
	if strings.Contains(string(last.body), "canary") || keysOf(last, "two") != "" {
		t.Errorf("%s", last.body)
	}
	w.memory.mu.Lock()
	defer w.memory.mu.Unlock()
	if got := fmt.Sprint(w.memory.paths.tried); got != "[openai sk-canary-one openai sk-canary-new]" {
		t.Errorf("tried %s", got)
	}
	invalid := 0
	for _, e := range w.memory.published {
		if e.Type == kms.EventProviderKeyInvalid {
			invalid++
		}
	}
	if invalid != 1 || strings.Contains(w.logs.String(), "canary") {
		t.Errorf("%d events; the log: %s", invalid, w.logs.String())
	}
}
