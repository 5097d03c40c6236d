package hsm

import "github.com/sluice-kms/sluice/kms"

// Importer is a Token that takes keys from outside. The key was in the clear
// before it came here, whoever holds the token; what is promised holds from
// then on.
type Importer interface {
	// Import makes material of a given key, like Generate of a new one: the
	// material and the public half, with nothing left in the token. key is not
	// kept; the caller wipes it.
	//
	// A symmetric key is its bytes, of the spec's size and no other. Any other
	// key is PKCS #8 in DER (RFC 5958), without attributes, holding
	//
	//	RSA      RSAPrivateKey with two primes and the public exponent 65537
	//	         (RFC 8017, A.1.2)
	//	EC, SM2  ECPrivateKey (RFC 5915), the curve named by its object
	//	         identifier (RFC 5480, 2.1.1; SEC 2, A.2; GM/T 0006)
	//	Ed25519  CurvePrivateKey, the seed (RFC 8410, 7)
	//	ML-KEM   the seed d ‖ z, alone or beside the expanded key (RFC 9935, 6)
	//	ML-DSA   the seed ξ, alone or beside the expanded key (RFC 9881, 6)
	//	SLH-DSA  SK.seed ‖ SK.prf ‖ PK.seed ‖ PK.root (RFC 9909)
	//
	// Where the encoding holds a public key or an expanded one, it must be that
	// of the private key. A key that is malformed, of another spec, or whose
	// parts contradict each other is ClassRequest; one that the token cannot
	// take is ClassUnsupported.
	Import(spec kms.Spec, usage kms.Usage, key []byte) (Generated, error)
}

// EnvelopeOpener is a Token that opens keys in the envelope of GB/T 35276.
type EnvelopeOpener interface {
	// OpenEnveloped takes an SM2 key out of an SM2EnvelopedKey (GB/T
	// 35276-2017, 7.4), which was made for the SM2 decryption key in material:
	//
	//	SEQUENCE { symAlgID AlgorithmIdentifier, symEncryptedKey SM2Cipher,
	//	           sm2PublicKey BIT STRING, sm2EncryptedPrivateKey BIT STRING }
	//
	// with SM4 in ECB, without padding. It returns the key as Import takes it,
	// with the public key that the envelope states: Import compares the two.
	// Whatever is wrong with the envelope is ClassRequest.
	OpenEnveloped(material, enveloped []byte) ([]byte, error)
}
