package api_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/sluice-kms/sluice/api"
	"github.com/sluice-kms/sluice/kms"
)

// canary is a plaintext that no error may show.
const canary = "canary7f3a"

// leaks tells whether text shows the canary, as it is or as base64.
func leaks(text string) bool {
	return strings.Contains(text, canary) || strings.Contains(text, base64.StdEncoding.EncodeToString([]byte(canary))[:12])
}

// TestBadInputIsNamedNotRepeatedAndCostsNoHSM is the matrix of requests that
// are refused before they reach an HSM (OpenBao CVE-2025-6203, -59043,
// CVE-2025-4166, CVE-2025-52893).
func TestBadInputIsNamedNotRepeatedAndCostsNoHSM(t *testing.T) {
	w := newWorld(t)
	w.badInput(t)
	if leaks(w.logs.String()) {
		t.Error("the log shows the input")
	}
}

// nodeOperations counts the operations that have reached a node so far.
func (w *world) nodeOperations() float64 {
	w.t.Helper()
	sum := 0.0
	for _, n := range w.must(200, "GET", "/v1/hsm/nodes", w.operator, "").fields["nodes"].([]any) {
		sum += n.(map[string]any)["operations"].(float64)
	}
	return sum
}

func (w *world) badInput(t *testing.T) {
	aes := "/v1/keys/" + w.key(w.acme, kms.SpecAES256, "", "") + "/encrypt"
	plaintext := base64.StdEncoding.EncodeToString([]byte(canary))
	many := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `,"k%d":"%s"`, i, canary)
		}
		return b.String()[1:]
	}
	for _, c := range []struct {
		name, path, body string
		status           int
		code             string
		detail           string // what must stand in it
	}{
		{"empty", aes, " ", 400, "malformed", "must be a JSON object of plaintext, aad, algorithm, version, order"},
		{"not JSON", aes, canary, 400, "malformed", "byte 0"},
		{"array", aes, `["` + canary + `"]`, 400, "malformed", "must be a JSON object"},
		{"string", aes, `"` + canary + `"`, 400, "malformed", "must be a JSON object"},
		{"null", aes, `null`, 400, "malformed", "null at byte 0"},
		{"cut short", aes, `{"plaintext":"` + plaintext, 400, "malformed", "ends at byte"},
		{"two values", aes, `{"plaintext":""}{"plaintext":"` + canary + `"}`, 400, "malformed", "not one JSON value"},
		{"text after it", aes, `{"plaintext":""} ` + canary, 400, "malformed", "byte 17"},
		{"unknown field", aes, `{"plaintext":"","` + canary + `":1}`, 400, "malformed", "unknown field at byte 16; known are plaintext"},
		{"field in another case", aes, `{"Plaintext":"` + plaintext + `"}`, 400, "malformed", "unknown field"},
		{"tenant in the body", aes, `{"plaintext":"","tenant":"` + canary + `"}`, 400, "malformed", "unknown field"},
		{"repeated field", aes, `{"plaintext":"","plaintext":"` + plaintext + `"}`, 400, "malformed", "repeats the name"},
		{"repeated field in escapes", aes, `{"plaintext":"","pl\u0061intext":"` + plaintext + `"}`, 400, "malformed", "repeats the name"},
		{"field is null", aes, `{"plaintext":null}`, 400, "malformed", "/plaintext is null at byte 13"},
		{"optional field is null", aes, `{"plaintext":"","aad":null}`, 400, "malformed", "/aad is null"},
		{"number for bytes", aes, `{"plaintext":1234567890}`, 400, "malformed", "/plaintext at byte 13 must be a string of base64"},
		{"not base64", aes, `{"plaintext":"` + canary + `!"}`, 400, "malformed", "/plaintext at byte 13 must be a string of base64"},
		{"base64url", aes, `{"plaintext":"_-8="}`, 400, "malformed", "base64"},
		{"base64 without padding", aes, `{"plaintext":"aGVsbG8"}`, 400, "malformed", "base64"},
		{"base64 with bits left over", aes, `{"plaintext":"aGVsbG9="}`, 400, "malformed", "base64"},
		{"base64 with a line break", aes, `{"plaintext":"aGVs\nbG8="}`, 400, "malformed", "base64"},
		{"base64 with spaces", aes, `{"plaintext":" aGVsbG8= "}`, 400, "malformed", "base64"},
		{"string for a number", aes, `{"plaintext":"","version":"` + canary + `"}`, 400, "malformed", "/version at byte 26 must be a whole number"},
		{"fraction", aes, `{"plaintext":"","version":1.5}`, 400, "malformed", "/version"},
		{"exponent", aes, `{"plaintext":"","version":1e3}`, 400, "malformed", "/version"},
		{"negative", aes, `{"plaintext":"","version":-1}`, 400, "malformed", "not negative"},
		{"beyond 32 bits", aes, `{"plaintext":"","version":4294967296}`, 400, "malformed", "/version"},
		{"beyond everything", aes, `{"plaintext":"","version":1` + strings.Repeat("0", 400) + `}`, 400, "malformed", "/version"},
		{"invalid UTF-8", aes, "{\"plaintext\":\"\",\"algorithm\":\"" + canary + "\xff\"}", 400, "malformed", "UTF-8"},
		{"lone surrogate", aes, `{"plaintext":"","algorithm":"\ud800"}`, 400, "malformed", "UTF-8"},
		{"control character", aes, "{\"plaintext\":\"\",\"algorithm\":\"\x01\"}", 400, "malformed", "byte"},
		{"byte order mark", aes, "\ufeff{\"plaintext\":\"\"}", 400, "malformed", "byte 0"},
		{"comment", aes, `{"plaintext":""/*` + canary + `*/}`, 400, "malformed", "byte 15"},
		{"trailing comma", aes, `{"plaintext":"",}`, 400, "malformed", "byte 15"},
		{"nested 100,000 deep", aes, `{"plaintext":` + strings.Repeat("[", 100_000) + `}`, 400, "malformed", "deeper than 4"},
		{"50,000 members", aes, `{` + many(50_000) + `}`, 400, "malformed", "more than 1024"},
		{"missing field", aes, `{"aad":"` + plaintext + `"}`, 422, "invalid_argument", "plaintext: is missing"},
		{"unknown algorithm", aes, `{"plaintext":"","algorithm":"` + canary + `"}`, 422, "invalid_argument", "algorithm:"},
		{"version for a symmetric key", aes, `{"plaintext":"` + plaintext + `","version":1}`, 422, "invalid_argument", "version:"},
		{"array in an array of strings", "/v1/credentials", `{"name":"x","scopes":["key:*",["` + canary + `"]]}`, 400, "malformed", "/scopes/1 at byte"},
		{"number in tags", "/v1/keys", `{"spec":"SM4","tags":{"` + canary + `":1}}`, 400, "malformed", "/tags at byte"},
		{"repeated tag", "/v1/keys", `{"spec":"SM4","tags":{"` + canary + `":"1","` + canary + `":"2"}}`, 400, "malformed", "repeats the name"},
		{"unknown spec", "/v1/keys", `{"spec":"` + canary + `"}`, 422, "invalid_argument", "spec:"},
		{"malformed name", "/v1/keys", `{"spec":"SM4","name":"../` + canary + `"}`, 422, "invalid_argument", "name:"},
		{"name like a UUID", "/v1/keys", `{"spec":"SM4","name":"11111111-1111-1111-1111-111111111111"}`, 422, "invalid_argument", "name:"},
		{"not a time", "/v1/credentials", `{"name":"x","scopes":["key:*"],"expires_at":"` + canary + `"}`, 400, "malformed", "/expires_at at byte 44 must be a string of an RFC 3339 time"},
		{"not a network", "/v1/credentials", `{"name":"x","scopes":["key:*"],"networks":["192.0.2.0/24","` + canary + `"]}`, 422, "invalid_argument", "networks[1]"},
		{"network with host bits", "/v1/credentials", `{"name":"x","scopes":["key:*"],"networks":["192.0.2.1/24"]}`, 422, "invalid_argument", "networks[0]"},
		{"unknown scope", "/v1/credentials", `{"name":"x","scopes":["` + canary + `"]}`, 422, "invalid_argument", "scopes[0]"},
		{"datakey with both", strings.Replace(aes, "encrypt", "datakey", 1), `{"bytes":32,"spec":"AES_256"}`, 422, "invalid_argument", "either bytes or spec"},
		{"datakey with neither", strings.Replace(aes, "encrypt", "datakey", 1), `{}`, 422, "invalid_argument", "either bytes or spec"},
		{"datakey of RSA", strings.Replace(aes, "encrypt", "datakey", 1), `{"spec":"RSA_2048"}`, 422, "invalid_argument", "spec:"},
		{"datakey too short", strings.Replace(aes, "encrypt", "datakey", 1), `{"bytes":15}`, 422, "invalid_argument", "bytes:"},
		{"sign without message", strings.Replace(aes, "encrypt", "sign", 1), `{}`, 422, "invalid_argument", ""},
		{"wrap of nothing", strings.Replace(aes, "encrypt", "wrap", 1), `{}`, 422, "invalid_argument", "plaintext: is missing"},
		{"reencrypt without a source", strings.Replace(aes, "encrypt", "reencrypt", 1), `{"ciphertext":""}`, 422, "invalid_argument", "source_key: is missing"},
		{"reencrypt from a name of a number", strings.Replace(aes, "encrypt", "reencrypt", 1), `{"ciphertext":"","source_key":1}`, 400, "malformed", "/source_key at byte"},
		{"derive without a length", strings.Replace(aes, "encrypt", "derive", 1), `{"context":"` + plaintext + `"}`, 422, "invalid_argument", "bytes: is missing"},
		{"derive a length of text", strings.Replace(aes, "encrypt", "derive", 1), `{"bytes":"` + canary + `"}`, 400, "malformed", "/bytes at byte 9 must be a whole number"},
		{"shared secret with nobody", strings.Replace(aes, "encrypt", "shared-secret", 1), `{}`, 422, "invalid_argument", "public_key: is missing"},
		{"checksum of text", aes, `{"plaintext":"","plaintext_crc32c":"` + canary + `"}`, 400, "malformed", "/plaintext_crc32c at byte"},
		{"checksum beyond 32 bits", aes, `{"plaintext":"","plaintext_crc32c":4294967296}`, 400, "malformed", "/plaintext_crc32c at byte"},
		{"wrong checksum", aes, `{"plaintext":"` + plaintext + `","plaintext_crc32c":1}`, 400, "malformed", "plaintext_crc32c: does not match"},
		{"IV for an envelope", strings.Replace(aes, "encrypt", "decrypt", 1), `{"ciphertext":"","iv":"` + plaintext + `"}`, 422, "invalid_argument", "iv:"},
		{"CBC to encrypt", aes, `{"plaintext":"` + plaintext + `","algorithm":"AES_CBC_PKCS7"}`, 422, "invalid_argument", "old data only"},
		{"rotation in words", "/v1/keys", `{"spec":"SM4","rotation_days":"` + canary + `"}`, 400, "malformed", "/rotation_days at byte"},
		{"rotation too seldom", "/v1/keys", `{"spec":"SM4","rotation_days":3651}`, 422, "invalid_argument", "rotation_days: must be 0 for none, or 1 to 3650"},
		{"window in words", strings.Replace(aes, "encrypt", "versions/1/schedule-destruction", 1), `{"days":"` + canary + `"}`, 400, "malformed", "/days at byte"},
		{"unknown attribute of a subject", strings.Replace(aes, "encrypt", "csr", 1), `{"subject":{"` + canary + `":""}}`, 400, "malformed", "unknown field"},
		{"no random bytes", "/v1/random", `{"bytes":0}`, 422, "invalid_argument", "bytes:"},
		{"bytes missing", "/v1/random", `{}`, 422, "invalid_argument", "bytes: is missing"},
		{"field where none is taken", strings.Replace(aes, "encrypt", "rotate", 1), `{"` + canary + `":1}`, 400, "malformed", "unknown field"},
		{"unknown digest", "/v1/digest", `{"algorithm":"` + canary + `","data":""}`, 422, "invalid_argument", "algorithm:"},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := w.nodeOperations()
			if w.memory != nil {
				w.outcomes()
			}
			a := w.sendBad("POST", c.path, w.acme.token, c.body)
			if a.status != c.status || a.code() != c.code {
				t.Errorf("%d %s, want %d %s", a.status, a.body, c.status, c.code)
			}
			if !strings.Contains(a.text("detail"), c.detail) {
				t.Errorf("detail %q does not say %q", a.text("detail"), c.detail)
			}
			if leaks(string(a.body)) {
				t.Errorf("the input is repeated: %s", a.body)
			}
			if w.memory != nil {
				if e := w.outcomes(); len(e) != 1 || e[0].Outcome != c.code || e[0].RequestID.String() != a.text("request_id") {
					t.Errorf("the journal has %+v", e)
				}
			}
			if got := w.nodeOperations() - before; got != 0 {
				t.Errorf("%v operations reached an HSM", got)
			}
		})
	}
}

