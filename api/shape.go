package api

import (
	"encoding/json/jsontext"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-kms/sluice/kms"
)

// shape is what decoding must know of a request type: a struct with the tags
// that schema.go lists.
type shape struct {
	fields []*field
	// known lists the names for messages.
	known string
	// required tells whether some field is, so that a body is.
	required bool
	// structure bounds the body's.
	structure structure
}

// field is one field of a request.
type field struct {
	name    string
	index   []int
	expects string // "a string", for messages
	list    bool   // elements can be named by number
	// plain sets the field from a token of a plain body, which is a number
	// or a string; nil: plain bodies cannot hold the field. See plain.go.
	plain  func(field reflect.Value, token []byte) bool
	number bool
	// required fields must be present and, for strings, not empty. Numbers
	// are not checked: for them the verbs have ranges that exclude 0.
	required bool
}

// shapeOf reads the shape of a request type; it is nil for a route that takes
// no body.
func shapeOf(t reflect.Type) *shape {
	if t == nil {
		return nil
	}
	sh := &shape{known: knownFields(t), structure: ordinary}
	for _, sf := range reflect.VisibleFields(t) {
		if sf.Anonymous {
			continue
		}
		f := &field{name: jsonName(sf), index: sf.Index, expects: expectation(sf.Type),
			list:  sf.Type.Kind() == reflect.Slice && sf.Type.Elem().Kind() != reflect.Uint8,
			plain: plainSetter(sf.Type), number: isNumber(sf.Type), required: isRequired(sf)}
		sh.fields = append(sh.fields, f)
		sh.required = sh.required || f.required
		if sf.Type == reflect.TypeFor[PolicyDocument]() {
			sh.structure = ofPolicies
		}
		if sf.Type == reflect.TypeFor[[]BatchItem]() {
			sh.structure = ofBatches
		}
	}
	return sh
}

// isNumber tells whether a field takes a number.
func isNumber(t reflect.Type) bool {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.Kind() == reflect.Uint32 || t.Kind() == reflect.Uint64 || t.Kind() == reflect.Int
}

// knownFields lists the names of a struct's fields, those of the structs in
// it in brackets.
func knownFields(t reflect.Type) string {
	var list []string
	for _, sf := range reflect.VisibleFields(t) {
		if sf.Anonymous {
			continue
		}
		name := jsonName(sf)
		if isObject(sf.Type) {
			name += " (" + knownFields(sf.Type) + ")"
		}
		list = append(list, name)
	}
	if list == nil {
		return "no fields"
	}
	return strings.Join(list, ", ")
}

// isObject tells whether a request's field is an object of fields.
func isObject(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && t != reflect.TypeFor[time.Time]()
}

// expectation says what JSON a field of the type takes.
func expectation(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[Bytes]():
		return "a string of base64, with the standard alphabet and padding"
	case reflect.TypeFor[SecretText]():
		return "a string"
	case reflect.TypeFor[PolicyDocument]():
		return "an object: a policy"
	case reflect.TypeFor[BatchItem]():
		return "an object of op, key and the fields of the operation"
	case reflect.TypeFor[time.Time]():
		return "a string of an RFC 3339 time"
	}
	switch t.Kind() {
	case reflect.Pointer:
		return expectation(t.Elem())
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Uint32, reflect.Uint64:
		return "a whole number, not negative"
	case reflect.Int:
		return "a whole number"
	case reflect.Slice:
		return "an array, each element " + expectation(t.Elem())
	case reflect.Map:
		return "an object, each value " + expectation(t.Elem())
	case reflect.Struct:
		return "an object of " + knownFields(t)
	}
	panic(fmt.Sprintf("api: requests have no fields of type %v", t))
}

// index returns the place of the field of a name, -1 when there is none.
func (sh *shape) index(name string) int {
	for i, f := range sh.fields {
		if f.name == name {
			return i
		}
	}
	return -1
}

// locate turns a pointer (RFC 6901) into a place to show, ending in a space,
// and the field that it lies in. Only names of ours and numbers are shown:
// the rest of a pointer is the client's.
func (sh *shape) locate(p jsontext.Pointer) (place string, f *field) {
	first, rest, deeper := strings.Cut(strings.TrimPrefix(string(p), "/"), "/")
	i := sh.index(first)
	if i < 0 {
		return "", nil
	}
	f = sh.fields[i]
	place = "/" + f.name
	if deeper && f.list {
		if n, err := strconv.ParseUint(rest, 10, 32); err == nil {
			place += "/" + strconv.FormatUint(n, 10)
		}
	}
	return place + " ", f
}

// checkRequired refuses a request that lacks a required field.
func (sh *shape) checkRequired(in any) error {
	v := reflect.ValueOf(in).Elem()
	for _, f := range sh.fields {
		if f.required && v.FieldByIndex(f.index).IsZero() {
			return kms.Errorf(kms.KindInvalidArgument, "%s: is missing", f.name)
		}
	}
	return nil
}
