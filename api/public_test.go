package api_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json/v2"
	"encoding/pem"
	"math/big"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-kms/sluice/api"
	"github.com/sluice-kms/sluice/kms"
)

func TestPublicKeyHasOneValueInFourForms(t *testing.T) {
	w := newWorld(t)
	w.publicKeys(t)
}

func (w *world) publicKeys(t *testing.T) {
	for _, c := range []struct {
		spec       kms.Spec
		kty, curve string // "": no JWK
	}{
		{kms.SpecRSA2048, "RSA", ""}, {kms.SpecP256, "EC", "P-256"}, {kms.SpecP384, "EC", "P-384"}, {kms.SpecP521, "EC", "P-521"},
		{kms.SpecSecp256k1, "EC", "secp256k1"}, {kms.SpecEd25519, "OKP", "Ed25519"}, {kms.SpecSM2, "", ""},
		{kms.SpecMLKEM768, "", ""}, {kms.SpecMLDSA65, "", ""},
	} {
		t.Run(string(c.spec), func(t *testing.T) {
			id := w.key(w.acme, c.spec, "", "")
			path := "/v1/keys/" + id + "/public"
			a := w.must(200, "GET", path, w.acme.token, "")
			block, rest := pem.Decode([]byte(a.text("pem")))
			if block == nil || block.Type != "PUBLIC KEY" || len(rest) > 0 || a.text("spec") != string(c.spec) || a.fields["version"] != 1.0 {
				t.Fatalf("answer %s", a.body)
			}
			form := func(media string) *answer { return w.sendBad("GET", path, w.acme.token, "", "Accept", media) }
			if der := form("application/octet-stream"); der.status != 200 || !bytes.Equal(der.body, block.Bytes) {
				t.Errorf("DER: %d %x", der.status, der.body)
			}
			if text := form("application/x-pem-file"); text.status != 200 || string(text.body) != a.text("pem") {
				t.Errorf("PEM: %d %s", text.status, text.body)
			}
			alone := form("application/jwk+json")
			if c.kty == "" {
				if alone.status != 422 || a.fields["jwk"] != nil {
					t.Errorf("a JWK that is not registered: %d %s", alone.status, a.body)
				}
				return
			}
			var jwk, inside api.JWK
			if err := json.Unmarshal(alone.body, &jwk); err != nil || alone.header.Get("Content-Type") != "application/jwk+json" {
				t.Fatalf("JWK: %v in %s", err, alone.body)
			}
			shown, err := json.Marshal(a.fields["jwk"])
			if err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(shown, &inside); err != nil || inside != jwk {
				t.Errorf("two JWKs: %+v, %+v", inside, jwk)
			}
			if jwk.KeyType != c.kty || jwk.Curve != c.curve || jwk.Use != "sig" || jwk.KeyID != id+".1" {
				t.Errorf("JWK %+v", jwk)
			}
			if c.spec == kms.SpecSecp256k1 {
				// The standard library does not know it; the point ends the DER.
				point := slices.Concat(base64URL(t, jwk.X), base64URL(t, jwk.Y))
				if len(point) != 64 || !bytes.HasSuffix(block.Bytes, point) {
					t.Errorf("another point: %+v", jwk)
				}
				return
			}
			sameKey(t, block.Bytes, jwk)
		})
	}
}

func base64URL(t *testing.T, text string) []byte {
	t.Helper()
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// sameKey compares a JWK with what the standard library reads from the DER.
func sameKey(t *testing.T, der []byte, jwk api.JWK) {
	t.Helper()
	number := func(text string) *big.Int { return new(big.Int).SetBytes(base64URL(t, text)) }
	key, err := x509.ParsePKIXPublicKey(der)
	if err != nil {
		t.Fatal(err)
	}
	switch k := key.(type) {
	case *rsa.PublicKey:
		if number(jwk.N).Cmp(k.N) != 0 || number(jwk.E).Int64() != int64(k.E) {
			t.Errorf("another RSA key: %+v", jwk)
		}
	case *ecdsa.PublicKey:
		point, err := k.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		size := len(point) / 2
		if number(jwk.X).Cmp(new(big.Int).SetBytes(point[1:1+size])) != 0 || number(jwk.Y).Cmp(new(big.Int).SetBytes(point[1+size:])) != 0 ||
			base64.RawURLEncoding.DecodedLen(len(jwk.X)) != size {
			t.Errorf("another point: %+v", jwk)
		}
	case ed25519.PublicKey:
		if jwk.X != base64.RawURLEncoding.EncodeToString(k) {
			t.Errorf("another Ed25519 key: %+v", jwk)
		}
	default:
		t.Fatalf("a key of type %T", key)
	}
}

func TestAcceptIsWeighed(t *testing.T) {
	w := newWorld(t)
	path := "/v1/keys/" + w.key(w.acme, kms.SpecP256, "", "") + "/public"
	for accept, want := range map[string]string{
		"":                                       "application/json",
		"*/*":                                    "application/json",
		"text/html":                              "application/json",
		"application/json, application/jwk+json": "application/json",
		"application/jwk+json, application/json": "application/jwk+json",
		"application/json;q=0.5, application/x-pem-file":     "application/x-pem-file",
		"application/x-pem-file;q=0.1, */*;q=0.5":            "application/json",
		"application/x-pem-file;q=0":                         "application/json",
		"APPLICATION/OCTET-STREAM":                           "application/octet-stream",
		"application/jwk+json;q=x, application/octet-stream": "application/octet-stream",
		";;;,application/jwk+json":                           "application/jwk+json",
		strings.Repeat("text/html, ", 500) + "application/*": "application/json",
	} {
		if got := w.send("GET", path, w.acme.token, "", "Accept", accept).header.Get("Content-Type"); got != want {
			t.Errorf("%.60s: %s, want %s", accept, got, want)
		}
	}
}

func TestPublicKeyOutlivesDisablingAndNamesItsVersion(t *testing.T) {
	w := newWorld(t)
	key := "/v1/keys/" + w.key(w.acme, kms.SpecP256, "", "")
	first := w.must(200, "GET", key+"/public", w.acme.token, "").text("pem")
	w.must(200, "POST", key+"/rotate", w.acme.token, "")
	w.must(200, "POST", key+"/disable", w.acme.token, "")
	second := w.must(200, "GET", key+"/public", w.acme.token, "")
	if second.fields["version"] != 2.0 || second.text("pem") == first {
		t.Errorf("after rotation: %s", second.body)
	}
	if a := w.must(200, "GET", key+"/public?version=1", w.acme.token, ""); a.text("pem") != first || a.fields["version"] != 1.0 {
		t.Errorf("the old version: %s", a.body)
	}
	symmetric := "/v1/keys/" + w.key(w.acme, kms.SpecAES256, "", "")
	if a := w.send("GET", symmetric+"/public", w.acme.token, ""); a.status != 422 {
		t.Errorf("of a symmetric key: %d", a.status)
	}
}
