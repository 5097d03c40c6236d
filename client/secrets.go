package client

import (
	"fmt"
	"io"
	"log/slog"
	"sync"
)

// Value is the value of a provider secret. Like a Token it prints as
// "[redacted]" in every form: with every verb of fmt, in JSON and text
// encodings, in slog, and as an unexported field of whatever struct is printed.
// Only Reveal and Append show it.
//
// The zero Value is no value. Copies of a Value share its memory, which Wipe
// clears for all of them. Values are not comparable with ==. They are safe for
// concurrent use.
type Value struct {
	_ [0]func()
	// text is a pointer for the reason that a Token's is, and to a pointer
	// because with a wrong verb fmt follows one to a struct.
	text **valueText
}

// valueText is a value's memory.
type valueText struct {
	mu    sync.RWMutex
	bytes []byte // nil: wiped
}

// NewValue makes a Value of its text.
func NewValue(text string) Value {
	if text == "" {
		return Value{}
	}
	held := &valueText{bytes: []byte(text)}
	return Value{text: &held}
}

// Reveal returns a copy of the text, which Wipe does not reach; "" for the zero
// Value and a wiped one.
func (v Value) Reveal() string {
	if v.text == nil {
		return ""
	}
	held := *v.text
	held.mu.RLock()
	defer held.mu.RUnlock()
	return string(held.bytes)
}

// Append appends the text to b, so that a caller can wipe what it got.
func (v Value) Append(b []byte) []byte {
	if v.text == nil {
		return b
	}
	held := *v.text
	held.mu.RLock()
	defer held.mu.RUnlock()
	return append(b, held.bytes...)
}

// Wipe overwrites the text in memory. The decoder that the text came through
// may have left copies to the garbage collector.
func (v Value) Wipe() {
	if v.text == nil {
		return
	}
	held := *v.text
	held.mu.Lock()
	defer held.mu.Unlock()
	clear(held.bytes)
	held.bytes = nil
}

// IsZero tells whether v is no value, or a wiped one.
func (v Value) IsZero() bool {
	if v.text == nil {
		return true
	}
	held := *v.text
	held.mu.RLock()
	defer held.mu.RUnlock()
	return len(held.bytes) == 0
}

// String returns "[redacted]".
func (Value) String() string { return redacted }

// Format writes "[redacted]" whatever the verb.
func (Value) Format(f fmt.State, _ rune) { io.WriteString(f, redacted) }

// MarshalText returns "[redacted]"; JSON encodings use it too.
func (Value) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// LogValue returns "[redacted]".
func (Value) LogValue() slog.Value { return slog.StringValue(redacted) }

// UnmarshalText takes a value from an answer of the service.
func (v *Value) UnmarshalText(text []byte) error {
	*v = NewValue(string(text))
	return nil
}