func TestEmptyAbsentAndEscapedFields(t *testing.T) {
	w := newWorld(t)
	p256 := "/v1/keys/" + w.key(w.acme, kms.SpecP256, "", "") + "/sign"
	rsa := "/v1/keys/" + w.key(w.acme, kms.SpecSM2, kms.UsageEncryptDecrypt, "") + "/encrypt"
	for _, c := range []struct {
		name, path, body string
		status           int
	}{
		{"empty message is a message", p256, `{"message":""}`, 200},
		{"absent message is none", p256, `{}`, 422},
		{"empty message beside a digest", p256, `{"message":"","digest":"` + strings.Repeat("AAAA", 10) + `AAA="}`, 422},
		{"empty digest is one of the wrong length", p256, `{"digest":""}`, 422},
		{"slash escaped as some encoders do", p256, `{"message":"\/\/\/\/"}`, 200},
		{"base64 in escapes", p256, `{"message":"\u0061GVsbG8="}`, 200},
		{"name in escapes", p256, `{"\u006dessage":"aGVsbG8="}`, 200},
		{"white space around", p256, " \t\r\n{ \"message\" : \"\" } \n", 200},
		{"empty AAD is an AAD", rsa, `{"plaintext":"aGVsbG8=","aad":""}`, 422},
		{"absent AAD is none", rsa, `{"plaintext":"aGVsbG8="}`, 200},
	} {
		t.Run(c.name, func(t *testing.T) {
			if a := w.send("POST", c.path, w.acme.token, c.body); a.status != c.status {
				t.Errorf("%d, want %d: %s", a.status, c.status, a.body)
			}
		})
	}
}

