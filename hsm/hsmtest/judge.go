package hsmtest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"encoding/asn1"
	"errors"
	"fmt"
	"hash"
	"slices"

	"github.com/decred/dcrd/dcrec/secp256k1/v4"
	secpecdsa "github.com/decred/dcrd/dcrec/secp256k1/v4/ecdsa"
	"github.com/emmansun/gmsm/sm2"
	"github.com/emmansun/gmsm/sm3"
	"github.com/emmansun/gmsm/smx509"

	"github.com/sluice-kms/sluice/kms"
)

// parsePublic reads a SubjectPublicKeyInfo (RFC 5280, section 4.1.2.7) and
// checks that it is one of the spec.
func parsePublic(spec kms.Spec, der []byte) (any, error) {
	switch spec.Info().Family {
	case kms.FamilyMLKEM, kms.FamilyMLDSA, kms.FamilySLHDSA:
		return parseQuantum(spec, der)
	case kms.FamilySecp256k1:
		return parseSecp256k1(der)
	case kms.FamilySM2:
		pub, err := smx509.ParsePKIXPublicKey(der)
		if err != nil {
			return nil, err
		}
		if !sm2.IsSM2PublicKey(pub) {
			return nil, errors.New("not an SM2 key")
		}
		return pub, nil
	}
	pub, err := x509.ParsePKIXPublicKey(der)
	if err != nil {
		return nil, err
	}
	var bits int
	switch pub := pub.(type) {
	case *rsa.PublicKey:
		bits = pub.N.BitLen()
	case *ecdsa.PublicKey:
		bits = pub.Curve.Params().BitSize
	case ed25519.PublicKey:
		bits = 255
	}
	if bits != spec.Info().Bits {
		return nil, fmt.Errorf("a key of %d bits is not a %s", bits, spec)
	}
	return pub, nil
}

// Object identifiers of RFC 5480, section 2.1.1 and SEC 2, appendix A.2.1.
var (
	oidECPublicKey = asn1.ObjectIdentifier{1, 2, 840, 10045, 2, 1}
	oidSecp256k1   = asn1.ObjectIdentifier{1, 3, 132, 0, 10}
)

type ecSPKI struct {
	Algorithm struct{ Algorithm, Curve asn1.ObjectIdentifier }
	PublicKey asn1.BitString
}

func parseSecp256k1(der []byte) (*secp256k1.PublicKey, error) {
	var spki ecSPKI
	rest, err := asn1.Unmarshal(der, &spki)
	if err != nil {
		return nil, err
	}
	if len(rest) != 0 || !spki.Algorithm.Algorithm.Equal(oidECPublicKey) || !spki.Algorithm.Curve.Equal(oidSecp256k1) {
		return nil, errors.New("not a secp256k1 key")
	}
	return secp256k1.ParsePubKey(spki.PublicKey.RightAlign())
}

func marshalSecp256k1(pub *secp256k1.PublicKey) ([]byte, error) {
	var spki ecSPKI
	spki.Algorithm.Algorithm, spki.Algorithm.Curve = oidECPublicKey, oidSecp256k1
	point := pub.SerializeUncompressed()
	spki.PublicKey = asn1.BitString{Bytes: point, BitLength: 8 * len(point)}
	return asn1.Marshal(spki)
}

// hashOf returns the constructor of a hash, nil for an unknown name.
func hashOf(d kms.Digest) func() hash.Hash {
	switch d {
	case kms.DigestSHA224:
		return sha256.New224
	case kms.DigestSHA256:
		return sha256.New
	case kms.DigestSHA384:
		return sha512.New384
	case kms.DigestSHA512:
		return sha512.New
	case kms.DigestSM3:
		return sm3.New
	}
	return nil
}

// digestOf hashes the way a digest's name says.
func digestOf(d kms.Digest, message []byte) []byte {
	newHash := hashOf(d)
	if newHash == nil {
		return nil
	}
	h := newHash()
	h.Write(message)
	return h.Sum(nil)
}

