package hsmtest

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

// firstUse returns a call that k, loaded under the handle, should serve.
func firstUse(k *key, h hsm.Handle) hsm.Call {
	return use(k, h, k.spec.Info().Algorithms(k.usage)[0])
}

// use returns a call with an algorithm that k, loaded under the handle, should
// serve, but for decryption and unwrapping, whose input is a ciphertext.
func use(k *key, h hsm.Handle, alg kms.Algorithm) hsm.Call {
	call := hsm.Call{Algorithm: alg, Spec: k.spec, Handle: h, Input: []byte("a message"), UserID: userIDFor(alg)}
	switch k.usage {
	case kms.UsageSignVerify:
		call.Verb, call.PublicKey = kms.VerbSign, k.public
	case kms.UsageGenerateVerifyMAC:
		call.Verb = kms.VerbMAC
	case kms.UsageKeyAgreement:
		call.Verb, call.Input, call.Peer = kms.VerbAgree, nil, k.public
	case kms.UsageDerive:
		call.Verb, call.Length = kms.VerbDerive, 32
	case kms.UsageWrapUnwrap:
		call.Verb = kms.VerbWrap
	case kms.UsageEncapsulateDecapsulate:
		call.Verb, call.Input = kms.VerbDecapsulate, make([]byte, kemCiphertext[k.spec])
	case kms.UsageEncryptDecrypt:
		if k.spec.Info().Symmetric() {
			call.Verb, call.Nonce = kms.VerbEncrypt, make([]byte, nonceSizeOf(alg))
		} else {
			call.Verb, call.Input = kms.VerbDecrypt, make([]byte, k.spec.Info().Bits/8)
		}
	}
	return call
}

// nonceSizeOf returns the length of the nonce in bytes, 0 when there is none.
func nonceSizeOf(alg kms.Algorithm) int {
	switch {
	case isCBC(alg):
		return ivSize
	case alg == kms.AlgAESGCM, alg == kms.AlgSM4GCM:
		return nonceSize
	}
	return 0
}

// testMaterial loads what is not the material of the spec.
func (s *suite) testMaterial(t *testing.T) {
	for _, spec := range s.opts.Specs {
		usage := spec.Info().Usages[0].Usage
		k := s.key(t, spec, usage)
		t.Run(string(spec), func(t *testing.T) {
			s.testSpoiltMaterial(t, k)
			for _, other := range s.opts.Specs {
				for _, u := range s.usages(other) {
					if other == spec && u.Usage == usage {
						continue
					}
					s.testForeignMaterial(t, k, &key{spec: other, usage: u.Usage, material: k.material})
				}
			}
		})
	}
	for _, bad := range []struct {
		spec  kms.Spec
		usage kms.Usage
	}{{"", ""}, {"AES_512", kms.UsageEncryptDecrypt}, {kms.SpecAES256, kms.UsageSignVerify}, {kms.SpecP256, kms.UsageEncryptDecrypt}, {kms.SpecHMAC224, kms.UsageDerive}, {kms.SpecSM4, kms.UsageWrapUnwrap}} {
		if _, err := s.token.Generate(bad.spec, bad.usage); err == nil {
			t.Errorf("Generate(%q, %q) succeeded", bad.spec, bad.usage)
		} else {
			wantClass(t, fmt.Sprintf("Generate(%q, %q)", bad.spec, bad.usage), err, hsm.ClassRequest, hsm.ClassUnsupported)
		}
	}
}

func (s *suite) testSpoiltMaterial(t *testing.T, k *key) {
	for name, material := range map[string][]byte{
		"none": nil, "empty": {}, "one byte": k.material[:1], "truncated": k.material[:len(k.material)-1],
		"extended": append(bytes.Clone(k.material), 0), "zeros": make([]byte, len(k.material)), "large": make([]byte, large),
	} {
		h, err := s.token.Load(material, k.spec, k.usage)
		if err == nil {
			unload(t, s.token, h)
			t.Errorf("Load(%s) accepted material that is %s", k.spec, name)
			continue
		}
		wantClass(t, "load of material that is "+name, err, contentClasses...)
	}
}

// structure groups the specs whose material can be taken for one another's
// where it does not name its spec.
func structure(spec kms.Spec) string {
	switch f := spec.Info().Family; f {
	case kms.FamilyRSA:
		return "RSA"
	case kms.FamilyEC, kms.FamilySecp256k1, kms.FamilySM2:
		return "EC"
	case kms.FamilyEd25519, kms.FamilyMLKEM, kms.FamilyMLDSA, kms.FamilySLHDSA:
		return string(f)
	default:
		return "secret"
	}
}

// passesForSecret tells whether k's material, by chance, is as long as that of
// as, a secret: any bytes of its length are a secret.
func (s *suite) passesForSecret(t *testing.T, k, as *key) bool {
	t.Helper()
	return structure(as.spec) == "secret" && len(k.material) == len(s.key(t, as.spec, as.usage).material)
}

// testForeignMaterial loads k's material as if it were as's.
func (s *suite) testForeignMaterial(t *testing.T, k, as *key) {
	t.Helper()
	what := fmt.Sprintf("material of %s for %s loaded as %s for %s", k.spec, k.usage, as.spec, as.usage)
	h, err := s.token.Load(k.material, as.spec, as.usage)
	if err != nil {
		wantClass(t, what, err, contentClasses...)
		return
	}
	defer unload(t, s.token, h)
	if s.opts.BoundMaterial {
		t.Errorf("%s was accepted", what)
		return
	}
	if structure(k.spec) == structure(as.spec) || s.passesForSecret(t, k, as) {
		return
	}
	if _, err := s.caller(t).do(t, firstUse(as, h)); err == nil {
		t.Errorf("%s was accepted and used", what)
	}
}

