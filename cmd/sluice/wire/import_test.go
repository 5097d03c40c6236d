package wire_test

import (
	"bytes"
	"crypto/rand"
	"encoding/asn1"
	"encoding/binary"
	"encoding/hex"
	"encoding/pem"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-kms/sluice/cmd/sluice/wire"
	"github.com/sluice-kms/sluice/cmd/sluice/wire/wiretest"
	"github.com/sluice-kms/sluice/kms"
)

// judge runs OpenSSL, which must succeed.
func judge(t *testing.T, dir string, args ...string) {
	t.Helper()
	if out, err := openssl(t, dir, args...); err != nil {
		t.Fatalf("openssl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func read(t *testing.T, dir, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// wrapWithOpenSSL wraps the file key for parameters as an operator would who
// has nothing but OpenSSL.
func wrapWithOpenSSL(t *testing.T, dir, wrapping, publicPEM string) []byte {
	t.Helper()
	put(t, dir, "wrapping.pem", []byte(publicPEM))
	if wrapping == "SM2PKE" {
		judge(t, dir, "pkeyutl", "-encrypt", "-pubin", "-inkey", "wrapping.pem", "-in", "key", "-out", "wrapped.der")
		// OpenSSL's ciphertext is ASN.1; the parameters ask for C1C3C2.
		return c1c3c2(t, read(t, dir, "wrapped.der"))
	}
	ephemeral := make([]byte, 32)
	rand.Read(ephemeral)
	put(t, dir, "ephemeral", ephemeral)
	judge(t, dir, "pkeyutl", "-encrypt", "-pubin", "-inkey", "wrapping.pem", "-in", "ephemeral", "-out", "first",
		"-pkeyopt", "rsa_padding_mode:oaep", "-pkeyopt", "rsa_oaep_md:sha256", "-pkeyopt", "rsa_mgf1_md:sha256")
	judge(t, dir, "enc", "-id-aes256-wrap-pad", "-K", hex.EncodeToString(ephemeral), "-iv", "A65959A6", "-in", "key", "-out", "second")
	return append(read(t, dir, "first"), read(t, dir, "second")...)
}

// c1c3c2 turns a ciphertext in the ASN.1 of GM/T 0009 into the bytes of GB/T
// 32918.4.
func c1c3c2(t *testing.T, der []byte) []byte {
	t.Helper()
	var c struct {
		X, Y       *big.Int
		Hash, Text []byte
	}
	if rest, err := asn1.Unmarshal(der, &c); err != nil || len(rest) > 0 {
		t.Fatal("not a ciphertext", err)
	}
	out := make([]byte, 65, 65+len(c.Hash)+len(c.Text))
	out[0] = 4 // an uncompressed point
	c.X.FillBytes(out[1:33])
	c.Y.FillBytes(out[33:])
	return append(append(out, c.Hash...), c.Text...)
}

func TestKeysThatOpenSSLMadeAreImportedAndUsed(t *testing.T) {
	s := service(t)
	const rsaWrap, sm2Wrap = "RSA_AES_KEY_WRAP_SHA_256", "SM2PKE"
	pkey := func(args ...string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			judge(t, dir, append([]string{"genpkey", "-out", "own.pem"}, args...)...)
			judge(t, dir, "pkcs8", "-topk8", "-nocrypt", "-in", "own.pem", "-outform", "DER", "-out", "key")
			judge(t, dir, "pkey", "-in", "own.pem", "-pubout", "-out", "pub.pem")
		}
	}
	random := func(n int) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			key := make([]byte, n)
			rand.Read(key)
			put(t, dir, "key", key)
		}
	}
	signs := func(verify ...string) func(t *testing.T, dir, key string) {
		return func(t *testing.T, dir, key string) {
			put(t, dir, "msg", []byte("judged from outside"))
			put(t, dir, "sig", must(t, s, "/v1/keys/"+key+"/sign", object{"message": []byte("judged from outside")}).Signature)
			judge(t, dir, verify...)
		}
	}
	decrypts := func(t *testing.T, dir, key string) {
		put(t, dir, "msg", []byte("judged from outside"))
		judge(t, dir, "pkeyutl", "-encrypt", "-pubin", "-inkey", "pub.pem", "-in", "msg", "-out", "sealed",
			"-pkeyopt", "rsa_padding_mode:oaep", "-pkeyopt", "rsa_oaep_md:sha256", "-pkeyopt", "rsa_mgf1_md:sha256")
		got := must(t, s, "/v1/keys/"+key+"/decrypt", object{"ciphertext": read(t, dir, "sealed"), "algorithm": "RSAES_OAEP_SHA_256"})
		if string(got.Plaintext) != "judged from outside" {
			t.Errorf("what OpenSSL encrypted decrypts to %q", got.Plaintext)
		}
	}
	authenticates := func(t *testing.T, dir, key string) {
		put(t, dir, "msg", []byte("judged from outside"))
		judge(t, dir, "dgst", "-sha256", "-mac", "HMAC", "-macopt", "hexkey:"+hex.EncodeToString(read(t, dir, "key")), "-binary", "-out", "mac", "msg")
		if got := must(t, s, "/v1/keys/"+key+"/mac", object{"message": []byte("judged from outside")}); string(got.MAC) != string(read(t, dir, "mac")) {
			t.Error("the MAC is not OpenSSL's")
		}
	}
	roundTrip := func(t *testing.T, dir, key string) {
		sealed := must(t, s, "/v1/keys/"+key+"/encrypt", object{"plaintext": []byte("x")}).Ciphertext
		if got := must(t, s, "/v1/keys/"+key+"/decrypt", object{"ciphertext": sealed}); string(got.Plaintext) != "x" {
			t.Errorf("decrypts to %q", got.Plaintext)
		}
	}
	dgst := []string{"dgst", "-sha256", "-verify", "pub.pem", "-signature", "sig", "msg"}
	sm2 := []string{"pkeyutl", "-verify", "-pubin", "-inkey", "pub.pem", "-rawin", "-in", "msg", "-sigfile", "sig",
		"-digest", "sm3", "-pkeyopt", "distid:1234567812345678"}
	ec := func(curve string) func(*testing.T, string) {
		return pkey("-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:"+curve)
	}
	for _, c := range []struct {
		spec, usage, protection, wrapping string
		make                              func(*testing.T, string)
		use                               func(t *testing.T, dir, key string)
	}{
		{"RSA_2048", "ENCRYPT_DECRYPT", "HSM", rsaWrap, pkey("-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"), decrypts},
		{"RSA_2048", "SIGN_VERIFY", "HSM", rsaWrap, pkey("-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"),
			signs("dgst", "-sha256", "-sigopt", "rsa_padding_mode:pss", "-sigopt", "rsa_pss_saltlen:digest", "-verify", "pub.pem", "-signature", "sig", "msg")},
		{"ECC_NIST_P256", "SIGN_VERIFY", "HSM", rsaWrap, ec("P-256"), signs(dgst...)},
		{"ECC_NIST_P256", "SIGN_VERIFY", "HSM", sm2Wrap, ec("P-256"), signs(dgst...)},
		{"SM2", "SIGN_VERIFY", "SEALED", rsaWrap, ec("SM2"), signs(sm2...)},
		{"SM2", "SIGN_VERIFY", "SEALED", sm2Wrap, ec("SM2"), signs(sm2...)},
		{"AES_256", "ENCRYPT_DECRYPT", "HSM", rsaWrap, random(32), roundTrip},
		{"SM4", "ENCRYPT_DECRYPT", "SEALED", sm2Wrap, random(16), roundTrip},
		{"HMAC_256", "GENERATE_VERIFY_MAC", "HSM", rsaWrap, random(32), authenticates},
	} {
		t.Run(c.spec+"/"+c.usage+"/"+c.wrapping, func(t *testing.T) {
			dir := t.TempDir()
			c.make(t, dir)
			p := must(t, s, "/v1/import-parameters", object{"wrapping": c.wrapping})
			made := must(t, s, "/v1/import", object{"spec": c.spec, "usage": c.usage, "wrapping": c.wrapping, "token": p.Token,
				"wrapped_key": wrapWithOpenSSL(t, dir, c.wrapping, p.PublicKey)})
			if made.Protection != c.protection || made.Origin != "IMPORTED_VIA_PROCESS" {
				t.Errorf("protection %s, want %s; origin %s", made.Protection, c.protection, made.Origin)
			}
			c.use(t, dir, made.ID)
			// What follows is generated, and the service's own.
			must(t, s, "/v1/keys/"+made.ID+"/rotate", object{})
		})
	}
}

