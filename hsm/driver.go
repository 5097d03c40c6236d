package hsm

import (
	"errors"
	"fmt"

	"github.com/sluice-kms/sluice/kms"
)

// Token is one opened HSM token of a domain, or the in-process engine. It is
// the seam to a driver (hsm/p11, hsm/soft): values and byte slices cross it,
// no pointers into either side and no callbacks, so that a driver can live in
// a process of its own.
//
// Material is what the driver makes and loads: for PKCS#11 the key wrapped
// under one of the token's roots (RFC 5649), which is safe to store anywhere;
// for the in-process engine the key itself, which its caller seals before it
// stores it and wipes after loading it.
//
// All methods are safe for concurrent use, except that Close must not run
// while another method does. Errors are of type *Error.
type Token interface {
	Info() TokenInfo

	// NewSession opens a worker's session. Sessions are opened when the
	// token joins, never in traffic.
	NewSession() (Session, error)

	// Generate makes a key of the spec for the usage and returns its
	// material under the key root and, for asymmetric keys, the public half.
	// Nothing of it stays in the token.
	Generate(spec kms.Spec, usage kms.Usage) (Generated, error)
	// GenerateSealingKey makes a tenant's AES-256 sealing key and returns it
	// wrapped under the sealing root.
	GenerateSealingKey() (material []byte, err error)

	// Load makes material usable in every session of the token until Unload.
	// material is not kept.
	Load(material []byte, spec kms.Spec, usage kms.Usage) (Handle, error)
	// LoadSealingKey loads a sealing key, for VerbEncrypt and VerbDecrypt
	// with AES_GCM.
	LoadSealingKey(material []byte) (Handle, error)
	// Unload destroys a loaded key. No call that uses it may be running.
	Unload(Handle) error

	// Enforces tries to unwrap a blob of each root under a template that asks
	// for clear material, and tells whether the token refused every try. A
	// token that gives in makes its domain "unenforced".
	Enforces() (bool, error)

	// Probe runs the canary: it unwraps a stored blob with the root and uses
	// it. It is the only health check that counts.
	Probe() error
	// Close logs out and releases the token.
	Close() error
}

// Session is one worker's connection to the token: one goroutine at a time.
type Session interface {
	// Do runs one operation: one crossing into the module. It cannot be
	// cancelled. c and its slices belong to the session until Do returns.
	Do(c *Call) error
	Close() error
}

// Handle names a loaded key in one token in one epoch.
type Handle uint64

// Call is one operation: the flat form of kms.Work. See there for the
// meaning of the fields; Handle is unused for VerbVerify, VerbEncapsulate and
// public-key VerbEncrypt, which use PublicKey, and for VerbRandom and
// VerbDigest. VerbSign with SM2 and a message uses both: the public key is part
// of what is hashed.
type Call struct {
	Verb      kms.Verb
	Algorithm kms.Algorithm
	Spec      kms.Spec
	Handle    Handle
	PublicKey []byte // SubjectPublicKeyInfo, DER
	Digest    kms.Digest
	Input     []byte
	Prehashed bool
	Signature []byte
	Nonce     []byte
	AAD       []byte
	UserID    []byte
	Order     kms.SM2Order
	Length    int
	Peer      []byte

	Output []byte // set by Do; newly allocated, owned by the caller
	Secret []byte // the same, for VerbEncapsulate
	Valid  bool   // set by Do for VerbVerify
}

// Generated is a new key.
type Generated struct {
	Material  []byte
	PublicKey []byte // SubjectPublicKeyInfo, DER; nil for symmetric keys
}

// TokenInfo describes a token.
type TokenInfo struct {
	Driver string // "pkcs11" or "soft"
	Model  string
	Serial string
	Label  string
	// MaxSessions bounds the sessions that the token grants; 0: no bound.
	MaxSessions int
	// MaxLoads is how many keys may be loaded until the token should be closed
	// and opened again, for a module that is known to leak; 0: no bound.
	MaxLoads uint64
	// Wraps lists the families whose keys the token can generate, wrap,
	// unwrap and use, as far as its mechanism list tells; the self-test
	// decides.
	Wraps []kms.Family
}

// Class says what an error means for the token, the handle and the request.
type Class uint8

// The error classes; hsm/p11 holds the table from return values to classes.
const (
	// ClassRequest: the input's or the key's fault. Never counts against the
	// token, never fails over.
	ClassRequest Class = iota
	// ClassStaleObject: the handle is gone: load again, retry once.
	ClassStaleObject
	// ClassRootGone: a root is gone: the token must be initialised again.
	ClassRootGone
	// ClassSession: the session is bad: replace it, retry once.
	ClassSession
	// ClassLogin: the login was lost: one re-login, new epoch, retry once.
	ClassLogin
	// ClassPIN: the PIN is wrong or locked: stop and alert, never try again.
	ClassPIN
	// ClassTokenDown: fail over, probe with back-off.
	ClassTokenDown
	// ClassAmbiguous: a code that says nothing: the canary decides between
	// ClassRequest and ClassTokenDown.
	ClassAmbiguous
	// ClassCapacity: the token is out of a resource: fewer slots, back off.
	ClassCapacity
	// ClassUnsupported: the token lacks the mechanism.
	ClassUnsupported
)

var classNames = [...]string{"request", "stale object", "root gone", "session", "login", "pin",
	"token down", "ambiguous", "capacity", "unsupported"}

// String returns the class's name.
func (c Class) String() string {
	if int(c) < len(classNames) {
		return classNames[c]
	}
	return fmt.Sprintf("class %d", uint8(c))
}

// Error is what a driver returns.
type Error struct {
	Class Class
	Call  string // the driver's function that failed, e.g. "C_Decrypt"
	Code  uint64 // its return value (CKR_*), 0 when there is none
	Err   error  // further cause, nil mostly
}

// Error describes the failure; it never holds input or key material.
func (e *Error) Error() string {
	s := fmt.Sprintf("%s: %s", e.Call, e.Class)
	if e.Code != 0 {
		s = fmt.Sprintf("%s: %s (0x%x)", e.Call, e.Class, e.Code)
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// ClassOf returns the class of the first *Error in the chain, ClassAmbiguous
// when there is none.
func ClassOf(err error) Class {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Class
	}
	return ClassAmbiguous
}
