package remote

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

// setField gives a field of a struct a value that is not zero and differs from
// the other fields'.
func setField(t *testing.T, v reflect.Value, i int) {
	t.Helper()
	switch f := v.Field(i); f.Kind() {
	case reflect.Uint8, reflect.Uint64:
		f.SetUint(uint64(i + 1))
	case reflect.Int:
		f.SetInt(int64(i + 1))
	case reflect.Bool:
		f.SetBool(true)
	case reflect.String:
		f.SetString(fmt.Sprint("text ", i))
	case reflect.Slice:
		if f.Type().Elem().Kind() == reflect.Uint8 {
			f.SetBytes([]byte{byte(i), 1, 2})
			return
		}
		f.Set(reflect.MakeSlice(f.Type(), 2, 2))
		f.Index(1).SetString("text")
	default:
		t.Fatalf("the test cannot set %s", v.Type().Field(i).Name)
	}
}

// Every field crosses: one that a struct of the driver's interface gets in
// future fails this until it does too.
func TestEveryFieldCrosses(t *testing.T) {
	check := func(in, out any, err error, name string) {
		t.Helper()
		if err != nil || !reflect.DeepEqual(in, out) {
			t.Errorf("%T.%s does not cross: %+v, %v", in, name, out, err)
		}
	}
	outputs := map[string]bool{"Output": true, "Secret": true, "Valid": true}
	for i := range reflect.TypeFor[hsm.Call]().NumField() {
		name := reflect.TypeFor[hsm.Call]().Field(i).Name
		if outputs[name] {
			continue
		}
		var in, out hsm.Call
		setField(t, reflect.ValueOf(&in).Elem(), i)
		err := parseCall(&out, appendCall(nil, &in))
		check(in, out, err, name)
	}
	for i := range reflect.TypeFor[hsm.TokenInfo]().NumField() {
		var in hsm.TokenInfo
		setField(t, reflect.ValueOf(&in).Elem(), i)
		out, err := parseInfo(appendInfo(nil, &in))
		check(in, out, err, reflect.TypeFor[hsm.TokenInfo]().Field(i).Name)
	}
	for i := range reflect.TypeFor[hsm.Generated]().NumField() {
		var in, out result
		setField(t, reflect.ValueOf(&in.key).Elem(), i)
		err := out.parse(in.append(nil))
		check(in, out, err, reflect.TypeFor[hsm.Generated]().Field(i).Name)
	}
}

// drawBytes may give nil, which is not the same as no bytes.
func drawBytes(t *rapid.T, name string) []byte {
	if rapid.Bool().Draw(t, name+" is nil") {
		return nil
	}
	return rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, name)
}

func drawCall(t *rapid.T) hsm.Call {
	text := rapid.StringN(0, 20, -1)
	return hsm.Call{
		Verb: kms.Verb(rapid.Byte().Draw(t, "verb")), Algorithm: kms.Algorithm(text.Draw(t, "algorithm")),
		Spec: kms.Spec(text.Draw(t, "spec")), Handle: hsm.Handle(rapid.Uint64().Draw(t, "handle")),
		PublicKey: drawBytes(t, "public key"), Digest: kms.Digest(text.Draw(t, "digest")), Input: drawBytes(t, "input"),
		Prehashed: rapid.Bool().Draw(t, "prehashed"), Signature: drawBytes(t, "signature"), Nonce: drawBytes(t, "nonce"),
		AAD: drawBytes(t, "aad"), UserID: drawBytes(t, "user id"), Order: kms.SM2Order(text.Draw(t, "order")),
		Length: rapid.Int().Draw(t, "length"), Peer: drawBytes(t, "peer"),
	}
}

