package wire_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-kms/sluice/cmd/sluice/wire/wiretest"
	"github.com/sluice-kms/sluice/kms"
	"github.com/sluice-kms/sluice/quota"
)

// hook is a receiver of events on loopback.
type hook struct {
	*httptest.Server
	got chan *http.Request // with their bodies read
}

func newHook(t testing.TB) *hook {
	h := &hook{got: make(chan *http.Request, 100)}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		h.got <- r
		w.WriteHeader(http.StatusAccepted)
	}))
	t.Cleanup(h.Close)
	return h
}

// next waits for a delivery and verifies it as its receiver would.
func (h *hook) next(t testing.TB, secret string) string {
	t.Helper()
	var r *http.Request
	select {
	case r = <-h.got:
	case <-time.After(recovery):
		t.Fatal("nothing was delivered")
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil {
		t.Fatal(err)
	}
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%s.%s", r.Header.Get("webhook-id"), r.Header.Get("webhook-timestamp"), body)
	if want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)); r.Header.Get("webhook-signature") != want {
		t.Errorf("the signature is %s, want %s", r.Header.Get("webhook-signature"), want)
	}
	return string(body)
}

func createHook(t testing.TB, s *wiretest.Service, credential, url, types string) (id, secret string) {
	t.Helper()
	status, _, made := raw(t, s, credential, "POST", "/v1/webhooks", fmt.Sprintf(`{"url":%q,"types":%s}`, url, types))
	if status != 201 {
		t.Fatalf("creating a webhook: %d %v", status, made)
	}
	return made["id"].(string), made["secret"].(string)
}

// A tenant that crosses 80 % of its day is told so once at its webhook, and the
// operators at theirs; the secret is in no file in clear.
func TestTenantThatComesToItsSoftLimitIsToldOnce(t *testing.T) {
	dir := t.TempDir()
	s := wiretest.Start(t, dir)
	document := policy(t, func(p *quota.Policy) {
		free := p.Tiers[kms.TierFree]
		free.DayCredits, free.CreditsPerSecond, free.BurstCredits = 700, 600, 600
	})
	if status, _, answer := raw(t, s, s.Operator, "PUT", "/v1/policy", `{"previous":0,"document":`+string(document)+`}`); status != 200 {
		t.Fatalf("putting a policy: %d %v", status, answer)
	}
	small := newTenant(t, s, "small", "free")
	_, _, minted := raw(t, s, s.Operator, "POST", "/v1/tenants/small/credentials", `{"name":"admin","scopes":["tenant:admin"]}`)
	admin := minted["credential"].(string)
	own, operators := newHook(t), newHook(t)
	id, secret := createHook(t, s, admin, own.URL, `["quota.day_soft_limit"]`)
	_, theirs := createHook(t, s, s.Operator, operators.URL, `[]`)
	if status, _, answer := raw(t, s, admin, "POST", "/v1/webhooks/"+id+"/test", ""); status != 200 {
		t.Fatalf("trying it: %d %v", status, answer)
	}
	if body := own.next(t, secret); !strings.Contains(body, `"webhook.test"`) {
		t.Errorf("a test is %s", body)
	}
	ten := `{"plaintext":"` + base64.StdEncoding.EncodeToString(make([]byte, 10*4096)) + `"}` // credits
	for range 62 {                                                                            // 80 % of 700 are 560; the day is not used up
		within(t, recovery, "room in the bucket", func() bool {
			status, _, _ := raw(t, s, small, "POST", "/v1/keys/k/encrypt", ten)
			return status == 200
		})
	}
	body := own.next(t, secret)
	if !strings.Contains(body, `"quota.day_soft_limit"`) || !strings.Contains(body, `"limit":"700"`) {
		t.Errorf("it is told %s", body)
	}
	if body := operators.next(t, theirs); !strings.Contains(body, `"quota.day_soft_limit"`) {
		t.Errorf("operators are told %s", body)
	}
	status, _, standings := raw(t, s, s.Operator, "GET", "/v1/quota/tenants", "")
	if list, ok := standings["tenants"].([]any); status != 200 || !ok || len(list) != 1 || list[0].(map[string]any)["near_permille"].(float64) < 800 {
		t.Errorf("operators see %d %v", status, standings)
	}
	within(t, recovery, "the note of the delivery", func() bool {
		_, _, w := raw(t, s, admin, "GET", "/v1/webhooks/"+id, "")
		return w["delivered_at"] != nil
	})
	if len(own.got) != 0 {
		t.Errorf("it is told %d times more", len(own.got))
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil {
		t.Fatal(err)
	}
	searched := 0
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		searched++
		if bytes.Contains(content, key) || bytes.Contains(content, []byte(secret[6:])) {
			t.Errorf("%s holds the secret", path)
		}
		return err
	})
	if err != nil || searched < 5 {
		t.Errorf("%d files were searched, %v", searched, err)
	}
}

func TestWebhookMayNotLeadIntoTheOperatorsNetworks(t *testing.T) {
	s := wiretest.Start(t, t.TempDir())
	for _, url := range []string{"https://10.0.0.1/", "https://169.254.169.254/", "https://192.168.1.1/", "https://[fd00:ec2::254]/", "https://no-such-host.invalid/"} {
		status, _, answer := raw(t, s, s.Operator, "POST", "/v1/webhooks", fmt.Sprintf(`{"url":%q}`, url))
		if status != 422 || answer["detail"] != "url: the host is not found, or is not a public address" {
			t.Errorf("%s: %d %v", url, status, answer)
		}
	}
}

// A tenant is told of a key that fails to decrypt, and so are the operators;
// metrics count it and name nobody.
func TestKeyThatFailsToDecryptIsTold(t *testing.T) {
	s := wiretest.Start(t, t.TempDir())
	own, operators := newHook(t), newHook(t)
	_, secret := createHook(t, s, s.Demo, own.URL, `[]`)
	_, theirs := createHook(t, s, s.Operator, operators.URL, `["key.decrypt_failures"]`)
	key := must(t, s, "/v1/keys", object{"name": "k", "spec": "AES_256"}).ID
	for range 25 {
		if status, _, answer := raw(t, s, s.Demo, "POST", "/v1/keys/k/decrypt", `{"ciphertext":"`+base64.StdEncoding.EncodeToString(make([]byte, 100))+`"}`); status != 400 && status != 422 {
			t.Fatalf("decrypting zeros: %d %v", status, answer)
		}
	}
	for name, body := range map[string]string{"its tenant": own.next(t, secret), "operators": operators.next(t, theirs)} {
		for _, want := range []string{`"type":"key.decrypt_failures"`, `"state":"begin"`, `"key":"` + key + `"`, `"failures":"25"`} {
			if !strings.Contains(body, want) {
				t.Errorf("%s are told %s, which lacks %s", name, body, want)
			}
		}
	}
	families, err := s.App.Metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		text := f.String()
		if strings.Contains(text, key) {
			t.Errorf("%s names the key: %s", f.GetName(), text)
		}
		if f.GetName() == "sluice_keys_failing" && f.Metric[0].GetGauge().GetValue() != 1 {
			t.Errorf("it is counted as %s", text)
		}
	}
}
