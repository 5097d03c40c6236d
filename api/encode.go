package api

import (
	"encoding/base64"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"strconv"
)

// appender is an answer that writes its own JSON: those of operations, of
// which there are thousands a second, and which hold plaintexts that must not
// pass through buffers that nobody wipes.
type appender interface {
	// appendTo writes the members of the object, those of Charge excepted.
	appendTo(*writer)
	// payload returns the bytes that the answer is made of, and those of them
	// that are to be wiped once they were written; either may be nil.
	payload() (public, secret []byte)
	charged() *Charge
}

// memberRoom is what names and scalars of an answer fit in.
const memberRoom = 512

// encode writes an answer into a buffer, which the caller releases.
func (c *call) encode(out any) (*buffer, error) {
	if c.raw != nil {
		return c.raw, nil
	}
	if a, ok := out.(appender); ok {
		public, secret := a.payload()
		w := &writer{newBuffer(base64.StdEncoding.EncodedLen(len(public)+len(secret)) + memberRoom)}
		w.raw("{")
		a.appendTo(w)
		w.charge(a.charged())
		w.raw("}")
		clear(secret)
		return w.b, nil
	}
	b := newBuffer(smallBuffer)
	if err := json.MarshalWrite(b, out, json.Deterministic(true)); err != nil {
		b.release()
		return nil, err
	}
	return b, nil
}

// writer writes the members of a JSON object.
type writer struct{ b *buffer }

func (w *writer) raw(s string) {
	w.b.reserve(len(s))
	w.b.bytes = append(w.b.bytes, s...)
}

// scalarRoom is what any number, truth value or UUID fits in.
const scalarRoom = 64

// name begins a member and makes room for a scalar, so that no append moves
// the bytes and leaves a copy behind. Names are ours and need no escapes.
func (w *writer) name(name string) {
	w.b.reserve(len(name) + scalarRoom)
	if w.b.bytes[len(w.b.bytes)-1] != '{' {
		w.raw(",")
	}
	w.raw(`"`)
	w.raw(name)
	w.raw(`":`)
}

func (w *writer) bytes(name string, v []byte) {
	w.name(name)
	w.b.reserve(base64.StdEncoding.EncodedLen(len(v)) + 2)
	w.raw(`"`)
	w.b.bytes = base64.StdEncoding.AppendEncode(w.b.bytes, v)
	w.raw(`"`)
}

// member writes a value that is JSON already.
func (w *writer) member(name string, value []byte) {
	w.name(name)
	w.b.reserve(len(value))
	w.b.bytes = append(w.b.bytes, value...)
}

func (w *writer) text(name, v string) {
	w.name(name)
	w.b.reserve(len(v) + scalarRoom)
	if plainText(v) {
		w.b.bytes = append(append(append(w.b.bytes, '"'), v...), '"')
		return
	}
	quoted, err := jsontext.AppendQuote(w.b.bytes, v)
	if err != nil {
		// Only names from the tables of kms come here.
		panic(err)
	}
	w.b.bytes = quoted
}

// plainText tells whether a string needs no escape: names and ids, which
// nearly all are, are written as they stand.
func plainText(v string) bool {
	for i := range len(v) {
		if c := v[i]; c <= ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

func (w *writer) number(name string, v uint32) {
	w.name(name)
	w.b.bytes = strconv.AppendUint(w.b.bytes, uint64(v), 10)
}

func (w *writer) truth(name string, v bool) {
	w.name(name)
	w.b.bytes = strconv.AppendBool(w.b.bytes, v)
}

func (w *writer) charge(c *Charge) {
	w.name("cost")
	w.b.bytes = c.Cost.append(w.b.bytes)
	w.text("request_id", c.RequestID.String())
}

func (c *Charge) charged() *Charge { return c }