// Whatever is wrong with an import, the answer is one; only an expired token
// is told, which its holder can see from its date anyway.
func TestEveryBadImportHasOneAnswer(t *testing.T) {
	s := service(t)
	dir := t.TempDir()
	const wrapping = "RSA_AES_KEY_WRAP_SHA_256"
	key := make([]byte, 32)
	rand.Read(key)
	put(t, dir, "key", key)
	p := must(t, s, "/v1/import-parameters", object{"wrapping": wrapping})
	wrapped := wrapWithOpenSSL(t, dir, wrapping, p.PublicKey)
	other := must(t, s, "/v1/import-parameters", object{"wrapping": wrapping})
	foreign := foreignParameters(t, s, wrapping)
	good := object{"spec": "AES_256", "wrapping": wrapping, "token": p.Token, "wrapped_key": wrapped}
	flipped := func(b []byte, i int) []byte {
		c := append([]byte(nil), b...)
		c[i] ^= 1
		return c
	}
	status, first := call(t, s, s.Demo, http.MethodPost, "/v1/import", object{"spec": "AES_256", "wrapping": wrapping, "token": []byte("x"), "wrapped_key": wrapped})
	if status != http.StatusUnprocessableEntity && status != http.StatusBadRequest {
		t.Fatalf("a token that is none: %d %s", status, first.Detail)
	}
	for name, change := range map[string]object{
		"another token of the tenant's": {"token": other.Token},
		"another tenant's token":        {"token": foreign},
		"a token that was altered":      {"token": flipped(p.Token, len(p.Token)-1)},
		"a token for another wrapping":  {"wrapping": "SM2PKE"},
		"another spec of that length":   {"spec": "ECC_NIST_P256"},
		"another length":                {"spec": "AES_128"},
		"the wrapped AES key altered":   {"wrapped_key": flipped(wrapped, 10)},
		"the wrapped key altered":       {"wrapped_key": flipped(wrapped, len(wrapped)-1)},
		"the wrapped key cut":           {"wrapped_key": wrapped[:len(wrapped)-8]},
		"the first part only":           {"wrapped_key": wrapped[:384]},
	} {
		t.Run(name, func(t *testing.T) {
			body := object{}
			for k, v := range good {
				body[k] = v
			}
			for k, v := range change {
				body[k] = v
			}
			got, a := call(t, s, s.Demo, http.MethodPost, "/v1/import", body)
			if got != status || a.Code != first.Code || a.Detail != first.Detail {
				t.Errorf("%d %s %q, want %d %s %q", got, a.Code, a.Detail, status, first.Code, first.Detail)
			}
		})
	}
	must(t, s, "/v1/import", good) // the same is good unaltered
}

