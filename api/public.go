package api

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/base64"
	"encoding/json/v2"
	"encoding/pem"
	"math/big"
	"mime"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-kms/sluice/kms"
)

// The forms of a public key beside our JSON.
const (
	mediaPEM = "application/x-pem-file"
	mediaJWK = "application/jwk+json" // RFC 7517, 8.5.1
	mediaDER = "application/octet-stream"
)

func publicKey(c *call, _ *NoBody) (*PublicKeyResponse, error) {
	key, version, err := c.service.PublicKey(c.context, &c.ticket, c.object(0), c.number("version"))
	if err != nil {
		return nil, err
	}
	jwk, err := jwkOf(key, version)
	if err != nil {
		return nil, err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: version.PublicKey})
	switch media := preferred(c.request.Header["Accept"], c.route.Media); media {
	case mediaPEM:
		c.answerRaw(media, text)
	case mediaDER:
		c.answerRaw(media, version.PublicKey)
	case mediaJWK:
		if jwk == nil {
			return nil, kms.Errorf(kms.KindInvalidArgument, "header Accept: %s keys have no JWK form", key.Spec)
		}
		body, err := json.Marshal(jwk)
		if err != nil {
			return nil, err
		}
		c.answerRaw(media, body)
	}
	return &PublicKeyResponse{PEM: string(text), JWK: jwk, Spec: key.Spec, Usage: key.Usage,
		Version: version.Number, Meta: c.meta()}, nil
}

// answerRaw makes body the whole answer.
func (c *call) answerRaw(media string, body []byte) {
	c.media = media
	c.raw = newBuffer(len(body))
	c.raw.bytes = append(c.raw.bytes, body...)
}

// preferred returns the media type of the offered ones that Accept weighs
// highest (RFC 9110, 12.5.1), the earlier of equals, or "" when that is JSON
// or nothing that there is: a client that accepts none of our types gets JSON
// and can tell it by its type.
func preferred(accept, offered []string) string {
	best, weight := "", 0.0
	for item := range strings.SplitSeq(strings.Join(accept, ","), ",") {
		media, params, err := mime.ParseMediaType(item)
		if err != nil {
			continue
		}
		q := 1.0
		if text, given := params["q"]; given {
			if q, err = strconv.ParseFloat(text, 64); err != nil {
				continue
			}
		}
		if q <= weight {
			continue
		}
		switch {
		case slices.Contains(offered, media):
			best, weight = media, q
		case media == contentJSON, media == "application/*", media == "*/*":
			best, weight = "", q
		}
	}
	return best
}

// subjectPublicKeyInfo is RFC 5280, 4.1. The standard library's parser knows
// neither SM2 nor secp256k1, and a JWK needs no more than the key's octets.
type subjectPublicKeyInfo struct {
	Algorithm pkix.AlgorithmIdentifier
	PublicKey asn1.BitString
}

// jwkCurves are the registered names of curves (RFC 7518, 6.2.1.1; RFC 8812,
// 3.1; RFC 8037, 2) and the length of a coordinate in bytes.
var jwkCurves = map[kms.Spec]struct {
	name string
	size int
}{
	kms.SpecP256:      {"P-256", 32},
	kms.SpecP384:      {"P-384", 48},
	kms.SpecP521:      {"P-521", 66},
	kms.SpecSecp256k1: {"secp256k1", 32},
	kms.SpecEd25519:   {"Ed25519", 32},
}

// jwkOf writes the public half of a version as a JWK; it is nil for families
// of which no JWK form is registered.
func jwkOf(key *kms.Key, version *kms.Version) (*JWK, error) {
	var info subjectPublicKeyInfo
	if rest, err := asn1.Unmarshal(version.PublicKey, &info); err != nil || len(rest) > 0 {
		return nil, errPublicKey
	}
	octets := info.PublicKey.RightAlign()
	jwk := &JWK{Use: "enc", KeyID: key.ID.String() + "." + strconv.FormatUint(uint64(version.Number), 10)}
	if key.Usage == kms.UsageSignVerify {
		jwk.Use = "sig"
	}
	curve := jwkCurves[key.Spec]
	jwk.Curve = curve.name
	switch key.Spec.Info().Family {
	case kms.FamilyRSA:
		rsa, err := x509.ParsePKCS1PublicKey(octets)
		if err != nil {
			return nil, errPublicKey
		}
		jwk.KeyType, jwk.N, jwk.E = "RSA", base64URL(rsa.N.Bytes()), base64URL(big.NewInt(int64(rsa.E)).Bytes())
	case kms.FamilyEd25519:
		if len(octets) != curve.size {
			return nil, errPublicKey
		}
		jwk.KeyType, jwk.X = "OKP", base64URL(octets)
	case kms.FamilyEC, kms.FamilySecp256k1:
		// An uncompressed point (SEC 1, 2.3.3): 4 ‖ x ‖ y.
		if len(octets) != 1+2*curve.size || octets[0] != 4 {
			return nil, errPublicKey
		}
		jwk.KeyType, jwk.X, jwk.Y = "EC", base64URL(octets[1:1+curve.size]), base64URL(octets[1+curve.size:])
	default:
		return nil, nil
	}
	return jwk, nil
}

var errPublicKey = kms.Errorf(kms.KindInternal, "the stored public key is malformed")

func base64URL(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }
