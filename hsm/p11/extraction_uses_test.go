package p11

import (
	"bytes"
	"crypto/rand"
	"runtime"
	"unsafe"

	"github.com/miekg/pkcs11"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

// What the thief of extraction_test.go tries with keys for agreement,
// derivation and wrapping.

// derive tries every mechanism that makes readable keys of keys: only a key
// for agreement derives, and only by agreement.
func (f *theft) derive() {
	for what, object := range f.loaded {
		if _, err := f.deriveFrom(object); err == nil {
			f.t.Errorf("derived from the %s by encryption", what)
		}
		for name, mech := range map[string]*pkcs11.Mechanism{
			"CBC":         pkcs11.NewMechanism(pkcs11.CKM_AES_CBC_ENCRYPT_DATA, make([]byte, 32)),
			"data before": pkcs11.NewMechanism(pkcs11.CKM_CONCATENATE_DATA_AND_BASE, make([]byte, 16)),
			"data after":  pkcs11.NewMechanism(pkcs11.CKM_CONCATENATE_BASE_AND_DATA, make([]byte, 16)),
			"XOR":         pkcs11.NewMechanism(pkcs11.CKM_XOR_BASE_AND_DATA, make([]byte, 16)),
			"extraction":  pkcs11.NewMechanism(pkcs11.CKM_EXTRACT_KEY_FROM_KEY, make([]byte, ulongSize)),
			"SHA-256":     pkcs11.NewMechanism(pkcs11.CKM_SHA256_KEY_DERIVATION, nil),
		} {
			if _, err := f.deriveBy(mech, object); err == nil {
				f.t.Errorf("derived from the %s by %s", what, name)
			}
		}
		secret, err := f.agreeWith(object, f.point(kms.SpecP256))
		if (err == nil) != (what == loadedName(kms.SpecP256, kms.UsageKeyAgreement)) {
			f.t.Errorf("agreement with the %s: %v", what, err)
		}
		if err == nil && len(f.read(secret)) != 32 {
			f.t.Error("the secret cannot be read: the test tries nothing")
		}
	}
}

func (f *thief) deriveBy(mech *pkcs11.Mechanism, object pkcs11.ObjectHandle) (pkcs11.ObjectHandle, error) {
	return f.ctx.DeriveKey(f.s, []*pkcs11.Mechanism{mech}, object, secretTemplate(pkcs11.CKK_GENERIC_SECRET,
		flag(pkcs11.CKA_SENSITIVE, false), flag(pkcs11.CKA_EXTRACTABLE, true), pkcs11.NewAttribute(pkcs11.CKA_VALUE_LEN, 32)))
}

// agreeWith makes a readable key of the secret with a point.
func (f *thief) agreeWith(object pkcs11.ObjectHandle, point []byte) (pkcs11.ObjectHandle, error) {
	return f.deriveBy(pkcs11.NewMechanism(pkcs11.CKM_ECDH1_DERIVE, pkcs11.NewECDH1DeriveParams(pkcs11.CKD_NULL, nil, point)), object)
}

// point is a new point of the curve, uncompressed.
func (f *thief) point(spec kms.Spec) []byte {
	f.t.Helper()
	private, err := curves[spec].nist.GenerateKey(rand.Reader)
	if err != nil {
		f.t.Fatal(err)
	}
	return private.PublicKey().Bytes()
}

// agreeOffCurve: the formulas of point addition do not use the curve's last
// coefficient, so a token that takes any pair of numbers computes on other
// curves, of small orders, and each secret tells the key modulo one of them.
func (f *theft) agreeOffCurve() {
	object := f.loaded[loadedName(kms.SpecP256, kms.UsageKeyAgreement)]
	good := f.point(kms.SpecP256)
	for name, point := range map[string][]byte{
		"another y":       append(bytes.Clone(good[:64]), good[64]^1),
		"y = 0":           append(bytes.Clone(good[:33]), make([]byte, 32)...),
		"zeros":           append([]byte{4}, make([]byte, 64)...),
		"infinity":        {0},
		"above the field": append([]byte{4}, bytes.Repeat([]byte{0xff}, 64)...),
		"P-384":           f.point(kms.SpecP384),
	} {
		if _, err := f.agreeWith(object, point); err == nil {
			f.t.Errorf("agreed with %s", name)
		}
	}
}

// wrapUnderLoaded tries what RFC 5649 under a key that callers wrap with would
// be good for: taking keys out, his own even, and putting keys in.
func (f *theft) wrapUnderLoaded() {
	for what, kek := range f.loaded {
		if what == "key root" || what == "sealing root" {
			continue // see wrapUnderRoots
		}
		for name, mech := range map[string]*pkcs11.Mechanism{
			"RFC 5649": f.kwp[0],
			"RFC 3394": pkcs11.NewMechanism(pkcs11.CKM_AES_KEY_WRAP, nil),
			"CBC":      pkcs11.NewMechanism(pkcs11.CKM_AES_CBC, make([]byte, 16)),
			"CBC_PAD":  pkcs11.NewMechanism(pkcs11.CKM_AES_CBC_PAD, make([]byte, 16)),
		} {
			mechs := []*pkcs11.Mechanism{mech}
			for victim, object := range map[string]pkcs11.ObjectHandle{"his own key": f.ownSecret(), "the AES key": f.loaded[loadedName(kms.SpecAES256, kms.UsageEncryptDecrypt)]} {
				if _, err := f.ctx.WrapKey(f.s, mechs, kek, object); err == nil {
					f.t.Errorf("%s: wrapped %s under the %s", name, victim, what)
				}
			}
			for _, size := range []int{32, 40} {
				f.mustNotUnwrap(name+" under the "+what, mechs, kek, make([]byte, size), secretTemplate(pkcs11.CKK_GENERIC_SECRET,
					flag(pkcs11.CKA_SENSITIVE, false), flag(pkcs11.CKA_EXTRACTABLE, true)))
			}
		}
	}
	// With what it wraps by request: bytes that unwrap to a key of his choice.
	h := newKeyFor(f.t, f.token, kms.SpecAES256, kms.UsageWrapUnwrap).handle
	wrapped := do(f.t, newSession(f.t, f.token), hsm.Call{Verb: kms.VerbWrap, Algorithm: kms.AlgAESKWP, Spec: kms.SpecAES256, Handle: h, Input: message(32)})
	f.mustNotUnwrap("wrapped bytes", f.kwp, objectOf(f.t, h), wrapped, secretTemplate(pkcs11.CKK_AES))
}

// otherUses: each key has the flags of its usage only.
func (f *theft) otherUses() {
	ecdsa, oaep := pkcs11.NewMechanism(pkcs11.CKM_ECDSA, nil), pkcs11.NewMechanism(pkcs11.CKM_RSA_PKCS, nil)
	hmac, ecb := pkcs11.NewMechanism(pkcs11.CKM_SHA256_HMAC, nil), pkcs11.NewMechanism(pkcs11.CKM_AES_ECB, nil)
	for _, c := range []struct {
		spec  kms.Spec
		usage kms.Usage
		init  func(*pkcs11.Ctx, pkcs11.SessionHandle, []*pkcs11.Mechanism, pkcs11.ObjectHandle) error
		mech  *pkcs11.Mechanism
		works bool
	}{
		{kms.SpecP256, kms.UsageSignVerify, (*pkcs11.Ctx).SignInit, ecdsa, true},
		{kms.SpecP256, kms.UsageKeyAgreement, (*pkcs11.Ctx).SignInit, ecdsa, false},
		{kms.SpecHMAC256, kms.UsageDerive, (*pkcs11.Ctx).SignInit, hmac, true}, // which is all that it does
		{kms.SpecHMAC256, kms.UsageDerive, (*pkcs11.Ctx).VerifyInit, hmac, false},
		{kms.SpecAES256, kms.UsageWrapUnwrap, (*pkcs11.Ctx).EncryptInit, ecb, true},
		{kms.SpecAES256, kms.UsageWrapUnwrap, (*pkcs11.Ctx).DecryptInit, ecb, true},
		{kms.SpecRSA2048, kms.UsageSignVerify, (*pkcs11.Ctx).DecryptInit, oaep, false},
		{kms.SpecRSA2048, kms.UsageEncryptDecrypt, (*pkcs11.Ctx).SignInit, oaep, false},
	} {
		// A session of its own: an operation that begins stays active.
		s, err := f.ctx.OpenSession(f.token.conn.slot, pkcs11.CKF_SERIAL_SESSION|pkcs11.CKF_RW_SESSION)
		if err != nil {
			f.t.Fatal(err)
		}
		what := loadedName(c.spec, c.usage)
		if err := c.init(f.ctx, s, []*pkcs11.Mechanism{c.mech}, f.loaded[what]); (err == nil) != c.works {
			f.t.Errorf("%s by mechanism 0x%x: %v, want it to work: %t", what, c.mech.Mechanism, err, c.works)
		}
	}
}

// deriveFrom makes a readable key of what the object encrypts a block to, which
// for a key that decrypts is an oracle.
func (f *thief) deriveFrom(object pkcs11.ObjectHandle) (pkcs11.ObjectHandle, error) {
	// CK_KEY_DERIVATION_STRING_DATA (PKCS#11 v2.40 mechanisms, 2.15): a pointer
	// and a length.
	data := message(16)
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(&data[0])
	parameter := appendULong(nil, uint64(uintptr(unsafe.Pointer(&data[0]))))
	parameter = appendULong(parameter, uint64(len(data)))
	mech := pkcs11.NewMechanism(pkcs11.CKM_AES_ECB_ENCRYPT_DATA, parameter)
	return f.ctx.DeriveKey(f.s, []*pkcs11.Mechanism{mech}, object, secretTemplate(pkcs11.CKK_GENERIC_SECRET,
		flag(pkcs11.CKA_SENSITIVE, false), flag(pkcs11.CKA_EXTRACTABLE, true), pkcs11.NewAttribute(pkcs11.CKA_VALUE_LEN, 16)))
}
