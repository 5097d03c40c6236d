package audit

import (
	"net/netip"
	"strconv"
	"time"
	"unicode/utf8"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// The longest texts, in characters. Names of our own making are never longer;
// the user agent, the client's request id, the trace id and the subject come
// from clients and are cut here.
const (
	maxWord            = 16 // phase, protection, settlement
	maxCode            = 64 // operation, spec, algorithm, outcome, reason
	maxTraceID         = 64 // a W3C trace id has 32
	maxName            = kms.MaxNameLength
	maxClientRequestID = 128
	maxSubject         = 256
	maxResource        = 256
	maxUserAgent       = 256

	// maxReasons bounds the reasons of one entry; there are fewer gates.
	maxReasons = 16
	// maxItems bounds the items of one entry: those of a fetch.
	maxItems = kms.MaxFetchItems
	// maxItemVersions bounds the versions of an item: a rollout has two.
	maxItemVersions = 4

	// maxPayload bounds a payload in bytes. The longest that appendEntry can
	// make is well below it (12 bytes for each character of every text); a
	// reader takes a larger length for damage.
	maxPayload = 64 << 10
)

// appendEntry appends the payload of e to b. It does not allocate when b has
// room.
func appendEntry(b []byte, e *kms.Entry) []byte {
	b = append(b, `{"t":"`...)
	b = appendTime(b, e.Time)
	b = append(b, '"')
	b = appendText(b, "p", string(e.Phase), maxWord)
	b = appendID(b, "id", e.RequestID)
	b = appendText(b, "cid", e.ClientRequestID, maxClientRequestID)
	b = appendText(b, "tr", e.TraceID, maxTraceID)
	b = appendID(b, "tn", e.Tenant)
	b = appendText(b, "pr", e.Project, maxName)
	b = appendID(b, "cr", e.Credential)
	b = appendText(b, "sub", e.Subject, maxSubject)
	b = appendText(b, "cmp", e.Component, maxName)
	b = appendText(b, "op", string(e.Op), maxCode)
	b = appendID(b, "key", e.Key)
	b = appendText(b, "kn", e.KeyName, maxName)
	b = appendInt(b, "ver", int64(e.Version))
	b = appendText(b, "spec", string(e.Spec), maxCode)
	b = appendText(b, "alg", string(e.Algorithm), maxCode)
	b = appendText(b, "prot", string(e.Protection), maxWord)
	b = appendText(b, "res", e.Resource, maxResource)
	b = appendInt(b, "len", int64(e.Bytes))
	b = appendText(b, "node", string(e.Node), maxName)
	b = appendInt(b, "cost", int64(e.Cost))
	b = appendInt(b, "chg", int64(e.Charged))
	b = appendText(b, "set", string(e.Settlement), maxWord)
	b = appendInt(b, "wait", int64(e.Wait))
	b = appendInt(b, "slot", int64(e.SlotTime))
	b = appendInt(b, "tot", int64(e.Total))
	b = appendText(b, "out", e.Outcome, maxCode)
	b = appendReasons(b, e.Reasons)
	b = appendAddress(b, e.Address)
	b = appendText(b, "ua", e.UserAgent, maxUserAgent)
	if e.Count > 1 {
		b = appendInt(b, "n", int64(e.Count))
	}
	// Later fields follow: entries without them are what they always were.
	b = appendFlag(b, "dry", e.DryRun)
	b = appendFlag(b, "rep", e.Replayed)
	b = appendID(b, "apr", e.Approval)
	b = appendID(b, "tgt", e.Target)
	b = appendInt(b, "rev", int64(e.Revision))
	b = appendInt(b, "pol", int64(e.PolicyVersion))
	b = appendText(b, "cls", string(e.Class), maxWord)
	b = appendText(b, "urg", string(e.Urgency), maxWord)
	b = appendInt(b, "est", int64(e.Estimate))
	b = appendFlag(b, "grp", e.Grouped)
	b = appendItems(b, e.Items)
	return append(b, '}')
}

func appendFlag(b []byte, field string, set bool) []byte {
	if !set {
		return b
	}
	return append(appendField(b, field), "true"...)
}

// appendTime appends t. A year that RFC 3339 cannot express stands as the
// zero time, which no clock gives, rather than as a line that no reader takes.
func appendTime(b []byte, t time.Time) []byte {
	t = t.UTC()
	if y := t.Year(); y < 0 || y > 9999 {
		t = time.Time{}
	}
	return t.AppendFormat(b, time.RFC3339Nano)
}

func appendField(b []byte, field string) []byte {
	b = append(b, ',', '"')
	b = append(b, field...)
	return append(b, '"', ':')
}

func appendInt(b []byte, field string, n int64) []byte {
	if n == 0 {
		return b
	}
	return strconv.AppendInt(appendField(b, field), n, 10)
}

func appendID(b []byte, field string, id uuid.UUID) []byte {
	if id == (uuid.UUID{}) {
		return b
	}
	b = append(appendField(b, field), '"')
	b, _ = id.AppendText(b) // never fails
	return append(b, '"')
}

// appendAddress leaves out the zone, which means something only to the
// machine that saw it.
func appendAddress(b []byte, a netip.Addr) []byte {
	if !a.IsValid() {
		return b
	}
	b = append(appendField(b, "ip"), '"')
	return append(a.WithZone("").AppendTo(b), '"')
}

func appendReasons(b []byte, reasons []kms.Reason) []byte {
	if len(reasons) == 0 {
		return b
	}
	b = append(appendField(b, "why"), '[')
	for i, r := range reasons[:min(len(reasons), maxReasons)] {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"c":`...)
		b = appendQuoted(b, r.Code, maxCode)
		b = appendInt(b, "l", r.Limit)
		b = appendInt(b, "n", r.Need)
		b = appendInt(b, "h", r.Have)
		b = appendInt(b, "r", int64(r.RetryIn))
		b = appendInt(b, "w", int64(r.Waited))
		b = append(b, '}')
	}
	return append(b, ']')
}

func appendItems(b []byte, items []kms.EntryItem) []byte {
	if len(items) == 0 {
		return b
	}
	b = append(appendField(b, "items"), '[')
	for i := range items[:min(len(items), maxItems)] {
		it := &items[i]
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"s":`...)
		b = appendQuoted(b, string(it.Status), maxWord)
		b = appendID(b, "id", it.Secret)
		if len(it.Versions) > 0 {
			b = append(appendField(b, "v"), '[')
			for j, v := range it.Versions[:min(len(it.Versions), maxItemVersions)] {
				if j > 0 {
					b = append(b, ',')
				}
				b = strconv.AppendUint(b, uint64(v), 10)
			}
			b = append(b, ']')
		}
		if !it.LeaseEnd.IsZero() {
			b = append(appendField(b, "end"), '"')
			b = append(appendTime(b, it.LeaseEnd), '"')
		}
		b = append(b, '}')
	}
	return append(b, ']')
}

