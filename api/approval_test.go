package api_test

import (
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-kms/sluice/kms"
)

// The periods of the service in memory.
const (
	rootRotation    = 300 * 24 * time.Hour
	backupRetention = 30 * 24 * time.Hour
)

// secondOperator mints the credential of a second operator, which the first
// one may do alone, once.
func (w *world) secondOperator() string {
	w.t.Helper()
	return w.must(201, "POST", "/v1/credentials", w.operator, `{"name":"second","scopes":["operator:admin","tenant:admin"]}`).text("credential")
}

// required is the approval that a refused request asks for.
func (w *world) required(a *answer) string {
	w.t.Helper()
	if a.status != http.StatusConflict || a.code() != "approval_required" {
		w.t.Fatalf("%d %s, want that an approval is required", a.status, a.body)
	}
	return a.text("approval")
}

func TestTenantIsDeletedByTwoOperators(t *testing.T) {
	w := newWorld(t)
	w.deletion(t, w.secondOperator())
}

// deletion deletes a tenant of its own on a service that wants two operators.
func (w *world) deletion(t *testing.T, second string) {
	doomed := w.newTenant("doomed")
	w.key(doomed, kms.SpecAES256, "", "k")
	if a := w.send("DELETE", "/v1/tenants/doomed", w.operator, ""); a.status != 409 || a.code() != "conflict" {
		t.Fatalf("a tenant in use: %d %s", a.status, a.body)
	}
	w.must(200, "POST", "/v1/tenants/doomed/suspend", w.operator, "")
	once := []string{"Idempotency-Key", "delete-doomed"}
	id := w.required(w.send("DELETE", "/v1/tenants/doomed", w.operator, "", once...))
	list := w.must(200, "GET", "/v1/approvals?page_size=100", second, "")
	if !strings.Contains(string(list.body), id) || !strings.Contains(string(list.body), "tenant doomed") {
		t.Errorf("the list lacks it: %s", list.body)
	}
	if a := w.send("POST", "/v1/approvals/"+id+"/approve", w.operator, ""); a.status != 403 {
		t.Errorf("approved by who asks: %d %s", a.status, a.body)
	}
	named := append([]string{"Sluice-Approval", id}, once...)
	if a := w.send("DELETE", "/v1/tenants/doomed", w.operator, "", named...); w.required(a) != id {
		t.Errorf("another approval is asked for: %s", a.body)
	}
	if a := w.must(200, "POST", "/v1/approvals/"+id+"/approve", second, ""); a.fields["approved_by"] == nil || a.fields["used"] != false {
		t.Errorf("approved: %s", a.body)
	}
	if a := w.send("DELETE", "/v1/tenants/doomed", second, "", "Sluice-Approval", id); a.status != 409 {
		t.Errorf("used by who approved: %d", a.status)
	}
	if a := w.sendBad("DELETE", "/v1/tenants/doomed", w.operator, "", "Sluice-Approval", "canary"); a.status != 400 || strings.Contains(string(a.body), "canary") {
		t.Errorf("a malformed approval: %d %s", a.status, a.body)
	}
	began := time.Now()
	gone := w.must(202, "DELETE", "/v1/tenants/doomed", w.operator, "", named...)
	deletion, _ := gone.fields["deletion"].(map[string]any)
	void, err := time.Parse(time.RFC3339, deletion["void_at"].(string))
	if err != nil || gone.text("state") != "DELETING" || void.Before(began.Add(rootRotation)) {
		t.Errorf("deleted: %s", gone.body)
	}
	if again := w.must(202, "DELETE", "/v1/tenants/doomed", w.operator, "", named...); again.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("the same request again is carried out: %s", again.body)
	}
	if a := w.send("GET", "/v1/keys", doomed.token, ""); a.status != 401 {
		t.Errorf("its credential: %d %s", a.status, a.body)
	}
	if a := w.must(200, "GET", "/v1/tenants/doomed", second, ""); a.fields["deletion"] == nil {
		t.Errorf("described: %s", a.body)
	}
	if a := w.must(200, "GET", "/v1/approvals/"+id, second, ""); a.fields["used"] != true {
		t.Errorf("the approval: %s", a.body)
	}
	for _, call := range [][3]string{
		{"POST", "/v1/tenants/doomed/resume", ""},
		{"PATCH", "/v1/tenants/doomed", `{"tier":"gold"}`},
		{"POST", "/v1/tenants", `{"name":"doomed"}`},
		{"POST", "/v1/tenants/doomed/credentials", `{"name":"x","scopes":["key:*"]}`},
		{"DELETE", "/v1/tenants/doomed", ""},
	} {
		if a := w.send(call[0], call[1], w.operator, call[2]); a.status != 409 || a.code() != "conflict" {
			t.Errorf("%s %s: %d %s", call[0], call[1], a.status, a.body)
		}
	}
	if a := w.send("DELETE", "/v1/tenants/system", w.operator, ""); a.status != 409 || a.code() != "conflict" {
		t.Errorf("the operators' own: %d", a.status)
	}
}