// cryptoHash returns the standard library's name of a SHA-2 digest.
func cryptoHash(d kms.Digest) crypto.Hash {
	switch d {
	case kms.DigestSHA256:
		return crypto.SHA256
	case kms.DigestSHA384:
		return crypto.SHA384
	case kms.DigestSHA512:
		return crypto.SHA512
	}
	return 0
}

// signed is what a signature is over.
type signed struct {
	message   []byte // or the digest when prehashed
	prehashed bool
	userID    []byte // SM2 with a message
}

// digest returns what goes into the signature scheme after hashing.
func (in signed) digest(alg kms.Algorithm, pub any) ([]byte, error) {
	if in.prehashed {
		return in.message, nil
	}
	if alg == kms.AlgSM2DSA {
		return sm2.CalculateSM2Hash(pub.(*ecdsa.PublicKey), in.message, in.userID)
	}
	return digestOf(alg.Hash(), in.message), nil
}

// judgeSignature tells whether sig is a signature over in by the key of the
// SubjectPublicKeyInfo der.
func judgeSignature(spec kms.Spec, alg kms.Algorithm, der []byte, in signed, sig []byte) (bool, error) {
	pub, err := parsePublic(spec, der)
	if err != nil {
		return false, err
	}
	digest, err := in.digest(alg, pub)
	if err != nil {
		return false, err
	}
	h := cryptoHash(alg.Hash())
	switch alg {
	case kms.AlgMLDSA:
		return verifyMLDSA(pub.(quantumKey), in.message, sig)
	case kms.AlgSLHDSA:
		return verifySLHDSA(pub.(quantumKey), in.message, sig), nil
	case kms.AlgRSAPSSSHA256, kms.AlgRSAPSSSHA384, kms.AlgRSAPSSSHA512:
		err := rsa.VerifyPSS(pub.(*rsa.PublicKey), h, digest, sig, &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash})
		return err == nil, nil
	case kms.AlgRSAPKCS1SHA256, kms.AlgRSAPKCS1SHA384, kms.AlgRSAPKCS1SHA512:
		return rsa.VerifyPKCS1v15(pub.(*rsa.PublicKey), h, digest, sig) == nil, nil
	case kms.AlgEd25519:
		return ed25519.Verify(pub.(ed25519.PublicKey), in.message, sig), nil
	case kms.AlgSM2DSA:
		return sm2.VerifyASN1(pub.(*ecdsa.PublicKey), digest, sig), nil
	}
	if pub, ok := pub.(*secp256k1.PublicKey); ok {
		parsed, err := secpecdsa.ParseDERSignature(sig)
		return err == nil && parsed.Verify(digest, pub), nil
	}
	return ecdsa.VerifyASN1(pub.(*ecdsa.PublicKey), digest, sig), nil
}

// judgeKey is an asymmetric key on the judges' side.
type judgeKey struct {
	spec    kms.Spec
	private any
	public  []byte // SubjectPublicKeyInfo
}

