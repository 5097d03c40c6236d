package p11

import (
	"bytes"
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/asn1"
	"math/big"
	"testing"

	"github.com/decred/dcrd/dcrec/secp256k1/v4"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

func TestECDSASignaturesAreMinimalDER(t *testing.T) {
	for name, c := range map[string]struct{ r, s int64 }{
		"small": {1, 2}, "high bits": {0x80, 0xFF}, "zero": {0, 0x7F}, "middle": {0x8000, 0x7FFF},
	} {
		for _, size := range []int{32, 48, 66} {
			raw := append(big.NewInt(c.r).FillBytes(make([]byte, size)), big.NewInt(c.s).FillBytes(make([]byte, size))...)
			checkDER(t, name, raw)
		}
	}
	for _, size := range []int{32, 48, 66} {
		checkDER(t, "longest", bytes.Repeat([]byte{0xFF}, 2*size))
	}
}

func checkDER(t *testing.T, name string, raw []byte) {
	t.Helper()
	half := len(raw) / 2
	want, err := asn1.Marshal(struct{ R, S *big.Int }{new(big.Int).SetBytes(raw[:half]), new(big.Int).SetBytes(raw[half:])})
	if err != nil {
		t.Fatal(err)
	}
	if got := encodeECDSASignature(raw); !bytes.Equal(got, want) {
		t.Errorf("%s, %d bytes: got %x, want %x", name, len(raw), got, want)
	}
}

// Modules give CKA_EC_POINT as an OCTET STRING or bare, and a bare point of
// P-256 whose x begins with 0x41 looks like an OCTET STRING.
func TestECPointsAreReadInBothForms(t *testing.T) {
	for spec, c := range map[kms.Spec]elliptic.Curve{kms.SpecP256: elliptic.P256(), kms.SpecP384: elliptic.P384(), kms.SpecP521: elliptic.P521()} {
		t.Run(string(spec), func(t *testing.T) {
			key, err := ecdsa.GenerateKey(c, rand.Reader)
			if err != nil {
				t.Fatal(err)
			}
			public, err := key.PublicKey.ECDH()
			if err != nil {
				t.Fatal(err)
			}
			want, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
			if err != nil {
				t.Fatal(err)
			}
			checkPoint(t, curves[spec], public.Bytes(), want)
		})
	}
	t.Run("a bare point that begins as an OCTET STRING", func(t *testing.T) {
		for {
			key, err := ecdh.P256().GenerateKey(rand.Reader)
			if err != nil {
				t.Fatal(err)
			}
			point := key.PublicKey().Bytes()
			if point[1] != 0x3F { // 04 3F: an OCTET STRING of the 63 bytes that follow, but for the last
				continue
			}
			if _, err := curves[kms.SpecP256].publicKeyInfo(point); err != nil {
				t.Error(err)
			}
			return
		}
	})
}

func checkPoint(t *testing.T, c *curve, point, want []byte) {
	t.Helper()
	wrapped, err := asn1.Marshal(point)
	if err != nil {
		t.Fatal(err)
	}
	for form, attribute := range map[string][]byte{"bare": point, "OCTET STRING": wrapped} {
		got, err := c.publicKeyInfo(attribute)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %x, %v; want %x", form, got, err, want)
		}
	}
	offCurve := bytes.Clone(point)
	offCurve[len(offCurve)-1] ^= 1
	compressed := append([]byte{2}, point[1:1+c.fieldSize]...)
	for name, bad := range map[string][]byte{
		"off the curve": offCurve, "compressed": compressed, "empty": nil, "short": point[:len(point)-1],
		"hybrid": append([]byte{6}, point[1:]...), "trailing": append(bytes.Clone(wrapped), 0),
	} {
		if _, err := c.publicKeyInfo(bad); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestSecp256k1KeysAreEncodedByHand(t *testing.T) {
	key, err := secp256k1.GeneratePrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	point := key.PubKey().SerializeUncompressed()
	// RFC 5480, 2 with secp256k1 of SEC 2, A.2.1.
	prefix := unhex(t, "3056301006072a8648ce3d020106052b8104000a034200")
	checkPoint(t, curves[kms.SpecSecp256k1], point, append(prefix, point...))
}

func TestHandlesSayWhatTheKeyIs(t *testing.T) {
	seen := make(map[hsm.Handle]bool)
	for _, kind := range keyKinds {
		for _, object := range []uint{0, 1, maxObject} {
			h, ok := makeHandle(kind, object)
			if !ok || h == 0 || seen[h] {
				t.Errorf("%v, %d: handle %x, ok %t, seen %t", kind, object, h, ok, seen[h])
			}
			seen[h] = true
			if key, ok := parseHandle(h); !ok || key.keyKind != kind || key.object != object {
				t.Errorf("%v, %d came back as %v", kind, object, key)
			}
		}
	}
	if _, ok := makeHandle(keyKinds[0], maxObject+1); ok {
		t.Error("an object handle of 57 bits was cut")
	}
	if _, ok := makeHandle(keyKind{kms.SpecAES256, kms.UsageSignVerify}, 1); ok {
		t.Error("a handle for a usage that the spec lacks")
	}
	for _, h := range []hsm.Handle{0, 1, hsm.Handle(len(keyKinds)+1) << handleKindShift, ^hsm.Handle(0)} {
		if _, ok := parseHandle(h); ok {
			t.Errorf("%x is a handle", h)
		}
	}
}
