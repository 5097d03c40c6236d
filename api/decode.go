package api

import (
	"bytes"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// structure bounds a JSON body's: it is checked in one pass before the body is
// decoded, so that a body of brackets or of a million members costs a scan and
// nothing else.
type structure struct {
	depth    int // nesting
	elements int // members and elements
}

var (
	// ordinary: the deepest request is a map inside an object, the largest a
	// key with its tags.
	ordinary = structure{depth: 4, elements: 1024}
	// ofPolicies: the deepest part of a policy is what a tenant's project may
	// use, the largest that fits has some thousand tenants of their own.
	ofPolicies = structure{depth: 8, elements: 1 << 16}
	// ofBatches: two levels around an ordinary request, and for each of the most
	// items twice as many members as the largest operation has.
	ofBatches = structure{depth: ordinary.depth + 2, elements: 32 * kms.MaxBatch}
)

// readBody reads a request's body into a buffer that the caller releases. It
// returns nil when there is none.
func (s *Server) readBody(x *exchange, r *http.Request) (*buffer, error) {
	for _, coding := range r.Header["Content-Encoding"] {
		if !strings.EqualFold(coding, "identity") {
			return nil, kms.Errorf(kms.KindUnsupportedMedia, "header Content-Encoding: only identity is accepted")
		}
	}
	if r.ContentLength == 0 {
		return nil, nil
	}
	if !isJSON(r.Header["Content-Type"]) {
		return nil, kms.Errorf(kms.KindUnsupportedMedia, "header Content-Type: must be %s", contentJSON)
	}
	limit := s.maxBody
	if own := x.route.MaxBody; own > 0 {
		limit = min(limit, own)
	}
	if r.ContentLength > limit {
		return nil, errTooLarge(limit)
	}
	leave, err := s.makeRoom(x, r.ContentLength, limit)
	if err != nil {
		return nil, err
	}
	size := int(r.ContentLength) + 1 // the one more is where the end is read
	if r.ContentLength < 0 {
		size = smallBuffer + 1 // it may be one of the large ones, and those are there
	}
	b := newBuffer(size)
	b.leave = leave
	// MaxBytesReader wants the connection's own writer, to tell it to close.
	err = b.readAll(http.MaxBytesReader(x.ResponseWriter, r.Body, limit), int(limit))
	if err == nil {
		return b, nil
	}
	b.release()
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, errTooLarge(limit)
	}
	return nil, kms.Wrap(kms.KindMalformed, err, "body: ended early")
}

// makeRoom takes the room of a body of a length, -1 when that is not told, and
// returns what gives it back; nil for a body that needs none.
func (s *Server) makeRoom(x *exchange, length, limit int64) (leave func(), err error) {
	if length < 0 {
		length = limit
	}
	if length <= smallBuffer {
		return nil, nil
	}
	var tenant uuid.UUID // of those who need no credential, all together
	if x.ticket.By != nil {
		tenant = x.ticket.By.Tenant.ID
	}
	if err := s.room.take(tenant, length); err != nil {
		return nil, err
	}
	return func() { s.room.give(tenant, length) }, nil
}

func errTooLarge(limit int64) error {
	return kms.Errorf(kms.KindTooLarge, "body: must be at most %d bytes", limit)
}

func isJSON(values []string) bool {
	if len(values) != 1 {
		return false
	}
	if values[0] == contentJSON {
		return true
	}
	media, params, err := mime.ParseMediaType(values[0])
	if err != nil || media != contentJSON {
		return false
	}
	charset, given := params["charset"]
	return len(params) == 0 || len(params) == 1 && given && strings.EqualFold(charset, "utf-8")
}

// decode turns a body into the request value that in points to, whose shape
// is sh. It accepts exactly one JSON object of known, distinct names in valid
// UTF-8 and nothing else; an absent body stands for an empty object where no
// field is required. Its errors name the place and what belongs there, never
// what was found there. The value does not alias the body.
func decode(body []byte, sh *shape, in any) error {
	if body == nil && !sh.required {
		return nil
	}
	if len(bytes.TrimSpace(body)) == 0 {
		return kms.Errorf(kms.KindMalformed, "body: must be a JSON object of %s", sh.known)
	}
	if sh.decodePlain(body, in) {
		return sh.checkRequired(in)
	}
	hasNull, err := sh.structure.check(body)
	if err != nil {
		return err
	}
	options := decodeOptions
	if hasNull {
		options = refusingNull
	}
	if err := json.Unmarshal(body, in, options); err != nil {
		return sh.describe(err)
	}
	return sh.checkRequired(in)
}