func TestBodyMustBeDeclaredAsWhatItIs(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct {
		name   string
		header []string
		status int
	}{
		{"JSON", nil, 200},
		{"JSON with its charset", []string{"Content-Type", "", "Content-Type", "application/json; charset=UTF-8"}, 200},
		{"no type", []string{"Content-Type", ""}, 415},
		{"text", []string{"Content-Type", "", "Content-Type", "text/plain"}, 415},
		{"form", []string{"Content-Type", "", "Content-Type", "application/x-www-form-urlencoded"}, 415},
		{"another charset", []string{"Content-Type", "", "Content-Type", "application/json; charset=utf-16"}, 415},
		{"unknown parameter", []string{"Content-Type", "", "Content-Type", "application/json; version=1"}, 415},
		{"two types", []string{"Content-Type", "text/plain"}, 415},
		{"two in one", []string{"Content-Type", "", "Content-Type", "application/json, text/plain"}, 415},
		{"suffix", []string{"Content-Type", "", "Content-Type", "application/problem+json"}, 415},
		{"identity coding", []string{"Content-Encoding", "identity"}, 200},
		{"gzip", []string{"Content-Encoding", "gzip"}, 415},
		{"identity, then gzip", []string{"Content-Encoding", "identity", "Content-Encoding", "gzip"}, 415},
	} {
		t.Run(c.name, func(t *testing.T) {
			if a := w.sendBad("POST", "/v1/random", w.acme.token, `{"bytes":16}`, c.header...); a.status != c.status {
				t.Errorf("%d, want %d: %s", a.status, c.status, a.body)
			}
		})
	}
}

