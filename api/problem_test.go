package api_test

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-kms/sluice/api"
	"github.com/sluice-kms/sluice/kms"
)

func TestEveryKindOfErrorIsOneProblem(t *testing.T) {
	w := newWorld(t)
	statuses := map[kms.Kind]int{
		kms.KindInternal: 500, kms.KindMalformed: 400, kms.KindTooLarge: 413, kms.KindUnsupportedMedia: 415,
		kms.KindUnauthenticated: 401, kms.KindPermissionDenied: 403, kms.KindNotFound: 404, kms.KindConflict: 409,
		kms.KindKeyDisabled: 409, kms.KindPendingDeletion: 409, kms.KindPreconditionFailed: 412,
		kms.KindDecryptionFailed: 400, kms.KindInvalidArgument: 422, kms.KindUnsatisfiable: 422,
		kms.KindQuotaExceeded: 429, kms.KindQuotaExhausted: 402, kms.KindReducedCapacity: 503,
		kms.KindHSMUnavailable: 503, kms.KindAuditUnavailable: 503, kms.KindStoreUnavailable: 503,
		kms.KindWaitExceeded:     504,
		kms.KindApprovalRequired: 409, kms.KindStaleReplica: 412, kms.KindSecondFactor: 403, kms.KindCredentialSuspended: 403,
	}
	types := map[kms.Kind]string{
		kms.KindQuotaExceeded:   "https://iana.org/assignments/http-problem-types#quota-exceeded",
		kms.KindReducedCapacity: "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
	}
	for _, kind := range kms.Kinds() {
		t.Run(kind.String(), func(t *testing.T) {
			want := statuses[kind]
			if want == 0 || api.ProblemStatus(kind) != want {
				t.Fatalf("status %d, want %d", api.ProblemStatus(kind), want)
			}
			w.quotaFault = &kms.Error{Kind: kind, Detail: "what it is", Err: errors.New("canary-cause")}
			a := w.raw("POST", "/v1/digest", w.acme.token, strings.NewReader(`{"algorithm":"SM3","data":""}`),
				http.Header{"Content-Type": {"application/json"}})
			if a.status != want || a.code() != kind.String() {
				t.Errorf("answer %d %s", a.status, a.body)
			}
			if int(a.fields["status"].(float64)) != want {
				t.Errorf("the body has status %v", a.fields["status"])
			}
			wantType, wantTitle := types[kind], ""
			if wantType == "" {
				wantType, wantTitle = "about:blank", http.StatusText(want)
			}
			if a.text("type") != wantType || wantTitle != "" && a.text("title") != wantTitle {
				t.Errorf("type %q, title %q", a.text("type"), a.text("title"))
			}
			if detail, given := a.fields["detail"]; kind == kms.KindInternal && given || kind != kms.KindInternal && detail != "what it is" {
				t.Errorf("detail is %v", detail)
			}
			if strings.Contains(string(a.body), "canary") {
				t.Errorf("the cause is shown: %s", a.body)
			}
			if got := a.header.Get("WWW-Authenticate"); (got == "Bearer") != (want == 401) {
				t.Errorf("WWW-Authenticate is %q", got)
			}
		})
	}
}

func TestErrorWithoutKindTellsNothing(t *testing.T) {
	w := newWorld(t)
	w.quotaFault = errors.New("canary: the database password is hunter2")
	a := w.sendBad("POST", "/v1/digest", w.acme.token, `{"algorithm":"SM3","data":""}`)
	if a.status != 500 || a.code() != "internal" || a.fields["detail"] != nil || strings.Contains(string(a.body), "canary") {
		t.Errorf("answer %d %s", a.status, a.body)
	}
}

func TestRetryAfterIsWholeSecondsRoundedUp(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct {
		after time.Duration
		want  string
	}{
		{0, ""}, {time.Nanosecond, "1"}, {time.Millisecond, "1"}, {time.Second, "1"},
		{time.Second + 1, "2"}, {90 * time.Second, "90"},
	} {
		w.quotaFault = &kms.Error{Kind: kms.KindQuotaExceeded, Detail: "too fast", RetryAfter: c.after}
		a := w.sendBad("POST", "/v1/digest", w.acme.token, `{"algorithm":"SM3","data":""}`)
		if got := a.header.Get("Retry-After"); a.status != 429 || got != c.want {
			t.Errorf("after %v: %d, Retry-After %q, want %q", c.after, a.status, got, c.want)
		}
	}
}

