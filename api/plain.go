package api

import (
	"bytes"
	"encoding"
	"encoding/json/v2"
	"reflect"
	"strconv"
)

// Nearly every body of an operation is plain: one flat object whose strings
// are visible ASCII without escapes and whose numbers are whole. Such a body
// is decoded here, in a single pass, at half of what the general decoder
// costs or less (BenchmarkDecode). Whatever is not certainly plain and right,
// every error among it, is left to the general decoder, so that there is one
// judge of what a body means. FuzzDecode compares the two.

// maxPlainFields bounds the fields of a type that has plain bodies: one bit
// each tells whether it was seen.
const maxPlainFields = 32

// plainSetter returns what sets a field of the type from the token of a plain
// body: the inside of a string, or the digits of a number. It reports false
// when the token is not certainly a value of the field. It is nil for types
// that plain bodies cannot hold.
func plainSetter(t reflect.Type) func(field reflect.Value, token []byte) bool {
	switch {
	case t == reflect.TypeFor[Bytes]():
		return setPlainBytes
	case t == reflect.TypeFor[uint32]():
		return setPlainNumber
	case t == reflect.TypeFor[*uint32]():
		return setPlainPointer
	case t.Kind() == reflect.String && !decodesItself(t):
		return setPlainString
	}
	return nil
}

func decodesItself(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	for _, i := range []reflect.Type{
		reflect.TypeFor[json.UnmarshalerFrom](), reflect.TypeFor[json.Unmarshaler](), reflect.TypeFor[encoding.TextUnmarshaler](),
	} {
		if p.Implements(i) {
			return true
		}
	}
	return false
}

func setPlainBytes(field reflect.Value, token []byte) bool {
	decoded, err := decodeBase64(token)
	if err != nil {
		return false
	}
	field.SetBytes(decoded)
	return true
}

func setPlainString(field reflect.Value, token []byte) bool {
	field.SetString(string(token))
	return true
}

func setPlainNumber(field reflect.Value, token []byte) bool {
	n, err := strconv.ParseUint(string(token), 10, 32)
	if err != nil || token[0] == '0' && len(token) > 1 {
		return false
	}
	field.SetUint(n)
	return true
}

func setPlainPointer(field reflect.Value, token []byte) bool {
	p := reflect.New(reflect.TypeFor[uint32]())
	if !setPlainNumber(p.Elem(), token) {
		return false
	}
	field.Set(p)
	return true
}

// decodePlain decodes a plain body into the zero value that in points to, and
// reports whether it was one. When it was not, the value is zero again.
func (sh *shape) decodePlain(body []byte, in any) bool {
	if len(sh.fields) > maxPlainFields {
		return false
	}
	v := reflect.ValueOf(in).Elem()
	if sh.scanPlain(body, v) {
		return true
	}
	for _, f := range sh.fields {
		if field := v.FieldByIndex(f.index); field.Type() == reflect.TypeFor[Bytes]() {
			clear(field.Bytes())
		}
	}
	v.SetZero()
	return false
}

func (sh *shape) scanPlain(body []byte, v reflect.Value) bool {
	s := plainScanner{rest: body}
	if !s.byte('{') {
		return false
	}
	if s.byte('}') {
		return s.end()
	}
	seen := uint32(0)
	for {
		name, ok := s.string()
		if !ok || !s.byte(':') {
			return false
		}
		i := sh.index(string(name))
		if i < 0 || seen&(1<<i) != 0 {
			return false
		}
		seen |= 1 << i
		f := sh.fields[i]
		if f.plain == nil {
			return false
		}
		scan := s.string
		if f.number {
			scan = s.number
		}
		token, ok := scan()
		if !ok || !f.plain(v.FieldByIndex(f.index), token) {
			return false
		}
		if s.byte(',') {
			continue
		}
		return s.byte('}') && s.end()
	}
}

// plainScanner takes the tokens of a plain body from its beginning.
type plainScanner struct{ rest []byte }

func (s *plainScanner) skipSpace() {
	for len(s.rest) > 0 {
		switch s.rest[0] {
		case ' ', '\t', '\r', '\n':
			s.rest = s.rest[1:]
		default:
			return
		}
	}
}

// byte takes one punctuation byte, when it comes next.
func (s *plainScanner) byte(c byte) bool {
	s.skipSpace()
	if len(s.rest) == 0 || s.rest[0] != c {
		return false
	}
	s.rest = s.rest[1:]
	return true
}

// end tells whether nothing but white space is left.
func (s *plainScanner) end() bool {
	s.skipSpace()
	return len(s.rest) == 0
}

// string takes a string of visible ASCII and spaces without escapes and
// returns its inside.
func (s *plainScanner) string() ([]byte, bool) {
	if !s.byte('"') {
		return nil, false
	}
	end := bytes.IndexByte(s.rest, '"')
	if end < 0 {
		return nil, false
	}
	inside := s.rest[:end]
	for _, c := range inside {
		if c < ' ' || c > '~' || c == '\\' {
			return nil, false
		}
	}
	s.rest = s.rest[end+1:]
	return inside, true
}

// number takes digits, one at least.
func (s *plainScanner) number() ([]byte, bool) {
	s.skipSpace()
	n := 0
	for n < len(s.rest) && '0' <= s.rest[n] && s.rest[n] <= '9' {
		n++
	}
	digits := s.rest[:n]
	s.rest = s.rest[n:]
	return digits, n > 0
}
