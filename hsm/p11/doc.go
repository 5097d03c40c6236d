// Package p11 is the PKCS#11 driver: it implements hsm.Token and hsm.Session
// on any PKCS#11 v2.40 module whose token wraps keys by RFC 5649, and
// hsm.Importer.
//
// # What is on a token
//
// Two token objects, the domain's key root and sealing root, put there by
// Ceremony and frozen (not extractable, not modifiable), and while they are
// replaced two of each generation: Replace adds the next, Retire removes an
// earlier one. They are used where
// they are: SoftHSM refuses to copy a frozen object, and a module that would
// copy it might leave its unwrap template behind. Everything else is a session
// object: keys are unwrapped from material when they are needed. So the number
// of keys is not bounded by the token's storage, nothing is ever searched in
// traffic, and a token loses nothing by a power cut.
//
// # Sessions
//
// An open token holds, besides its workers' sessions:
//
//	anchor      keeps the login alive; finds and checks the roots
//	loader      creates and destroys the session objects of loaded keys;
//	            objects die with the session that made them, so it stays open
//	generator   makes new keys, so that an RSA key pair, which takes seconds,
//	            does not hold up the loading of others
//	canary      uses the key that Probe unwraps
//
// No session is closed while the token is in use: closing one costs time
// linear in the token's objects on SoftHSM and has crashed modules. A
// worker's closed session is kept for the next worker, and one that a failed
// call may have left with an active operation is set aside and replaced.
//
// Lock order: loadMu, generateMu, canaryMu and sessionMu of a Token are never
// held together, except that canaryMu comes before loadMu. Those of the
// registry of modules are described there.
//
// # The hot path
//
// github.com/miekg/pkcs11 administers modules: slots, sessions, objects.
// Operations with keys go through cryptoki.c, because miekg makes two calls
// for each output and leaks the output's buffer when the second fails, which
// a client sending bad ciphertexts can provoke at will. Here an operation is
// one crossing from Go to C, which runs *Init and the operation. Its memory,
// request and answer, input and output, is the session's own: mapped when the
// session is opened, apart from Go's heap, and wiped after each call.
//
// # What is made of several calls
//
// Three operations are put together here, each in one crossing, so that keys
// need the least that the token can be asked for:
//
//	ECDH     C_DeriveKey, read the value, destroy the object. Cryptoki gives a
//	         shared secret as an object and in no other way. It is readable, as
//	         the secret is the caller's by the meaning of the operation, and
//	         gone when the call returns.
//	HKDF     one MAC for each block. Its keys may sign and do nothing else; a
//	         key that may derive gives readable keys by every mechanism for
//	         derivation that the token has.
//	AES-KWP  of callers' bytes: the rounds here, the blocks by CKM_AES_ECB. A
//	         key that may wrap and unwrap would do so to the token's own keys.
//
// Import is the fourth: C_CreateObject, wrap under the key root, destroy.
//
// # Vendors' keys
//
// PKCS#11 has no mechanisms for SM2, SM4 and HMAC-SM3. Where a Profile tells
// those of a vendor, keys of these families are made, wrapped, loaded and used
// like all others, in one crossing. What differs between vendors is settled
// here: SM2's digest is computed with SM3 and the public key before the token
// signs it, ciphertexts are turned into the vendor's order, and SM4-GCM is made
// of SM4-ECB where there is none. A profile is believed in nothing that the
// self-test can find out.
//
// # Trust
//
// A caller's template protects nothing, since whoever knows the PIN may unwrap
// material with a template of his own. What protects keys is the unwrap
// template on the roots, which denies extraction whatever the caller asks
// for. Enforces tests whether the module obeys it.
package p11
