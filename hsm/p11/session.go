package p11

import (
	"bytes"
	"errors"

	"github.com/emmansun/gmsm/sm3"
	"github.com/miekg/pkcs11"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

// session is a session of the token and the memory that its operations use.
// It implements hsm.Session.
type session struct {
	conn   *connection
	handle pkcs11.SessionHandle
	memory *memory
	// broken: the session is gone or may have an active operation, so the
	// next operation opens another one first.
	broken bool
	// dirty: the broken session still exists.
	dirty bool
	// closed: the worker has closed it, and what it had is another's.
	closed bool
}

// What is wrong with a call before it reaches the token.
var (
	errClosed    = errors.New("the session is closed")
	errHandle    = errors.New("not a handle of the token")
	errKey       = errors.New("the handle's key has another spec or usage")
	errAlgorithm = errors.New("the key does not offer the algorithm")
	errDigest    = errors.New("the digest's length is not that of the algorithm's hash")
	errNonce     = errors.New("the nonce's length is not the algorithm's")
	errAAD       = errors.New("the algorithm takes no additional data")
	errPeer      = errors.New("the peer's public key is not one of the key's curve")
	errOutput    = errors.New("the number of derived bytes is out of range")
	errSize      = errors.New("the input is longer than a session takes")
	errLength    = errors.New("the input's length does not fit the key")
	errRandom    = errors.New("the number of random bytes is out of range")
	errPadding   = errors.New("the ciphertext's padding is not valid")
	errWrapped   = errors.New("the wrapped bytes are not valid")
	errHashless  = errors.New("the algorithm takes no digest")

	errUserID     = errors.New("a user id of 1 to 8191 bytes goes with a message, and none with a digest")
	errPublicKey  = errors.New("the call does not name the key's public half")
	errOrder      = errors.New("the order of the ciphertext is unknown")
	errCiphertext = errors.New("the ciphertext is not one of the order")
	errTag        = errors.New("the ciphertext's tag is not valid")
)

func badRequest(err error) *hsm.Error {
	return &hsm.Error{Class: hsm.ClassRequest, Call: "Session.Do", Err: err}
}

// Do runs one operation with at most one crossing into the module when
// nothing fails. It refuses what does not fit the key or the algorithm before
// the call: SoftHSM for one signs an empty digest, takes an empty nonce, and
// signs with a key of another type. Where the module replaces the nonce by its
// own, c.Nonce is set to that.
func (s *session) Do(c *hsm.Call) error {
	switch {
	case s.closed:
		return &hsm.Error{Class: hsm.ClassSession, Call: "Session.Do", Err: errClosed}
	case c.Verb == kms.VerbRandom:
		return s.result(s.random(c))
	}
	usage, known := usages[c.Verb]
	if !known || c.Verb == kms.VerbEncrypt && (c.Spec.Info() == nil || !c.Spec.Info().Symmetric()) {
		return &hsm.Error{Class: hsm.ClassUnsupported, Call: "Session.Do"}
	}
	key, ok := parseHandle(c.Handle)
	switch {
	case !ok:
		return &hsm.Error{Class: hsm.ClassStaleObject, Call: "Session.Do", Err: errHandle}
	case key.spec != c.Spec || key.usage != usage:
		return badRequest(errKey)
	case !c.Spec.Supports(key.usage, c.Algorithm):
		return badRequest(errAlgorithm)
	}
	return s.result(s.use(c, key))
}

// usages are what a key must have been loaded for to serve a verb.
var usages = map[kms.Verb]kms.Usage{
	kms.VerbSign:    kms.UsageSignVerify,
	kms.VerbMAC:     kms.UsageGenerateVerifyMAC,
	kms.VerbEncrypt: kms.UsageEncryptDecrypt, // of symmetric keys
	kms.VerbDecrypt: kms.UsageEncryptDecrypt,
	kms.VerbAgree:   kms.UsageKeyAgreement,
	kms.VerbDerive:  kms.UsageDerive,
	kms.VerbWrap:    kms.UsageWrapUnwrap,
	kms.VerbUnwrap:  kms.UsageWrapUnwrap,
}

// use runs a verb on a key that serves it.
func (s *session) use(c *hsm.Call, key loadedKey) error {
	switch c.Verb {
	case kms.VerbSign:
		return s.sign(c, key)
	case kms.VerbMAC:
		return s.mac(c, key)
	case kms.VerbEncrypt:
		return s.encrypt(c, key)
	case kms.VerbDecrypt:
		return s.decrypt(c, key)
	case kms.VerbAgree:
		return s.agree(c, key)
	case kms.VerbDerive:
		return s.derive(c, key)
	case kms.VerbWrap:
		return s.wrapBytes(c, key)
	default: // VerbUnwrap
		return s.unwrapBytes(c, key)
	}
}

// result ends an operation: its memory is wiped whatever happened.
func (s *session) result(err error) error {
	s.memory.release()
	return err
}

func (s *session) sign(c *hsm.Call, key loadedKey) error {
	if c.Algorithm == kms.AlgSM2DSA {
		return s.signSM2(c, key)
	}
	mech := signMechanisms[c.Algorithm]
	if mech == nil {
		return &hsm.Error{Class: hsm.ClassUnsupported, Call: "C_SignInit"}
	}
	hash := c.Algorithm.Hash()
	var encoded [maxEncodedDigest]byte
	digest := encoded[:0]
	if mech.id == pkcs11.CKM_RSA_PKCS {
		digest = append(digest, digestInfoPrefix[hash]...)
	}
	switch {
	case !c.Prehashed:
		digest = appendDigest(digest, hash, c.Input)
	case len(c.Input) != hash.Size():
		return badRequest(errDigest)
	default:
		digest = append(digest, c.Input...)
	}
	info := c.Spec.Info()
	size := info.Bits / 8
	if info.Family != kms.FamilyRSA {
		size = 2 * ((info.Bits + 7) / 8)
	}
	signature, err := s.call(&request{operation: opSign, mechanism: mech, key: key.object, input: digest, room: size + outputSlack}, size)
	if err != nil {
		return err
	}
	if info.Family == kms.FamilyRSA {
		c.Output = bytes.Clone(signature)
	} else {
		c.Output = encodeECDSASignature(signature)
	}
	return nil
}

func (s *session) mac(c *hsm.Call, key loadedKey) error {
	mech, ok := macMechanisms[c.Algorithm]
	if c.Algorithm == kms.AlgHMACSM3 {
		mech.mechanism, mech.size = s.conn.vendor.hmacSM3, sm3.Size
		ok = mech.mechanism != nil
	}
	switch {
	case !ok:
		return &hsm.Error{Class: hsm.ClassUnsupported, Call: "C_SignInit"}
	case c.Prehashed:
		return badRequest(errHashless)
	case len(c.Input) > maxData:
		return badRequest(errSize)
	}
	mac, err := s.call(&request{operation: opSign, mechanism: mech.mechanism, key: key.object, input: c.Input, room: mech.size + outputSlack}, mech.size)
	if err != nil {
		return err
	}
	c.Output = bytes.Clone(mac)
	return nil
}

func (s *session) encrypt(c *hsm.Call, key loadedKey) error {
	if c.Algorithm == kms.AlgAESCBC || c.Algorithm == kms.AlgSM4CBC {
		return s.encryptCBC(c, key)
	}
	r, err := s.gcmRequest(opEncrypt, c, key)
	if err != nil {
		return err
	}
	if r.mechanism == nil {
		return s.gcmOverECB(c, key, true)
	}
	o, err := s.run(&r)
	if err != nil {
		return err
	}
	if len(o.output) != len(c.Input)+tagSize {
		return wrongLength("C_Encrypt")
	}
	c.Output = bytes.Clone(o.output)
	if !bytes.Equal(o.nonce, c.Nonce) {
		c.Nonce = bytes.Clone(o.nonce)
	}
	return nil
}

func (s *session) decrypt(c *hsm.Call, key loadedKey) error {
	switch {
	case c.Spec.Info().Family == kms.FamilyRSA:
		return s.decryptRSA(c, key)
	case c.Algorithm == kms.AlgSM2PKE:
		return s.decryptSM2(c, key)
	case c.Algorithm == kms.AlgAESCBC, c.Algorithm == kms.AlgSM4CBC:
		return s.decryptCBC(c, key)
	}
	if len(c.Input) < tagSize {
		return badRequest(errLength)
	}
	r, err := s.gcmRequest(opDecrypt, c, key)
	if err != nil {
		return err
	}
	if r.mechanism == nil {
		return s.gcmOverECB(c, key, false)
	}
	plaintext, err := s.call(&r, len(c.Input)-tagSize)
	if err != nil {
		return err
	}
	c.Output = bytes.Clone(plaintext)
	return nil
}

// gcmRequest checks the call. The request has no mechanism where GCM is to be
// made of ECB.
func (s *session) gcmRequest(op operation, c *hsm.Call, key loadedKey) (request, error) {
	mech, v := gcmMechanism, &s.conn.vendor
	if c.Algorithm == kms.AlgSM4GCM {
		mech = v.sm4GCM
	}
	switch {
	case c.Algorithm != kms.AlgAESGCM && c.Algorithm != kms.AlgSM4GCM, mech == nil && v.sm4ECB == nil:
		return request{}, unsupported("Session.Do")
	case len(c.Nonce) != nonceSize:
		return request{}, badRequest(errNonce)
	case len(c.Input)+len(c.AAD) > maxData:
		return request{}, badRequest(errSize)
	}
	return request{operation: op, mechanism: mech, key: key.object,
		nonce: c.Nonce, aad: c.AAD, input: c.Input, room: len(c.Input) + outputSlack}, nil
}

func (s *session) decryptRSA(c *hsm.Call, key loadedKey) error {
	modulus := c.Spec.Info().Bits / 8
	if len(c.Input) != modulus {
		return badRequest(errLength)
	}
	r := &request{operation: opDecrypt, mechanism: oaepSHA1Mechanism, key: key.object, input: c.Input, room: modulus + outputSlack}
	if c.Algorithm == kms.AlgRSAOAEPSHA256 {
		return s.decryptOAEPSHA256(c, r)
	}
	o, err := s.run(r)
	if err != nil {
		return err
	}
	c.Output = bytes.Clone(o.output)
	return nil
}

// decryptOAEPSHA256 uses the token's own OAEP where it takes SHA-256 and the
// raw private operation where it does not, as SoftHSM, which answers with
// CKR_ARGUMENTS_BAD. It tries once for each token.
func (s *session) decryptOAEPSHA256(c *hsm.Call, r *request) error {
	if !s.conn.rawOAEP.Load() {
		r.mechanism = oaepSHA256Mechanism
		o, err := s.run(r)
		if err == nil {
			c.Output = bytes.Clone(o.output)
			return nil
		}
		refused := o.step == 0 && (o.code == pkcs11.CKR_ARGUMENTS_BAD ||
			o.code == pkcs11.CKR_MECHANISM_INVALID || o.code == pkcs11.CKR_MECHANISM_PARAM_INVALID)
		if !refused || !s.conn.offers(pkcs11.CKM_RSA_X_509) {
			return err
		}
		s.conn.rawOAEP.Store(true)
	}
	r.mechanism = rawRSAMechanism
	em, err := s.call(r, len(c.Input))
	if err != nil {
		return err
	}
	message, ok := decodeOAEPSHA256(em)
	if !ok {
		return badRequest(errPadding)
	}
	c.Output = bytes.Clone(message)
	return nil
}

func (s *session) random(c *hsm.Call) error {
	if c.Length < 1 || c.Length > maxData {
		return badRequest(errRandom)
	}
	random, err := s.call(&request{operation: opRandom, room: c.Length}, c.Length)
	if err != nil {
		return err
	}
	c.Output = bytes.Clone(random)
	return nil
}

// wrap wraps a key under another.
func (s *session) wrap(m *mechanism, kek, key pkcs11.ObjectHandle) ([]byte, error) {
	o, err := s.run(&request{operation: opWrap, mechanism: m, key: uint(kek), wrapped: uint(key), room: maxMaterial})
	wrapped := bytes.Clone(o.output)
	return wrapped, s.result(err)
}

// call runs a request whose output has a known length in bytes.
func (s *session) call(r *request, length int) ([]byte, error) {
	o, err := s.run(r)
	if err != nil {
		return nil, err
	}
	if len(o.output) != length {
		return nil, wrongLength(o.failedCall(r.operation))
	}
	return o.output, nil
}

// wrongLength: the module said it succeeded and cannot have; whether the
// input or the token is to blame, the canary tells.
func wrongLength(call string) *hsm.Error {
	return driverError(hsm.ClassAmbiguous, call, "the output has a wrong length")
}

// run runs a request and notes what its failure says of the session.
func (s *session) run(r *request) (outcome, error) {
	if err := s.ready(); err != nil {
		return outcome{}, err
	}
	s.conn.crossings.Add(1)
	o := s.memory.run(s.conn.mod.list, s.handle, r)
	if o.code == pkcs11.CKR_OK {
		return o, nil
	}
	err := o.err(r.operation)
	switch {
	case o.stuck, o.code == pkcs11.CKR_OPERATION_ACTIVE:
		s.broken, s.dirty = true, true
	case err.Class == hsm.ClassSession:
		s.broken = true
	}
	return o, err
}

// ready opens another session in place of a broken one, which is set aside
// when it still exists: closing it would hold up the whole token.
func (s *session) ready() error {
	if !s.broken {
		return nil
	}
	if s.dirty {
		if err := s.conn.setAside(); err != nil {
			return err
		}
		s.dirty = false
	}
	handle, err := s.conn.openSession()
	if err != nil {
		return err
	}
	s.conn.crossings.Add(1)
	s.handle, s.broken = handle, false
	return nil
}

// note marks the session as broken when an error of a call outside run says
// that it is gone.
func (s *session) note(err error) {
	if err != nil && hsm.ClassOf(err) == hsm.ClassSession {
		s.broken = true
	}
}

// objects reaches the token's objects through the session.
func (s *session) objects() objects { return objects{s.conn.mod, s.handle} }

// Close ends the worker's use of the session. What it consists of is kept for
// the next worker.
func (s *session) Close() error {
	if s.closed {
		return nil
	}
	kept := *s
	*s = session{closed: true}
	kept.conn.giveBack(&kept)
	return nil
}
