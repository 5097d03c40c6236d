package api_test

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"fmt"
	"testing"
	"uuid"

	"github.com/sluice-kms/sluice/api"
	"github.com/sluice-kms/sluice/kms"
)

// importedAES imports an AES-256 key whose bytes the test knows.
func (w *world) importedAES(key []byte) string {
	w.t.Helper()
	return w.must(201, "POST", "/v1/import", w.acme.token, object(map[string]any{"spec": kms.SpecAES256,
		"wrapping": kms.ImportRSAAES, "token": w.importToken(w.acme), "wrapped_key": encode(key)})).text("id")
}

// GCM does not commit to its key: a ciphertext can be made that opens under two
// of them, to different plaintexts (CVE-2020-8897, CVE-2025-14764). Such a one
// cannot begin with the zeros that the service demands under both, and without
// them even who holds the key can make nothing that decrypts.
func TestCiphertextWithoutKeyCommitmentIsRefused(t *testing.T) {
	w := newWorldOfOne(t)
	key := bytes.Repeat([]byte{7}, 32)
	id := w.importedAES(key)
	block, err := aes.NewCipher(key)
	if err != nil {
		t.Fatal(err)
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		t.Fatal(err)
	}
	parsed := uuid.MustParse(id)
	header := append([]byte("SLC1\x01"), parsed[:]...)
	header = binary.BigEndian.AppendUint32(header, 1)
	nonce := bytes.Repeat([]byte{9}, 12)
	header = append(header, nonce...)
	aad := binary.BigEndian.AppendUint32(bytes.Clone(header), 0)
	decrypt := func(commitment []byte) *answer {
		sealed := gcm.Seal(bytes.Clone(header), nonce, append(commitment, "hello"...), aad)
		return w.send("POST", "/v1/keys/"+id+"/decrypt", w.acme.token, object(map[string]any{"ciphertext": encode(sealed)}))
	}
	if a := decrypt(make([]byte, 32)); a.status != 200 || a.text("plaintext") != encode([]byte("hello")) {
		t.Fatalf("with the commitment: %d %s: this test forges nothing", a.status, a.body)
	}
	if a := decrypt(nil); a.status != 400 || a.code() != "decryption_failed" {
		t.Errorf("without: %d %s", a.status, a.body)
	}
	for i := range 32 {
		commitment := make([]byte, 32)
		commitment[i] = 1
		if a := decrypt(commitment); a.status != 400 || a.code() != "decryption_failed" {
			t.Errorf("with byte %d changed: %d %s", i, a.status, a.body)
		}
	}
}

// A caller who chooses the nonce can make it come twice, and with that read and
// forge (CVE-2023-4680).
func TestNobodyChoosesTheNonceOfAnEncryption(t *testing.T) {
	w := newWorld(t)
	key := "/v1/keys/" + w.key(w.acme, kms.SpecAES256, "", "")
	for _, field := range []string{"iv", "nonce", "IV", "nonce_b64", "context"} {
		if a := w.sendBad("POST", key+"/encrypt", w.acme.token, `{"plaintext":"aGVsbG8=","`+field+`":"AAAAAAAAAAAAAAAA"}`); a.status/100 != 4 {
			t.Errorf("with %s: %d", field, a.status)
		}
	}
	if a := w.send("POST", key+"/encrypt", w.acme.token, `{"plaintext":"aGVsbG8=","algorithm":"AES_CBC_PKCS7"}`); a.status/100 != 4 {
		t.Errorf("by an algorithm without authentication: %d", a.status)
	}
	seen := map[string]bool{}
	for range 500 {
		sealed := decodeBase64(t, w.post(key+"/encrypt", map[string]any{"plaintext": ""}).text("ciphertext"))
		nonce := string(sealed[25:37]) // after magic, algorithm, key and version
		if seen[nonce] {
			t.Fatalf("the nonce %x came twice", nonce)
		}
		seen[nonce] = true
	}
}

