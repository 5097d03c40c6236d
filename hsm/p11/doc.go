// Package p11 is the PKCS#11 driver: it implements hsm.Token and hsm.Session
// on any PKCS#11 v2.40 module whose token wraps keys by RFC 5649.
//
// # What is on a token
//
// Two token objects, the domain's key root and sealing root, put there by
// Ceremony and frozen (not extractable, not modifiable). They are used where
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
// # Trust
//
// A caller's template protects nothing, since whoever knows the PIN may unwrap
// material with a template of his own. What protects keys is the unwrap
// template on the roots, which denies extraction whatever the caller asks
// for. Enforces tests whether the module obeys it.
package p11
