package api_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/sluice-kms/sluice/kms"
)

// importable is an import that can be carried out.
func (w *world) importable() request {
	return request{"POST", "/v1/import", w.acme.token, object(map[string]any{
		"spec": kms.SpecAES256, "wrapping": kms.ImportRSAAES, "token": w.importToken(w.acme), "wrapped_key": encode(make([]byte, 32)),
	})}
}

// importToken gets import parameters.
func (w *world) importToken(of tenant) string {
	w.t.Helper()
	return w.must(200, "POST", "/v1/import-parameters", of.token, `{"wrapping":"RSA_AES_KEY_WRAP_SHA_256"}`).text("token")
}

func TestImportedKeySaysWhereItCameFrom(t *testing.T) {
	w := newWorldOfOne(t)
	r := w.importable()
	made := w.must(201, r.method, r.path, r.token, r.body)
	if made.text("origin") != string(kms.OriginImportedProcess) || made.header.Get("Location") != "/v1/keys/"+made.text("id") {
		t.Errorf("imported: %s, %v", made.body, made.header)
	}
	w.must(200, "POST", "/v1/keys/"+made.text("id")+"/encrypt", r.token, `{"plaintext":"aGVsbG8="}`)
}

// TestBadImportReachesNoNode: what can be told from the request is told before
// the HSM is asked, and the answer repeats none of it.
func TestBadImportReachesNoNode(t *testing.T) {
	w := newWorldOfOne(t)
	token := w.importToken(w.acme)
	good := func(change func(map[string]any)) string {
		fields := map[string]any{"spec": "AES_256", "wrapping": kms.ImportRSAAES, "token": token, "wrapped_key": encode(make([]byte, 32))}
		change(fields)
		return object(fields)
	}
	// 1 MiB of what CVE-2025-61723 was about, and DER that is nested as deep
	// as it is long, as in CVE-2026-33818.
	pem := encode([]byte(strings.Repeat("-----BEGIN ", 1<<20/11)))
	nested := encode(bytes.Repeat([]byte{0x30, 0x80}, 1<<19))
	for name, body := range map[string]string{
		"no such wrapping":   good(func(f map[string]any) { f["wrapping"] = "PLAIN" }),
		"no such spec":       good(func(f map[string]any) { f["spec"] = "DES" }),
		"empty token":        good(func(f map[string]any) { f["token"] = "" }),
		"token too long":     good(func(f map[string]any) { f["token"] = encode(make([]byte, kms.MaxImportToken+1)) }),
		"empty key":          good(func(f map[string]any) { f["wrapped_key"] = "" }),
		"key too long":       good(func(f map[string]any) { f["wrapped_key"] = encode(make([]byte, kms.MaxImportKey+1)) }),
		"a megabyte of PEM":  good(func(f map[string]any) { f["wrapped_key"] = pem }),
		"a megabyte nested":  good(func(f map[string]any) { f["wrapped_key"] = nested }),
		"enveloped AES":      good(func(f map[string]any) { f["wrapping"] = kms.ImportSM2Enveloped }),
		"unfit usage":        good(func(f map[string]any) { f["usage"] = "SIGN_VERIFY" }),
		"rotation too often": good(func(f map[string]any) { f["rotation_days"] = -1 }),
	} {
		t.Run(name, func(t *testing.T) {
			before := w.nodeCalls.Load()
			a := w.sendBad("POST", "/v1/import", w.acme.token, body)
			if a.status != 422 && a.status != 413 && a.status != 400 {
				t.Errorf("%d %.200s", a.status, a.body)
			}
			if n := w.nodeCalls.Load() - before; n != 0 {
				t.Errorf("%d operations reached a node", n)
			}
		})
	}
}
