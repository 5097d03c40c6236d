package soft

import (
	"errors"

	"github.com/sluice-kms/sluice/hsm"
)

func requestError(call, reason string) *hsm.Error {
	return &hsm.Error{Class: hsm.ClassRequest, Call: call, Err: errors.New(reason)}
}

// What callers are told. The values are shared and never changed.
var (
	// errDecryption is the one answer to a ciphertext that does not decrypt,
	// whatever is wrong with it: telling causes apart is what padding and
	// format oracles live on.
	errDecryption = requestError("decrypt", "the ciphertext does not decrypt")

	errAlgorithm  = requestError("do", "the key's spec and usage do not offer the algorithm for this verb")
	errSpec       = requestError("do", "the key is of another spec")
	errVerb       = requestError("do", "unknown verb")
	errFields     = requestError("do", "a field is set that the verb and algorithm do not take")
	errDigestSize = requestError("do", "the digest's length is not that of the algorithm's hash")
	errPrehashed  = requestError("do", "the algorithm takes no digest here")
	errEmpty      = requestError("do", "the algorithm takes no empty message")
	errNonce      = requestError("do", "the nonce's length is not the algorithm's")
	errUserID     = requestError("do", "the user id must have 1 to 8191 bytes")
	errOrder      = requestError("do", "unknown order of an SM2 ciphertext")
	errTooLong    = requestError("encrypt", "the plaintext is too long for the key")
	errPublicKey  = requestError("do", "the public key is not a SubjectPublicKeyInfo of the spec")
	errPeer       = requestError("agree", "the peer's public key is not a SubjectPublicKeyInfo of the spec")
	errHash       = requestError("digest", "unknown hash function")
	errLength     = requestError("do", "the length asked for is out of range")
	errContext    = requestError("derive", "the context is too long")
	errWrapLength = requestError("wrap", "what is wrapped must have 1 to 4096 bytes")
	errMaterial   = requestError("load", "the material is not that of a key of the spec and usage")
	errImport     = requestError("import", "the key is not one of the spec in its encoding")
	errNoSuchSpec = requestError("generate", "no such spec or usage")

	errStale       = &hsm.Error{Class: hsm.ClassStaleObject, Call: "do", Err: errors.New("no such handle")}
	errSession     = &hsm.Error{Class: hsm.ClassSession, Call: "do", Err: errors.New("the session is closed")}
	errClosed      = &hsm.Error{Class: hsm.ClassTokenDown, Call: "do", Err: errors.New("the token is closed")}
	errFull        = &hsm.Error{Class: hsm.ClassCapacity, Call: "load", Err: errors.New("as many keys are loaded as fit")}
	errNoRoots     = &hsm.Error{Class: hsm.ClassUnsupported, Call: "sealing key", Err: errors.New("the in-process engine holds no roots")}
	errKnownAnswer = errors.New("a known answer came out differently")
)

// failed wraps what a library reports where input cannot be the cause.
func failed(call string, err error) *hsm.Error {
	return &hsm.Error{Class: hsm.ClassAmbiguous, Call: call, Err: err}
}
