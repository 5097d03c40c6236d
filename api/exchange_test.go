package api_test

import (
	"bytes"
	"crypto/ecdh"
	"crypto/mlkem"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"slices"
	"testing"

	"github.com/sluice-kms/sluice/kms"
)

// spki is the public half of a key version in DER.
func (w *world) spki(key string) []byte {
	w.t.Helper()
	block, _ := pem.Decode([]byte(w.must(200, "GET", key+"/public", w.acme.token, "").text("pem")))
	return block.Bytes
}

func TestUnwrapGivesBackWhatWasWrapped(t *testing.T) {
	w := newWorld(t)
	w.wrapping(t)
}

func (w *world) wrapping(t *testing.T) {
	for _, spec := range []kms.Spec{kms.SpecAES128, kms.SpecAES256} {
		key := "/v1/keys/" + w.key(w.acme, spec, kms.UsageWrapUnwrap, "")
		for _, size := range []int{1, 7, 8, 32, 4096} {
			plain := make([]byte, size)
			rand.Read(plain)
			wrapped := w.post(key+"/wrap", map[string]any{"plaintext": encode(plain)})
			// RFC 5649: padded to a multiple of 8, and 8 more.
			if n := len(decodeBase64(t, wrapped.text("wrapped"))); n != (size+7)/8*8+8 || wrapped.text("algorithm") != "AES_KWP" {
				t.Errorf("%s, %d bytes: %d wrapped, %s", spec, size, n, wrapped.text("algorithm"))
			}
			opened := w.post(key+"/unwrap", map[string]any{"wrapped": wrapped.text("wrapped")})
			if opened.text("plaintext") != encode(plain) || opened.fields["version"] != 1.0 {
				t.Errorf("%s, %d bytes: %.200s", spec, size, opened.body)
			}
		}
		for _, size := range []int{0, 4097} {
			if a := w.sendBad("POST", key+"/wrap", w.acme.token, object(map[string]any{"plaintext": encode(make([]byte, size))})); a.status != 422 {
				t.Errorf("%s, %d bytes: %d", spec, size, a.status)
			}
		}
		wrapped := decodeBase64(t, w.post(key+"/wrap", map[string]any{"plaintext": "b2xk"}).text("wrapped"))
		var want string
		for name, bad := range map[string][]byte{
			"nothing": {}, "one byte": {0}, "cut": wrapped[:8], "longer": append(slices.Clone(wrapped), make([]byte, 8)...),
			"flipped": append([]byte{wrapped[0] ^ 1}, wrapped[1:]...), "odd": wrapped[1:], "huge": make([]byte, 4112),
		} {
			a := w.sendBad("POST", key+"/unwrap", w.acme.token, object(map[string]any{"wrapped": encode(bad)}))
			_, _, text := a.anonymous()
			if want == "" {
				want = text
			}
			if a.status != 400 || a.code() != "decryption_failed" || text != want {
				t.Errorf("%s: %d %s", name, a.status, a.body)
			}
		}
		// What was wrapped does not name its version.
		w.must(200, "POST", key+"/rotate", w.acme.token, "")
		if a := w.send("POST", key+"/unwrap", w.acme.token, object(map[string]any{"wrapped": encode(wrapped)})); a.status != 400 {
			t.Errorf("by the new version: %d", a.status)
		}
		if a := w.post(key+"/unwrap", map[string]any{"wrapped": encode(wrapped), "version": 1}); a.text("plaintext") != "b2xk" {
			t.Errorf("by the old version: %s", a.body)
		}
	}
}

func TestSharedSecretIsTheSameOnBothSides(t *testing.T) {
	w := newWorld(t)
	w.agreement(t)
}

