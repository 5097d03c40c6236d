package api_test

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-kms/sluice/kms"
)

func encode(b []byte) string { return base64.StdEncoding.EncodeToString(b) }

func decodeBase64(t *testing.T, s string) []byte {
	t.Helper()
	b, err := base64.StdEncoding.Strict().DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// post is must for operations of acme.
func (w *world) post(path string, fields map[string]any) *answer {
	w.t.Helper()
	return w.must(200, "POST", path, w.acme.token, object(fields))
}

// inputs are the sizes that every operation must take.
func inputs() map[string][]byte {
	megabyte := make([]byte, 1<<20)
	rand.Read(megabyte)
	return map[string][]byte{"empty": {}, "one byte": {0}, "1 MiB": megabyte}
}

func TestEveryOperationTakesEmptyAndLargeInputs(t *testing.T) {
	w := newWorld(t)
	w.everyInput(t)
}

func (w *world) everyInput(t *testing.T) {
	for _, spec := range []kms.Spec{kms.SpecAES128, kms.SpecAES256, kms.SpecSM4} {
		key := "/v1/keys/" + w.key(w.acme, spec, "", "")
		for name, input := range inputs() {
			t.Run("encrypt "+string(spec)+" "+name, func(t *testing.T) {
				aads := [][]byte{nil, {}, []byte("aad")}
				if len(input) > 1 {
					aads = aads[2:] // once is enough for what is large
				}
				for _, aad := range aads {
					fields := map[string]any{"plaintext": encode(input)}
					if aad != nil {
						fields["aad"] = encode(aad)
					}
					sealed := w.post(key+"/encrypt", fields)
					delete(fields, "plaintext")
					fields["ciphertext"] = sealed.text("ciphertext")
					opened := w.post(key+"/decrypt", fields)
					if !bytes.Equal(decodeBase64(t, opened.text("plaintext")), input) {
						t.Error("what comes out is not what went in")
					}
					if sealed.fields["version"] != 1.0 || opened.fields["version"] != 1.0 || opened.text("protection") == "" {
						t.Errorf("version or protection is missing in %.200s", opened.body)
					}
				}
			})
		}
	}
	for _, spec := range []kms.Spec{kms.SpecP256, kms.SpecEd25519, kms.SpecSM2, kms.SpecRSA2048} {
		key := "/v1/keys/" + w.key(w.acme, spec, kms.UsageSignVerify, "")
		for name, input := range inputs() {
			t.Run("sign "+string(spec)+" "+name, func(t *testing.T) {
				signature := w.post(key+"/sign", map[string]any{"message": encode(input)}).text("signature")
				if a := w.post(key+"/verify", map[string]any{"message": encode(input), "signature": signature}); a.fields["valid"] != true || a.fields["version"] != 1.0 {
					t.Errorf("the own signature: %s", a.body)
				}
				other := append([]byte("x"), input[:min(len(input), 100)]...)
				if a := w.post(key+"/verify", map[string]any{"message": encode(other), "signature": signature}); a.fields["valid"] != false || a.fields["version"] != nil {
					t.Errorf("another message: %s", a.body)
				}
				if a := w.post(key+"/verify", map[string]any{"message": encode(input), "signature": ""}); a.fields["valid"] != false {
					t.Errorf("an empty signature: %s", a.body)
				}
			})
		}
	}
	for _, spec := range []kms.Spec{kms.SpecHMAC256, kms.SpecHMACSM3} {
		key := "/v1/keys/" + w.key(w.acme, spec, "", "")
		for name, input := range inputs() {
			t.Run("mac "+string(spec)+" "+name, func(t *testing.T) {
				mac := w.post(key+"/mac", map[string]any{"message": encode(input)}).text("mac")
				if a := w.post(key+"/verify-mac", map[string]any{"message": encode(input), "mac": mac}); a.fields["valid"] != true {
					t.Errorf("the own code: %s", a.body)
				}
				if a := w.post(key+"/verify-mac", map[string]any{"message": encode(input), "mac": ""}); a.fields["valid"] != false {
					t.Errorf("an empty code: %s", a.body)
				}
			})
		}
	}
	for _, algorithm := range []kms.Digest{kms.DigestSHA224, kms.DigestSHA256, kms.DigestSHA384, kms.DigestSHA512, kms.DigestSM3} {
		for name, input := range inputs() {
			t.Run("digest "+string(algorithm)+" "+name, func(t *testing.T) {
				a := w.post("/v1/digest", map[string]any{"algorithm": algorithm, "data": encode(input)})
				if got := len(decodeBase64(t, a.text("digest"))); got != algorithm.Size() {
					t.Errorf("%d bytes", got)
				}
			})
		}
	}
}

func TestDigestIsTheOneOfTheStandard(t *testing.T) {
	w := newWorld(t)
	// GB/T 32905-2016, A.1, and FIPS 180-4's "abc".
	for algorithm, want := range map[string]string{
		"SM3":     "66c7f0f462eeedd9d1f2d46bdc10e4e24167c4875cf2f7a2297da02b8f4ba8e0",
		"SHA_256": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
	} {
		digest := w.post("/v1/digest", map[string]any{"algorithm": algorithm, "data": "YWJj"}).text("digest")
		if got := hex.EncodeToString(decodeBase64(t, digest)); got != want {
			t.Errorf("%s of abc is %s", algorithm, got)
		}
	}
}

func TestSpecDecidesTheLengthOfADataKey(t *testing.T) {
	w := newWorld(t)
	key := "/v1/keys/" + w.key(w.acme, kms.SpecSM4, "", "")
	for spec, want := range map[string]int{"AES_128": 16, "AES_256": 32, "SM4": 16} {
		a := w.post(key+"/datakey", map[string]any{"spec": spec, "aad": "YQ=="})
		plain := decodeBase64(t, a.text("plaintext"))
		if len(plain) != want {
			t.Errorf("%s: %d bytes", spec, len(plain))
		}
		back := w.post(key+"/decrypt", map[string]any{"ciphertext": a.text("ciphertext"), "aad": "YQ=="})
		if back.text("plaintext") != a.text("plaintext") {
			t.Error("decrypt gives another data key")
		}
	}
	a := w.post(key+"/datakey/wrapped", map[string]any{"bytes": 1024})
	if a.fields["plaintext"] != nil {
		t.Errorf("a wrapped data key is shown: %s", a.body)
	}
	if got := decodeBase64(t, w.post(key+"/decrypt", map[string]any{"ciphertext": a.text("ciphertext")}).text("plaintext")); len(got) != 1024 {
		t.Errorf("%d bytes", len(got))
	}
}

// TestEveryFailureOfADecryptionIsTheSame damages a ciphertext in every way
// and compares the whole answers (GHSA-rm8v-mxj3-5rmq).
func TestEveryFailureOfADecryptionIsTheSame(t *testing.T) {
	w := newWorld(t)
	w.decryptionFailures(t)
}

func (w *world) decryptionFailures(t *testing.T) {
	id := w.key(w.acme, kms.SpecAES256, "", "")
	other := w.key(w.acme, kms.SpecAES256, "", "")
	key := "/v1/keys/" + id
	sealed := decodeBase64(t, w.post(key+"/encrypt", map[string]any{"plaintext": encode([]byte(canary)), "aad": "YQ=="}).text("ciphertext"))
	foreign := decodeBase64(t, w.post("/v1/keys/"+other+"/encrypt", map[string]any{"plaintext": "", "aad": "YQ=="}).text("ciphertext"))
	flip := func(i int) []byte {
		b := slices.Clone(sealed)
		b[i] ^= 1
		return b
	}
	cases := map[string]map[string]any{
		"nothing":      {"ciphertext": "", "aad": "YQ=="},
		"one byte":     {"ciphertext": "AA==", "aad": "YQ=="},
		"cut":          {"ciphertext": encode(sealed[:len(sealed)-1]), "aad": "YQ=="},
		"longer":       {"ciphertext": encode(append(slices.Clone(sealed), 0)), "aad": "YQ=="},
		"another key":  {"ciphertext": encode(foreign), "aad": "YQ=="},
		"another AAD":  {"ciphertext": encode(sealed), "aad": "Yg=="},
		"empty AAD":    {"ciphertext": encode(sealed), "aad": ""},
		"no AAD":       {"ciphertext": encode(sealed)},
		"header only":  {"ciphertext": encode(sealed[:37]), "aad": "YQ=="},
		"random bytes": {"ciphertext": encode(bytes.Repeat([]byte{0x5a}, 200)), "aad": "YQ=="},
	}
	for i := range sealed {
		cases["byte "+string(rune('0'+i/100))+string(rune('0'+i/10%10))+string(rune('0'+i%10))] = map[string]any{"ciphertext": encode(flip(i)), "aad": "YQ=="}
	}
	var wantHeader http.Header
	var want string
	for name, fields := range cases {
		a := w.send("POST", key+"/decrypt", w.acme.token, object(fields))
		status, header, body := a.anonymous()
		if want == "" {
			wantHeader, want = header, body
		}
		if status != 400 || a.code() != "decryption_failed" || body != want || !maps.EqualFunc(header, wantHeader, slices.Equal) {
			t.Errorf("%s: %d %v %s\nothers: %v %s", name, status, header, body, wantHeader, want)
		}
	}
	rsa := "/v1/keys/" + w.key(w.acme, kms.SpecRSA2048, kms.UsageEncryptDecrypt, "")
	sm2 := "/v1/keys/" + w.key(w.acme, kms.SpecSM2, kms.UsageEncryptDecrypt, "")
	for _, path := range []string{rsa, sm2} {
		good := decodeBase64(t, w.post(path+"/encrypt", map[string]any{"plaintext": encode([]byte(canary))}).text("ciphertext"))
		for _, bad := range [][]byte{{}, {0}, good[:len(good)-1], append(slices.Clone(good), 0), bytes.Repeat([]byte{0xff}, 256), append([]byte{good[0] ^ 1}, good[1:]...)} {
			a := w.send("POST", path+"/decrypt", w.acme.token, object(map[string]any{"ciphertext": encode(bad)}))
			if _, header, body := a.anonymous(); a.status != 400 || body != want || !maps.EqualFunc(header, wantHeader, slices.Equal) {
				t.Errorf("%s: %d %v %s", path, a.status, header, body)
			}
		}
	}
}

func TestRotatedKeyEncryptsAnewAndDecryptsTheOld(t *testing.T) {
	w := newWorld(t)
	w.rotation(t)
}

func (w *world) rotation(t *testing.T) {
	aes := "/v1/keys/" + w.key(w.acme, kms.SpecAES256, "", "")
	sm2 := "/v1/keys/" + w.key(w.acme, kms.SpecSM2, kms.UsageSignVerify, "")
	old := w.post(aes+"/encrypt", map[string]any{"plaintext": "b2xk"}).text("ciphertext")
	signature := w.post(sm2+"/sign", map[string]any{"message": "b2xk"}).text("signature")
	for _, key := range []string{aes, sm2} {
		a := w.must(200, "POST", key+"/rotate", w.acme.token, "")
		if a.fields["primary_version"] != 2.0 || len(a.fields["versions"].([]any)) != 2 {
			t.Errorf("rotated: %s", a.body)
		}
	}
	if a := w.post(aes+"/decrypt", map[string]any{"ciphertext": old}); a.text("plaintext") != "b2xk" || a.fields["version"] != 1.0 {
		t.Errorf("old ciphertext: %s", a.body)
	}
	anew := w.post(aes+"/encrypt", map[string]any{"plaintext": "bmV3"})
	if anew.fields["version"] != 2.0 {
		t.Errorf("new ciphertext: %s", anew.body)
	}
	if a := w.post(aes+"/decrypt", map[string]any{"ciphertext": anew.text("ciphertext")}); a.text("plaintext") != "bmV3" {
		t.Errorf("new ciphertext: %s", a.body)
	}
	if a := w.post(sm2+"/verify", map[string]any{"message": "b2xk", "signature": signature}); a.fields["valid"] != true || a.fields["version"] != 1.0 {
		t.Errorf("old signature: %s", a.body)
	}
	if a := w.post(sm2+"/verify", map[string]any{"message": "b2xk", "signature": signature, "version": 2}); a.fields["valid"] != false {
		t.Errorf("old signature under the new version: %s", a.body)
	}
	if a := w.post(sm2+"/sign", map[string]any{"message": "bmV3"}); a.fields["version"] != 2.0 {
		t.Errorf("new signature: %s", a.body)
	}
}

func TestKeyLivesItsLife(t *testing.T) {
	w := newWorld(t)
	w.life(t)
}

func (w *world) life(t *testing.T) {
	made := w.must(201, "POST", "/v1/keys", w.acme.token,
		`{"name":"payments/orders","spec":"AES_256","description":"für Bestellungen","tags":{"team":"支付"},"deletion_protection":true}`)
	key := "/v1/keys/" + made.text("id")
	if made.header.Get("Location") != key || made.text("usage") != "ENCRYPT_DECRYPT" || made.text("project") != "default" {
		t.Errorf("made %v %s", made.header, made.body)
	}
	byName := w.must(200, "GET", "/v1/keys/payments%2Forders", w.acme.token, "")
	if byName.text("id") != made.text("id") || byName.text("description") != "für Bestellungen" || byName.fields["tags"].(map[string]any)["team"] != "支付" {
		t.Errorf("by name: %s", byName.body)
	}
	if a := w.send("POST", "/v1/keys", w.acme.token, `{"name":"payments/orders","spec":"SM4"}`); a.status != 409 || a.code() != "conflict" {
		t.Errorf("the same name again: %d %s", a.status, a.body)
	}
	if a := w.send("DELETE", key, w.acme.token, ""); a.status != 409 {
		t.Errorf("deleting a protected key: %d", a.status)
	}
	changed := w.must(200, "PATCH", key, w.acme.token, `{"description":"","tags":{},"deletion_protection":false}`)
	if changed.fields["description"] != nil || changed.fields["tags"] != nil || changed.fields["deletion_protection"] != false || changed.fields["revision"] != 2.0 {
		t.Errorf("changed: %s", changed.body)
	}
	if a := w.send("PATCH", key, w.acme.token, `{}`); a.status != 422 {
		t.Errorf("a change of nothing: %d", a.status)
	}
	w.must(200, "POST", key+"/disable", w.acme.token, "")
	if a := w.send("POST", key+"/encrypt", w.acme.token, `{"plaintext":""}`); a.status != 409 || a.code() != "key_disabled" {
		t.Errorf("with a disabled key: %d %s", a.status, a.body)
	}
	w.must(200, "POST", key+"/enable", w.acme.token, `{}`)
	for _, days := range []string{`{"days":6}`, `{"days":31}`, `{"days":-1}`} {
		if a := w.sendBad("POST", key+"/schedule-deletion", w.acme.token, days); a.status != 422 {
			t.Errorf("%s: %d", days, a.status)
		}
	}
	pending := w.must(200, "POST", key+"/schedule-deletion", w.acme.token, `{"days":7}`)
	if pending.text("state") != "PENDING_DELETION" || pending.text("deletion_date") == "" {
		t.Errorf("pending: %s", pending.body)
	}
	if a := w.send("POST", key+"/encrypt", w.acme.token, `{"plaintext":""}`); a.status != 409 || a.code() != "pending_deletion" {
		t.Errorf("with a key pending deletion: %d %s", a.status, a.body)
	}
	if a := w.must(200, "POST", key+"/cancel-deletion", w.acme.token, ""); a.text("state") != "DISABLED" || a.fields["deletion_date"] != nil {
		t.Errorf("cancelled: %s", a.body)
	}
	if a := w.must(200, "DELETE", key, w.acme.token, ""); a.text("state") != "PENDING_DELETION" {
		t.Errorf("deleted: %s", a.body)
	}
	w.key(w.acme, kms.SpecSM4, "", "payments/second")
	seen := 0
	for token := ""; ; {
		a := w.must(200, "GET", "/v1/keys?page_size=1&page_token="+strings.ReplaceAll(token, "/", "%2F"), w.acme.token, "")
		for _, k := range a.fields["keys"].([]any) {
			if strings.HasPrefix(k.(map[string]any)["name"].(string), "payments/") {
				seen++
			}
			if k.(map[string]any)["versions"] != nil {
				t.Errorf("a list shows versions: %s", a.body)
			}
		}
		if a.fields["next_page_token"] == nil {
			break
		}
		token = a.text("next_page_token")
	}
	if seen != 2 {
		t.Errorf("the pages hold %d of the two keys", seen)
	}
}

// TestAnswersBelongToTheirRequests runs requests of two tenants at once: what
// is pooled must never be seen by another request.
func TestAnswersBelongToTheirRequests(t *testing.T) {
	w := newWorld(t)
	var clients sync.WaitGroup
	for i, of := range []tenant{w.acme, w.rival, w.acme, w.rival} {
		key := "/v1/keys/" + w.key(of, kms.SpecAES256, "", "")
		clients.Go(func() {
			for round := range 60 {
				plaintext := bytes.Repeat([]byte{byte(i*64 + round)}, 1+round*997%9000)
				sealed := w.must(200, "POST", key+"/encrypt", of.token, object(map[string]any{"plaintext": encode(plaintext)}))
				opened := w.must(200, "POST", key+"/decrypt", of.token, object(map[string]any{"ciphertext": sealed.text("ciphertext")}))
				if opened.text("plaintext") != encode(plaintext) {
					t.Errorf("client %d, round %d: another's answer", i, round)
				}
				if a := w.sendBad("POST", key+"/encrypt", of.token, `{"plaintext":"`+encode(plaintext)+`"`); a.status != 400 {
					t.Errorf("client %d, round %d: %d", i, round, a.status)
				}
			}
		})
	}
	clients.Wait()
}