// endless is a body without a length, which makes the client send chunks.
func endless(n int) io.Reader {
	return io.MultiReader(strings.NewReader(`{"algorithm":"SM3","data":"`), io.LimitReader(letters{}, int64(n)), strings.NewReader(`"}`))
}

type letters struct{}

func (letters) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'A'
	}
	return len(p), nil
}

func TestBodyLimitHoldsWithAndWithoutLength(t *testing.T) {
	const limit = 8 << 10
	w := newWorld(t, func(c *api.Config) { c.MaxBody = limit })
	overhead := len(`{"algorithm":"SM3","data":""}`)
	header := http.Header{"Content-Type": {"application/json"}}
	for _, c := range []struct {
		name   string
		data   int // characters of base64
		status int
	}{
		{"just below", (limit - overhead) / 4 * 4, 200},
		{"above", limit, 413},
		{"far above", 64 << 20, 413},
	} {
		for _, chunked := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, chunked %v", c.name, chunked), func(t *testing.T) {
				request, err := http.NewRequest("POST", w.url+"/v1/digest", endless(c.data))
				if err != nil {
					t.Fatal(err)
				}
				request.Header = header.Clone()
				request.Header.Set("Authorization", "Bearer "+w.acme.token)
				if !chunked {
					request.ContentLength = int64(c.data + overhead)
				}
				response, err := w.client.Do(request)
				if c.status == 413 && err != nil && errors.Is(err, io.ErrClosedPipe) {
					return // the server hung up while the client was still sending
				}
				if err != nil {
					// A reset while the body is on its way is a refusal as well,
					// but only of a body that is too large.
					if c.status != 413 {
						t.Fatal(err)
					}
					return
				}
				defer response.Body.Close()
				if response.StatusCode != c.status {
					t.Errorf("%d, want %d", response.StatusCode, c.status)
				}
				if c.status == 413 && !response.Close {
					t.Error("the connection is kept")
				}
			})
		}
	}
}

