package wire

import (
	"fmt"
	"log/slog"
	"strings"
)

// redacted stands in the log for what must not.
const redacted = "[redacted]"

// secretNames are names of attributes whose values are never printed: whoever
// logs one has made a mistake.
var secretNames = []string{"authorization", "credential_text", "data_key", "passphrase", "password", "pepper", "pin", "plaintext", "secret", "token_text"}

// Redact is the ReplaceAttr of the service's log. It lets through what can be
// seen to hold no secret: text, numbers, times, errors and what writes itself
// as text. Of anything else, a struct or bytes, only the type is printed, so
// that no buffer, key or request can come into the log by being passed whole.
func Redact(_ []string, a slog.Attr) slog.Attr {
	name := strings.ToLower(a.Key)
	for _, secret := range secretNames {
		if name == secret {
			return slog.String(a.Key, redacted)
		}
	}
	if a.Value.Kind() != slog.KindAny {
		return a
	}
	switch v := a.Value.Any().(type) {
	case nil, error, fmt.Stringer, *slog.Source, slog.Level:
		return a
	default:
		return slog.String(a.Key, fmt.Sprintf("%s %T", redacted, v))
	}
}
