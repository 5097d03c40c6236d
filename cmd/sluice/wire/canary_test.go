package wire_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json/v2"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sluice-kms/sluice/api"
	"github.com/sluice-kms/sluice/cmd/sluice/wire"
	"github.com/sluice-kms/sluice/cmd/sluice/wire/wiretest"
)

// canary stands for whatever a client sends that nobody else may see: 32 bytes,
// so that it can be a key or a digest, too.
const canary = "cAnArY/5up3r+s3cr3t=of?thirty2%b"

// canaryIn is a body's value of a type with a canary wherever it can be.
func canaryIn(t reflect.Type) any {
	switch {
	case t == reflect.TypeFor[api.Bytes]():
		return []byte(canary)
	case t.Kind() == reflect.Pointer:
		return canaryIn(t.Elem())
	case t.Kind() == reflect.Slice:
		return []any{canaryIn(t.Elem())}
	case t.Kind() == reflect.Map:
		return map[string]any{canary: canary}
	case t.Kind() == reflect.Struct && t != reflect.TypeFor[time.Time]():
		fields := map[string]any{}
		for _, f := range reflect.VisibleFields(t) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			fields[name] = canaryIn(f.Type)
		}
		return fields
	}
	return canary
}

// forms are the spellings in which a secret could stand in a sink, of base64
// with whatever comes before it.
func forms(secret []byte) [][]byte {
	all := [][]byte{secret, []byte(hex.EncodeToString(secret)), []byte(strings.ToUpper(hex.EncodeToString(secret)))}
	if escaped := url.QueryEscape(string(secret)); escaped != string(secret) {
		all = append(all, []byte(escaped), []byte(url.PathEscape(string(secret))))
	}
	for _, encoding := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for shift := range 3 {
			text := encoding.EncodeToString(append(make([]byte, shift), secret...))
			all = append(all, []byte(text[(shift*8+5)/6:len(text)-2]))
		}
	}
	return all
}

// search looks for secrets in a sink.
func search(t *testing.T, sink string, content []byte, secrets map[string][]byte) {
	t.Helper()
	for name, secret := range secrets {
		for _, form := range forms(secret) {
			if at := bytes.Index(content, form); at >= 0 {
				t.Errorf("%s: %s stands there as %q after %q", sink, name, form, content[max(0, at-120):at])
				break
			}
		}
	}
}

// searchFiles looks in every file of a folder, and returns how many bytes that
// were.
func searchFiles(t *testing.T, dir string, match string, secrets map[string][]byte) (size int) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, match))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		size += len(content)
		search(t, filepath.Base(file), content, secrets)
	}
	return size
}