func newJudgeKey(spec kms.Spec) (*judgeKey, error) {
	k := &judgeKey{spec: spec}
	var err error
	switch info := spec.Info(); info.Family {
	case kms.FamilyRSA:
		priv, e := rsa.GenerateKey(rand.Reader, info.Bits)
		if e != nil {
			return nil, e
		}
		k.private = priv
		k.public, err = x509.MarshalPKIXPublicKey(&priv.PublicKey)
	case kms.FamilyEC:
		curve := map[kms.Spec]elliptic.Curve{kms.SpecP256: elliptic.P256(), kms.SpecP384: elliptic.P384(), kms.SpecP521: elliptic.P521()}[spec]
		priv, e := ecdsa.GenerateKey(curve, rand.Reader)
		if e != nil {
			return nil, e
		}
		k.private = priv
		k.public, err = x509.MarshalPKIXPublicKey(&priv.PublicKey)
	case kms.FamilyEd25519:
		pub, priv, e := ed25519.GenerateKey(rand.Reader)
		if e != nil {
			return nil, e
		}
		k.private = priv
		k.public, err = x509.MarshalPKIXPublicKey(pub)
	case kms.FamilySecp256k1:
		priv, e := secp256k1.GeneratePrivateKey()
		if e != nil {
			return nil, e
		}
		k.private = priv
		k.public, err = marshalSecp256k1(priv.PubKey())
	case kms.FamilySM2:
		priv, e := sm2.GenerateKey(rand.Reader)
		if e != nil {
			return nil, e
		}
		k.private = priv
		k.public, err = smx509.MarshalPKIXPublicKey(&priv.PublicKey)
	case kms.FamilyMLKEM, kms.FamilyMLDSA, kms.FamilySLHDSA:
		return newQuantumKey(spec)
	default:
		return nil, fmt.Errorf("%s has no public half", spec)
	}
	return k, err
}

// sign signs with the judge's key. saltLength counts for PSS only.
func (k *judgeKey) sign(alg kms.Algorithm, in signed, saltLength int) ([]byte, error) {
	pub, err := parsePublic(k.spec, k.public)
	if err != nil {
		return nil, err
	}
	digest, err := in.digest(alg, pub)
	if err != nil {
		return nil, err
	}
	switch priv := k.private.(type) {
	case *rsa.PrivateKey:
		h := cryptoHash(alg.Hash())
		if slices.Contains([]kms.Algorithm{kms.AlgRSAPKCS1SHA256, kms.AlgRSAPKCS1SHA384, kms.AlgRSAPKCS1SHA512}, alg) {
			return rsa.SignPKCS1v15(rand.Reader, priv, h, digest)
		}
		return rsa.SignPSS(rand.Reader, priv, h, digest, &rsa.PSSOptions{SaltLength: saltLength})
	case *ecdsa.PrivateKey:
		return ecdsa.SignASN1(rand.Reader, priv, digest)
	case ed25519.PrivateKey:
		return ed25519.Sign(priv, in.message), nil
	case *secp256k1.PrivateKey:
		return secpecdsa.Sign(priv, digest).Serialize(), nil
	case *sm2.PrivateKey:
		return sm2.SignASN1(rand.Reader, priv, digest, nil)
	case quantumSeed:
		return priv.sign(in.message)
	}
	return nil, fmt.Errorf("no signatures with %T", k.private)
}

// encryptTo encrypts to the key of the SubjectPublicKeyInfo der.
func encryptTo(spec kms.Spec, alg kms.Algorithm, order kms.SM2Order, der, plaintext []byte) ([]byte, error) {
	pub, err := parsePublic(spec, der)
	if err != nil {
		return nil, err
	}
	switch alg {
	case kms.AlgRSAOAEPSHA1:
		return rsa.EncryptOAEP(sha1.New(), rand.Reader, pub.(*rsa.PublicKey), plaintext, nil)
	case kms.AlgRSAOAEPSHA256:
		return rsa.EncryptOAEP(sha256.New(), rand.Reader, pub.(*rsa.PublicKey), plaintext, nil)
	}
	return encryptSM2(pub.(*ecdsa.PublicKey), order, plaintext)
}

// decrypt decrypts with the judge's key.
func (k *judgeKey) decrypt(alg kms.Algorithm, order kms.SM2Order, ciphertext []byte) ([]byte, error) {
	switch priv := k.private.(type) {
	case *rsa.PrivateKey:
		h := sha256.New()
		if alg == kms.AlgRSAOAEPSHA1 {
			h = sha1.New()
		}
		return rsa.DecryptOAEP(h, nil, priv, ciphertext, nil)
	case *sm2.PrivateKey:
		return decryptSM2(priv, order, ciphertext)
	}
	return nil, fmt.Errorf("no decryption with %T", k.private)
}
