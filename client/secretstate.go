package client

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
)

// Errors of secrets. ErrNotFound is one too.
var (
	// ErrDenied: the credential may not read the secret.
	ErrDenied = errors.New("the credential may not read the secret")
	// ErrRevoked: the secret is disabled, or the versions that were held are.
	ErrRevoked = errors.New("the secret is disabled")
	// ErrUnavailable: there is no value that may still be used, and the service
	// gives none at the moment. It wraps what kept it from answering.
	ErrUnavailable = errors.New("no usable value of the secret, and none to be had now")
	// ErrSealed: the service answers, but its HSMs do not. It is an
	// ErrUnavailable.
	ErrSealed = fmt.Errorf("%w: the service cannot open it", ErrUnavailable)
	// ErrClosed: Secrets is closed, and what it held is wiped.
	ErrClosed = errors.New("the secrets are closed")
)

// unavailable is the error of a secret without a value after a fetch that
// failed with err.
func unavailable(err error) error {
	if errors.Is(err, ErrHSMUnavailable) {
		return fmt.Errorf("%w: %w", ErrSealed, err)
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// secretState is what readers see of a secret. It never changes.
type secretState struct {
	err      error // nil: there are versions
	versions []heldVersion
	secretID string
	provider string
	metadata map[string]string
	revision uint64 // of the secret
}

// heldVersion is a version that requests may be given.
type heldVersion struct {
	value    Value
	version  uint32
	weight   float64 // positive
	salt     uint64  // of secret and version
	secretID string
}

// Ends of entries.
var (
	statePending = &secretState{err: fmt.Errorf("%w: it is being fetched", ErrUnavailable)}
	stateEvicted = &secretState{err: fmt.Errorf("%w: it has made room for others", ErrUnavailable)}
	stateExpired = &secretState{err: fmt.Errorf("%w: the last one is too old", ErrUnavailable)}
	stateRevoked = &secretState{err: ErrRevoked}
	stateClosed  = &secretState{err: ErrClosed}
	stateInvalid = &secretState{err: invalid("a secret's path is 1 to %d visible ASCII characters, in segments separated by /", maxSecretPath)}
)

// newState is the state that an item tells of. Versions that before holds keep
// their memory, so that wiping reaches all copies of a value. ok is false for
// an item that cannot be used.
func newState(item *FetchedSecret, before []heldVersion) (st *secretState, ok bool) {
	st = &secretState{secretID: item.SecretID, provider: item.Provider, metadata: item.Metadata, revision: item.Revision}
	weighted := slices.ContainsFunc(item.Versions, func(v WeightedValue) bool { return v.Weight > 0 })
	for _, v := range item.Versions {
		if v.Value.IsZero() || weighted && v.Weight == 0 {
			continue
		}
		held := heldVersion{value: v.Value, version: v.Version, weight: float64(max(v.Weight, 1)), secretID: item.SecretID}
		held.salt = mix(hash(item.SecretID + "/" + strconv.FormatUint(uint64(v.Version), 10)))
		if i := slices.IndexFunc(before, func(b heldVersion) bool { return b.secretID == item.SecretID && b.version == v.Version }); i >= 0 && !before[i].value.IsZero() {
			held.value.Wipe()
			held.value = before[i].value
		}
		st.versions = append(st.versions, held)
	}
	return st, len(st.versions) > 0
}

// choose is the version for a routing key: the same one for the same key in
// every process as long as the weights are the same, and each one for its share
// of the keys: weighted rendezvous hashing (C. Schindelhauer, G. Schomaker,
// "Weighted Distributed Hash Tables", SPAA 2005). When weights change, of two
// versions, which a rollout has, only keys that must move do, and of more at
// most twice as many. Without a key each call draws anew.
func (st *secretState) choose(routingKey string) *heldVersion {
	if len(st.versions) == 1 {
		return &st.versions[0]
	}
	var h uint64
	if routingKey == "" {
		h = rand.Uint64()
	} else {
		h = hash(routingKey)
	}
	best, bestScore := 0, math.Inf(-1)
	for i := range st.versions {
		v := &st.versions[i]
		// u is uniform in (0, 1); the greatest u^(1/weight) wins.
		u := (float64(mix(h^v.salt)>>11) + 0.5) / (1 << 53)
		if score := math.Log(u) / v.weight; score > bestScore {
			best, bestScore = i, score
		}
	}
	return &st.versions[best]
}

// hash is FNV-1a, which needs no state of the process, in place: hash/fnv would
// take a third of the time of Get.
func hash(s string) uint64 {
	const offset, prime = 14695981039346656037, 1099511628211
	h := uint64(offset)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * prime
	}
	return h
}

// mix is the finalizer of SplitMix64 (G. Steele, D. Lea, C. Flood, "Fast
// splittable pseudorandom number generators", OOPSLA 2014): FNV alone leaves
// the high bits of like strings alike.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// wipeVersions wipes versions but those that a state still has.
func wipeVersions(versions []heldVersion, but *secretState) {
	for _, v := range versions {
		if but == nil || !slices.ContainsFunc(but.versions, func(b heldVersion) bool { return b.secretID == v.secretID && b.version == v.version }) {
			v.value.Wipe()
		}
	}
}
