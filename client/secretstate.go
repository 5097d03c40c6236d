package client

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
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
	if len(st.versions) == 2 {
		a, b := &st.versions[0], &st.versions[1]
		x, y := roughLog(a.uniform(h))*b.weight, roughLog(b.uniform(h))*a.weight
		if off := roughLogError * (a.weight + b.weight); x > y+off {
			return a
		} else if y > x+off {
			return b
		}
	}
	best, bestScore := 0, math.Inf(-1)
	for i := range st.versions {
		v := &st.versions[i]
		if score := math.Log2(v.uniform(h)) / v.weight; score > bestScore {
			best, bestScore = i, score
		}
	}
	return &st.versions[best]
}

// uniform is v's part in the draw for a hash, in (0, 1): the greatest of all
// uniform^(1/weight) wins.
func (v *heldVersion) uniform(h uint64) float64 {
	return (float64(mix(h^v.salt)>>11) + 0.5) / (1 << 53)
}

// logSteps are the binary logarithms of 1, 1+1/64, … 2.
var logSteps = func() (steps [65]float64) {
	for i := range steps {
		steps[i] = math.Log2(1 + float64(i)/64)
	}
	return steps
}()

// roughLogError bounds the error of linear interpolation between logSteps:
// (1/64)² ÷ 8 × 1/ln 2 = 4.4e-5.
const roughLogError = 5e-5

// roughLog is math.Log2 of a normal number within roughLogError, in a tenth of
// the time: a rollout has two versions, and nearly all draws are not close.
func roughLog(x float64) float64 {
	b := math.Float64bits(x)
	i, part := b>>46&63, float64(b&(1<<46-1))/(1<<46)
	return float64(int(b>>52)-1023) + logSteps[i] + part*(logSteps[i+1]-logSteps[i])
}

// hash takes eight bytes in a step, by multiplying and folding the product, as
// wyhash does (Wang Yi, 2019), and needs no state of the process: it is the same
// in every one. It is followed by mix, and guards against nobody.
func hash(s string) uint64 {
	const prime = 0x9fb21c651e98df25
	h := uint64(len(s)) ^ prime
	for ; len(s) >= 8; s = s[8:] {
		word := uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
			uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
		high, low := bits.Mul64(h^word, prime)
		h = high ^ low
	}
	var word uint64
	for i := range len(s) {
		word |= uint64(s[i]) << (8 * i)
	}
	high, low := bits.Mul64(h^word, prime)
	return high ^ low
}

// mix is the finalizer of SplitMix64 (G. Steele, D. Lea, C. Flood, "Fast
// splittable pseudorandom number generators", OOPSLA 2014): the hash alone
// leaves bits of like strings alike.
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
