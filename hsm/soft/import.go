package soft

import (
	"bytes"
	"crypto/ed25519"
	"slices"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

// Import implements hsm.Importer.
func (t *Token) Import(spec kms.Spec, usage kms.Usage, key []byte) (hsm.Generated, error) {
	if t.closed.Load() {
		return hsm.Generated{}, errClosed
	}
	info := spec.Info()
	if info == nil || info.Algorithms(usage) == nil {
		return hsm.Generated{}, errNoSuchSpec
	}
	raw, stated, ok := decodeKey(info, key)
	if !ok {
		return hsm.Generated{}, errImport
	}
	defer clear(raw)
	public, err := publicHalf(info, raw)
	if err != nil || stated != nil && !bytes.Equal(marshalPublic(spec, stated), public) {
		return hsm.Generated{}, errImport
	}
	return hsm.Generated{Material: encodeMaterial(spec, usage, raw), PublicKey: public}, nil
}

// maxEncoded bounds the encoding of a key: an ML-DSA-87 key with its expanded
// form, the longest, takes less than 5,000 bytes.
const maxEncoded = 8 << 10

// decodeKey returns the raw form of a key in its standard encoding, in new
// memory, and the octets of the public key that the encoding states, if any.
// Whether raw is a key publicHalf tells.
func decodeKey(info *kms.SpecInfo, key []byte) (raw, stated []byte, ok bool) {
	switch {
	case len(key) > maxEncoded:
		return nil, nil, false
	case info.Symmetric():
		return slices.Clone(key), nil, len(key) == info.Bits/8
	case info.Family == kms.FamilyRSA:
		raw, ok = canonicalRSA(info, key)
		return raw, nil, ok
	}
	k, ok := parsePKCS8(publicFormats[info.Spec].algorithm, key)
	if !ok {
		return nil, nil, false
	}
	switch info.Family {
	case kms.FamilyEC, kms.FamilySecp256k1, kms.FamilySM2:
		raw, ok = k.scalar(info)
	case kms.FamilyEd25519:
		raw, ok = k.octets(ed25519.SeedSize)
	case kms.FamilyMLKEM, kms.FamilyMLDSA:
		raw, ok = k.seed(info)
	case kms.FamilySLHDSA:
		n := slhdsaSets[info.Spec].n
		if raw = k.private; len(raw) == 4*n {
			// PK.seed ‖ PK.root is the public key, which is thereby checked.
			ok = k.state(raw[2*n:])
			raw = raw[:3*n]
		} else {
			ok = false
		}
	default:
		ok = false
	}
	if !ok {
		return nil, nil, false
	}
	return slices.Clone(raw), k.public, true
}
