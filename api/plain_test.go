package api

import (
	"encoding/json/v2"
	"reflect"
	"strings"
	"testing"
)

// bodyShapes are the request types of all routes.
func bodyShapes() []reflect.Type {
	var types []reflect.Type
	for _, r := range Routes() {
		if r.Request != nil {
			types = append(types, r.Request)
		}
	}
	return types
}

func TestPlainBodiesOfEveryOperationAreDecodedInOnePass(t *testing.T) {
	for _, c := range []struct {
		name string
		in   any
		body string
		want any
	}{
		{"encrypt", &EncryptRequest{}, `{"plaintext":"aGVsbG8=","aad":"","algorithm":"AES_GCM_256","plaintext_crc32c":7}`,
			&EncryptRequest{Plaintext: Bytes("hello"), AAD: Bytes{}, Algorithm: "AES_GCM_256", PlaintextCRC32C: new(uint32(7))}},
		{"sign, with spaces", &SignRequest{}, " {\n\t\"message\" : \"aGVsbG8=\" ,\r\n \"version\": 12 } ",
			&SignRequest{Message: Bytes("hello"), Version: 12}},
		{"nothing", &DataKeyRequest{}, `{}`, &DataKeyRequest{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if !shapeOf(reflect.TypeOf(c.in).Elem()).decodePlain([]byte(c.body), c.in) {
				t.Fatal("it was left to the general decoder")
			}
			if !reflect.DeepEqual(c.in, c.want) {
				t.Errorf("got %+v, want %+v", c.in, c.want)
			}
		})
	}
}

func TestWhatIsNotPlainIsLeftToTheGeneralDecoder(t *testing.T) {
	for name, body := range map[string]string{
		"an escape":               `{"plaintext":"aGVsbG8\u003d"}`,
		"an escape in a name":     `{"plaint\u0065xt":"aGVsbG8="}`,
		"a repeated name":         `{"plaintext":"aGVsbG8=","plaintext":"aGVsbG8="}`,
		"an unknown name":         `{"plaintext":"aGVsbG8=","Plaintext":"aGVsbG8="}`,
		"null":                    `{"plaintext":"aGVsbG8=","aad":null}`,
		"a number for a string":   `{"plaintext":7}`,
		"a string for a number":   `{"plaintext":"aGVsbG8=","version":"7"}`,
		"a leading zero":          `{"plaintext":"aGVsbG8=","version":07}`,
		"a sign":                  `{"plaintext":"aGVsbG8=","version":-7}`,
		"a fraction":              `{"plaintext":"aGVsbG8=","version":7.0}`,
		"an exponent":             `{"plaintext":"aGVsbG8=","version":7e0}`,
		"too large a number":      `{"plaintext":"aGVsbG8=","version":4294967296}`,
		"bits after the end":      `{"plaintext":"aGVsbG9="}`,
		"no padding":              `{"plaintext":"aGVsbG8"}`,
		"a line break in a value": "{\"plaintext\":\"aGVs\nbG8=\"}",
		"a second value":          `{"plaintext":"aGVsbG8="}{}`,
		"a comma at the end":      `{"plaintext":"aGVsbG8=",}`,
		"no comma":                `{"plaintext":"aGVsbG8=" "version":7}`,
		"no end":                  `{"plaintext":"aGVsbG8="`,
		"an array":                `[]`,
		"other letters":           `{"plaintext":"aGVsbG8=","algorithm":"ä"}`,
	} {
		t.Run(name, func(t *testing.T) {
			var in EncryptRequest
			if shapeOf(reflect.TypeOf(in)).decodePlain([]byte(body), &in) {
				t.Fatalf("decoded as plain: %+v", in)
			}
			if !reflect.ValueOf(in).IsZero() {
				t.Errorf("left behind: %+v", in)
			}
		})
	}
}

// FuzzDecode holds what is decoded in one pass against the general decoder:
// it must have accepted the same body and have found the same in it.
func FuzzDecode(f *testing.F) {
	types := bodyShapes()
	for i, t := range types {
		f.Add(uint8(i), []byte(`{}`))
		var b strings.Builder
		separator := "{"
		for _, field := range shapeOf(t).fields {
			b.WriteString(separator + `"` + field.name + `":`)
			separator = ","
			if field.number {
				b.WriteString("7")
			} else {
				b.WriteString(`"aGVsbG8="`)
			}
		}
		f.Add(uint8(i), []byte(b.String()+"}"))
	}
	f.Fuzz(func(t *testing.T, i uint8, body []byte) {
		of := types[int(i)%len(types)]
		plain, general := reflect.New(of), reflect.New(of)
		if !shapeOf(of).decodePlain(body, plain.Interface()) {
			if !plain.Elem().IsZero() {
				t.Errorf("%v from %q: %+v is left behind", of, body, plain)
			}
			return
		}
		if err := json.Unmarshal(body, general.Interface(), decodeOptions); err != nil {
			t.Errorf("%v from %q: accepted, though %v", of, body, err)
		}
		if !reflect.DeepEqual(plain.Interface(), general.Interface()) {
			t.Errorf("%v from %q: %+v, in general %+v", of, body, plain, general)
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	body := []byte(`{"plaintext":"bW1tbW1tbW1tbW1tbW1tbW1tbW1tbW1tbW1tbW1tbW1tbW1tbW1tbW1tbW1tbW1tbW1tbW1tbW1tbW1tbW1tbQ=="}`)
	sh := shapeOf(reflect.TypeFor[EncryptRequest]())
	b.Run("plain", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var in EncryptRequest
			if !sh.decodePlain(body, &in) {
				b.Fatal("not plain")
			}
		}
	})
	b.Run("general", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var in EncryptRequest
			if _, err := sh.structure.check(body); err != nil {
				b.Fatal(err)
			}
			if err := json.Unmarshal(body, &in, decodeOptions); err != nil {
				b.Fatal(err)
			}
		}
	})
}