func TestBodyWhereNoneIsTakenIsRefused(t *testing.T) {
	w := newWorld(t)
	key := "/v1/keys/" + w.key(w.acme, kms.SpecAES256, "", "")
	header := http.Header{"Content-Type": {"application/json"}}
	for _, c := range []struct{ method, path string }{{"GET", key}, {"DELETE", key}, {"GET", "/v1/keys"}, {"GET", "/openapi.json"}} {
		for _, body := range []io.Reader{strings.NewReader(`{"days":7}`), io.MultiReader(strings.NewReader(`{"days":7}`))} {
			if a := w.raw(c.method, c.path, w.acme.token, body, header); a.status != 400 || a.code() != "malformed" {
				t.Errorf("%s %s with a body: %d %s", c.method, c.path, a.status, a.body)
			}
		}
	}
}

func TestQueryTakesKnownParametersOnceAndInRange(t *testing.T) {
	w := newWorld(t)
	key := "/v1/keys/" + w.key(w.acme, kms.SpecP256, "", "")
	for _, c := range []struct {
		path   string
		status int
		detail string
	}{
		{"/v1/keys?page_size=1", 200, ""},
		{"/v1/keys?page_size=1000", 200, ""},
		{"/v1/keys?page_size=1001", 400, "1 to 1000"},
		{"/v1/keys?page_size=0", 400, "page_size"},
		{"/v1/keys?page_size=-1", 400, "page_size"},
		{"/v1/keys?page_size=+1", 400, "page_size"},
		{"/v1/keys?page_size=1e3", 400, "page_size"},
		{"/v1/keys?page_size=", 400, "page_size"},
		{"/v1/keys?page_size=99999999999999999999", 400, "page_size"},
		{"/v1/keys?page_size=1&page_size=2", 400, "more than once"},
		{"/v1/keys?" + canary + "=1", 400, "known are project, page_size, page_token"},
		{"/v1/keys?tenant=" + canary, 400, "unknown parameter"},
		{"/v1/keys?Page_Size=1", 400, "unknown parameter"},
		{"/v1/keys?page_size=1;project=x", 400, "not well-formed"},
		{"/v1/keys?page_size=%zz", 400, "not well-formed"},
		{"/v1/keys?project=default", 200, ""},
		{key + "?x=1", 400, "takes no parameters"},
		{key + "/public?version=1", 200, ""},
		{key + "/public?version=2", 422, "no such version"},
		{key + "/public?version=0", 400, "version"},
		{key + "/public?version=4294967296", 400, "version"},
		{"/openapi.json?x=1", 400, "takes no parameters"},
		{"/v1/keys?access_token=" + canary, 400, "unknown parameter"},
	} {
		a := w.sendBad("GET", c.path, w.acme.token, "")
		if a.status != c.status {
			t.Errorf("%s: %d, want %d", c.path, a.status, c.status)
		}
		if c.status != 200 && !strings.Contains(a.text("detail"), c.detail) || leaks(string(a.body)) {
			t.Errorf("%s: %s", c.path, a.body)
		}
	}
}

