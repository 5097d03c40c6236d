package remote

import (
	"encoding/binary"
	"errors"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

// version of the protocol: both sides must have the same.
const version = 2

// kind says what a frame asks for or answers.
type kind byte

// The kinds. Every request is answered by kindDone, with the answer as body,
// or by kindFailed, with an error.
const (
	kindOpen kind = iota + 1
	kindClose
	kindNewSession // the line is the session's from then on
	kindCloseSession
	kindDo
	kindGenerate
	kindGenerateSealingKey
	kindLoad
	kindLoadSealingKey
	kindLoadEarlier
	kindLoadEarlierSealingKey
	kindUnload
	kindImport
	kindEnforces
	kindProbe

	kindDone
	kindFailed
)

// errFrame: the peer does not keep to the protocol.
var errFrame = errors.New("a malformed frame")

// maxText bounds the text of an error's cause that crosses, in bytes.
const maxText = 4 << 10

// Bodies are sequences of fields:
//
//	u8, u32be, u64be  numbers
//	bool       u8, 0 or 1
//	bytes      u32be, the length and one, then the bytes; 0 is nil
//	string     bytes that are not nil

func appendBytes(b, v []byte) []byte {
	if v == nil {
		return binary.BigEndian.AppendUint32(b, 0)
	}
	return append(binary.BigEndian.AppendUint32(b, uint32(len(v))+1), v...)
}

func appendString[S ~string](b []byte, v S) []byte {
	return append(binary.BigEndian.AppendUint32(b, uint32(len(v))+1), v...)
}

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

// fields reads a body; what it returns points into it.
type fields struct {
	rest []byte
	bad  bool // a field was missing or malformed
}

func (f *fields) take(n int) []byte {
	if n > len(f.rest) {
		f.bad, f.rest = true, nil
		return nil
	}
	v := f.rest[:n:n]
	f.rest = f.rest[n:]
	return v
}

func (f *fields) u8() uint8 {
	if b := f.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (f *fields) u32() uint32 {
	if b := f.take(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (f *fields) u64() uint64 {
	if b := f.take(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

func (f *fields) bool() bool {
	v := f.u8()
	f.bad = f.bad || v > 1
	return v == 1
}

func (f *fields) bytes() []byte {
	n := f.u32()
	if n == 0 {
		return nil
	}
	return f.take(int(n - 1))
}

func (f *fields) string() string {
	v := f.bytes()
	f.bad = f.bad || v == nil
	return string(v)
}

// end tells whether the body was well-formed and nothing is left of it.
func (f *fields) end() error {
	if f.bad || len(f.rest) != 0 {
		return errFrame
	}
	return nil
}

// fixedFields is more than the fields without their contents take in any body.
const fixedFields = 128

// opening asks the worker to open its token: kindOpen. version stands first in
// all versions.
type opening struct {
	version  uint8
	settings []byte
	pin      []byte
}

func (o *opening) size() int { return fixedFields + len(o.settings) + len(o.pin) }

func (o *opening) append(b []byte) []byte {
	b = append(b, o.version)
	b = appendBytes(b, o.settings)
	return appendBytes(b, o.pin)
}

func (o *opening) parse(body []byte) error {
	f := fields{rest: body}
	o.version = f.u8()
	if !f.bad && o.version != version {
		return nil // the rest is another version's
	}
	o.settings, o.pin = f.bytes(), f.bytes()
	return f.end()
}

// infoSize is not less than what appendInfo writes.
func infoSize(t *hsm.TokenInfo) int {
	n := fixedFields + len(t.Driver) + len(t.Model) + len(t.Serial) + len(t.Label)
	for _, f := range t.Wraps {
		n += 4 + len(f)
	}
	return n
}

// appendInfo writes the answer to kindOpen.
func appendInfo(b []byte, t *hsm.TokenInfo) []byte {
	b = append(b, version)
	b = appendString(b, t.Driver)
	b = appendString(b, t.Model)
	b = appendString(b, t.Serial)
	b = appendString(b, t.Label)
	b = binary.BigEndian.AppendUint64(b, uint64(t.MaxSessions))
	b = binary.BigEndian.AppendUint64(b, t.MaxLoads)
	b = append(b, uint8(len(t.Wraps)))
	for _, family := range t.Wraps {
		b = appendString(b, family)
	}
	return b
}

func parseInfo(body []byte) (hsm.TokenInfo, error) {
	f := fields{rest: body}
	f.bad = f.u8() != version
	t := hsm.TokenInfo{Driver: f.string(), Model: f.string(), Serial: f.string(), Label: f.string(), MaxSessions: int(f.u64()), MaxLoads: f.u64()}
	for range f.u8() {
		if f.bad {
			break
		}
		t.Wraps = append(t.Wraps, kms.Family(f.string()))
	}
	return t, f.end()
}

// task is a call on the token: the arguments that its kind has.
type task struct {
	generation uint32 // of the roots of material
	spec       kms.Spec
	usage      kms.Usage
	handle     hsm.Handle
	data       []byte // material or key
}

func (t *task) size() int { return fixedFields + len(t.spec) + len(t.usage) + len(t.data) }

func (t *task) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, t.generation)
	b = appendString(b, t.spec)
	b = appendString(b, t.usage)
	b = binary.BigEndian.AppendUint64(b, uint64(t.handle))
	return appendBytes(b, t.data)
}

func (t *task) parse(body []byte) error {
	f := fields{rest: body}
	t.generation, t.spec, t.usage = f.u32(), kms.Spec(f.string()), kms.Usage(f.string())
	t.handle, t.data = hsm.Handle(f.u64()), f.bytes()
	return f.end()
}

// result is the answer to a task: the results that its kind has.
type result struct {
	handle hsm.Handle
	yes    bool
	key    hsm.Generated
}

func (r *result) size() int { return fixedFields + len(r.key.Material) + len(r.key.PublicKey) }

func (r *result) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(r.handle))
	b = appendBool(b, r.yes)
	b = appendBytes(b, r.key.Material)
	return appendBytes(b, r.key.PublicKey)
}

func (r *result) parse(body []byte) error {
	f := fields{rest: body}
	r.handle, r.yes = hsm.Handle(f.u64()), f.bool()
	r.key.Material, r.key.PublicKey = f.bytes(), f.bytes()
	return f.end()
}

// callSize is not less than what appendCall writes.
func callSize(c *hsm.Call) int {
	return fixedFields + len(c.Algorithm) + len(c.Spec) + len(c.PublicKey) + len(c.Digest) + len(c.Input) +
		len(c.Signature) + len(c.Nonce) + len(c.AAD) + len(c.UserID) + len(c.Order) + len(c.Peer)
}

// appendCall writes the inputs of a call.
func appendCall(b []byte, c *hsm.Call) []byte {
	b = append(b, uint8(c.Verb))
	b = appendString(b, c.Algorithm)
	b = appendString(b, c.Spec)
	b = binary.BigEndian.AppendUint64(b, uint64(c.Handle))
	b = appendBytes(b, c.PublicKey)
	b = appendString(b, c.Digest)
	b = appendBytes(b, c.Input)
	b = appendBool(b, c.Prehashed)
	b = appendBytes(b, c.Signature)
	b = appendBytes(b, c.Nonce)
	b = appendBytes(b, c.AAD)
	b = appendBytes(b, c.UserID)
	b = appendString(b, c.Order)
	b = binary.BigEndian.AppendUint64(b, uint64(c.Length))
	return appendBytes(b, c.Peer)
}

func parseCall(c *hsm.Call, body []byte) error {
	f := fields{rest: body}
	*c = hsm.Call{
		Verb: kms.Verb(f.u8()), Algorithm: kms.Algorithm(f.string()), Spec: kms.Spec(f.string()),
		Handle: hsm.Handle(f.u64()), PublicKey: f.bytes(), Digest: kms.Digest(f.string()),
		Input: f.bytes(), Prehashed: f.bool(), Signature: f.bytes(), Nonce: f.bytes(), AAD: f.bytes(),
		UserID: f.bytes(), Order: kms.SM2Order(f.string()), Length: int(f.u64()), Peer: f.bytes(),
	}
	return f.end()
}

// outcome is what Do has set in a call.
type outcome struct {
	output, secret []byte
	valid          bool
	nonce          []byte // nil: as it was
}

func (o *outcome) size() int { return fixedFields + len(o.output) + len(o.secret) + len(o.nonce) }

func (o *outcome) append(b []byte) []byte {
	b = appendBytes(b, o.output)
	b = appendBytes(b, o.secret)
	b = appendBool(b, o.valid)
	return appendBytes(b, o.nonce)
}

func (o *outcome) parse(body []byte) error {
	f := fields{rest: body}
	*o = outcome{output: f.bytes(), secret: f.bytes(), valid: f.bool(), nonce: f.bytes()}
	return f.end()
}

// appendError writes the body of kindFailed. An error that is no *hsm.Error,
// or more than one, crosses with the class and code that hsm.ClassOf finds in
// it and with its whole text.
func appendError(b []byte, err error) []byte {
	e, plain := err.(*hsm.Error)
	if !plain {
		found, ok := errors.AsType[*hsm.Error](err)
		if !ok {
			found = &hsm.Error{Class: hsm.ClassAmbiguous}
		}
		e = &hsm.Error{Class: found.Class, Call: "worker process", Code: found.Code, Err: err}
	}
	text := ""
	if e.Err != nil {
		text = e.Err.Error()
	}
	b = append(b, uint8(e.Class))
	b = appendString(b, e.Call[:min(len(e.Call), maxText)])
	b = binary.BigEndian.AppendUint64(b, e.Code)
	return appendString(b, text[:min(len(text), maxText)])
}

func parseError(body []byte) (*hsm.Error, error) {
	f := fields{rest: body}
	e := &hsm.Error{Class: hsm.Class(f.u8()), Call: f.string(), Code: f.u64()}
	if text := f.string(); text != "" {
		e.Err = errors.New(text)
	}
	return e, f.end()
}
