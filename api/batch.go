package api

import (
	"bytes"
	"encoding/json/jsontext"
	"io"

	"github.com/sluice-kms/sluice/kms"
)

// itemText is an item as it was sent.
type itemText struct {
	op  string
	key string
	// from and to is where it stands in the body of the batch, own where its op
	// and key do.
	from, to int
	own      []span
	// keyed tells whether it has a key, which may be empty.
	keyed bool
	fault error // what is wrong with it, nil: nothing so far
}

// check tells what is wrong with an item before its route looks at it.
func (i *itemText) check(s *Server) error {
	switch route := s.items[i.op]; {
	case i.fault != nil:
		return i.fault
	case i.op == "":
		return kms.Errorf(kms.KindInvalidArgument, "op: is missing")
	case route == nil:
		return kms.Errorf(kms.KindInvalidArgument, "op: must be one of %v", s.itemOps)
	case i.key == "" && route.Objects() != nil:
		return kms.Errorf(kms.KindInvalidArgument, "key: is missing")
	case i.keyed && route.Objects() == nil:
		return kms.Errorf(kms.KindMalformed, "key: the operation takes none")
	}
	return nil
}

// readItems splits the body of a batch into its items, which alias it. What is
// wrong with the JSON is wrong with the batch; what is wrong with an item is
// the item's.
func (c *call) readItems(body *buffer) ([]itemText, error) {
	shape := c.route.shape
	if body == nil {
		return nil, kms.Errorf(kms.KindMalformed, "body: must be a JSON object of %s", shape.known)
	}
	if _, err := shape.structure.check(body.bytes); err != nil {
		return nil, err
	}
	// The decoder reads a bytes.Buffer in place.
	r := batchReader{text: body.bytes, json: jsontext.NewDecoder(bytes.NewBuffer(body.bytes))}
	items, err := r.read()
	if isSyntax(err) {
		return nil, shape.describe(err)
	}
	return items, err
}

// batchReader reads the items of a batch in one pass.
type batchReader struct {
	text []byte
	json *jsontext.Decoder
}

var errBatchShape = kms.Errorf(kms.KindMalformed, "body: must be a JSON object with an array, items, and nothing else")

func (r *batchReader) read() ([]itemText, error) {
	var items []itemText
	if err := r.expect(jsontext.KindBeginObject); err != nil {
		return nil, err
	}
	name, err := r.json.ReadToken()
	if err != nil {
		return nil, err
	}
	if name.Kind() == jsontext.KindEndObject {
		return nil, kms.Errorf(kms.KindInvalidArgument, "items: is missing")
	}
	if name.String() != "items" {
		return nil, errBatchShape
	}
	if err := r.expect(jsontext.KindBeginArray); err != nil {
		return nil, err
	}
	for r.json.PeekKind() != jsontext.KindEndArray {
		if len(items) == kms.MaxBatch {
			return nil, kms.Errorf(kms.KindInvalidArgument, "items: must be 1 to %d", kms.MaxBatch)
		}
		item, err := r.item()
		if err != nil {
			return nil, err
		}
		items = append(items, item)
	}
	for _, kind := range []jsontext.Kind{jsontext.KindEndArray, jsontext.KindEndObject} {
		if err := r.expect(kind); err != nil {
			return nil, err
		}
	}
	if _, err := r.json.ReadToken(); err != io.EOF {
		if err == nil {
			err = errBatchShape
		}
		return nil, err
	}
	return items, nil
}

// expect reads a token of a kind.
func (r *batchReader) expect(kind jsontext.Kind) error {
	token, err := r.json.ReadToken()
	if err == nil && token.Kind() != kind {
		return errBatchShape
	}
	return err
}

// item reads an item and notes where in its text op and key stand.
func (r *batchReader) item() (i itemText, err error) {
	if r.json.PeekKind() != jsontext.KindBeginObject {
		i.fault = kms.Errorf(kms.KindMalformed, "an item must be a JSON object with op, key and the fields of the operation")
		return i, r.json.SkipValue()
	}
	if _, err := r.json.ReadToken(); err != nil {
		return i, err
	}
	i.from = int(r.json.InputOffset()) - 1
	for r.json.PeekKind() != jsontext.KindEndObject {
		from := int(r.json.InputOffset())
		name, err := r.json.ReadToken()
		if err != nil {
			return i, err
		}
		if err := r.member(&i, name.String(), from); err != nil {
			return i, err
		}
	}
	if _, err := r.json.ReadToken(); err != nil {
		return i, err
	}
	i.to = int(r.json.InputOffset())
	return i, nil
}

// member reads the value of a member of an item, whose name stands behind from.
func (r *batchReader) member(i *itemText, name string, from int) error {
	var into *string
	switch name {
	case "op":
		into = &i.op
	case "key":
		into, i.keyed = &i.key, true
	default:
		return r.json.SkipValue()
	}
	if r.json.PeekKind() == jsontext.KindString {
		value, err := r.json.ReadToken()
		if err != nil {
			return err
		}
		*into = value.String()
	} else {
		i.fault = kms.Errorf(kms.KindMalformed, "%s: must be a string", name)
		if err := r.json.SkipValue(); err != nil {
			return err
		}
	}
	i.own = append(i.own, span{from, int(r.json.InputOffset())})
	return nil
}

// span is a part of the text of a batch.
type span struct{ from, to int }

// body returns what an item has beside op and key, in whose place are spaces
// then: what is left stands where it stood in the item, and the route's own
// decoder says of it what it says of a body.
func (i *itemText) body(text []byte) []byte {
	item := text[i.from:i.to]
	for _, s := range i.own {
		from, to := s.from-i.from, s.to-i.from
		// A member goes with the comma before it, the first one with that after
		// it, so that the next one is the first.
		first := item[from+spaces(item[from:])] != ','
		for at := from; at < to; at++ {
			item[at] = ' '
		}
		if next := to + spaces(item[to:]); first && item[next] == ',' {
			item[next] = ' '
		}
	}
	return item
}

// spaces counts the white space that a text begins with.
func spaces(text []byte) int {
	return len(text) - len(bytes.TrimLeft(text, " \t\r\n"))
}
