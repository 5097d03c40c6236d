package wycheproof

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/client"
	"github.com/sluice-kms/sluice/cmd/sluice/wire"
	"github.com/sluice-kms/sluice/cmd/sluice/wire/wiretest"
	"github.com/sluice-kms/sluice/kms"
	"github.com/sluice-kms/sluice/softhsm"
)

// rest is a whole service with SoftHSM tokens, and a client of its REST API.
type rest struct {
	*client.Client
	service *wiretest.Service
	tenant  *kms.Tenant
	wrap    *client.ImportParameters
}

// theService is started once; TestMain ends it.
var theService struct {
	sync.Once
	*rest
	err error
}

func overREST(t *testing.T) *rest {
	t.Helper()
	require(t, "softhsm", softhsm.Available())
	s := &theService
	s.Do(func() { s.rest, s.err = startREST() })
	if s.err != nil {
		t.Fatal(s.err)
	}
	return s.rest
}

func startREST() (*rest, error) {
	ctx := context.Background()
	service, err := wiretest.Open(filepath.Join(testDir, "service"))
	if err != nil {
		return nil, err
	}
	r := &rest{service: service}
	if r.tenant, err = service.App.Store.TenantByRef(ctx, wire.DemoTenant); err != nil {
		return r, err
	}
	// What older systems encrypted takes a scope of its own.
	token, err := service.App.FirstCredential(ctx, r.tenant, "wycheproof", []string{"key:*", "key:import", "key:decrypt-legacy"})
	if err != nil {
		return r, err
	}
	if r.Client, err = client.New(client.Options{Address: service.URL, Credential: client.NewToken(token)}); err != nil {
		return r, err
	}
	r.wrap, err = r.ImportParameters(ctx, client.ImportRSAAES)
	return r, err
}

// stopREST ends the service, if there is one.
func stopREST() error {
	if theService.rest == nil {
		return nil
	}
	return theService.service.Close()
}

// public makes a key of which there is nothing but the public half, so that
// signatures of others can be verified: the API imports no such key, so it is
// written as the service writes its own. Its id is what the API names it by.
func (r *rest) public(t *testing.T, spec kms.Spec, der []byte) string {
	t.Helper()
	protection := kms.ProtectionHSM
	if spec == kms.SpecEd25519 {
		protection = kms.ProtectionSealed
	}
	id := uuid.NewV7()
	err := r.service.App.Store.CreateKey(t.Context(), &kms.Key{ID: id, Tenant: r.tenant, Project: kms.DefaultProject,
		Name: "public-" + id.String(), Spec: spec, Usage: kms.UsageSignVerify, Protection: protection, State: kms.KeyEnabled,
		Created: time.Now(), Origin: kms.OriginImportedProcess, Primary: 1, Revision: 1,
		Versions: []*kms.Version{{ID: uuid.NewV7(), Number: 1, State: kms.VersionEnabled, Created: time.Now(),
			PublicKey: der, Blob: []byte("no private half")}}})
	if err != nil {
		t.Fatal(err)
	}
	return id.String()
}

// importKey brings a key of a vector into the service, as a client would.
func (r *rest) importKey(t *testing.T, spec kms.Spec, usage kms.Usage, key []byte) string {
	t.Helper()
	wrapped, err := client.WrapKey(r.wrap, key)
	if err != nil {
		t.Fatal(err)
	}
	made, err := r.ImportKey(t.Context(), client.ImportKeyInput{
		CreateKeyInput: client.CreateKeyInput{Spec: client.Spec(spec), Usage: client.Usage(usage)},
		Wrapping:       r.wrap.Wrapping, Token: r.wrap.Token, WrappedKey: wrapped})
	if err != nil {
		t.Fatal(err)
	}
	return made.ID
}

// opens holds what a decryption gave to a vector: invalid ones fail, by the one
// error there is, others give what they state.
func (c *tally) opens(v *vector, got []byte, err error, want []byte) {
	c.t.Helper()
	c.run++
	failed := errors.Is(err, client.ErrDecryptionFailed)
	if err != nil && !failed || v.valid() && failed || v.invalid() && !failed || err == nil && !bytes.Equal(got, want) {
		c.wrong(v, "opens to %x, %v", got, err)
	}
}

