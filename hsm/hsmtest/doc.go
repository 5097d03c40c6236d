// Package hsmtest is the conformance suite for drivers of package hsm.
//
// RunToken holds one driver to what hsm.Token and hsm.Session promise: that
// results are right by the word of other implementations, that failures carry
// the class on which a node acts, leave no output and leave the session
// usable, that nothing the caller owns is changed or kept, and that a handle
// never gives another key's result.
//
// # How it judges
//
// Signatures, public keys and public-key ciphertexts are judged by Go's
// standard library, decred's secp256k1 and gmsm, never by the token itself.
// A token does not show its secret keys, so what comes out of symmetric keys
// is judged by its structure (length, dependence on nonce, additional data
// and key; the XOR of two ciphertexts under one nonce is that of their
// plaintexts, as SP 800-38D, section 6.5 has it) and by a second token of the
// domain; a driver whose material tells the key hands it over through
// Options.Clear, and then the standard library judges those too. A token that
// takes keys from outside (Options.Imports) is given the judges', and every
// result with those is compared byte by byte.
//
// ML-DSA is judged by the standard library and gmsm together, ML-KEM by the
// one that the engine does not use, HKDF by the standard library, and SLH-DSA,
// of which there is one library, by FIPS 205 written out in this package.
//
// Every call goes through one function that clones its inputs before and
// compares them after, scribbles over the output to see that it shares no
// memory with the inputs, and watches earlier outputs for change.
//
// The suite runs its subtests one after another on one token; it leaves no
// key loaded and closes what it opened.
package hsmtest