// foreignParameters gets a token of another tenant's.
func foreignParameters(t *testing.T, s *wiretest.Service, wrapping string) []byte {
	t.Helper()
	operator := *s
	operator.Demo = s.Operator
	must(t, &operator, "/v1/tenants", object{"name": "importer", "tier": "platinum"})
	operator.Demo = must(t, &operator, "/v1/tenants/importer/credentials", object{"name": "c", "scopes": []string{"key:import"}}).Credential
	return must(t, &operator, "/v1/import-parameters", object{"wrapping": wrapping}).Token
}

// importTokenUntil makes the parameters that the service would have made at
// another time: a public key in PEM, and the token that is good until a date.
func importTokenUntil(t *testing.T, s *wiretest.Service, wrapping string, expires time.Time) (publicKey string, token []byte) {
	t.Helper()
	ctx := t.Context()
	tenant, err := s.App.Store.TenantByRef(ctx, wire.DemoTenant)
	if err != nil {
		t.Fatal(err)
	}
	nodes, err := s.App.Device.ImportNodes()
	if err != nil {
		t.Fatal(err)
	}
	public, private, err := s.App.Device.NewImportKey(ctx, nodes[0], kms.ImportWrapping(wrapping))
	if err != nil {
		t.Fatal(err)
	}
	header := binary.BigEndian.AppendUint64(nil, uint64(expires.Unix()))
	token, err = s.App.Device.Seal(ctx, tenant.Sealing, "import/"+wrapping, 1, append(header, private...))
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})), token
}

// An expired token makes no key. Its answer has the status and the code of
// every bad import, and it is one, however good or bad the rest of the import
// is: who holds an old token learns nothing of what he sends with it.
func TestExpiredImportTokenIsRefusedWithOneAnswer(t *testing.T) {
	s := service(t)
	dir := t.TempDir()
	const wrapping = "RSA_AES_KEY_WRAP_SHA_256"
	key := make([]byte, 32)
	rand.Read(key)
	put(t, dir, "key", key)
	status, invalid := call(t, s, s.Demo, http.MethodPost, "/v1/import",
		object{"spec": "AES_256", "wrapping": wrapping, "token": []byte("x"), "wrapped_key": []byte("x")})

	var first answer
	for _, ago := range []time.Duration{time.Second, time.Hour, 400 * 24 * time.Hour} {
		public, token := importTokenUntil(t, s, wrapping, time.Now().Add(-ago))
		wrapped := wrapWithOpenSSL(t, dir, wrapping, public)
		altered := bytes.Clone(wrapped)
		altered[len(altered)-1] ^= 1
		for name, body := range map[string]object{
			"a good key":     {"spec": "AES_256", "wrapped_key": wrapped},
			"another spec":   {"spec": "AES_128", "wrapped_key": wrapped},
			"an altered key": {"spec": "AES_256", "wrapped_key": altered},
			"no key":         {"spec": "AES_256", "wrapped_key": []byte("x")},
		} {
			body["name"], body["wrapping"], body["token"] = "expired", wrapping, token
			got, a := call(t, s, s.Demo, http.MethodPost, "/v1/import", body)
			if first.Code == "" {
				first = a
			}
			if got != status || a.Code != invalid.Code || a.Detail != first.Detail {
				t.Errorf("expired %v ago, with %s: %d %s %q, want %d %s %q", ago, name, got, a.Code, a.Detail, status, invalid.Code, first.Detail)
			}
		}
	}
	if got, a := call(t, s, s.Demo, http.MethodGet, "/v1/keys/expired", nil); got != http.StatusNotFound {
		t.Errorf("a key was made: %d %s", got, a.ID)
	}

	// The same that is good for a minute more is taken: only its date was wrong.
	public, token := importTokenUntil(t, s, wrapping, time.Now().Add(time.Minute))
	must(t, s, "/v1/import", object{"spec": "AES_256", "wrapping": wrapping, "token": token,
		"wrapped_key": wrapWithOpenSSL(t, dir, wrapping, public)})
}
