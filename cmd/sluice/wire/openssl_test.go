package wire_test

import (
	"bytes"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/sluice-kms/sluice/cmd/sluice/wire/wiretest"
	"github.com/sluice-kms/sluice/required"
)

// openssl runs the outside judge in a folder.
func openssl(t *testing.T, dir string, args ...string) ([]byte, error) {
	t.Helper()
	_, err := exec.LookPath("openssl")
	required.Part(t, "openssl", err)
	cmd := exec.Command("openssl", args...)
	cmd.Dir = dir
	return cmd.CombinedOutput()
}

func put(t *testing.T, dir, name string, content []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// public writes a key's public half, as the API gives it, to pub.pem.
func public(t *testing.T, s *wiretest.Service, dir, key string) {
	t.Helper()
	status, a := call(t, s, s.Demo, http.MethodGet, "/v1/keys/"+key+"/public", nil)
	if status != http.StatusOK || a.PEM == "" {
		t.Fatalf("public half: %d %s", status, a.Code)
	}
	put(t, dir, "pub.pem", []byte(a.PEM))
}

func TestSignaturesVerifyWithOpenSSL(t *testing.T) {
	s := service(t)
	dgst := func(hash string, more ...string) []string {
		return append(append([]string{"dgst", "-" + hash}, more...), "-verify", "pub.pem", "-signature", "sig", "msg")
	}
	pss := func(hash string) []string {
		return dgst(hash, "-sigopt", "rsa_padding_mode:pss", "-sigopt", "rsa_pss_saltlen:digest")
	}
	raw := []string{"pkeyutl", "-verify", "-pubin", "-inkey", "pub.pem", "-rawin", "-in", "msg", "-sigfile", "sig"}
	sm2 := func(id string) []string {
		return append(slices.Clone(raw), "-digest", "sm3", "-pkeyopt", "distid:"+id)
	}
	cases := []struct {
		spec, algorithm, userID string
		verify                  []string
	}{
		{"RSA_2048", "RSASSA_PKCS1_V1_5_SHA_256", "", dgst("sha256")},
		{"RSA_2048", "RSASSA_PKCS1_V1_5_SHA_384", "", dgst("sha384")},
		{"RSA_2048", "RSASSA_PKCS1_V1_5_SHA_512", "", dgst("sha512")},
		{"RSA_2048", "RSASSA_PSS_SHA_256", "", pss("sha256")},
		{"RSA_2048", "RSASSA_PSS_SHA_384", "", pss("sha384")},
		{"RSA_2048", "RSASSA_PSS_SHA_512", "", pss("sha512")},
		{"ECC_NIST_P256", "ECDSA_SHA_256", "", dgst("sha256")},
		{"ECC_NIST_P384", "ECDSA_SHA_384", "", dgst("sha384")},
		{"ECC_NIST_P521", "ECDSA_SHA_512", "", dgst("sha512")},
		{"ECC_SECG_P256K1", "ECDSA_SHA_256", "", dgst("sha256")},
		{"ECC_NIST_EDWARDS25519", "ED25519_SHA_512", "", raw},
		{"SM2", "SM2DSA", "", sm2("1234567812345678")},
		{"SM2", "SM2DSA", "alice@example.com", sm2("alice@example.com")},
	}
	message := []byte("judged from outside")
	for _, c := range cases {
		t.Run(c.spec+"/"+c.algorithm+"/"+c.userID, func(t *testing.T) {
			dir := t.TempDir()
			key := must(t, s, "/v1/keys", object{"spec": c.spec, "usage": "SIGN_VERIFY"}).ID
			in := object{"message": message, "algorithm": c.algorithm}
			if c.userID != "" {
				in["user_id"] = c.userID
			}
			put(t, dir, "msg", message)
			put(t, dir, "sig", must(t, s, "/v1/keys/"+key+"/sign", in).Signature)
			public(t, s, dir, key)
			if out, err := openssl(t, dir, c.verify...); err != nil {
				t.Errorf("openssl refuses the signature: %v\n%s", err, out)
			}
			put(t, dir, "msg", []byte("another message"))
			if _, err := openssl(t, dir, c.verify...); err == nil {
				t.Error("openssl accepts the signature of another message: this test judges nothing")
			}
		})
	}
}

func TestWhatOpenSSLEncryptsIsDecrypted(t *testing.T) {
	s := service(t)
	oaep := func(hash string) []string {
		return []string{"pkeyutl", "-encrypt", "-pubin", "-inkey", "pub.pem", "-in", "msg", "-out", "enc",
			"-pkeyopt", "rsa_padding_mode:oaep", "-pkeyopt", "rsa_oaep_md:" + hash, "-pkeyopt", "rsa_mgf1_md:" + hash}
	}
	cases := []struct {
		spec, algorithm, order string
		encrypt                []string
	}{
		{"RSA_2048", "RSAES_OAEP_SHA_1", "", oaep("sha1")},
		{"RSA_2048", "RSAES_OAEP_SHA_256", "", oaep("sha256")},
		{"SM2", "SM2PKE", "ASN1", []string{"pkeyutl", "-encrypt", "-pubin", "-inkey", "pub.pem", "-in", "msg", "-out", "enc"}},
	}
	message := []byte("from outside")
	for _, c := range cases {
		t.Run(c.spec+"/"+c.algorithm, func(t *testing.T) {
			dir := t.TempDir()
			key := must(t, s, "/v1/keys", object{"spec": c.spec, "usage": "ENCRYPT_DECRYPT"}).ID
			public(t, s, dir, key)
			put(t, dir, "msg", message)
			if out, err := openssl(t, dir, c.encrypt...); err != nil {
				t.Fatalf("openssl does not encrypt: %v\n%s", err, out)
			}
			ciphertext, err := os.ReadFile(filepath.Join(dir, "enc"))
			if err != nil {
				t.Fatal(err)
			}
			in := object{"ciphertext": ciphertext, "algorithm": c.algorithm}
			if c.order != "" {
				in["order"] = c.order
			}
			if got := must(t, s, "/v1/keys/"+key+"/decrypt", in).Plaintext; !bytes.Equal(got, message) {
				t.Errorf("decrypted %q", got)
			}
		})
	}
}
