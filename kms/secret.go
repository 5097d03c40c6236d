package kms

import (
	"maps"
	"slices"
	"strings"
	"time"
	"uuid"
)

// SecretVersionState is the state of a version of a provider secret.
type SecretVersionState string

// The states of a version. A new one is STAGED until it is activated. While one
// takes over from another both are ACTIVE and share the calls by their weights.
// RETIRED ones can be rolled back to until they are destroyed. DISABLED ones are
// never handed out; what has a date of destruction can be restored until then.
const (
	SecretStaged    SecretVersionState = "STAGED"
	SecretActive    SecretVersionState = "ACTIVE"
	SecretRetired   SecretVersionState = "RETIRED"
	SecretDisabled  SecretVersionState = "DISABLED"
	SecretDestroyed SecretVersionState = "DESTROYED"
)

// SecretVersionStates returns the states. The caller must not change them.
func SecretVersionStates() []SecretVersionState {
	return []SecretVersionState{SecretStaged, SecretActive, SecretRetired, SecretDisabled, SecretDestroyed}
}

// SecretState is the state of a provider secret as a whole.
type SecretState string

// The states of a secret. A destroyed one is missing for everybody but the
// store, which keeps its tombstone.
const (
	SecretInUse           SecretState = "ACTIVE"
	SecretPendingDeletion SecretState = "PENDING_DELETION"
	SecretGone            SecretState = "DESTROYED"
)

// ProviderSecret is a tenant's credential for a provider, such as an API key,
// with its versions. Values that the store returns are shared and must not be
// changed.
type ProviderSecret struct {
	ID       uuid.UUID
	Tenant   uuid.UUID
	Path     string // unique in the tenant, immutable; see ValidSecretPath
	Provider string
	// Metadata says what is not secret: base_url, organization, region …
	Metadata map[string]string
	State    SecretState
	Created  time.Time
	// DeletionDate is when all is destroyed; zero unless it is pending deletion.
	DeletionDate time.Time
	// Fresh is for how long a client may use what it fetched without asking
	// again, Lease for how long at all, when it cannot ask.
	Fresh, Lease time.Duration
	Highest      uint32           // the highest version number ever used
	Versions     []*SecretVersion // ascending, with the tombstones
	Rollout      *Rollout         // the last one; nil: there was none
	// Revision is the tenant's as of the secret's last change: it grows with
	// every change of any secret of the tenant.
	Revision uint64
}

// SecretVersion is one version of a value.
type SecretVersion struct {
	Number   uint32
	State    SecretVersionState
	Weight   uint32 // of an ACTIVE one: its share of the calls, in hundredths
	Created  time.Time
	NotAfter time.Time // zero: it does not expire
	Retired  time.Time // when it was last taken out of use; zero: never
	// DestroyAt is when a RETIRED or DISABLED version is destroyed, or when a
	// DESTROYED one was; zero: it is not.
	DestroyAt time.Time
	// Fingerprint is a code of the value under a version of the pepper, by
	// which the same value is known again.
	Fingerprint        [32]byte
	FingerprintVersion uint32
	// DataKey is sealed under the tenant's sealing key, Value under the data
	// key: see sealSecretValue. Both are nil of a DESTROYED version.
	DataKey []byte
	Value   []byte
}

// RolloutState is the state of a rollout.
type RolloutState string

// The states of a rollout.
const (
	RolloutRunning    RolloutState = "RUNNING"
	RolloutDone       RolloutState = "DONE"
	RolloutRolledBack RolloutState = "ROLLED_BACK"
	RolloutCancelled  RolloutState = "CANCELLED" // one of its versions was disabled
)

// Rollout is how a version takes over from another in steps.
type Rollout struct {
	State    RolloutState
	From, To uint32
	Steps    []uint32 // the new version's weights, ascending to 100
	Step     int      // index of the current one
	Interval time.Duration
	// Observe is for how long the version that was replaced is kept.
	Observe time.Duration
	Since   time.Time // when the current step, or the end, began
}

// Bounds of secrets.
const (
	// MaxSecretPath leaves room for the scope that names the whole path.
	MaxSecretPath = 240
	// MaxSecretValue bounds a value in bytes: service account files have 3 KiB.
	MaxSecretValue = 64 << 10
	MaxProvider    = 64 // bytes
	// MaxSecretVersions bounds the versions of a secret that are not destroyed,
	// since it is read as a whole; MaxSecretTombstones those that are.
	MaxSecretVersions   = 32
	MaxSecretTombstones = 4096
	MaxFetchItems       = 100
	MaxRolloutSteps     = 10
)

