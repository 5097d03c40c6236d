package soft

import (
	"github.com/emmansun/gmsm/sm4"
	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

// The AlgorithmIdentifiers of an enveloped key, in DER without parameters or
// with NULL: 1.2.156.10197.1.104 and 1.2.156.10197.1.104.1, SM4 and SM4 in ECB
// (GM/T 0006).
var sm4Identifiers = map[string]bool{
	"\x06\x07\x2a\x81\x1c\xcf\x55\x01\x68":             true,
	"\x06\x07\x2a\x81\x1c\xcf\x55\x01\x68\x05\x00":     true,
	"\x06\x08\x2a\x81\x1c\xcf\x55\x01\x68\x01":         true,
	"\x06\x08\x2a\x81\x1c\xcf\x55\x01\x68\x01\x05\x00": true,
}

// OpenEnveloped implements hsm.EnvelopeOpener. Depth is bounded by the format:
// nothing here descends further than the format does, whatever is nested in
// what is read.
func (t *Token) OpenEnveloped(material, enveloped []byte) ([]byte, error) {
	if t.closed.Load() {
		return nil, errClosed
	}
	if len(enveloped) > maxEncoded {
		return nil, errImport
	}
	raw, err := decodeMaterial(material, kms.SpecSM2, kms.UsageEncryptDecrypt)
	if err != nil {
		return nil, err
	}
	key, err := newSM2Key(kms.UsageEncryptDecrypt, raw)
	if err != nil {
		return nil, err
	}
	input := cryptobyte.String(enveloped)
	var seq, algorithm, wrapped cryptobyte.String
	var public, sealed []byte
	if !input.ReadASN1(&seq, asn1.SEQUENCE) || !input.Empty() ||
		!seq.ReadASN1(&algorithm, asn1.SEQUENCE) || !sm4Identifiers[string(algorithm)] ||
		!seq.ReadASN1Element(&wrapped, asn1.SEQUENCE) ||
		!seq.ReadASN1BitStringAsBytes(&public) || len(public) != publicFormats[kms.SpecSM2].octets ||
		!seq.ReadASN1BitStringAsBytes(&sealed) || len(sealed) != sm2Size || !seq.Empty() {
		return nil, errImport
	}
	session, err := key.(sm2DecryptionKey).decrypt(&hsm.Call{Order: kms.SM2OrderASN1, Input: wrapped})
	defer clear(session)
	if err != nil || len(session) != sm4.BlockSize {
		return nil, errImport
	}
	block, err := sm4.NewCipher(session)
	if err != nil {
		return nil, errImport
	}
	scalar := make([]byte, sm2Size)
	defer clear(scalar)
	for i := 0; i < sm2Size; i += sm4.BlockSize {
		block.Decrypt(scalar[i:], sealed[i:])
	}
	return sm2PKCS8(scalar, public)
}

// sm2PKCS8 writes a private key beside the public key that is stated for it
// (RFC 5958, section 2; RFC 5915, section 3).
func sm2PKCS8(scalar, public []byte) ([]byte, error) {
	var inner, b cryptobyte.Builder
	inner.AddASN1(asn1.SEQUENCE, func(b *cryptobyte.Builder) {
		b.AddASN1Int64(1)
		b.AddASN1OctetString(scalar)
		b.AddASN1(asn1.Tag(1).Constructed().ContextSpecific(), func(b *cryptobyte.Builder) { b.AddASN1BitString(public) })
	})
	private, err := inner.Bytes()
	if err != nil {
		return nil, err
	}
	defer clear(private)
	b.AddASN1(asn1.SEQUENCE, func(b *cryptobyte.Builder) {
		b.AddASN1Int64(0)
		b.AddBytes([]byte(publicFormats[kms.SpecSM2].algorithm))
		b.AddASN1OctetString(private)
	})
	return b.Bytes()
}
