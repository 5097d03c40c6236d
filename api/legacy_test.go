package api_test

import (
	"crypto/aes"
	"crypto/cipher"
	"testing"

	"github.com/sluice-kms/sluice/kms"
)

// TestLegacyDecryptionTakesAScopeOfItsOwn: what CBC protects can be opened by
// whoever may ask often enough, so "key:*" does not cover it.
func TestLegacyDecryptionTakesAScopeOfItsOwn(t *testing.T) {
	w := newWorld(t)
	key := w.key(w.acme, kms.SpecAES256, "", "old/data")
	body := object(map[string]any{"ciphertext": encode(make([]byte, 32)), "iv": encode(make([]byte, aes.BlockSize)), "algorithm": "AES_CBC_PKCS7"})
	before := w.nodeCalls.Load()
	if a := w.send("POST", "/v1/keys/"+key+"/decrypt", w.acme.token, body); a.status != 403 || w.nodeCalls.Load() != before {
		t.Errorf("without the scope: %d %s", a.status, a.body)
	}
	legacy := w.must(201, "POST", "/v1/credentials", w.acme.token, `{"name":"legacy","scopes":["key:decrypt","key:decrypt-legacy:old/*"]}`).text("credential")
	other := w.key(w.acme, kms.SpecAES256, "", "new/data")
	if a := w.send("POST", "/v1/keys/"+other+"/decrypt", legacy, body); a.status != 403 {
		t.Errorf("outside of its glob: %d", a.status)
	}
	// A ciphertext of the key's own material, as an older system would have it.
	var material []byte
	for _, k := range w.keys {
		if k.ID.String() == key {
			material = k.Versions[0].Blob
		}
	}
	if len(material) < 32 {
		t.Fatalf("the engine's material has %d bytes", len(material))
	}
	block, err := aes.NewCipher(material[len(material)-32:]) // it ends in the key
	if err != nil {
		t.Fatal(err)
	}
	unpadded := make([]byte, aes.BlockSize) // a padding ends in 1 to 16
	cipher.NewCBCEncrypter(block, make([]byte, aes.BlockSize)).CryptBlocks(unpadded, unpadded)
	body = object(map[string]any{"ciphertext": encode(unpadded), "iv": encode(make([]byte, aes.BlockSize)), "algorithm": "AES_CBC_PKCS7"})
	if a := w.send("POST", "/v1/keys/"+key+"/decrypt", legacy, body); a.status != 400 || a.code() != "decryption_failed" || w.nodeCalls.Load() == before {
		t.Errorf("with the scope: %d %s", a.status, a.body)
	}
	iv, padded := []byte("0123456789abcdef"), append([]byte("hello"), 11, 11, 11, 11, 11, 11, 11, 11, 11, 11, 11)
	cipher.NewCBCEncrypter(block, iv).CryptBlocks(padded, padded)
	fields := map[string]any{"ciphertext": encode(padded), "iv": encode(iv), "algorithm": "AES_CBC_PKCS7"}
	if a := w.must(200, "POST", "/v1/keys/"+key+"/decrypt", legacy, object(fields)); a.text("plaintext") != encode([]byte("hello")) || a.text("algorithm") != "AES_CBC_PKCS7" {
		t.Errorf("%s", a.body)
	}
	for _, iv := range []string{"", "AAAA", encode(make([]byte, 17))} {
		fields["iv"] = iv
		if a := w.sendBad("POST", "/v1/keys/"+key+"/decrypt", legacy, object(fields)); a.status != 422 {
			t.Errorf("IV %q: %d", iv, a.status)
		}
	}
	// Re-encryption is how old data gets out of it.
	both := w.must(201, "POST", "/v1/credentials", w.acme.token, `{"name":"both","scopes":["key:*","key:decrypt-legacy"]}`).text("credential")
	moved := w.must(200, "POST", "/v1/keys/"+other+"/reencrypt", both, object(map[string]any{
		"ciphertext": encode(padded), "source_iv": encode([]byte("0123456789abcdef")), "source_algorithm": "AES_CBC_PKCS7", "source_key": key}))
	if a := w.post("/v1/keys/"+other+"/decrypt", map[string]any{"ciphertext": moved.text("ciphertext")}); a.text("plaintext") != encode([]byte("hello")) {
		t.Errorf("moved: %s", a.body)
	}
}