// approvedOnce has 100 requests at once spend one approval: the act that it
// allows makes a new object each time, so that nothing else keeps them apart.
func (w *world) approvedOnce(t *testing.T, second string) {
	const body = `{"name":"third","scopes":["operator:auditor"]}`
	id := w.required(w.send("POST", "/v1/credentials", w.operator, body))
	w.must(200, "POST", "/v1/approvals/"+id+"/approve", second, "")
	var minted, refused atomic.Int32
	var group sync.WaitGroup
	start := make(chan struct{})
	for range 100 {
		group.Go(func() {
			<-start
			a := w.raw("POST", "/v1/credentials", w.operator, strings.NewReader(body),
				http.Header{"Content-Type": {"application/json"}, "Sluice-Approval": {id}})
			switch a.status {
			case http.StatusCreated:
				minted.Add(1)
			case http.StatusConflict:
				refused.Add(1)
			}
		})
	}
	close(start)
	group.Wait()
	if minted.Load() != 1 || refused.Load() != 99 {
		t.Errorf("%d were carried out and %d refused, want 1 and 99", minted.Load(), refused.Load())
	}
	all := w.must(200, "GET", "/v1/credentials", w.operator, "")
	if n := strings.Count(string(all.body), `"name":"third"`); n != 1 {
		t.Errorf("there are %d of the credential", n)
	}
}

func TestAnApprovalIsUsedOnce(t *testing.T) {
	w := newWorld(t)
	w.approvedOnce(t, w.secondOperator())
}

func TestAuditorsReadApprovalsAndGiveNone(t *testing.T) {
	w := newWorld(t)
	auditor := w.must(201, "POST", "/v1/credentials", w.operator, `{"name":"auditor","scopes":["role:operator-auditor"]}`)
	if scopes := auditor.fields["scopes"].([]any); len(scopes) != 1 || scopes[0] != "role:operator-auditor" {
		t.Errorf("the role is shown as %v", scopes)
	}
	w.must(200, "POST", "/v1/tenants/rival/suspend", w.operator, "")
	id := w.required(w.send("DELETE", "/v1/tenants/rival", w.operator, ""))
	token := auditor.text("credential")
	w.must(200, "GET", "/v1/approvals", token, "")
	w.must(200, "GET", "/v1/approvals/"+id, token, "")
	for _, call := range [][2]string{{"POST", "/v1/approvals/" + id + "/approve"}, {"DELETE", "/v1/tenants/rival"}, {"POST", "/v1/tenants/rival/resume"}} {
		if a := w.send(call[0], call[1], token, ""); a.status != 403 {
			t.Errorf("%s %s by an auditor: %d", call[0], call[1], a.status)
		}
	}
}

func TestKeyUserUsesKeysAndNothingElse(t *testing.T) {
	w := newWorld(t)
	w.key(w.acme, kms.SpecAES256, "", "orders-1")
	w.key(w.acme, kms.SpecAES256, "", "invoices-1")
	user := w.must(201, "POST", "/v1/credentials", w.acme.token, `{"name":"user","scopes":["role:key-user:orders-*"]}`).text("credential")
	w.must(200, "POST", "/v1/keys/orders-1/encrypt", user, `{"plaintext":""}`)
	for _, call := range [][3]string{
		{"POST", "/v1/keys/invoices-1/encrypt", `{"plaintext":""}`},
		{"POST", "/v1/keys/orders-1/rotate", ""},
		{"POST", "/v1/keys", `{"spec":"AES_256","name":"orders-2"}`},
		{"DELETE", "/v1/keys/orders-1", ""},
		{"GET", "/v1/credentials", ""},
		{"POST", "/v1/credentials", `{"name":"x","scopes":["role:key-user:orders-*"]}`},
	} {
		if a := w.send(call[0], call[1], user, call[2]); a.status != 403 {
			t.Errorf("%s %s: %d %s", call[0], call[1], a.status, a.body)
		}
	}
}