// What is appended is parsed as it was, and the size that was announced holds
// it: the buffer must not grow under a body.
func TestMessagesCrossUnchanged(t *testing.T) {
	same := func(t *rapid.T, want, got any, err error, announced, size int) {
		t.Helper()
		if err != nil || !reflect.DeepEqual(want, got) {
			t.Fatalf("%+v became %+v, %v", want, got, err)
		}
		if size > announced {
			t.Fatalf("%T takes %d bytes, %d were announced", want, size, announced)
		}
	}
	t.Run("call", rapid.MakeCheck(func(t *rapid.T) {
		in := drawCall(t)
		var out hsm.Call
		b := appendCall(nil, &in)
		err := parseCall(&out, b)
		same(t, in, out, err, callSize(&in), len(b))
	}))
	t.Run("outcome", rapid.MakeCheck(func(t *rapid.T) {
		in := outcome{output: drawBytes(t, "output"), secret: drawBytes(t, "secret"),
			valid: rapid.Bool().Draw(t, "valid"), nonce: drawBytes(t, "nonce")}
		var out outcome
		b := in.append(nil)
		err := out.parse(b)
		same(t, in, out, err, in.size(), len(b))
	}))
	t.Run("task", rapid.MakeCheck(func(t *rapid.T) {
		in := task{generation: rapid.Uint32().Draw(t, "generation"), spec: kms.Spec(rapid.String().Draw(t, "spec")), usage: kms.Usage(rapid.String().Draw(t, "usage")),
			handle: hsm.Handle(rapid.Uint64().Draw(t, "handle")), data: drawBytes(t, "data")}
		var out task
		b := in.append(nil)
		err := out.parse(b)
		same(t, in, out, err, in.size(), len(b))
	}))
	t.Run("result", rapid.MakeCheck(func(t *rapid.T) {
		in := result{handle: hsm.Handle(rapid.Uint64().Draw(t, "handle")), yes: rapid.Bool().Draw(t, "yes"),
			key: hsm.Generated{Material: drawBytes(t, "material"), PublicKey: drawBytes(t, "public key")}}
		var out result
		b := in.append(nil)
		err := out.parse(b)
		same(t, in, out, err, in.size(), len(b))
	}))
	t.Run("opening", rapid.MakeCheck(func(t *rapid.T) {
		in := opening{version: version, settings: drawBytes(t, "settings"), pin: drawBytes(t, "pin")}
		var out opening
		b := in.append(nil)
		err := out.parse(b)
		same(t, in, out, err, in.size(), len(b))
	}))
	t.Run("info", rapid.MakeCheck(func(t *rapid.T) {
		text := rapid.String()
		in := hsm.TokenInfo{Driver: text.Draw(t, "driver"), Model: text.Draw(t, "model"), Serial: text.Draw(t, "serial"),
			Label: text.Draw(t, "label"), MaxSessions: rapid.IntMin(0).Draw(t, "sessions")}
		for _, f := range rapid.SliceOfN(text, 0, 40).Draw(t, "families") {
			in.Wraps = append(in.Wraps, kms.Family(f))
		}
		b := appendInfo(nil, &in)
		out, err := parseInfo(b)
		same(t, in, out, err, infoSize(&in), len(b))
	}))
}

func TestErrorsKeepClassFunctionCodeAndText(t *testing.T) {
	inner := &hsm.Error{Class: hsm.ClassLogin, Call: "C_Login", Code: 0x101}
	for name, c := range map[string]struct {
		err  error
		want hsm.Error
		text string // that the error has somewhere
	}{
		"plain":         {inner, hsm.Error{Class: hsm.ClassLogin, Call: "C_Login", Code: 0x101}, ""},
		"vendor's code": {&hsm.Error{Class: hsm.ClassAmbiguous, Call: "C_Sign", Code: 1<<63 | 5}, hsm.Error{Class: hsm.ClassAmbiguous, Call: "C_Sign", Code: 1<<63 | 5}, ""},
		"with a cause":  {&hsm.Error{Class: hsm.ClassPIN, Call: "C_Login", Err: errors.New("why")}, hsm.Error{Class: hsm.ClassPIN, Call: "C_Login"}, "why"},
		"joined":        {errors.Join(inner, errors.New("another")), hsm.Error{Class: hsm.ClassLogin, Call: "worker process", Code: 0x101}, "another"},
		"foreign":       {errors.New("no class"), hsm.Error{Class: hsm.ClassAmbiguous, Call: "worker process"}, "no class"},
		"endless":       {errors.New(strings.Repeat("x", 1<<20)), hsm.Error{Class: hsm.ClassAmbiguous, Call: "worker process"}, strings.Repeat("x", maxText)},
	} {
		t.Run(name, func(t *testing.T) {
			b := appendError(nil, c.err)
			got, err := parseError(b)
			if err != nil {
				t.Fatal(err)
			}
			if got.Class != c.want.Class || got.Call != c.want.Call || got.Code != c.want.Code {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
			if hsm.ClassOf(c.err) != hsm.ClassOf(got) {
				t.Errorf("the class %s became %s", hsm.ClassOf(c.err), hsm.ClassOf(got))
			}
			if !strings.Contains(got.Error(), c.text) || len(b) > fixedFields+2*maxText {
				t.Errorf("%d bytes: %.200s", len(b), got.Error())
			}
		})
	}
}
