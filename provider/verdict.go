package provider

import (
	"slices"

	"github.com/sluice-kms/sluice/client/outcome"
	"github.com/sluice-kms/sluice/kms"
)

// unanswered are the rows of outcome's table for calls that got no answer.
var unanswered = []string{"connection", "name-resolution", "certificate", "timeout"}

// Count adds one call to an outcome, by what its answer meant. What the caller
// did wrong counts nowhere.
func Count(o *kms.RouteOutcome, v outcome.Verdict) {
	switch v.Class {
	case outcome.OK:
		o.OK++
	case outcome.Credential:
		o.Credential++
	case outcome.Quota:
		o.Quota++
	case outcome.RateLimit:
		o.RateLimit++
	case outcome.Transient:
		o.Transient++
		if slices.Contains(unanswered, v.Row) {
			o.Connections++
		}
	}
	o.RetryAfter = max(o.RetryAfter, v.RetryAfter)
}

// Reached tells whether the answer to a probe without a key shows that the
// endpoint works: any answer but a failure of its own does, 401 and 403 first
// of all.
func Reached(v outcome.Verdict) bool { return v.Class != outcome.Transient }

// KeyOf is what the answer to a call that lists the provider's models says of
// the key; "": nothing.
func KeyOf(v outcome.Verdict) kms.ProviderKeyState {
	switch v.Class {
	case outcome.OK:
		return kms.KeyOK
	case outcome.Credential:
		if v.Scope == outcome.Key {
			return kms.KeyInvalid
		}
	case outcome.Quota:
		if v.Scope == outcome.Key {
			return kms.KeyExhausted
		}
	}
	return ""
}
