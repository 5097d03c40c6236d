package api_test

import (
	"encoding/base64"
	"encoding/json/v2"
	"strings"
	"testing"

	"github.com/sluice-kms/sluice/kms"
)

func TestWebhookIsMadeShownTriedAndDeleted(t *testing.T) {
	w := newWorld(t)
	once := []string{"Idempotency-Key", "webhook-1"}
	body := `{"url":"https://93.184.215.14/hook","types":["quota.day_soft_limit"]}`
	made := w.must(201, "POST", "/v1/webhooks", w.acme.token, body, once...)
	secret, ok := strings.CutPrefix(made.text("secret"), "whsec_")
	raw, err := base64.StdEncoding.DecodeString(secret)
	if !ok || err != nil || len(raw) != 32 {
		t.Fatalf("the secret is %q", made.text("secret"))
	}
	one := "/v1/webhooks/" + made.text("id")
	if made.header.Get("Location") != one || made.text("state") != "ACTIVE" {
		t.Errorf("made %v %s", made.header, made.body)
	}
	if again := w.send("POST", "/v1/webhooks", w.acme.token, body, once...); again.status != 409 || strings.Contains(string(again.body), secret) {
		t.Errorf("made again: %d %s", again.status, again.body)
	}
	for _, path := range []string{one, "/v1/webhooks"} {
		if a := w.must(200, "GET", path, w.acme.token, ""); strings.Contains(string(a.body), secret) || !strings.Contains(string(a.body), "93.184.215.14") {
			t.Errorf("%s shows %s", path, a.body)
		}
	}
	event := w.must(200, "POST", one+"/test", w.acme.token, "").text("event_id")
	if len(w.queued) != 1 || w.queued[0].Event.String() != event || w.queued[0].Type != kms.EventTest {
		t.Errorf("queued %+v", w.queued)
	}
	var sent struct{ ID, Type string }
	if err := json.Unmarshal(w.queued[0].Body, &sent, json.MatchCaseInsensitiveNames(true)); err != nil || sent.ID != event || sent.Type != "webhook.test" {
		t.Errorf("sent %s, %v", w.queued[0].Body, err)
	}
	gone := []string{"Idempotency-Key", "webhook-2"}
	w.must(200, "DELETE", one, w.acme.token, "", gone...)
	if again := w.must(200, "DELETE", one, w.acme.token, "", gone...); again.header.Get("Idempotent-Replayed") != "true" || again.text("id") != made.text("id") {
		t.Errorf("deleted again: %s", again.body)
	}
	if a := w.send("GET", one, w.acme.token, ""); a.status != 404 {
		t.Errorf("deleted: %d", a.status)
	}
	if logs := w.logs.String(); strings.Contains(logs, secret) || strings.Contains(logs, "93.184.215.14") {
		t.Errorf("the log shows too much: %s", logs)
	}
	for _, e := range w.outcomes() {
		if strings.Contains(e.Resource, "http") {
			t.Errorf("the journal shows the URL: %+v", e)
		}
	}
}

func TestWebhooksToPrivateAddressesAreRefused(t *testing.T) {
	w := newWorld(t)
	for _, url := range []string{
		"https://127.0.0.1/", "https://10.0.0.1/", "https://169.254.169.254/latest/meta-data/", "https://100.64.0.1/", "https://[::1]/",
		"https://[::ffff:10.0.0.1]/", "https://[64:ff9b::7f00:1]/", "https://[2002:7f00:1::]/", "https://[fd00:ec2::254]/", "https://0.0.0.0/",
		"http://93.184.215.14/", "https://user:secret@93.184.215.14/", "https://93.184.215.14:22/", "https://93.184.215.14/#x", "gopher://93.184.215.14/", "x",
	} {
		a := w.send("POST", "/v1/webhooks", w.acme.token, object(map[string]any{"url": url}))
		if a.status != 422 || strings.Contains(string(a.body), url) {
			t.Errorf("%s: %d %s", url, a.status, a.body)
		}
	}
	if a := w.must(200, "GET", "/v1/webhooks", w.acme.token, ""); len(a.fields["webhooks"].([]any)) != 0 {
		t.Errorf("there are %s", a.body)
	}
}

func TestTypesOfEventsAreThoseThatOneMayHave(t *testing.T) {
	w := newWorld(t)
	make := func(token string, types string) int {
		return w.sendBad("POST", "/v1/webhooks", token, `{"url":"https://93.184.215.14/","types":`+types+`}`).status
	}
	for types, want := range map[string]int{`[]`: 201, `["quota.day_soft_limit"]`: 201, `["node.down"]`: 422, `["party"]`: 422,
		`["quota.day_soft_limit","quota.day_soft_limit"]`: 422} {
		if got := make(w.acme.token, types); got != want {
			t.Errorf("%s: %d, want %d", types, got, want)
		}
	}
	if got := make(w.operator, `["node.down"]`); got != 201 {
		t.Errorf("an operator: %d", got)
	}
}

func TestOperatorsSeeWhoIsNearALimit(t *testing.T) {
	w := newWorld(t)
	a := w.must(200, "GET", "/v1/quota/tenants?page_size=2", w.operator, "")
	list := a.fields["tenants"].([]any)
	if len(list) != 2 || a.fields["total"] != 3.0 {
		t.Fatalf("%s", a.body)
	}
	if first := list[0].(map[string]any); first["near_permille"] != 900.0 || first["retry_permille"] != 250.0 || first["debt"] != 5.0 {
		t.Errorf("%v", first)
	}
	if a := w.sendBad("GET", "/v1/quota/tenants?page_size=201", w.operator, ""); a.status != 400 {
		t.Errorf("too many: %d", a.status)
	}
}
