package client

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/binary"
	"encoding/pem"
	"errors"
)

// MaxImportKey bounds a wrapped key, in bytes.
const MaxImportKey = 16 << 10

// WrapKey wraps a key for import parameters whose wrapping is ImportRSAAES, in
// the memory of the caller. A symmetric key is its bytes, any other its PKCS #8
// in DER. The caller wipes key.
func WrapKey(p *ImportParameters, key []byte) ([]byte, error) {
	if p.Wrapping != ImportRSAAES {
		return nil, errors.New("sluice: only " + string(ImportRSAAES) + " is wrapped here; the others are wrapped by other tools")
	}
	if len(key) == 0 || len(key) > MaxImportKey/2 {
		return nil, errors.New("sluice: the key to import is empty or too long")
	}
	block, _ := pem.Decode([]byte(p.PublicKey))
	if block == nil {
		return nil, errors.New("sluice: the import parameters hold no public key in PEM")
	}
	parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	public, ok := parsed.(*rsa.PublicKey)
	if !ok {
		return nil, errors.New("sluice: the import parameters hold no RSA key")
	}
	wrapping := make([]byte, 32)
	defer clear(wrapping)
	rand.Read(wrapping)
	out, err := rsa.EncryptOAEP(sha256.New(), rand.Reader, public, wrapping, nil)
	if err != nil {
		return nil, err
	}
	c, err := aes.NewCipher(wrapping)
	if err != nil {
		return nil, err
	}
	return append(out, keyWrap(c, key)...), nil
}

// Numbers of RFC 5649 and RFC 3394.
const (
	semiblock  = 8          // bytes (RFC 3394, 2)
	kwpPrefix  = 0xA65959A6 // first half of the initial value (RFC 5649, 3)
	wrapPasses = 6          // (RFC 3394, 2.2.1)
)

// keyWrap is RFC 5649, 4.1.
func keyWrap(c cipher.Block, key []byte) []byte {
	n := (len(key) + semiblock - 1) / semiblock
	out := make([]byte, (n+1)*semiblock)
	binary.BigEndian.PutUint32(out, kwpPrefix)
	binary.BigEndian.PutUint32(out[4:], uint32(len(key)))
	copy(out[semiblock:], key)
	if n == 1 {
		c.Encrypt(out, out)
		return out
	}
	var b [aes.BlockSize]byte
	copy(b[:semiblock], out)
	for pass := range wrapPasses {
		for i := 1; i <= n; i++ {
			r := out[i*semiblock : (i+1)*semiblock]
			copy(b[semiblock:], r)
			c.Encrypt(b[:], b[:])
			copy(r, b[semiblock:])
			a := binary.BigEndian.Uint64(b[:]) ^ uint64(pass*n+i)
			binary.BigEndian.PutUint64(b[:], a)
		}
	}
	copy(out, b[:semiblock])
	return out
}