// The whole service is given a canary in every field of every route, by who may
// use it and by who may not, and is asked for every kind of secret that it
// gives out. None of them, nor a credential, comes into the log, the journal's
// segments and heads, the database with the audit trail in it, the traces or the
// metrics.
func TestNoSinkOfTheServiceHoldsASecret(t *testing.T) {
	wiretest.Require(t)
	collector, log, dir := newSpanCollector(t), &journalOfLines{}, t.TempDir()
	app, config, err := (&wire.Dev{Dir: dir, Nodes: 1, Log: slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Tracing: wire.TracingConfig{OTLPEndpoint: collector.URL + "/v1/traces", Sample: 1}}).Open(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	handler, err := app.API("test")
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(handler.Handler())
	s := &wiretest.Service{App: app, URL: server.URL,
		Operator: strings.TrimSpace(string(read(t, dir, wire.OperatorCredentialFile))), Demo: strings.TrimSpace(string(read(t, dir, wire.DemoCredentialFile)))}
	secrets := map[string][]byte{"the canary": []byte(canary)}
	v := &village{Service: s}
	_, user := v.tenant(t, "canaries")
	v.useSecrets(t, user, secrets)
	for name, token := range map[string]string{"the operator's credential": s.Operator, "the demo credential": s.Demo, "the user's credential": user} {
		secrets[name] = []byte(token[strings.LastIndexByte(token, '_')+1:])
	}
	sent := 0
	post := func(method, path, token string, body any) {
		sent++
		raw, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		req, err := http.NewRequest(method, s.URL+path, bytes.NewReader(raw))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		req.Header.Set("Content-Type", "application/json")
		resp, err := s.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	job := submitJob(t, s, user, strings.NewReader(`{"op":"encrypt","key":"user","plaintext":"`+base64.StdEncoding.EncodeToString([]byte(canary))+`"}`+"\n"+
		`{"op":"decrypt","key":"user","ciphertext":"`+base64.StdEncoding.EncodeToString(
		v.make(t, user, "/v1/keys/user/encrypt", object{"plaintext": []byte(canary)}).Ciphertext)+`"}`+"\n"))
	awaitJob(t, s, user, job, "DONE")
	stranger := strings.Replace(user, "slk_", "slk-", 1)
	for _, r := range api.Routes() {
		path := strings.NewReplacer("{key}", "user", "{tenant}", "canaries", "{version}", "1").Replace(r.Path)
		for _, segment := range strings.Split(path, "/") {
			if strings.HasPrefix(segment, "{") {
				path = strings.Replace(path, segment, "none", 1)
			}
		}
		post(r.Method, path, stranger, object{canary: canary})
		post(r.Method, path+"?"+url.Values{"page_token": {canary}, canary: {canary}}.Encode(), stranger, nil)
		if r.Request == nil {
			continue
		}
		for _, f := range reflect.VisibleFields(r.Request) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			body := object{name: canaryIn(f.Type)}
			post(r.Method, path, stranger, body)
			if holdsBytes(f.Type) { // texts, such as names, are there to be shown
				post(r.Method, path, user, body)
				post(r.Method, path, s.Operator, body)
			}
		}
	}
	// Something for the log: a key that is not cached, and whose row was changed.
	fresh := v.make(t, user, "/v1/keys", object{"name": "fresh", "spec": "AES_256"})
	db := openRaw(t, "sqlite", "file:"+config.Database.Path+"?_pragma=busy_timeout(5000)")
	if _, err := db.Exec(`UPDATE keys SET revision = revision + 1 WHERE name = 'fresh'`); err != nil {
		t.Fatal(err)
	}
	post("POST", "/v1/keys/"+fresh.ID+"/encrypt", user, object{"plaintext": []byte(canary)})
	settleTrail(t, app)
	metrics, err := app.Metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var exposed bytes.Buffer
	for _, m := range metrics {
		exposed.WriteString(m.String())
	}
	server.Close()
	if err := app.Close(); err != nil {
		t.Fatal(err)
	}
	search(t, "metrics", exposed.Bytes(), secrets)
	search(t, "log", []byte(log.String()), secrets)
	collector.mu.Lock()
	traces := collector.raw
	collector.mu.Unlock()
	search(t, "traces", traces, secrets)
	journal := searchFiles(t, config.Journal.Dir, "*", secrets)
	database := searchFiles(t, filepath.Dir(config.Database.Path), filepath.Base(config.Database.Path)+"*", secrets)
	t.Logf("%d requests, %d secrets; %d bytes of journal and heads, %d of database, %d of traces, %d of metrics, %d of log",
		sent, len(secrets), journal, database, len(traces), exposed.Len(), len(log.String()))
	if sent < 300 || len(secrets) < 9 || journal < 30_000 || database < 100_000 || len(traces) < 10_000 || exposed.Len() < 10_000 || len(log.String()) < 300 {
		t.Error("this test looks at too little")
	}
}

// settleTrail waits until the audit trail has what was recorded so far.
func settleTrail(t *testing.T, app *wire.App) {
	(&trailSite{Service: &wiretest.Service{App: app}}).settle(t)
}

// holdsBytes tells whether a field takes bytes, which nobody else may see.
func holdsBytes(t reflect.Type) bool {
	if t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice && t != reflect.TypeFor[api.Bytes]() {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return t == reflect.TypeFor[api.Bytes]()
	}
	for _, f := range reflect.VisibleFields(t) {
		if f.Type == reflect.TypeFor[api.Bytes]() {
			return true
		}
	}
	return false
}

// useSecrets uses the canary as what every operation takes, and adds what the
// service gives out that nobody else may see.
func (v *village) useSecrets(t *testing.T, user string, secrets map[string][]byte) {
	t.Helper()
	for name, spec := range map[string]object{"user": {"spec": "AES_256"}, "mac": {"spec": "HMAC_256"}, "signer": {"spec": "ECC_NIST_P256"},
		"wrapper": {"spec": "AES_256", "usage": "WRAP_UNWRAP"}, "deriver": {"spec": "HMAC_256", "usage": "DERIVE"}} {
		spec["name"] = name
		v.make(t, user, "/v1/keys", spec)
	}
	do := func(path string, body object) map[string]any {
		content, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		status, _, fields := raw(t, v.Service, user, "POST", path, string(content))
		if status/100 != 2 {
			t.Fatalf("%s: %d %v", path, status, fields["detail"])
		}
		return fields
	}
	given := func(name string, fields map[string]any, field string) {
		t.Helper()
		text, ok := fields[field].(string)
		secret, err := base64.StdEncoding.DecodeString(text)
		if !ok || err != nil || len(secret) < 16 {
			t.Fatalf("%s: no %s in %v", name, field, fields)
		}
		secrets[name] = secret
	}
	plain := object{"plaintext": []byte(canary)}
	ciphertext := do("/v1/keys/user/encrypt", plain)["ciphertext"]
	do("/v1/keys/user/decrypt", object{"ciphertext": ciphertext})
	do("/v1/keys/mac/mac", object{"message": []byte(canary)})
	do("/v1/keys/signer/sign", object{"message": []byte(canary)})
	do("/v1/digest", object{"data": []byte(canary), "algorithm": "SM3"})
	wrapped := do("/v1/keys/wrapper/wrap", plain)["wrapped"]
	do("/v1/keys/wrapper/unwrap", object{"wrapped": wrapped})
	given("a data key", do("/v1/keys/user/datakey", object{"bytes": 32}), "plaintext")
	given("random bytes", do("/v1/random", object{"bytes": 32}), "random")
	minted := v.make(t, user, "/v1/credentials", object{"name": "minted", "scopes": []string{"key:*"}})
	secrets["a minted credential"] = []byte(minted.Credential[strings.LastIndexByte(minted.Credential, '_')+1:])
	rotated := v.make(t, user, "/v1/credentials/"+minted.ID+"/rotate", object{})
	secrets["a rotated credential"] = []byte(rotated.Credential[strings.LastIndexByte(rotated.Credential, '_')+1:])
	for i, header := range []string{"Idempotency-Key", "Idempotency-Key"} { // the answer's repetition, too
		status, a := call(t, v.Service, user, "POST", "/v1/credentials", object{"name": "once", "scopes": []string{"key:*"}}, header, "the-same")
		if i == 0 && status == 201 {
			secrets["a credential minted once"] = []byte(a.Credential[strings.LastIndexByte(a.Credential, '_')+1:])
		}
	}
}