// Keys that are derived shorter than they are strong can be searched for
// (CVE-2015-5464).
func TestNothingShorterThan128BitsIsDerived(t *testing.T) {
	if kms.MinDerived < 16 {
		t.Errorf("%d bytes can be derived", kms.MinDerived)
	}
	w := newWorld(t)
	key := "/v1/keys/" + w.key(w.acme, kms.SpecHMAC256, kms.UsageDerive, "")
	for n := -1; n < 16; n++ {
		if a := w.sendBad("POST", key+"/derive", w.acme.token, fmt.Sprintf(`{"context":"aGVsbG8=","bytes":%d}`, n)); a.status != 422 && a.status != 400 {
			t.Errorf("%d bytes: %d", n, a.status)
		}
	}
	w.post(key+"/derive", map[string]any{"context": "aGVsbG8=", "bytes": 16})
}

// A combination of options that nobody had thought of crashed a whole server
// (OpenBao CVE-2026-55776). Here every kind of key with every usage, protection
// and rotation is made or refused, and the next request is answered.
func TestEveryKindOfKeyIsMadeOrRefused(t *testing.T) {
	w := newWorld(t)
	usages := []kms.Usage{"", kms.UsageSignVerify, kms.UsageEncryptDecrypt, kms.UsageGenerateVerifyMAC, kms.UsageKeyAgreement,
		kms.UsageDerive, kms.UsageWrapUnwrap, kms.UsageEncapsulateDecapsulate}
	made, refused := 0, 0
	for _, info := range kms.Specs() {
		// Making these takes long; they are tried without.
		query := ""
		if info.Family == kms.FamilyRSA || info.Family == kms.FamilySLHDSA {
			query = "?dry_run=true"
		}
		for _, usage := range usages {
			for _, protection := range []kms.Protection{"", kms.ProtectionHSM, kms.ProtectionSealed} {
				for _, days := range []int{0, 90} {
					body := map[string]any{"spec": info.Spec}
					if usage != "" {
						body["usage"] = usage
					}
					if protection != "" {
						body["protection"] = protection
					}
					if days > 0 {
						body["rotation_days"] = days
					}
					switch a := w.sendBad("POST", "/v1/keys"+query, w.acme.token, object(body)); a.status / 100 {
					case 2:
						made++
					case 4:
						refused++
					default:
						t.Errorf("%s: %d %s", object(body), a.status, a.body)
					}
				}
			}
		}
	}
	if made < 100 || refused < 100 {
		t.Errorf("%d were made, %d refused: the matrix is not one", made, refused)
	}
	w.must(200, "GET", "/v1/keys", w.acme.token, "")
}

// What the service does on its own account are operations, too, with rights of
// their own; from outside nobody can ask for one (GHSA-rh46-vc3j-w2w3).
func TestNoRouteLeadsToWhatTheServiceDoesItself(t *testing.T) {
	w := newWorld(t)
	key := "/v1/keys/" + w.key(w.acme, kms.SpecAES256, "", "")
	own := 0
	for _, op := range kms.Ops() {
		if op.Family != "keeper" {
			continue
		}
		own++
		for _, r := range api.Routes() {
			if r.Op == op.Op {
				t.Errorf("%s %s is %s", r.Method, r.Path, op.Op)
			}
		}
		// A scope can name it, and is good for nothing.
		token := w.must(201, "POST", "/v1/credentials", w.acme.token,
			object(map[string]any{"name": "c", "scopes": []string{"keeper:" + string(op.Op)}})).text("credential")
		for method, path := range map[string]string{"GET": key, "POST": key + "/rotate", "DELETE": key} {
			if a := w.send(method, path, token, ""); a.status != 403 {
				t.Errorf("%s %s for who may %s: %d", method, path, op.Op, a.status)
			}
		}
	}
	if own == 0 {
		t.Error("found no such operation: the search is broken")
	}
}

