package api_test

import (
	"fmt"
	"hash/crc32"
	"strings"
	"testing"

	"github.com/sluice-kms/sluice/api"
	"github.com/sluice-kms/sluice/kms"
)

// TestChecksumIsTheCastagnoliOne holds ours against the check value of
// CRC-32/ISCSI (RFC 3720, B.4: "123456789" is not among its examples, but 32
// bytes of zeros are: aa 36 91 8a, least significant byte first).
func TestChecksumIsTheCastagnoliOne(t *testing.T) {
	w := newWorld(t)
	key := "/v1/keys/" + w.key(w.acme, kms.SpecAES256, "", "")
	zeros := encode(make([]byte, 32))
	if a := w.sendBad("POST", key+"/encrypt", w.acme.token, fmt.Sprintf(`{"plaintext":"%s","plaintext_crc32c":%d}`, zeros, 0x8a9136aa)); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

func castagnoli(b []byte) float64 {
	return float64(crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
}

// TestGivenChecksumsAreVerifiedBeforeAnythingIsDone goes through every field
// of every request that has one: the right sum is confirmed, a wrong one is
// refused, names the field, and reaches no node.
func TestGivenChecksumsAreVerifiedBeforeAnythingIsDone(t *testing.T) {
	w := newWorld(t)
	aes := "/v1/keys/" + w.key(w.acme, kms.SpecAES256, "", "")
	p256 := "/v1/keys/" + w.key(w.acme, kms.SpecP256, "", "")
	hmac := "/v1/keys/" + w.key(w.acme, kms.SpecHMAC256, "", "")
	hello, aad, digest := []byte("hello"), []byte("aad"), make([]byte, 32)
	sealed := w.post(aes+"/encrypt", map[string]any{"plaintext": encode(hello), "aad": encode(aad)}).text("ciphertext")
	signature := w.post(p256+"/sign", map[string]any{"message": encode(hello)}).text("signature")
	code := w.post(hmac+"/mac", map[string]any{"message": encode(hello)}).text("mac")
	wrapper := "/v1/keys/" + w.key(w.acme, kms.SpecAES256, kms.UsageWrapUnwrap, "")
	wrapped := w.post(wrapper+"/wrap", map[string]any{"plaintext": encode(hello)}).text("wrapped")
	kem := "/v1/keys/" + w.key(w.acme, kms.SpecMLKEM768, "", "")
	encapsulated := w.post(kem+"/encapsulate", map[string]any{}).text("ciphertext")
	source := strings.TrimPrefix(aes, "/v1/keys/")
	tried := map[string]bool{}
	for _, c := range []struct {
		path   string
		fields map[string]any
		sums   []string // the fields of which a sum can be given
		shown  []string // the fields of the answer of which one is given
	}{
		{aes + "/encrypt", map[string]any{"plaintext": encode(hello), "aad": encode(aad)}, []string{"plaintext", "aad"}, []string{"ciphertext"}},
		{aes + "/encrypt", map[string]any{"plaintext": ""}, []string{"plaintext", "aad"}, []string{"ciphertext"}},
		{aes + "/decrypt", map[string]any{"ciphertext": sealed, "aad": encode(aad)}, []string{"ciphertext", "aad"}, []string{"plaintext"}},
		{aes + "/reencrypt", map[string]any{"ciphertext": sealed, "source_key": source, "aad": encode(aad), "destination_aad": encode(hello)},
			[]string{"ciphertext", "aad", "destination_aad"}, []string{"ciphertext"}},
		{p256 + "/sign", map[string]any{"message": encode(hello)}, []string{"message"}, []string{"signature"}},
		{p256 + "/sign", map[string]any{"digest": encode(digest)}, []string{"digest"}, []string{"signature"}},
		{p256 + "/verify", map[string]any{"message": encode(hello), "signature": signature}, []string{"message", "signature"}, nil},
		{p256 + "/verify", map[string]any{"digest": encode(digest), "signature": signature}, []string{"digest", "signature"}, nil},
		{hmac + "/mac", map[string]any{"message": encode(hello)}, []string{"message"}, []string{"mac"}},
		{hmac + "/verify-mac", map[string]any{"message": encode(hello), "mac": code}, []string{"message", "mac"}, nil},
		{aes + "/datakey", map[string]any{"bytes": 32, "aad": encode(aad)}, []string{"aad"}, []string{"plaintext", "ciphertext"}},
		{wrapper + "/wrap", map[string]any{"plaintext": encode(hello)}, []string{"plaintext"}, []string{"wrapped"}},
		{wrapper + "/unwrap", map[string]any{"wrapped": wrapped}, []string{"wrapped"}, []string{"plaintext"}},
		{kem + "/encapsulate", map[string]any{}, nil, []string{"ciphertext"}},
		{kem + "/decapsulate", map[string]any{"ciphertext": encapsulated}, []string{"ciphertext"}, nil},
		{aes + "/datakey/wrapped", map[string]any{"bytes": 32, "aad": encode(aad)}, []string{"aad"}, []string{"ciphertext"}},
	} {
		route, _ := matchRoute("POST", c.path)
		plain := w.post(c.path, c.fields)
		for name := range plain.fields {
			if strings.HasPrefix(name, "verified_") {
				t.Errorf("%s: %s without a sum", c.path, name)
			}
		}
		for _, field := range c.sums {
			tried[route.Name+" "+field] = true
			bytes := []byte{}
			if text, given := c.fields[field].(string); given {
				bytes = decodeBase64(t, text)
			}
			name := field + "_crc32c"
			c.fields[name] = castagnoli(bytes)
			a := w.post(c.path, c.fields)
			if a.fields["verified_"+name] != true {
				t.Errorf("%s with the right %s: %s", c.path, name, a.body)
			}
			before := w.nodeCalls.Load()
			c.fields[name] = castagnoli(append(bytes, 0))
			a = w.send("POST", c.path, w.acme.token, object(c.fields))
			if a.status != 400 || a.code() != "malformed" || !strings.Contains(a.text("detail"), name+": does not match "+field) || w.nodeCalls.Load() != before {
				t.Errorf("%s with a wrong %s: %d %s", c.path, name, a.status, a.body)
			}
			delete(c.fields, name)
		}
		for _, field := range c.shown {
			if got := plain.fields[field+"_crc32c"]; got != castagnoli(decodeBase64(t, plain.text(field))) {
				t.Errorf("%s: %s_crc32c is %v in %s", c.path, field, got, plain.body)
			}
		}
	}
	for _, r := range api.Routes() {
		if r.Request == nil {
			continue
		}
		for name := range w.document.Components.Schemas[r.Request.Name()].Value.Properties {
			if field, is := strings.CutSuffix(name, "_crc32c"); is && !tried[r.Name+" "+field] {
				t.Errorf("%s of %s was not tried", name, r.Name)
			}
		}
	}
}