func (w *world) agreement(t *testing.T) {
	for _, c := range []struct {
		spec  kms.Spec
		curve ecdh.Curve // nil: the standard library does not know it
		size  int        // of the field in bytes
	}{
		{kms.SpecP256, ecdh.P256(), 32}, {kms.SpecP384, ecdh.P384(), 48}, {kms.SpecP521, ecdh.P521(), 66},
		{kms.SpecSecp256k1, nil, 32}, {kms.SpecSM2, nil, 32},
	} {
		t.Run(string(c.spec), func(t *testing.T) {
			key := "/v1/keys/" + w.key(w.acme, c.spec, kms.UsageKeyAgreement, "")
			var peer []byte
			var other string // what the other side has
			if c.curve != nil {
				private, err := c.curve.GenerateKey(rand.Reader)
				if err != nil {
					t.Fatal(err)
				}
				if peer, err = x509.MarshalPKIXPublicKey(private.PublicKey()); err != nil {
					t.Fatal(err)
				}
				parsed, err := x509.ParsePKIXPublicKey(w.spki(key))
				if err != nil {
					t.Fatal(err)
				}
				public, err := parsed.(interface {
					ECDH() (*ecdh.PublicKey, error)
				}).ECDH()
				if err != nil {
					t.Fatal(err)
				}
				secret, err := private.ECDH(public)
				if err != nil {
					t.Fatal(err)
				}
				other = encode(secret)
			} else {
				second := "/v1/keys/" + w.key(w.acme, c.spec, kms.UsageKeyAgreement, "")
				peer = w.spki(second)
				other = w.post(second+"/shared-secret", map[string]any{"public_key": encode(w.spki(key))}).text("secret")
			}
			a := w.post(key+"/shared-secret", map[string]any{"public_key": encode(peer), "version": 1})
			if a.text("secret") != other || len(decodeBase64(t, other)) != c.size || a.text("algorithm") != "ECDH" {
				t.Errorf("the sides differ: %s, %s", a.body, other)
			}
			off := slices.Clone(peer)
			off[len(off)-1] ^= 1
			for name, bad := range map[string][]byte{
				"nothing": {}, "no key": []byte(canary), "not on the curve": off, "cut": peer[:len(peer)-1], "too long": make([]byte, 513),
			} {
				a := w.send("POST", key+"/shared-secret", w.acme.token, object(map[string]any{"public_key": encode(bad)}))
				if a.status != 422 || leaks(string(a.body)) {
					t.Errorf("%s: %d %s", name, a.status, a.body)
				}
			}
		})
	}
}

func TestDerivedBytesDependOnKeyVersionContextAndNothingElse(t *testing.T) {
	w := newWorld(t)
	w.derivation(t)
}

func (w *world) derivation(t *testing.T) {
	for _, spec := range []kms.Spec{kms.SpecHMAC256, kms.SpecHMAC512, kms.SpecHMACSM3} {
		key := "/v1/keys/" + w.key(w.acme, spec, kms.UsageDerive, "")
		derive := func(fields map[string]any) string {
			t.Helper()
			fields["bytes"] = 32
			return w.post(key+"/derive", fields).text("derived")
		}
		first := derive(map[string]any{"context": encode([]byte("a"))})
		for name, c := range map[string]struct {
			got  string
			same bool
		}{
			"again":           {derive(map[string]any{"context": encode([]byte("a"))}), true},
			"another context": {derive(map[string]any{"context": encode([]byte("b"))}), false},
			"no context":      {derive(map[string]any{}), false},
		} {
			if (c.got == first) != c.same {
				t.Errorf("%s, %s: %s, first %s", spec, name, c.got, first)
			}
		}
		if derive(map[string]any{}) != derive(map[string]any{"context": ""}) {
			t.Errorf("%s: no context is not an empty one", spec)
		}
		w.must(200, "POST", key+"/rotate", w.acme.token, "")
		if derive(map[string]any{"context": encode([]byte("a"))}) == first || derive(map[string]any{"context": encode([]byte("a")), "version": 1}) != first {
			t.Errorf("%s: the version does not decide", spec)
		}
		for size, status := range map[int]int{15: 422, 16: 200, 8160: 200, 8161: 422, -1: 422, 0: 422} {
			a := w.sendBad("POST", key+"/derive", w.acme.token, object(map[string]any{"bytes": size}))
			if a.status != status || status == 200 && len(decodeBase64(t, a.text("derived"))) != size {
				t.Errorf("%s, %d bytes: %d", spec, size, a.status)
			}
		}
	}
}

