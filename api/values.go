package api

import (
	"bytes"
	"encoding/base64"
	"encoding/json/jsontext"
	"errors"
	"strconv"

	"github.com/sluice-kms/sluice/kms"
)

// Bytes is binary data, in JSON a string of base64 with the standard alphabet
// and padding (RFC 4648, section 4). Of the spellings that decode to the same
// bytes only the canonical one is accepted. nil is an absent field; an empty
// string gives empty bytes that are not nil.
type Bytes []byte

// SecretText is text that is secret, in JSON a string: bytes, so that they can be
// wiped.
type SecretText []byte

var errText = errors.New("not a string")

// UnmarshalJSONFrom decodes a string into newly allocated bytes.
func (s *SecretText) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	raw, err := d.ReadValue()
	if err != nil {
		return err
	}
	if raw.Kind() != jsontext.KindString {
		return errText
	}
	*s, err = jsontext.AppendUnquote(make([]byte, 0, len(raw)), raw)
	return err
}

// MarshalJSONTo writes the string. Answers with values write themselves; see
// FetchSecretsResponse.
func (s SecretText) MarshalJSONTo(e *jsontext.Encoder) error {
	return e.WriteToken(jsontext.String(string(s)))
}

var errBase64 = errors.New("not canonical base64")

// UnmarshalJSONFrom decodes a string into newly allocated bytes.
func (b *Bytes) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	raw, err := d.ReadValue()
	if err != nil {
		return err
	}
	if raw.Kind() != jsontext.KindString {
		return errBase64
	}
	text := []byte(raw[1 : len(raw)-1])
	if bytes.IndexByte(text, '\\') >= 0 {
		// Some encoders write "/" as "\/".
		if text, err = jsontext.AppendUnquote(nil, raw); err != nil {
			return err
		}
		defer clear(text)
	}
	out, err := decodeBase64(text)
	if err != nil {
		return err
	}
	*b = out
	return nil
}

// decodeBase64 decodes canonical base64 into newly allocated bytes.
func decodeBase64(text []byte) ([]byte, error) {
	// The decoder skips line breaks wherever they are.
	if bytes.IndexByte(text, '\r') >= 0 || bytes.IndexByte(text, '\n') >= 0 {
		return nil, errBase64
	}
	out := make([]byte, base64.StdEncoding.DecodedLen(len(text)))
	n, err := strictBase64.Decode(out, text)
	if err != nil {
		clear(out)
		return nil, errBase64
	}
	return out[:n], nil
}

// strictBase64 refuses bits after the last byte that are not zero.
var strictBase64 = base64.StdEncoding.Strict()

// Cost is an amount of credits, in JSON a decimal number with up to six
// digits after the point.
type Cost kms.Credits

// MarshalJSONTo writes the number.
func (c Cost) MarshalJSONTo(e *jsontext.Encoder) error {
	return e.WriteValue(c.append(make([]byte, 0, 24)))
}

// String is the number as it stands in JSON.
func (c Cost) String() string { return string(c.append(nil)) }

func (c Cost) append(b []byte) []byte {
	if c < 0 {
		b = append(b, '-')
	}
	whole, micro := c/Cost(kms.Credit), c%Cost(kms.Credit)
	b = strconv.AppendUint(b, magnitude(whole), 10)
	if micro == 0 {
		return b
	}
	b = append(b, '.')
	digits := strconv.AppendUint(nil, magnitude(micro)+uint64(kms.Credit), 10)[1:] // leading zeros kept
	return append(b, bytes.TrimRight(digits, "0")...)
}

func magnitude(c Cost) uint64 {
	if c < 0 {
		return uint64(-c)
	}
	return uint64(c)
}
