package kms

import (
	"encoding/asn1"
	"math/big"
)

// orderSize is the length in bytes of the order of the spec's curve, which is
// that of r and s; 0 for specs whose signatures are not pairs.
func orderSize(s Spec) int {
	switch s {
	case SpecP256, SpecSecp256k1, SpecSM2:
		return 32
	case SpecP384:
		return 48
	case SpecP521:
		return 66
	}
	return 0
}

func hasRawFormat(s Spec) bool { return orderSize(s) > 0 }

type ecSignature struct{ R, S *big.Int }

// encodeSignature turns a device's signature (DER for pairs) into the format
// asked for.
func encodeSignature(s Spec, der []byte, f SignatureFormat) ([]byte, error) {
	if f != FormatRaw {
		return der, nil
	}
	var sig ecSignature
	n := orderSize(s)
	if rest, err := asn1.Unmarshal(der, &sig); err != nil || len(rest) > 0 ||
		sig.R.Sign() <= 0 || sig.S.Sign() <= 0 || sig.R.BitLen() > 8*n || sig.S.BitLen() > 8*n {
		return nil, Errorf(KindInternal, "the node returned a malformed signature")
	}
	raw := make([]byte, 2*n)
	sig.R.FillBytes(raw[:n])
	sig.S.FillBytes(raw[n:])
	return raw, nil
}

// decodeSignature turns a signature in the format given into the device's.
// It returns nil for a raw signature that cannot be one.
func decodeSignature(s Spec, sig []byte, f SignatureFormat) []byte {
	if f != FormatRaw {
		if sig == nil {
			return []byte{}
		}
		return sig
	}
	n := orderSize(s)
	if len(sig) != 2*n {
		return nil
	}
	pair := ecSignature{new(big.Int).SetBytes(sig[:n]), new(big.Int).SetBytes(sig[n:])}
	der, err := asn1.Marshal(pair)
	if err != nil {
		return nil
	}
	return der
}
