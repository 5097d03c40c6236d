package kms

import "slices"

// legacyAlgorithms protect nothing from change: whoever learns whether their
// ciphertexts decrypt learns plaintext. They open what older systems have
// encrypted and encrypt nothing, and only for credentials with the scope
// "key:decrypt-legacy".
var legacyAlgorithms = []Algorithm{"AES_CBC_PKCS7", "SM4_CBC_PKCS7"}

func isLegacy(a Algorithm) bool { return slices.Contains(legacyAlgorithms, a) }

// legacyIVSize is the length of their initialisation vector in bytes.
const legacyIVSize = 16

// legacyWork plans the decryption of a bare CBC ciphertext. It does not name
// its version; 0 stands for the primary one.
func legacyWork(t *Ticket, alg Algorithm, in DecryptInput) (Work, error) {
	if t.By == nil || !t.By.Allowed(OpDecryptLegacy, t.Key) {
		return Work{}, &Error{Kind: KindPermissionDenied, Detail: "decrypting with this algorithm takes the scope key:decrypt-legacy"}
	}
	if in.AAD != nil {
		return Work{}, Errorf(KindInvalidArgument, "aad: %s has no additional data", alg)
	}
	if len(in.IV) != legacyIVSize {
		return Work{}, Errorf(KindInvalidArgument, "iv: must be %d bytes", legacyIVSize)
	}
	if n := len(in.Ciphertext); n == 0 || n > MaxInput || n%legacyIVSize != 0 {
		return Work{}, ErrDecryptionFailed
	}
	v, err := usableVersion(t.Key, in.Version)
	if err != nil {
		return Work{}, err
	}
	t.Version, t.Algorithm = v.Number, alg
	return Work{Verb: VerbDecrypt, Algorithm: alg, Key: t.Key, Version: v, Input: in.Ciphertext, Nonce: in.IV}, nil
}
