// Package soft is the in-process engine: a hsm.Token that computes with Go's
// standard library, gmsm and decred's secp256k1.
//
// It is the node that serves what needs no HSM (verification, encryption and
// encapsulation to a public key, digests) and the keys of algorithms that the
// HSMs lack. It can use keys of every spec of package kms, so it can also stand
// in for a token in tests.
//
// # Who computes what
//
// The standard library, wherever it can: its code is the most looked at, and
// constant-time without conditions. gmsm has SM2, SM3, SM4, ML-KEM-512 and
// SLH-DSA, which the standard library has not. For ML-KEM-768 and -1024 and for
// ML-DSA there is a choice. gmsm is some five times faster at both, by vector
// instructions. That does not count at 0.07 ms for a decapsulation; at ML-DSA,
// with 0.4 to 0.8 ms for a signature, it is given up for what gmsm cannot do:
// sign the empty message, and sign µ in place of a message (FIPS 204, section
// 6.2). The tests hold the two against each other.
//
// Neither verifies a signature given µ, so VerbVerify of ML-DSA takes messages
// only. SLH-DSA takes no empty message; gmsm has no such case.
//
// # SEALED keys are exposed to this process
//
// Material of this driver is the key itself: the caller seals it before it
// stores it. While a key is loaded it is in the memory of this process, and
// whoever can read that memory has the key. What the engine does about it is
// no more than this:
//
//   - AES, SM4, HMAC and secp256k1 keys and the seeds of ML-DSA and SLH-DSA are
//     kept in a slab outside Go's heap, locked against swapping where the
//     system allows (see Token.Locked), left out of core dumps, and wiped on
//     Unload. They are expanded anew for every call, which costs about a
//     microsecond, for ML-DSA a third of a signature's time (0.2 to 0.4 ms)
//     and for SLH-DSA a seventh at most, so that a loaded key that is not in use exists in the slab
//     only. What a call expands is on the heap until the garbage collector
//     reuses it.
//   - RSA, NIST P-curve, Ed25519, SM2 and ML-KEM keys are kept as the libraries
//     parse them, since parsing costs as much as using them. They are on the
//     heap and neither locked nor, but for Ed25519, wiped.
//   - Buffers of the engine's own that held a key are wiped after use.
//
// HSM keys never come here.
//
// # Timing
//
// The standard library's and gmsm's private operations take constant time,
// gmsm's SM4 under a condition: see ConstantTimeSM4. The secp256k1 library
// multiplies and inverts in variable time; the engine hands it blinded scalars
// only (see secp256k1Key), which hides the key and the nonce from an observer
// of time, though not by proof. Prefer an HSM for that curve. The padding of
// CBC and of wrapped keys is checked in constant time; that it is wrong the
// caller of a decryption learns, which for CBC is an oracle in whoever's hands
// the ciphertexts are.
//
// # Checking
//
// Everything is checked before it reaches a library: lengths of nonces,
// digests and user ids, the public key's encoding, the ciphertext's layout,
// that an algorithm is one of the key's spec and usage, and that fields which
// the verb does not take are empty. gmsm, for one, turns an empty user id into
// the default one, signs digests of any length and reads an ASN.1 ciphertext
// whatever order it was asked for; its SLH-DSA keys compute wrongly when two
// calls share one. Refusals are of hsm.ClassRequest; every
// decryption that the ciphertext makes fail gives one and the same error.
package soft
