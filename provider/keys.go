package provider

import (
	"slices"
	"time"

	"github.com/sluice-kms/sluice/kms"
)

// key is what is known of a version of a target's key.
type key struct {
	State kms.ProviderKeyState `json:"state"`
	Until time.Time            `json:"until,omitzero"` // when one that is not ok may be tried again
	// Refusals are those since the last success.
	Refusals int64 `json:"refusals,omitzero"`
	// Validation is what it came to when it was last tried out.
	Validation *validation `json:"validation,omitempty"`
}

// validation is a kms.KeyValidation in the document.
type validation struct {
	State kms.ProviderKeyState `json:"state,omitempty"`
	Class string               `json:"class"`
	At    time.Time            `json:"at"`
}

// cool is a rate limit: a version leaves a model alone.
type cool struct {
	Version uint32    `json:"version"`
	Model   string    `json:"model"`
	Since   time.Time `json:"since"` // of the first of the refusals without a success between them
	Until   time.Time `json:"until"`
}

// takeKey takes what calls said of a key, and tells whether it is invalid now
// and was not before.
func (t *target) takeKey(now time.Time, o *kms.RouteOutcome) (invalid bool) {
	if o.Version == 0 || o.OK+o.Credential+o.Quota == 0 {
		return false
	}
	k, ok := t.Keys[o.Version]
	if !ok {
		k.State = kms.KeyOK
	}
	if o.OK > 0 {
		k.Refusals = 0
	}
	switch {
	case o.Quota > 0:
		k.State, k.Until = kms.KeyExhausted, now.Add(min(max(o.RetryAfter, exhaustedTime), maxExhausted))
	case o.Credential > 0 && o.OK == 0:
		k.Refusals += o.Credential
		if k.Refusals >= keyRefusals {
			invalid = k.State != kms.KeyInvalid
			k.State, k.Until = kms.KeyInvalid, now.Add(invalidTime)
		} else if k.State == kms.KeyOK {
			k.State = kms.KeyRefused
		}
	case o.OK > 0:
		k.State, k.Until = kms.KeyOK, time.Time{}
	}
	t.setKey(o.Version, k)
	return invalid
}

// setKey keeps what is known of a key, and of the highest maxKeys versions.
func (t *target) setKey(version uint32, k key) {
	if t.Keys == nil {
		t.Keys = map[uint32]key{}
	}
	t.Keys[version] = k
	for len(t.Keys) > maxKeys {
		lowest := version
		for v := range t.Keys {
			lowest = min(lowest, v)
		}
		delete(t.Keys, lowest)
	}
}

// blocked tells whether a key must not be used now.
func (k *key) blocked(now time.Time) bool {
	return (k.State == kms.KeyInvalid || k.State == kms.KeyExhausted) && now.Before(k.Until)
}

// usable tells whether any version can be used, and if not, until when.
func (t *target) usable(now time.Time, keys kms.RouteKeys) (ok bool, until time.Time) {
	if !keys.Needed {
		return true, time.Time{}
	}
	for _, v := range keys.Versions {
		k, known := t.Keys[v]
		if !known || !k.blocked(now) {
			return true, time.Time{}
		}
		if until.IsZero() || k.Until.Before(until) {
			until = k.Until
		}
	}
	return false, until
}

// takeLimit takes what calls said of a rate limit.
func (t *target) takeLimit(now time.Time, o *kms.RouteOutcome, lasts time.Duration) {
	t.Cools = slices.DeleteFunc(t.Cools, func(c cool) bool {
		same := c.Version == o.Version && c.Model == o.Model
		// What is over is kept for as long as it may turn out to go on.
		return same && o.OK > 0 || now.Sub(c.Until) > lasts
	})
	if o.RateLimit == 0 {
		return
	}
	wait := coolTime
	if o.RetryAfter > 0 {
		wait = min(max(o.RetryAfter, minCool), maxCool)
	}
	for i := range t.Cools {
		if c := &t.Cools[i]; c.Version == o.Version && c.Model == o.Model {
			if until := now.Add(wait); until.After(c.Until) {
				c.Until = until
			}
			return
		}
	}
	if len(t.Cools) >= maxCools {
		t.Cools = t.Cools[1:]
	}
	t.Cools = append(t.Cools, cool{o.Version, o.Model, now, now.Add(wait)})
}

// limitsLast tells whether a rate limit has lasted too long without any call
// getting through. A limit that nothing was refused by since it was over, does
// not last.
func (t *target) limitsLast(now time.Time, lasts time.Duration) bool {
	return slices.ContainsFunc(t.Cools, func(c cool) bool {
		return now.Sub(c.Since) >= lasts && now.Before(c.Until) && t.LastOK.Before(c.Since)
	})
}

// cooledUntil is when the last of the rate limits is over.
func (t *target) cooledUntil(now time.Time) (until time.Time) {
	for _, c := range t.Cools {
		if c.Until.After(now) && c.Until.After(until) {
			until = c.Until
		}
	}
	return until
}

// cooling tells whether all versions must leave all of the models alone now.
func (t *target) cooling(now time.Time, keys kms.RouteKeys, models []string) bool {
	versions := keys.Versions
	if !keys.Needed {
		versions = []uint32{0}
	}
	for _, v := range versions {
		for _, m := range models {
			if !slices.ContainsFunc(t.Cools, func(c cool) bool { return c.Version == v && c.Model == m && now.Before(c.Until) }) {
				return false
			}
		}
	}
	return len(versions) > 0 && len(models) > 0
}