func (s *suite) testSealingKeys(t *testing.T) {
	if !s.opts.SealingKeys {
		_, err := s.token.GenerateSealingKey()
		wantClass(t, "GenerateSealingKey", err, hsm.ClassUnsupported)
		_, err = s.token.LoadSealingKey(randomBytes(40))
		wantClass(t, "LoadSealingKey", err, hsm.ClassUnsupported)
		return
	}
	sealing := generateSealing(t, s.token)
	c := s.caller(t)
	call := hsm.Call{Algorithm: kms.AlgAESGCM, Spec: kms.SpecAES256, Handle: sealing.handle}
	s.setCanary(c, call)
	call.Verb, call.Nonce, call.AAD, call.Input = kms.VerbEncrypt, randomBytes(nonceSize), []byte("row"), randomBytes(1224)
	plaintext := call.Input
	ciphertext := c.must(t, call)
	call.Verb, call.Input = kms.VerbDecrypt, ciphertext
	if got := c.must(t, call); !bytes.Equal(got, plaintext) {
		t.Error("a sealed blob opens to something else")
	}
	call.AAD = []byte("another row")
	c.refused(t, "a sealed blob moved to another row", call, contentClasses...)
	call.AAD, call.Handle = []byte("row"), generateSealing(t, s.token).handle
	c.refused(t, "another tenant's sealing key", call, contentClasses...)

	t.Run("SealingKeyIsNoDataKey", func(t *testing.T) {
		for _, spec := range s.opts.Specs {
			h, err := s.token.Load(sealing.material, spec, spec.Info().Usages[0].Usage)
			if err == nil {
				unload(t, s.token, h)
				t.Errorf("a sealing key was loaded as a %s", spec)
				continue
			}
			wantClass(t, "load of a sealing key as a "+string(spec), err, contentClasses...)
		}
	})
	t.Run("DataKeyIsNoSealingKey", func(t *testing.T) {
		for _, spec := range s.opts.Specs {
			h, err := s.token.LoadSealingKey(s.key(t, spec, spec.Info().Usages[0].Usage).material)
			if err == nil {
				unload(t, s.token, h)
				t.Errorf("a %s was loaded as a sealing key", spec)
				continue
			}
			wantClass(t, "load of a "+string(spec)+" as a sealing key", err, contentClasses...)
		}
	})
}

// generateSealing makes and loads a sealing key, which ends with the test.
func generateSealing(t *testing.T, token hsm.Token) *key {
	t.Helper()
	material, err := token.GenerateSealingKey()
	if err != nil {
		t.Fatalf("GenerateSealingKey: %v", err)
	}
	h, err := token.LoadSealingKey(material)
	if err != nil {
		t.Fatalf("LoadSealingKey: %v", err)
	}
	t.Cleanup(func() { unload(t, token, h) })
	return &key{spec: kms.SpecAES256, usage: kms.UsageEncryptDecrypt, material: material, handle: h}
}

// testPeer uses on a second token of the domain what the first one made, and
// the other way round.
func (s *suite) testPeer(t *testing.T) {
	peer := s.opts.Peer(t)
	defer func() {
		if err := peer.Close(); err != nil {
			t.Errorf("peer Close: %v", err)
		}
	}()
	for _, spec := range s.opts.Specs {
		for _, u := range s.usages(spec) {
			t.Run(fmt.Sprintf("%s/%s", spec, u.Usage), func(t *testing.T) {
				s.testExchange(t, peer, s.key(t, spec, u.Usage))
			})
		}
	}
	if !s.opts.SealingKeys {
		return
	}
	t.Run("SealingKey", func(t *testing.T) {
		mine := generateSealing(t, s.token)
		h, err := peer.LoadSealingKey(mine.material)
		if err != nil {
			t.Fatalf("the peer's LoadSealingKey: %v", err)
		}
		defer unload(t, peer, h)
		agree(t, s.caller(t), newCaller(t, peer), mine, h)
	})
}

func (s *suite) testExchange(t *testing.T, peer hsm.Token, k *key) {
	theirs := load(t, peer, k)
	defer unload(t, peer, theirs)
	agree(t, s.caller(t), newCaller(t, peer), k, theirs)
}

// agree checks that the key under its own handle on mine and under handle
// theirs on peer is one key.
func agree(t *testing.T, mine, peer *caller, k *key, theirs hsm.Handle) {
	t.Helper()
	call := firstUse(k, theirs)
	switch call.Verb {
	case kms.VerbSign:
		wantSignature(t, k, call, peer.must(t, call))
	case kms.VerbDecrypt:
		plaintext := []byte("for whoever holds the key")
		ciphertext, err := encryptTo(k.spec, call.Algorithm, "", k.public, plaintext)
		if err != nil {
			t.Fatalf("judge: %v", err)
		}
		call.Input, call.Order = ciphertext, ordersFor(call.Algorithm)[0]
		if got := peer.must(t, call); !bytes.Equal(got, plaintext) {
			t.Error("the peer decrypts to something else")
		}
	default:
		got := peer.must(t, call)
		call.Handle = k.handle
		if want := mine.must(t, call); !bytes.Equal(got, want) {
			t.Error("the peer's result differs")
		}
	}
}