func TestSignaturesOverREST(t *testing.T) {
	r := overREST(t)
	for _, f := range []struct {
		file string
		spec kms.Spec
		alg  kms.Algorithm
		run  int
	}{
		{"ecdsa_secp256r1_sha256", kms.SpecP256, kms.AlgECDSASHA256, 484},
		{"rsa_signature_2048_sha256", kms.SpecRSA2048, kms.AlgRSAPKCS1SHA256, 259},
		{"rsa_pss_2048_sha256_mgf1_32", kms.SpecRSA2048, kms.AlgRSAPSSSHA256, 108},
		{"ed25519", kms.SpecEd25519, kms.AlgEd25519, 151},
	} {
		t.Run(f.file, func(t *testing.T) {
			vectors := read[signatureGroup](t, f.file)
			c := count(t, f.file)
			for _, g := range vectors.Groups {
				key := r.public(t, f.spec, g.PublicKey)
				for _, v := range g.Tests {
					c.run++
					out, err := r.Verify(t.Context(), key, client.VerifyInput{
						SignInput: client.SignInput{Message: append([]byte{}, v.Msg...), Algorithm: client.Algorithm(f.alg)},
						Signature: append([]byte{}, v.Sig...)})
					if err != nil || v.valid() && !out.Valid || v.invalid() && out.Valid {
						c.wrong(&v.vector, "%+v, %v", out, err)
					}
				}
			}
			c.want(vectors.Count, f.run)
		})
	}
}

// TestMACsOverREST: a tag that was cut is none of the product's.
func TestMACsOverREST(t *testing.T) {
	r := overREST(t)
	const file, size = "hmac_sha256", 32
	vectors := read[macGroup](t, file)
	c := count(t, file)
	for _, g := range vectors.Groups {
		for _, v := range g.Tests {
			if len(v.Key) > size {
				c.outside++
				continue
			}
			c.run++
			key := r.importKey(t, kms.SpecHMAC256, kms.UsageGenerateVerifyMAC, append(bytes.Clone(v.Key), make([]byte, size-len(v.Key))...))
			out, err := r.VerifyMAC(t.Context(), key, client.VerifyMACInput{
				MACInput: client.MACInput{Message: append([]byte{}, v.Msg...)}, MAC: v.Tag})
			if err != nil || out.Valid != (v.valid() && len(v.Tag) == size) {
				c.wrong(&v.vector, "%+v, %v", out, err)
			}
		}
	}
	c.want(vectors.Count, 168)
}

func TestOAEPOverREST(t *testing.T) {
	r := overREST(t)
	const file = "rsa_oaep_2048_sha256_mgf1sha256"
	vectors := read[oaepGroup](t, file)
	c := count(t, file)
	for _, g := range vectors.Groups {
		key := r.importKey(t, kms.SpecRSA2048, kms.UsageEncryptDecrypt, g.PrivateKey)
		for _, v := range g.Tests {
			if len(v.Label) > 0 { // the product's is empty
				c.outside++
				continue
			}
			out, err := r.Decrypt(t.Context(), key, client.DecryptInput{Ciphertext: append([]byte{}, v.CT...), Algorithm: client.Algorithm(kms.AlgRSAOAEPSHA256)})
			c.opens(&v.vector, plaintext(out), err, v.Msg)
		}
	}
	c.want(vectors.Count, 29)
}

func plaintext(out *client.DecryptOutput) []byte {
	if out == nil {
		return nil
	}
	return out.Plaintext
}

// TestCBCOverREST: what older systems encrypted. 141 of the vectors have bad
// padding, and one answer.
func TestCBCOverREST(t *testing.T) {
	r := overREST(t)
	const file = "aes_cbc_pkcs5"
	vectors := read[cbcGroup](t, file)
	c := count(t, file)
	for _, g := range vectors.Groups {
		for _, v := range g.Tests {
			key := r.importKey(t, aesSpecs[g.KeySize], kms.UsageEncryptDecrypt, v.Key)
			out, err := r.Decrypt(t.Context(), key, client.DecryptInput{Ciphertext: append([]byte{}, v.CT...), IV: v.IV, Algorithm: client.Algorithm(kms.AlgAESCBC)})
			c.opens(&v.vector, plaintext(out), err, v.Msg)
		}
	}
	c.want(vectors.Count, 216)
}

func TestKWPOverREST(t *testing.T) {
	r := overREST(t)
	const file = "aes_kwp"
	vectors := read[wrapGroup](t, file)
	c := count(t, file)
	for _, g := range vectors.Groups {
		for _, v := range g.Tests {
			key := r.importKey(t, aesSpecs[g.KeySize], kms.UsageWrapUnwrap, v.Key)
			out, err := r.Unwrap(t.Context(), key, client.UnwrapInput{Wrapped: append([]byte{}, v.CT...)})
			var got []byte
			if out != nil {
				got = out.Plaintext
			}
			c.opens(&v.vector, got, err, v.Msg)
		}
	}
	c.want(vectors.Count, 254)
}