// TestHostileStructureCostsNoMemory refuses bodies of brackets and of members
// at the price of reading them (OpenBao CVE-2025-12044).
func TestHostileStructureCostsNoMemory(t *testing.T) {
	w := newWorld(t)
	key := w.key(w.acme, kms.SpecAES256, "", "")
	for _, c := range []struct{ name, body string }{
		{"brackets", strings.Repeat("[", 1<<20)},
		{"objects", strings.Repeat(`{"a":`, 1<<18)},
		{"members", `{"tags":{` + strings.Repeat(`"a":"",`, 1<<17) + `"":""}}`},
		{"elements", `[` + strings.Repeat(`0,`, 1<<19) + `0]`},
	} {
		request := func() {
			r := httptest.NewRequest("POST", "/v1/keys/"+key+"/encrypt", strings.NewReader(c.body))
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Authorization", "Bearer "+w.acme.token)
			recorder := httptest.NewRecorder()
			w.handler.ServeHTTP(recorder, r)
			if recorder.Code != 400 {
				t.Fatalf("%s: %d %s", c.name, recorder.Code, recorder.Body)
			}
		}
		request() // the buffer for the body is pooled from here on
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		const rounds = 8
		for range rounds {
			request()
		}
		runtime.ReadMemStats(&after)
		// A pool may lose its buffer to a collection now and then.
		if spent := (after.TotalAlloc - before.TotalAlloc) / rounds; spent > uint64(len(c.body))+1<<20 {
			t.Errorf("%s: a body of %d bytes costs %d bytes of memory", c.name, len(c.body), spent)
		}
	}
}

// FuzzRequestBody sends bodies to every route that takes one, with a
// credential that may do nothing, so that what decodes ends in 403 or 404.
func FuzzRequestBody(f *testing.F) {
	w := newWorld(f)
	powerless := w.must(201, "POST", "/v1/credentials", w.acme.token, `{"name":"powerless","scopes":["usage:read"]}`).text("credential")
	var bodies []api.Route
	for _, r := range api.Routes() {
		if r.Request != nil {
			bodies = append(bodies, r)
		}
	}
	for i := range bodies {
		f.Add(uint8(i), []byte(`{}`))
		f.Add(uint8(i), []byte(`{"plaintext":"`+canary+`"}`))
	}
	objects := strings.NewReplacer("{key}", "missing", "{tenant}", "acme", "{credential}", "11111111-1111-4111-8111-111111111111", "{version}", "1", "{alias}", "an-alias", "{approval}", "11111111-1111-4111-8111-111111111111", "{node}", "node-1", "{policy}", "1", "{webhook}", "11111111-1111-4111-8111-111111111111", "{secret}", "11111111-1111-4111-8111-111111111111", "{route}", "missing", "{job}", "11111111-1111-4111-8111-111111111111")
	f.Fuzz(func(t *testing.T, route uint8, body []byte) {
		r := bodies[int(route)%len(bodies)]
		request := httptest.NewRequest(r.Method, objects.Replace(r.Path), bytes.NewReader(body))
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Authorization", "Bearer "+powerless)
		recorder := httptest.NewRecorder()
		w.handler.ServeHTTP(recorder, request)
		answer := recorder.Body.String()
		switch recorder.Code {
		case 400, 413, 422:
			if strings.Contains(answer, canary) {
				t.Errorf("the input is repeated: %s", answer)
			}
		case 403, 404: // it was decoded
			if len(body) == 0 || r.Vault != nil { // Vault's clients may send more
				break
			}
			var fields map[string]any
			if err := json.Unmarshal(body, &fields); err != nil {
				t.Errorf("%q was accepted: %v", body, err)
			}
			for name, value := range fields {
				if value == nil || !strings.Contains(schemaNames(w, &r), " "+name+" ") {
					t.Errorf("%q was accepted with the field %q", body, name)
				}
			}
		default:
			t.Errorf("%q: %d %s", body, recorder.Code, answer)
		}
	})
}

// schemaNames lists the fields of a route's request.
func schemaNames(w *world, r *api.Route) string {
	list := " "
	for name := range w.document.Components.Schemas[r.Request.Name()].Value.Properties {
		list += name + " "
	}
	return list
}
