package api_test

import (
	"bytes"
	"testing"

	"github.com/sluice-kms/sluice/kms"
)

func TestReencryptMovesAPlaintextBetweenKeys(t *testing.T) {
	w := newWorld(t)
	w.reencryption(t)
}

func (w *world) reencryption(t *testing.T) {
	destination := "/v1/keys/" + w.key(w.acme, kms.SpecSM4, "", "")
	for name, input := range inputs() {
		t.Run("from AES_256, "+name, func(t *testing.T) {
			source := w.key(w.acme, kms.SpecAES256, "", "")
			sealed := w.post("/v1/keys/"+source+"/encrypt", map[string]any{"plaintext": encode(input), "aad": "YQ=="})
			moved := w.post(destination+"/reencrypt", map[string]any{
				"ciphertext": sealed.text("ciphertext"), "source_key": source, "aad": "YQ==", "destination_aad": "Yg=="})
			opened := w.post(destination+"/decrypt", map[string]any{"ciphertext": moved.text("ciphertext"), "aad": "Yg=="})
			if !bytes.Equal(decodeBase64(t, opened.text("plaintext")), input) {
				t.Error("what comes out is not what went in")
			}
			if moved.text("algorithm") != "SM4_GCM" || moved.fields["version"] != 1.0 || moved.fields["source_version"] != 1.0 || moved.fields["plaintext"] != nil {
				t.Errorf("answer %.300s", moved.body)
			}
		})
	}
	t.Run("AAD stays when none is given for the destination", func(t *testing.T) {
		source := w.key(w.acme, kms.SpecAES256, "", "")
		sealed := w.post("/v1/keys/"+source+"/encrypt", map[string]any{"plaintext": "b2xk", "aad": "YQ=="})
		moved := w.post(destination+"/reencrypt", map[string]any{"ciphertext": sealed.text("ciphertext"), "source_key": source, "aad": "YQ=="})
		w.post(destination+"/decrypt", map[string]any{"ciphertext": moved.text("ciphertext"), "aad": "YQ=="})
		stripped := w.post(destination+"/reencrypt", map[string]any{
			"ciphertext": sealed.text("ciphertext"), "source_key": source, "aad": "YQ==", "destination_aad": ""})
		w.post(destination+"/decrypt", map[string]any{"ciphertext": stripped.text("ciphertext")})
	})
	t.Run("to the newest version of the same key", func(t *testing.T) {
		id := w.key(w.acme, kms.SpecAES256, "", "")
		sealed := w.post("/v1/keys/"+id+"/encrypt", map[string]any{"plaintext": "b2xk"})
		w.must(200, "POST", "/v1/keys/"+id+"/rotate", w.acme.token, "")
		moved := w.post("/v1/keys/"+id+"/reencrypt", map[string]any{"ciphertext": sealed.text("ciphertext"), "source_key": id})
		if moved.fields["source_version"] != 1.0 || moved.fields["version"] != 2.0 {
			t.Errorf("answer %s", moved.body)
		}
	})
	t.Run("from SM2 in its order", func(t *testing.T) {
		source := w.key(w.acme, kms.SpecSM2, kms.UsageEncryptDecrypt, "")
		sealed := w.post("/v1/keys/"+source+"/encrypt", map[string]any{"plaintext": "b2xk", "order": "ASN1"})
		moved := w.post(destination+"/reencrypt", map[string]any{
			"ciphertext": sealed.text("ciphertext"), "source_key": source, "source_order": "ASN1", "source_algorithm": "SM2PKE", "source_version": 1})
		if a := w.post(destination+"/decrypt", map[string]any{"ciphertext": moved.text("ciphertext")}); a.text("plaintext") != "b2xk" {
			t.Errorf("opened: %s", a.body)
		}
	})
	t.Run("tampered", func(t *testing.T) {
		source := w.key(w.acme, kms.SpecAES256, "", "")
		sealed := decodeBase64(t, w.post("/v1/keys/"+source+"/encrypt", map[string]any{"plaintext": "b2xk"}).text("ciphertext"))
		sealed[len(sealed)-1] ^= 1
		a := w.send("POST", destination+"/reencrypt", w.acme.token, object(map[string]any{"ciphertext": encode(sealed), "source_key": source}))
		if a.status != 400 || a.code() != "decryption_failed" {
			t.Errorf("%d %s", a.status, a.body)
		}
	})
}

// TestReencryptTakesTheRightsOfBothKeys uses credentials that lack one half.
func TestReencryptTakesTheRightsOfBothKeys(t *testing.T) {
	w := newWorld(t)
	source, destination := w.key(w.acme, kms.SpecAES256, "", "source"), w.key(w.acme, kms.SpecAES256, "", "destination")
	sealed := w.post("/v1/keys/"+source+"/encrypt", map[string]any{"plaintext": "b2xk"}).text("ciphertext")
	body := object(map[string]any{"ciphertext": sealed, "source_key": source})
	for _, c := range []struct {
		name, scopes string
		status       int
	}{
		{"all", `"key:reencrypt:destination","key:decrypt:source","key:encrypt:destination"`, 200},
		{"no decrypt on the source", `"key:reencrypt:destination","key:decrypt:destination","key:encrypt:destination"`, 403},
		{"no encrypt on the destination", `"key:reencrypt:destination","key:decrypt:source","key:encrypt:source"`, 403},
		{"no reencrypt", `"key:decrypt:source","key:encrypt:destination"`, 403},
	} {
		token := w.must(201, "POST", "/v1/credentials", w.acme.token, `{"name":"c","scopes":[`+c.scopes+`]}`).text("credential")
		if a := w.send("POST", "/v1/keys/"+destination+"/reencrypt", token, body); a.status != c.status {
			t.Errorf("%s: %d %s, want %d", c.name, a.status, a.body, c.status)
		}
	}
}

// TestKeysNamedInABodyAreOneAsForeignAndMissing is the matrix of
// TestForeignAndMissingObjectsLookTheSame for keys that bodies name.
func TestKeysNamedInABodyAreOneAsForeignAndMissing(t *testing.T) {
	w := newWorld(t)
	w.namedInBodies(t)
}

func (w *world) namedInBodies(t *testing.T) {
	foreign := w.key(w.rival, kms.SpecAES256, "", "body/foreign")
	own := w.key(w.acme, kms.SpecAES256, "", "body/own")
	sealed := w.must(200, "POST", "/v1/keys/"+foreign+"/encrypt", w.rival.token, `{"plaintext":"b2xk"}`).text("ciphertext")
	for _, c := range []struct {
		method, path string
		fields       map[string]any
		names        string
	}{
		{"PUT", "/v1/aliases/body-alias", map[string]any{}, "key"},
		{"POST", "/v1/keys/" + own + "/reencrypt", map[string]any{"ciphertext": sealed}, "source_key"},
	} {
		var want string
		for _, ref := range []string{"018f0000-0000-7000-8000-000000000000", "body/missing", foreign, "body/foreign"} {
			c.fields[c.names] = ref
			a := w.send(c.method, c.path, w.acme.token, object(c.fields))
			_, _, text := a.anonymous()
			if want == "" {
				want = text
			}
			if a.status != 404 || text != want {
				t.Errorf("%s %s: %d %s, want %s", c.path, ref, a.status, text, want)
			}
		}
	}
}
