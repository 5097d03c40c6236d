package client

import (
	"fmt"
	"io"
	"log/slog"
)

// redacted is what a Token shows of itself.
const redacted = "[redacted]"

// Token is the text of a credential, slk_<id>_<secret>. It prints as
// "[redacted]" in every form: with every verb of fmt, in JSON and text
// encodings, in slog, and as an unexported field of whatever struct is
// printed. Only Reveal shows it.
//
// The zero Token is no token. Tokens are not comparable with ==.
type Token struct {
	_ [0]func()
	// text is a pointer because fmt prints unexported fields by reflection,
	// past every method: of a nested pointer it prints the address.
	text *string
}

// NewToken makes a Token of its text, which is not checked.
func NewToken(text string) Token {
	if text == "" {
		return Token{}
	}
	return Token{text: &text}
}

// Reveal returns the text, "" for the zero Token.
func (t Token) Reveal() string {
	if t.text == nil {
		return ""
	}
	return *t.text
}

// IsZero tells whether t is no token.
func (t Token) IsZero() bool { return t.text == nil }

// String returns "[redacted]".
func (Token) String() string { return redacted }

// Format writes "[redacted]" whatever the verb.
func (Token) Format(f fmt.State, _ rune) { io.WriteString(f, redacted) }

// MarshalText returns "[redacted]"; JSON encodings use it too.
func (Token) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// LogValue returns "[redacted]".
func (Token) LogValue() slog.Value { return slog.StringValue(redacted) }

// UnmarshalText takes a token from an answer of the service.
func (t *Token) UnmarshalText(text []byte) error {
	*t = NewToken(string(text))
	return nil
}