func TestRefusalNamesEveryGateWithItsNumbers(t *testing.T) {
	w := newWorld(t)
	w.quotaFault = &kms.Error{Kind: kms.KindQuotaExceeded, Detail: "too fast", Reasons: []kms.Reason{
		{Code: "tenant_rate", Limit: 5000, Need: 12, Have: 3, RetryIn: 1500 * time.Millisecond},
		{Code: "key_rate", Limit: 7},
	}}
	a := w.sendBad("POST", "/v1/digest", w.acme.token, `{"algorithm":"SM3","data":""}`)
	want := `"reasons":[{"code":"tenant_rate","limit":5000,"need":12,"have":3,"retry_ms":1500},{"code":"key_rate","limit":7}]`
	if !strings.Contains(string(a.body), want) {
		t.Errorf("got %s", a.body)
	}
}

func TestCostIsADecimalNumber(t *testing.T) {
	for credits, want := range map[api.Cost]string{
		0: "0", 1: "0.000001", 100_000: "0.1", 250_000: "0.25", 1_000_000: "1", 12_000_000: "12",
		12_340_000: "12.34", -1_500_000: "-1.5", 9_223_372_036_854_775_807: "9223372036854.775807",
		-9_223_372_036_854_775_808: "-9223372036854.775808",
	} {
		if got := credits.String(); got != want {
			t.Errorf("%d micro-credits are %s, want %s", int64(credits), got, want)
		}
	}
}

func TestAnswerWithoutJournalIsWithheld(t *testing.T) {
	w := newWorld(t)
	key := w.key(w.acme, kms.SpecAES256, "", "")
	w.journalFault = errors.New("disk full")
	for _, c := range []struct{ name, token, method, path, body string }{
		{"success", w.acme.token, "POST", "/v1/keys/" + key + "/encrypt", `{"plaintext":"aGVsbG8="}`},
		{"malformed", w.acme.token, "POST", "/v1/keys/" + key + "/encrypt", `{`},
		{"unauthenticated", "nonsense", "POST", "/v1/keys/" + key + "/encrypt", `{"plaintext":""}`},
		{"missing key", w.acme.token, "GET", "/v1/keys/missing", ""},
		{"state change", w.acme.token, "POST", "/v1/keys", `{"spec":"AES_256"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := w.sendBad(c.method, c.path, c.token, c.body)
			if a.status != 503 || a.code() != "audit_unavailable" || strings.Contains(string(a.body), "ciphertext") {
				t.Errorf("answer %d %s", a.status, a.body)
			}
		})
	}
	if log := w.logs.String(); !strings.Contains(log, "disk full") {
		t.Error("the log does not tell the operator why")
	}
}

func TestPanicIsAProblemWithoutItsValue(t *testing.T) {
	w := newWorld(t)
	w.panicOnAuth = true
	a := w.sendBad("POST", "/v1/random", w.acme.token, `{"bytes":16}`)
	w.panicOnAuth = false
	if a.status != 500 || a.code() != "internal" {
		t.Errorf("answer %d %s", a.status, a.body)
	}
	log := w.logs.String()
	if strings.Contains(log, "canary-in-a-panic") || strings.Contains(string(a.body), "canary") {
		t.Error("the value of the panic is shown")
	}
	if !strings.Contains(log, a.header.Get("X-Request-Id")) || !strings.Contains(log, "panic of type string") {
		t.Errorf("the log does not tell of the panic: %s", log)
	}
	entries := w.outcomes()
	last := entries[len(entries)-1]
	if last.RequestID.String() != a.header.Get("X-Request-Id") || last.Outcome != "internal" || last.Op != kms.OpRandom {
		t.Errorf("the journal has %+v", last)
	}
	w.must(200, "POST", "/v1/random", w.acme.token, `{"bytes":16}`)
}

func TestSuccessSaysWhatItCostAndRefusalsDoNot(t *testing.T) {
	w := newWorld(t)
	key := "/v1/keys/" + w.key(w.acme, kms.SpecP256, "", "")
	a := w.must(200, "POST", key+"/sign", w.acme.token, `{"message":""}`)
	if a.header.Get("Sluice-Cost") != "12" || a.header.Get("Sluice-Protection") != "HSM" || a.fields["cost"] != 12.0 ||
		a.text("protection") != "HSM" || a.text("request_id") != a.header.Get("X-Request-Id") {
		t.Errorf("headers %v, body %s", a.header, a.body)
	}
	metrics := map[string]float64{}
	for part := range strings.SplitSeq(a.header.Get("Server-Timing"), ", ") {
		name, value, _ := strings.Cut(part, ";dur=")
		ms, err := strconv.ParseFloat(value, 64)
		if err != nil {
			t.Fatal(err)
		}
		metrics[name] = ms
	}
	if metrics["hsm"] != 1 || metrics["queue"] != 0.001 || metrics["total"] <= 0 {
		t.Errorf("timing %v", metrics)
	}
	a = w.sendBad("POST", key+"/sign", w.acme.token, `{}`)
	for _, name := range []string{"Sluice-Cost", "Sluice-Protection", "Server-Timing"} {
		if a.header.Get(name) != "" {
			t.Errorf("a refusal carries %s", name)
		}
	}
}
