package hsmtest

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

// importer returns the token as one that takes keys from outside.
func (s *suite) importer(t *testing.T) hsm.Importer {
	t.Helper()
	importer, ok := s.token.(hsm.Importer)
	if !ok {
		t.Fatal("the token takes no keys from outside, which the options say it does")
	}
	return importer
}

// testImport imports keys that the judges have too.
func (s *suite) testImport(t *testing.T, spec kms.Spec, u kms.UsageAlgorithms) {
	k, encoded := s.importKey(t, spec, u.Usage)
	c := s.caller(t)
	for _, alg := range u.Algorithms {
		s.judgeUse(t, c, k, alg)
	}
	s.testBadImports(t, spec, u.Usage, encoded)
}

// importKey imports and loads a key of the judges', which ends with the test.
func (s *suite) importKey(t *testing.T, spec kms.Spec, usage kms.Usage) (k *key, encoded []byte) {
	t.Helper()
	k = &key{spec: spec, usage: usage}
	var public []byte
	if info := spec.Info(); info.Symmetric() {
		k.raw = randomBytes(info.Bits / 8)
		encoded = bytes.Clone(k.raw)
	} else {
		judge := mustJudgeKey(t, spec)
		encoded, public = judge.mustPKCS8(t), judge.public
	}
	before := bytes.Clone(encoded)
	g, err := s.importer(t).Import(spec, usage, encoded)
	if err != nil {
		t.Fatalf("Import(%s, %s): %v", spec, usage, err)
	}
	if !bytes.Equal(before, encoded) {
		t.Error("Import changed the key")
	}
	if !bytes.Equal(g.PublicKey, public) {
		t.Error("Import returned another public key")
	}
	k.material, k.public = g.Material, g.PublicKey
	k.handle = load(t, s.token, k)
	t.Cleanup(func() { unload(t, s.token, k.handle) })
	return k, encoded
}

// judgeUse uses a key whose clear form the judges have and compares.
func (s *suite) judgeUse(t *testing.T, c *caller, k *key, alg kms.Algorithm) {
	t.Helper()
	call := use(k, k.handle, alg)
	var want []byte
	var err error
	switch call.Verb {
	case kms.VerbSign:
		wantSignature(t, k, call, c.must(t, call))
		return
	case kms.VerbMAC:
		want = judgeMAC(alg, k.raw, call.Input)
	case kms.VerbEncrypt:
		if isCBC(alg) {
			want = judgeCBC(t, call, k.raw)
		} else {
			want = judgeAEAD(t, alg, k.raw).Seal(nil, call.Nonce, call.Input, nil)
		}
	case kms.VerbDerive:
		want = judgeDerive(t, alg, k.raw, call.Input, call.Length)
	case kms.VerbWrap:
		want = judgeWrap(judgeBlock(t, alg, k.raw), call.Input)
	case kms.VerbAgree:
		peer := mustJudgeKey(t, k.spec)
		call.Peer = peer.public
		want, err = peer.agree(k.public)
	case kms.VerbDecapsulate:
		want, call.Input, err = judgeEncapsulate(k.spec, k.public)
	case kms.VerbDecrypt:
		want = []byte("for whoever holds the key")
		call.Input, err = encryptTo(k.spec, alg, "", k.public, want)
	}
	if err != nil {
		t.Fatalf("judge: %v", err)
	}
	if got := c.must(t, call); !bytes.Equal(got, want) {
		t.Errorf("%s: the judge's result differs", alg)
	}
}

func (s *suite) testBadImports(t *testing.T, spec kms.Spec, usage kms.Usage, good []byte) {
	bad := map[string][]byte{
		"nothing": nil, "one byte": good[:1], "truncated": good[:len(good)-1], "extended": append(bytes.Clone(good), 0),
		"large": make([]byte, large),
	}
	if !spec.Info().Symmetric() {
		bad["zeros"] = make([]byte, len(good))
		bad["random"] = randomBytes(len(good))
		for _, other := range []kms.Spec{kms.SpecP256, kms.SpecP384, kms.SpecEd25519, kms.SpecRSA2048, kms.SpecMLKEM512, kms.SpecMLDSA44} {
			if other == spec {
				continue
			}
			bad["a key of "+string(other)] = mustJudgeKey(t, other).mustPKCS8(t)
		}
	}
	for name, encoded := range bad {
		_, err := s.importer(t).Import(spec, usage, encoded)
		wantClass(t, "import of "+name, err, hsm.ClassRequest)
	}
	s.testContradictions(t, spec, usage)
	for _, u := range []kms.Usage{"", kms.UsageGenerateVerifyMAC, kms.UsageEncapsulateDecapsulate} {
		if spec.Info().Algorithms(u) == nil {
			_, err := s.importer(t).Import(spec, u, good)
			wantClass(t, fmt.Sprintf("import for usage %q", u), err, hsm.ClassRequest)
		}
	}
}

// testContradictions: encodings that hold a key twice must hold one key.
func (s *suite) testContradictions(t *testing.T, spec kms.Spec, usage kms.Usage) {
	var encoded, half []byte // half is a part that another part must agree with
	if spec.Info().Symmetric() {
		return
	}
	switch judge := mustJudgeKey(t, spec); spec.Info().Family {
	case kms.FamilyEC, kms.FamilySecp256k1, kms.FamilySM2:
		encoded, half = judge.mustPKCS8(t), judge.public[len(judge.public)-16:]
	case kms.FamilyRSA:
		// The last number of RSAPrivateKey, the coefficient.
		encoded = judge.mustPKCS8(t)
		half = encoded[len(encoded)-16:]
	case kms.FamilySLHDSA:
		encoded = judge.mustPKCS8(t)
		half = encoded[len(encoded)-16:] // of PK.root
	case kms.FamilyMLKEM, kms.FamilyMLDSA:
		both, err := judge.private.(quantumSeed).pkcs8Both()
		if err != nil {
			t.Fatalf("judge: %v", err)
		}
		g, err := s.importer(t).Import(spec, usage, both)
		if err != nil || !bytes.Equal(g.PublicKey, judge.public) {
			t.Errorf("import of seed and expanded key: %v", err)
		}
		encoded, half = both, both[len(both)-16:]
	default:
		return
	}
	at := bytes.LastIndex(encoded, half)
	if at < 0 {
		t.Fatal("the encoding does not hold what it is expected to")
	}
	spoilt := slices.Clone(encoded)
	spoilt[at+15] ^= 1
	_, err := s.importer(t).Import(spec, usage, spoilt)
	wantClass(t, "import of a key whose parts contradict each other", err, hsm.ClassRequest)
}

func (k *judgeKey) mustPKCS8(t *testing.T) []byte {
	t.Helper()
	encoded, err := k.pkcs8()
	if err != nil {
		t.Fatalf("judge: %v", err)
	}
	return encoded
}