func TestDecapsulationRecoversTheSecret(t *testing.T) {
	w := newWorld(t)
	w.encapsulation(t)
}

func (w *world) encapsulation(t *testing.T) {
	for _, spec := range []kms.Spec{kms.SpecMLKEM512, kms.SpecMLKEM768, kms.SpecMLKEM1024} {
		t.Run(string(spec), func(t *testing.T) {
			key := "/v1/keys/" + w.key(w.acme, spec, "", "")
			made := w.must(200, "POST", key+"/encapsulate", w.acme.token, "")
			ciphertext := decodeBase64(t, made.text("ciphertext"))
			got := w.post(key+"/decapsulate", map[string]any{"ciphertext": encode(ciphertext)})
			if got.text("secret") != made.text("secret") || len(decodeBase64(t, got.text("secret"))) != 32 {
				t.Errorf("made %s, recovered %s", made.body, got.body)
			}
			ciphertext[5] ^= 1
			if a := w.post(key+"/decapsulate", map[string]any{"ciphertext": encode(ciphertext)}); a.text("secret") == made.text("secret") {
				t.Error("a changed ciphertext gives the secret")
			}
			for name, bad := range map[string][]byte{"nothing": {}, "cut": ciphertext[1:], "longer": append(ciphertext, 0), "huge": make([]byte, 4000)} {
				a := w.sendBad("POST", key+"/decapsulate", w.acme.token, object(map[string]any{"ciphertext": encode(bad)}))
				if a.status != 400 || a.code() != "decryption_failed" {
					t.Errorf("%s: %d %s", name, a.status, a.body)
				}
			}
			w.must(200, "POST", key+"/rotate", w.acme.token, "")
			if a := w.post(key+"/decapsulate", map[string]any{"ciphertext": made.text("ciphertext"), "version": 1}); a.text("secret") != made.text("secret") {
				t.Errorf("by the old version: %s", a.body)
			}
		})
	}
	t.Run("what another implementation encapsulated", func(t *testing.T) {
		key := "/v1/keys/" + w.key(w.acme, kms.SpecMLKEM768, "", "")
		var info struct {
			Algorithm pkix.AlgorithmIdentifier
			PublicKey asn1.BitString
		}
		if _, err := asn1.Unmarshal(w.spki(key), &info); err != nil {
			t.Fatal(err)
		}
		public, err := mlkem.NewEncapsulationKey768(info.PublicKey.RightAlign())
		if err != nil {
			t.Fatal(err)
		}
		secret, ciphertext := public.Encapsulate()
		a := w.post(key+"/decapsulate", map[string]any{"ciphertext": encode(ciphertext)})
		if !bytes.Equal(decodeBase64(t, a.text("secret")), secret) {
			t.Error("another secret")
		}
	})
}

// TestOperationsFitTheUsageOfTheirKey uses every operation with a key that was
// made for something else.
func TestOperationsFitTheUsageOfTheirKey(t *testing.T) {
	w := newWorld(t)
	hmac := "/v1/keys/" + w.key(w.acme, kms.SpecHMAC256, "", "")
	before := w.nodeCalls.Load()
	for _, name := range []string{"encrypt", "decrypt", "reencrypt", "sign", "verify", "data-key", "wrap", "unwrap", "shared-secret", "derive", "encapsulate", "decapsulate", "csr"} {
		path := name
		if name == "data-key" {
			path = "datakey"
		}
		body := samples[name]
		if name == "reencrypt" {
			body = `{"ciphertext":"aGVsbG8=","source_key":"` + w.key(w.acme, kms.SpecAES256, "", "") + `"}`
			before++ // the key was made
		}
		if a := w.send("POST", hmac+"/"+path, w.acme.token, body); a.status != 422 || a.code() != "invalid_argument" {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	if n := w.nodeCalls.Load(); n != before {
		t.Errorf("%d operations reached a node", n-before)
	}
}