// reservedNames are names that look like, or are, the one of the operators'
// tenant, or that software has taken for the root of everything
// (CVE-2026-55775, CVE-2024-9180, CVE-2025-5999, CVE-2025-64761).
var reservedNames = []string{"system", "System", "SYSTEM", "system ", " system", "ｓystem", "ſystem", "system\u200b", "root", "Root", "admin",
	"default", "..", ".", "", "/", "system/", "/system", "a/../system", "sys\u0000tem", "*", "%73ystem"}

// A tenant of such a name is refused, or is a tenant like any other.
func TestReservedNamesGiveNoPower(t *testing.T) {
	w := newWorld(t)
	before := w.must(200, "GET", "/v1/tenants/system", w.operator, "").text("id")
	apart := 0
	for _, name := range reservedNames {
		made := w.sendBad("POST", "/v1/tenants", w.operator, object(map[string]any{"name": name}))
		if made.status/100 == 4 {
			continue
		}
		if made.status != 201 || made.text("name") != name || made.text("id") == before {
			t.Errorf("%q: %d %s", name, made.status, made.body)
			continue
		}
		apart++
		minted := w.must(201, "POST", "/v1/tenants/"+made.text("id")+"/credentials", w.operator, `{"name":"c","scopes":["key:*","tenant:admin"]}`)
		token := minted.text("credential")
		for _, path := range []string{"/v1/tenants", "/v1/approvals", "/v1/hsm"} {
			if a := w.raw("GET", path, token, nil, nil); a.status != 403 && a.status != 404 {
				t.Errorf("%q: %s gives %d", name, path, a.status)
			}
		}
		if a := w.send("GET", "/v1/keys", token, ""); a.status != 200 || len(a.fields["keys"].([]any)) > 0 {
			t.Errorf("%q: a new tenant sees %d %s", name, a.status, a.body)
		}
	}
	if apart == 0 || apart == len(reservedNames) {
		t.Errorf("%d of %d names were accepted", apart, len(reservedNames))
	}
	if after := w.must(200, "GET", "/v1/tenants/system", w.operator, "").text("id"); after != before {
		t.Error("the operators' tenant is another one")
	}
}

// A login that failed and gave out a credential all the same was OpenBao's
// CVE-2026-46405. A minting that is refused shows no credential, and none is
// there.
func TestRefusedMintingShowsAndLeavesNothing(t *testing.T) {
	w := newWorld(t)
	count := func() int {
		return len(w.must(200, "GET", "/v1/credentials?page_size=1000", w.acme.token, "").fields["credentials"].([]any))
	}
	limited := w.must(201, "POST", "/v1/credentials", w.acme.token, `{"name":"limited","scopes":["key:*"]}`).text("credential")
	before := count()
	for name, c := range map[string]struct {
		token, body string
		fault       func()
	}{
		"without the right": {limited, `{"name":"c","scopes":["key:*"]}`, func() {}},
		"more than held":    {w.acme.token, `{"name":"c","scopes":["operator:admin"]}`, func() {}},
		"unknown scope":     {w.acme.token, `{"name":"c","scopes":["everything"]}`, func() {}},
		"over quota":        {w.acme.token, `{"name":"c","scopes":["key:*"]}`, func() { w.quotaFault = kms.Errorf(kms.KindQuotaExceeded, "too fast") }},
		"without a journal": {w.acme.token, `{"name":"c","scopes":["key:*"]}`, func() { w.journalFault = kms.Errorf(kms.KindInternal, "full") }},
	} {
		t.Run(name, func(t *testing.T) {
			c.fault()
			a := w.sendBad("POST", "/v1/credentials", c.token, c.body)
			w.quotaFault, w.journalFault = nil, nil
			if a.status < 400 || bytes.Contains(a.body, []byte("slk_")) {
				t.Errorf("%d %s", a.status, a.body)
			}
			if n := count(); n != before {
				t.Errorf("%d credentials, before %d", n, before)
			}
		})
	}
}
