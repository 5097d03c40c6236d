package p11

import (
	"bytes"
	"errors"
	"math/big"

	"github.com/miekg/pkcs11"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

const (
	// rsaExponent is the public exponent of every RSA key (FIPS 186-5, A.1.1
	// allows it; all implementations take it).
	rsaExponent = 65537
	// maxMaterial bounds wrapped keys in bytes: an RSA-4096 key is about
	// 2,400 as PKCS#8 (RFC 5208) and RFC 5649 adds at most 15.
	maxMaterial = 4 << 10
	// wrapOverhead is what RFC 5649 adds to a key whose length is a multiple
	// of 8, in bytes.
	wrapOverhead = 8
)

// keyType is how PKCS#11 makes and describes keys of a spec.
type keyType struct {
	class, id uint // CKO_*, CKK_*
	generate  uint // CKM_*
	size      int  // symmetric: bytes; RSA: bits
	curve     *curve

	// Of a vendor's keys, see Profile.
	pointForm  string // of CKA_EC_POINT; "": 04 ‖ x ‖ y, bare or in an OCTET STRING
	nameless   bool   // no CKA_EC_PARAMS
	withPoint  bool   // CKA_EC_POINT in the private key's template
	lengthless bool   // no CKA_VALUE_LEN
	typed      bool   // CKA_KEY_TYPE in the template of a new key
}

// keyTypeOf returns nil for specs that PKCS#11 has no keys for, or the driver
// does not make; those of vendors are added by connection.keyType.
func keyTypeOf(spec kms.Spec) *keyType {
	info := spec.Info()
	if info == nil {
		return nil
	}
	switch info.Family {
	case kms.FamilyAES:
		return &keyType{class: pkcs11.CKO_SECRET_KEY, id: pkcs11.CKK_AES, generate: pkcs11.CKM_AES_KEY_GEN, size: info.Bits / 8}
	case kms.FamilyHMAC:
		return &keyType{class: pkcs11.CKO_SECRET_KEY, id: pkcs11.CKK_GENERIC_SECRET, generate: pkcs11.CKM_GENERIC_SECRET_KEY_GEN, size: info.Bits / 8}
	case kms.FamilyRSA:
		return &keyType{class: pkcs11.CKO_PRIVATE_KEY, id: pkcs11.CKK_RSA, generate: pkcs11.CKM_RSA_PKCS_KEY_PAIR_GEN, size: info.Bits}
	case kms.FamilyEC, kms.FamilySecp256k1:
		return &keyType{class: pkcs11.CKO_PRIVATE_KEY, id: pkcs11.CKK_EC, generate: pkcs11.CKM_EC_KEY_PAIR_GEN, curve: curves[spec]}
	}
	return nil
}

func (k *keyType) symmetric() bool { return k.class == pkcs11.CKO_SECRET_KEY }

// uses are the attributes that allow a use of a key, all named because
// modules differ in their defaults: SoftHSM's is true for most.
func (k *keyType) uses() []uint {
	if k.symmetric() {
		return []uint{pkcs11.CKA_ENCRYPT, pkcs11.CKA_DECRYPT, pkcs11.CKA_SIGN, pkcs11.CKA_VERIFY,
			pkcs11.CKA_WRAP, pkcs11.CKA_UNWRAP, pkcs11.CKA_DERIVE}
	}
	return []uint{pkcs11.CKA_DECRYPT, pkcs11.CKA_SIGN, pkcs11.CKA_SIGN_RECOVER,
		pkcs11.CKA_UNWRAP, pkcs11.CKA_DERIVE}
}

// allowed tells whether the usage needs the use.
func allowed(usage kms.Usage, use uint) bool {
	switch use {
	case pkcs11.CKA_ENCRYPT, pkcs11.CKA_DECRYPT:
		return usage == kms.UsageEncryptDecrypt || usage == kms.UsageWrapUnwrap // see wrapBytes
	case pkcs11.CKA_SIGN:
		return usage == kms.UsageSignVerify || usage == kms.UsageGenerateVerifyMAC || usage == kms.UsageDerive // see derive
	case pkcs11.CKA_DERIVE:
		return usage == kms.UsageKeyAgreement
	}
	return false
}

// noUsage is that of a key which is there to be wrapped only.
const noUsage kms.Usage = ""

func (k *keyType) template(usage kms.Usage, extractable bool) []*pkcs11.Attribute {
	t := []*pkcs11.Attribute{
		pkcs11.NewAttribute(pkcs11.CKA_TOKEN, false),
		pkcs11.NewAttribute(pkcs11.CKA_PRIVATE, true),
		pkcs11.NewAttribute(pkcs11.CKA_SENSITIVE, true),
		pkcs11.NewAttribute(pkcs11.CKA_EXTRACTABLE, extractable),
	}
	for _, use := range k.uses() {
		t = append(t, pkcs11.NewAttribute(use, allowed(usage, use)))
	}
	return t
}

// unwrapTemplate: type first, as modules need it to read the material, and
// CKA_MODIFIABLE last, as SoftHSM refuses whatever follows it.
func (k *keyType) unwrapTemplate(usage kms.Usage) []*pkcs11.Attribute {
	t := []*pkcs11.Attribute{
		pkcs11.NewAttribute(pkcs11.CKA_CLASS, k.class),
		pkcs11.NewAttribute(pkcs11.CKA_KEY_TYPE, k.id),
	}
	t = append(t, k.template(usage, false)...)
	return append(t, pkcs11.NewAttribute(pkcs11.CKA_MODIFIABLE, false))
}

// Generate makes a key and returns it wrapped under the key root. It runs in
// a session of its own, one key at a time, and takes seconds for RSA.
func (t *Token) Generate(spec kms.Spec, usage kms.Usage) (hsm.Generated, error) {
	k, err := t.conn.keyTypeFor(spec, usage)
	if err != nil {
		return hsm.Generated{}, err
	}
	return t.generate(k, t.roots[keyRoot])
}

// GenerateSealingKey makes an AES-256 key wrapped under the sealing root.
func (t *Token) GenerateSealingKey() ([]byte, error) {
	g, err := t.generate(keyTypeOf(kms.SpecAES256), t.roots[sealingRoot])
	return g.Material, err
}

// keyTypeFor is ClassUnsupported for a key that the token could hold but not
// use: the families that it offers go by the mechanisms of their first usages.
func (c *connection) keyTypeFor(spec kms.Spec, usage kms.Usage) (*keyType, error) {
	info, k := spec.Info(), c.keyType(spec)
	switch {
	case info == nil || info.Algorithms(usage) == nil:
		return nil, driverError(hsm.ClassRequest, "key type", "the spec does not offer the usage")
	case k == nil,
		!c.vendor.uses(spec, usage),
		usage == kms.UsageKeyAgreement && spec != kms.SpecSM2 && !c.offers(ecdhMechanism.id),
		usage == kms.UsageWrapUnwrap && !c.offers(ecbMechanism.id):
		return nil, &hsm.Error{Class: hsm.ClassUnsupported, Call: "key type"}
	}
	return k, nil
}

func (t *Token) generate(k *keyType, root pkcs11.ObjectHandle) (hsm.Generated, error) {
	t.generateMu.Lock()
	defer t.generateMu.Unlock()
	if err := t.generator.ready(); err != nil {
		return hsm.Generated{}, err
	}
	var generated hsm.Generated
	var err error
	if k.symmetric() {
		generated, err = t.generateSecretLocked(k, root)
	} else {
		generated, err = t.generatePairLocked(k, root)
	}
	t.generator.note(err)
	return generated, err
}

func (t *Token) generateSecretLocked(k *keyType, root pkcs11.ObjectHandle) (hsm.Generated, error) {
	template := k.template(noUsage, true)
	if k.typed {
		template = append(template, pkcs11.NewAttribute(pkcs11.CKA_KEY_TYPE, k.id))
	}
	if !k.lengthless {
		template = append(template, pkcs11.NewAttribute(pkcs11.CKA_VALUE_LEN, k.size))
	}
	mech := []*pkcs11.Mechanism{pkcs11.NewMechanism(k.generate, nil)}
	in := t.generator.objects()
	key, err := in.mod.ctx.GenerateKey(in.session, mech, template)
	if err != nil {
		return hsm.Generated{}, moduleError("C_GenerateKey", err)
	}
	defer in.destroy(key)
	material, err := t.generator.wrap(t.wrapping, root, key)
	return hsm.Generated{Material: material}, err
}

func (t *Token) generatePairLocked(k *keyType, root pkcs11.ObjectHandle) (hsm.Generated, error) {
	public := []*pkcs11.Attribute{
		pkcs11.NewAttribute(pkcs11.CKA_TOKEN, false),
		pkcs11.NewAttribute(pkcs11.CKA_PRIVATE, false),
	}
	switch {
	case k.curve != nil && !k.nameless:
		public = append(public, pkcs11.NewAttribute(pkcs11.CKA_EC_PARAMS, k.curve.params))
	case k.curve == nil:
		public = append(public,
			pkcs11.NewAttribute(pkcs11.CKA_MODULUS_BITS, k.size),
			pkcs11.NewAttribute(pkcs11.CKA_PUBLIC_EXPONENT, big.NewInt(rsaExponent).Bytes()))
	}
	mech := []*pkcs11.Mechanism{pkcs11.NewMechanism(k.generate, nil)}
	in := t.generator.objects()
	pub, priv, err := in.mod.ctx.GenerateKeyPair(in.session, mech, public, k.template(noUsage, true))
	if err != nil {
		return hsm.Generated{}, moduleError("C_GenerateKeyPair", err)
	}
	defer in.destroy(pub)
	defer in.destroy(priv)
	der, err := in.publicKey(pub, k)
	if err != nil {
		return hsm.Generated{}, err
	}
	material, err := t.generator.wrap(t.wrapping, root, priv)
	if err != nil {
		return hsm.Generated{}, err
	}
	return hsm.Generated{Material: material, PublicKey: der}, nil
}

// Load unwraps material under the key root into a session object that allows
// the usage and nothing else, and cannot be changed. Material whose length or
// content is another spec's is refused, except that two specs of symmetric
// keys of one length look alike: the seal around material tells them apart.
func (t *Token) Load(material []byte, spec kms.Spec, usage kms.Usage) (hsm.Handle, error) {
	if _, err := t.conn.keyTypeFor(spec, usage); err != nil {
		return 0, err
	}
	return t.load(material, keyKind{spec, usage}, t.roots[keyRoot])
}

// LoadSealingKey is Load for a sealing key. Calls name its spec AES_256.
func (t *Token) LoadSealingKey(material []byte) (hsm.Handle, error) {
	return t.load(material, keyKind{kms.SpecAES256, kms.UsageEncryptDecrypt}, t.roots[sealingRoot])
}

// LoadEarlier implements hsm.EarlierLoader.
func (t *Token) LoadEarlier(generation uint32, material []byte, spec kms.Spec, usage kms.Usage) (hsm.Handle, error) {
	if _, err := t.conn.keyTypeFor(spec, usage); err != nil {
		return 0, err
	}
	return t.loadEarlier(keyRoot, generation, material, keyKind{spec, usage})
}

// LoadEarlierSealingKey implements hsm.EarlierLoader.
func (t *Token) LoadEarlierSealingKey(generation uint32, material []byte) (hsm.Handle, error) {
	return t.loadEarlier(sealingRoot, generation, material, keyKind{kms.SpecAES256, kms.UsageEncryptDecrypt})
}

func (t *Token) loadEarlier(kind rootKind, generation uint32, material []byte, key keyKind) (hsm.Handle, error) {
	root, ok := t.earlier[rootID{t.domain, generation, kind}]
	if !ok {
		return 0, driverError(hsm.ClassUnsupported, "C_UnwrapKey", "the token does not hold the material's root")
	}
	return t.load(material, key, root.object)
}

func (t *Token) load(material []byte, kind keyKind, root pkcs11.ObjectHandle) (hsm.Handle, error) {
	k := t.conn.keyType(kind.spec)
	if len(material) == 0 || len(material) > maxMaterial || len(material)%8 != 0 ||
		k.symmetric() && len(material) != k.size+wrapOverhead {
		return 0, driverError(hsm.ClassRequest, "C_UnwrapKey", "the material's length is not the spec's")
	}
	t.loadMu.Lock()
	defer t.loadMu.Unlock()
	object, err := t.unwrapLocked(root, material, k.unwrapTemplate(kind.usage))
	if err != nil {
		return 0, err
	}
	if err := t.loader.checkType(object, k); err != nil {
		t.loader.destroy(object)
		return 0, err
	}
	handle, ok := makeHandle(kind, uint(object))
	if !ok {
		t.loader.destroy(object)
		return 0, driverError(hsm.ClassUnsupported, "C_UnwrapKey", "the object handle has more than 56 bits")
	}
	return handle, nil
}

// unwrapLocked makes an object in the loader session; loadMu is held.
func (t *Token) unwrapLocked(root pkcs11.ObjectHandle, material []byte, template []*pkcs11.Attribute) (pkcs11.ObjectHandle, error) {
	mech := []*pkcs11.Mechanism{pkcs11.NewMechanism(t.wrapping.id, nil)}
	object, err := t.loader.mod.ctx.UnwrapKey(t.loader.session, mech, root, material, template)
	return object, loaderError(moduleError("C_UnwrapKey", err))
}

// loaderError: when the loader session is gone, so are all loaded keys, and
// no other session can be had in its place.
func loaderError(err error) error {
	if e, ok := errors.AsType[*hsm.Error](err); ok && e.Class == hsm.ClassSession {
		return &hsm.Error{Class: hsm.ClassTokenDown, Call: e.Call, Code: e.Code}
	}
	return err
}

// checkType verifies that what was unwrapped is a key of the type's size or
// curve: a private key's material does not show it. Symmetric keys were
// checked by their length; SoftHSM reports 0 for those that it unwrapped.
func (o objects) checkType(object pkcs11.ObjectHandle, k *keyType) error {
	if k.symmetric() || k.nameless { // a vendor's type, which names the curve
		return nil
	}
	attribute := uint(pkcs11.CKA_MODULUS)
	if k.curve != nil {
		attribute = pkcs11.CKA_EC_PARAMS
	}
	values, err := o.attributes(object, attribute)
	if err != nil {
		return loaderError(err)
	}
	if k.curve != nil && !bytes.Equal(values[0], k.curve.params) ||
		k.curve == nil && new(big.Int).SetBytes(values[0]).BitLen() != k.size {
		return driverError(hsm.ClassRequest, "C_UnwrapKey", "the material is a key of another spec")
	}
	return nil
}

// Unload destroys a loaded key. Unloading one twice is ClassStaleObject.
func (t *Token) Unload(h hsm.Handle) error {
	key, ok := parseHandle(h)
	if !ok {
		return &hsm.Error{Class: hsm.ClassStaleObject, Call: "Unload", Err: errHandle}
	}
	t.loadMu.Lock()
	defer t.loadMu.Unlock()
	err := t.loader.mod.ctx.DestroyObject(t.loader.session, pkcs11.ObjectHandle(key.object))
	return loaderError(moduleError("C_DestroyObject", err))
}