func appendText(b []byte, field, s string, limit int) []byte {
	if s == "" {
		return b
	}
	return appendQuoted(appendField(b, field), s, limit)
}

// plain tells which bytes stand for themselves in a text.
func plain(c byte) bool { return 0x20 <= c && c <= 0x7e && c != '"' && c != '\\' }

// appendQuoted appends up to limit characters of s as a JSON string of
// printable ASCII.
func appendQuoted(b []byte, s string, limit int) []byte {
	b = append(b, '"')
	done := 0 // s[:done] is appended
	for i, characters := 0, 0; i < len(s); characters++ {
		if characters == limit {
			s = s[:i]
			break
		}
		c := s[i]
		if plain(c) {
			i++
			continue
		}
		b = append(b, s[done:i]...)
		size := 1
		if c < utf8.RuneSelf {
			b = appendEscape(b, rune(c))
		} else {
			var r rune
			r, size = utf8.DecodeRuneInString(s[i:])
			b = appendEscape(b, r)
		}
		i += size
		done = i
	}
	b = append(b, s[done:]...)
	return append(b, '"')
}

// appendEscape appends r as JSON escapes it (RFC 8259, section 7): quote and
// backslash in two characters, all others in hexadecimal, beyond the basic
// plane as a surrogate pair.
func appendEscape(b []byte, r rune) []byte {
	switch {
	case r == '"' || r == '\\':
		return append(b, '\\', byte(r))
	case r >= 0x10000:
		r -= 0x10000
		return appendHex(appendHex(b, 0xd800+r>>10), 0xdc00+r&0x3ff)
	}
	return appendHex(b, r)
}

func appendHex(b []byte, r rune) []byte {
	const digits = "0123456789abcdef"
	return append(b, '\\', 'u', digits[r>>12&15], digits[r>>8&15], digits[r>>4&15], digits[r&15])
}