// Defaults and bounds of a secret's times.
const (
	DefaultFresh    = 5 * time.Minute
	DefaultLease    = time.Hour
	MinFresh        = time.Second
	MaxLease        = 24 * time.Hour
	DefaultInterval = time.Minute
	MinInterval     = time.Second
	MaxInterval     = 7 * 24 * time.Hour
	DefaultObserve  = 7 * 24 * time.Hour
	MinObserve      = time.Minute
	MaxObserve      = 90 * 24 * time.Hour
)

// SecretTimes are the times of secrets by the policy in force.
type SecretTimes struct {
	// Fresh and Lease are those of secrets that are made without.
	Fresh, Lease time.Duration
	// Heartbeat is how long a watch is silent at most.
	Heartbeat time.Duration
}

// secretTimes are the policy's, within the bounds.
func (s *Service) secretTimes() SecretTimes {
	t := SecretTimes{Fresh: DefaultFresh, Lease: DefaultLease, Heartbeat: DefaultHeartbeat}
	if s.policyTimes != nil {
		t = s.policyTimes()
	}
	t.Lease = min(max(t.Lease, MinFresh), MaxLease)
	t.Fresh = min(max(t.Fresh, MinFresh), t.Lease)
	return t
}

// ValidSecretPath tells whether s can be the path of a secret: 1 to
// MaxSecretPath visible ASCII characters in segments that are separated by "/",
// none of which is empty, "." or "..". What a scope's glob or an address could
// not hold, or means something to, is not in it: no control character, no
// space, none of *:\"%?#<>|. Other scripts are left out because one text has
// several spellings in them, and invisible characters.
func ValidSecretPath(s string) bool {
	if len(s) == 0 || len(s) > MaxSecretPath {
		return false
	}
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' || strings.IndexByte(`*:\"%?#<>|`, s[i]) >= 0 {
			return false
		}
	}
	for segment := range strings.SplitSeq(s, "/") {
		if segment == "" || segment == "." || segment == ".." {
			return false
		}
	}
	return true
}

// ValidProvider tells whether s can name a provider: 1 to MaxProvider lower-case
// letters, digits and -_.
func ValidProvider(s string) bool {
	for i := range len(s) {
		if c := s[i]; !('a' <= c && c <= 'z' || '0' <= c && c <= '9' || strings.IndexByte("-_.", c) >= 0) {
			return false
		}
	}
	return len(s) > 0 && len(s) <= MaxProvider
}

// Version returns the version of a number, nil when there is none.
func (s *ProviderSecret) Version(number uint32) *SecretVersion {
	for _, v := range s.Versions {
		if v.Number == number {
			return v
		}
	}
	return nil
}

// Clone returns a copy that can be changed; the sealed values are shared.
func (s *ProviderSecret) Clone() *ProviderSecret {
	c := *s
	c.Metadata = maps.Clone(s.Metadata)
	c.Versions = make([]*SecretVersion, len(s.Versions))
	for i, v := range s.Versions {
		copied := *v
		c.Versions[i] = &copied
	}
	if s.Rollout != nil {
		r := *s.Rollout
		r.Steps = slices.Clone(r.Steps)
		c.Rollout = &r
	}
	return &c
}

// SecretChangeKind says what a change means to who holds a secret.
type SecretChangeKind string

// The kinds: something about it changed, or what was held must not be used any
// more.
const (
	SecretChanged SecretChangeKind = "changed"
	SecretRevoked SecretChangeKind = "revoked"
)

// SecretChange is a change of a tenant's secrets.
type SecretChange struct {
	Revision uint64
	Path     string
	Kind     SecretChangeKind
}

// SecretOutcome counts what calls of a provider with a version came to since
// the rollout's step began.
type SecretOutcome struct {
	Secret  uuid.UUID
	Version uint32
	OK      int64
	// Credential counts refusals of the key itself: 401, 403.
	Credential int64
	// Quota, RateLimit and Transient say nothing about whether the key is good.
	Quota, RateLimit, Transient int64
}
