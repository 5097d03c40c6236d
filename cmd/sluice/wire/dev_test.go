package wire_test

import (
	"bytes"
	"encoding/json/v2"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"testing"

	"github.com/sluice-kms/sluice/cmd/sluice/wire"
	"github.com/sluice-kms/sluice/cmd/sluice/wire/wiretest"
	"github.com/sluice-kms/sluice/keystore/postgres/pgtest"
)

var here = netip.MustParseAddr("127.0.0.1")

// shared is the service of the tests that do not restart it.
var (
	shared    *wiretest.Service
	sharedDir string
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == wire.HSMWorkerCommand { // started by a service under test
		if err := wire.ServeHSM(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	var err error
	if sharedDir, err = os.MkdirTemp("", "sluice-wire-test-"); err != nil {
		panic(err)
	}
	code := m.Run()
	if shared != nil {
		if err := shared.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.RemoveAll(sharedDir)
	if err := pgtest.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func service(t testing.TB) *wiretest.Service {
	t.Helper()
	wiretest.Require(t)
	if shared == nil {
		s, err := wiretest.Open(sharedDir)
		if err != nil {
			t.Fatal(err)
		}
		shared = s
	}
	return shared
}

// answer is the union of the fields of answers that the tests look at.
type answer struct {
	ID         string  `json:"id"`
	Name       string  `json:"name"`
	Protection string  `json:"protection"`
	Ciphertext []byte  `json:"ciphertext"`
	Plaintext  []byte  `json:"plaintext"`
	Signature  []byte  `json:"signature"`
	MAC        []byte  `json:"mac"`
	Valid      bool    `json:"valid"`
	Version    uint32  `json:"version"`
	PEM        string  `json:"pem"`
	PublicKey  string  `json:"public_key"`
	Token      []byte  `json:"token"`
	Origin     string  `json:"origin"`
	Credential string  `json:"credential"`
	Code       string  `json:"code"`
	Detail     string  `json:"detail"`
	Cost       float64 `json:"cost"`
}

type object map[string]any

// call makes a request, with the names and values of headers, and returns its
// status and answer.
func call(t testing.TB, s *wiretest.Service, credential, method, path string, body any, header ...string) (int, answer) {
	t.Helper()
	var payload io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		payload = bytes.NewReader(raw)
	}
	req, err := http.NewRequest(method, s.URL+path, payload)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+credential)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := s.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var a answer
	if err := json.Unmarshal(raw, &a); err != nil {
		t.Fatalf("%s %s: %v in %s", method, path, err, raw)
	}
	return resp.StatusCode, a
}

// must is call for requests that succeed.
func must(t testing.TB, s *wiretest.Service, path string, body any) answer {
	t.Helper()
	status, a := call(t, s, s.Demo, http.MethodPost, path, body)
	if status/100 != 2 {
		t.Fatalf("POST %s: %d %s: %s", path, status, a.Code, a.Detail)
	}
	return a
}

func TestKeysOfEverySpecSurviveARestart(t *testing.T) {
	dir := t.TempDir()
	wiretest.Require(t)
	s, err := wiretest.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	message := []byte("kept")
	signing := []string{"ECC_NIST_P256", "ECC_NIST_P384", "ECC_NIST_P521", "ECC_SECG_P256K1", "ECC_NIST_EDWARDS25519", "RSA_2048", "SM2"}
	encrypting := []string{"AES_128", "AES_256", "SM4"}
	signatures, ciphertexts := map[string][]byte{}, map[string][]byte{}
	for _, spec := range signing {
		must(t, s, "/v1/keys", object{"name": spec, "spec": spec})
		signatures[spec] = must(t, s, "/v1/keys/"+spec+"/sign", object{"message": message}).Signature
	}
	for _, spec := range encrypting {
		must(t, s, "/v1/keys", object{"name": spec, "spec": spec})
		ciphertexts[spec] = must(t, s, "/v1/keys/"+spec+"/encrypt", object{"plaintext": message, "aad": message}).Ciphertext
	}
	must(t, s, "/v1/keys", object{"name": "mac", "spec": "HMAC_SM3"})
	mac := must(t, s, "/v1/keys/mac/mac", object{"message": message}).MAC
	demo := s.Demo
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	s = wiretest.Start(t, dir)
	if s.Demo != demo {
		t.Error("the demo credential changed")
	}
	for _, spec := range signing {
		if !must(t, s, "/v1/keys/"+spec+"/verify", object{"message": message, "signature": signatures[spec]}).Valid {
			t.Errorf("%s: the old signature is not valid", spec)
		}
		must(t, s, "/v1/keys/"+spec+"/sign", object{"message": message})
	}
	for _, spec := range encrypting {
		if got := must(t, s, "/v1/keys/"+spec+"/decrypt", object{"ciphertext": ciphertexts[spec], "aad": message}).Plaintext; !bytes.Equal(got, message) {
			t.Errorf("%s: decrypted %q", spec, got)
		}
	}
	if !must(t, s, "/v1/keys/mac/verify-mac", object{"message": message, "mac": mac}).Valid {
		t.Error("the old MAC is not valid")
	}
}

func TestFolderInUseIsRefused(t *testing.T) {
	s := service(t)
	if other, err := wiretest.Open(s.Dir); err == nil {
		other.Close()
		t.Error("two services opened one folder")
	}
}

func TestProtectionIsSaidAndNeverMixed(t *testing.T) {
	s := service(t)
	for spec, want := range map[string]string{
		"AES_256": "HSM", "RSA_2048": "HSM", "ECC_NIST_P256": "HSM", "ECC_SECG_P256K1": "HSM", "HMAC_256": "HSM",
		"SM2": "SEALED", "SM4": "SEALED", "HMAC_SM3": "SEALED", "ECC_NIST_EDWARDS25519": "SEALED",
	} {
		if got := must(t, s, "/v1/keys", object{"spec": spec}).Protection; got != want {
			t.Errorf("%s: protection %s, want %s", spec, got, want)
		}
		other := map[string]string{"HSM": "SEALED", "SEALED": "HSM"}[want]
		status, a := call(t, s, s.Demo, http.MethodPost, "/v1/keys", object{"spec": spec, "protection": other})
		if status != http.StatusUnprocessableEntity || a.Code != "invalid_argument" {
			t.Errorf("%s as %s: %d %s", spec, other, status, a.Code)
		}
	}
}