var (
	decodeOptions = json.RejectUnknownMembers(true)
	// refusingNull looks at every value, which costs more than the rest of
	// decoding a small body, so it is for bodies that hold a null only: it
	// tells where.
	refusingNull = json.JoinOptions(decodeOptions, json.WithUnmarshalers(json.UnmarshalFromFunc(refuseNull)))
)

// errNull refuses null. What is not given is left out: an absent field, an
// empty one and null would otherwise be three things of which two mean the
// same, and which two differs by language.
var errNull = errors.New("null")

func refuseNull(d *jsontext.Decoder, _ any) error {
	if d.PeekKind() == jsontext.KindNull {
		return errNull
	}
	return errors.ErrUnsupported // decode as usual
}

// check bounds nesting and number of members, and tells whether there may be a
// null. It sees strings and brackets only; whether the rest is JSON the decoder
// tells, which refuses an "n" outside of strings that begins anything but null.
func (s structure) check(body []byte) (hasNull bool, err error) {
	depth, elements := 0, 0
	for i := 0; i < len(body); i++ {
		switch body[i] {
		case '"':
			i = skipString(body, i)
		case '{', '[':
			if depth++; depth > s.depth {
				return false, kms.Errorf(kms.KindMalformed, "body: is nested deeper than %d levels at byte %d", s.depth, i)
			}
		case '}', ']':
			depth--
		case 'n':
			hasNull = true
		case ',':
			if elements++; elements >= s.elements {
				return false, kms.Errorf(kms.KindMalformed, "body: has more than %d members and elements at byte %d", s.elements, i)
			}
		}
	}
	return hasNull, nil
}

// skipString returns the index of the quote that ends the string which begins
// at body[i], or the last index when none does.
func skipString(body []byte, i int) int {
	for i++; i < len(body); i++ {
		n := bytes.IndexAny(body[i:], `"\`)
		if n < 0 {
			break
		}
		i += n
		if body[i] == '"' {
			return i
		}
		i++ // what is escaped
	}
	return len(body) - 1
}

// describe turns an error of the decoder into one that is safe to show.
func (sh *shape) describe(err error) error {
	offset, pointer, cause := int64(0), jsontext.Pointer(""), err
	if e, ok := errors.AsType[*json.SemanticError](err); ok {
		offset, pointer, cause = e.ByteOffset, e.JSONPointer, e.Err
	} else if e, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		offset, pointer, cause = e.ByteOffset, e.JSONPointer, e.Err
	}
	place, f := sh.locate(pointer)
	switch {
	case errors.Is(cause, json.ErrUnknownName):
		return kms.Errorf(kms.KindMalformed, "body: has an unknown field at byte %d; known are %s", offset, sh.known)
	case errors.Is(cause, jsontext.ErrDuplicateName):
		return kms.Errorf(kms.KindMalformed, "body: repeats the name of a field at byte %d", offset)
	case errors.Is(cause, errNull):
		return kms.Errorf(kms.KindMalformed, "body: %sis null at byte %d; leave a field out that is not given", place, offset)
	case errors.Is(cause, io.ErrUnexpectedEOF):
		return kms.Errorf(kms.KindMalformed, "body: ends at byte %d in the middle of a JSON value", offset)
	case isSyntax(err):
		return kms.Errorf(kms.KindMalformed, "body: is not one JSON value in UTF-8; the first fault is at byte %d", offset)
	case f == nil:
		return kms.Errorf(kms.KindMalformed, "body: must be a JSON object of %s", sh.known)
	}
	return kms.Errorf(kms.KindMalformed, "body: %sat byte %d must be %s", place, offset, f.expects)
}

func isSyntax(err error) bool {
	_, ok := errors.AsType[*jsontext.SyntacticError](err)
	return ok
}
