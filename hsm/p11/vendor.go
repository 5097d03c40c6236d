package p11

import (
	"github.com/miekg/pkcs11"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

// vendor is what a token's profile gives: mechanisms that are nil where the
// profile or the token has none.
type vendor struct {
	profile *Profile // nil: no families of a vendor's

	sm2Sign, sm2Decrypt, sm2Agree *mechanism
	sm4ECB, sm4CBC, sm4GCM        *mechanism
	hmacSM3                       *mechanism
}

func newVendor(p *Profile) vendor {
	v := vendor{profile: p}
	if p == nil {
		return v
	}
	if k := p.SM2; k != nil {
		v.sm2Sign = vendorMechanism(k.Sign.Mechanism, noParameter)
		if k.Sign.UserID == userIDParameter {
			v.sm2Sign.parameter = octets
		}
		v.sm2Decrypt = vendorMechanism(k.Decrypt.Mechanism, noParameter)
		v.sm2Agree = vendorMechanism(k.Agree, noParameter)
	}
	if k := p.SM4; k != nil {
		v.sm4ECB = vendorMechanism(k.ECB, noParameter)
		v.sm4CBC = vendorMechanism(k.CBC, cbc)
		v.sm4GCM = vendorMechanism(k.GCM, gcmWithoutBits)
		if k.GCMIVBits {
			v.sm4GCM.parameter = gcm
		}
	}
	if k := p.HMACSM3; k != nil {
		v.hmacSM3 = vendorMechanism(k.Sign, noParameter)
	}
	return v
}

func vendorMechanism(id Number, p parameter) *mechanism {
	if id == 0 {
		return nil
	}
	return &mechanism{id: uint(id), parameter: p}
}

// keyType returns how the token makes and describes keys of a spec, nil for
// specs that it cannot hold.
func (c *connection) keyType(spec kms.Spec) *keyType {
	p := c.vendor.profile
	switch {
	case p == nil:
	case spec == kms.SpecSM2 && p.SM2 != nil:
		return &keyType{class: pkcs11.CKO_PRIVATE_KEY, id: uint(p.SM2.KeyType), generate: uint(p.SM2.Generate), curve: curves[spec],
			pointForm: p.SM2.Point, nameless: !p.SM2.ECParams, withPoint: p.SM2.ImportPoint}
	case spec == kms.SpecSM4 && p.SM4 != nil:
		return &keyType{class: pkcs11.CKO_SECRET_KEY, id: uint(p.SM4.KeyType), generate: uint(p.SM4.Generate),
			size: spec.Info().Bits / 8, lengthless: !p.SM4.ValueLen}
	case spec == kms.SpecHMACSM3 && p.HMACSM3 != nil:
		return &keyType{class: pkcs11.CKO_SECRET_KEY, id: uint(p.HMACSM3.KeyType), generate: uint(p.HMACSM3.Generate),
			size: spec.Info().Bits / 8, lengthless: !p.HMACSM3.ValueLen, typed: true}
	}
	return keyTypeOf(spec)
}

// describes tells whether the profile has a part for a spec; without a profile
// there is none.
func (p *Profile) describes(spec kms.Spec) bool {
	switch {
	case p == nil:
	case spec == kms.SpecSM2:
		return p.SM2 != nil
	case spec == kms.SpecSM4:
		return p.SM4 != nil
	case spec == kms.SpecHMACSM3:
		return p.HMACSM3 != nil
	}
	return false
}

// uses tells whether the vendor's keys of a spec serve a usage. SM3-KDF hashes
// the key in a way that no mechanism for MACs does.
func (v *vendor) uses(spec kms.Spec, usage kms.Usage) bool {
	switch {
	case spec == kms.SpecSM2 && usage == kms.UsageKeyAgreement:
		return v.sm2Agree != nil
	case spec == kms.SpecHMACSM3:
		return usage == kms.UsageGenerateVerifyMAC
	}
	return true
}

// vendorFamilies are those of the profile whose mechanisms the token lists.
func (c *connection) vendorFamilies() []kms.Family {
	var families []kms.Family
	p := c.vendor.profile
	if p == nil {
		return nil
	}
	if k := p.SM2; k != nil && c.offersNumbers(k.Generate, k.Sign.Mechanism, k.Decrypt.Mechanism, k.Agree) {
		families = append(families, kms.FamilySM2)
	}
	if k := p.SM4; k != nil && c.offersNumbers(k.Generate, k.ECB, k.CBC, k.GCM) {
		families = append(families, kms.FamilySM4)
	}
	if k := p.HMACSM3; k != nil && c.offersNumbers(k.Generate, k.Sign) {
		families = append(families, kms.FamilyHMACSM3)
	}
	return families
}

func (c *connection) offersNumbers(mechs ...Number) bool {
	for _, m := range mechs {
		if m != 0 && !c.offers(uint(m)) {
			return false
		}
	}
	return true
}

// unsupported answers for a mechanism that the token has not.
func unsupported(call string) *hsm.Error {
	return &hsm.Error{Class: hsm.ClassUnsupported, Call: call}
}
