package kms

import (
	"time"
	"uuid"
)

// KeyState is the state of a key.
type KeyState string

// The key states.
const (
	KeyEnabled         KeyState = "ENABLED"
	KeyDisabled        KeyState = "DISABLED"
	KeyPendingDeletion KeyState = "PENDING_DELETION"
)

// VersionState is the state of one key version.
type VersionState string

// The version states.
const (
	VersionEnabled  VersionState = "ENABLED"
	VersionDisabled VersionState = "DISABLED"
	// VersionPendingDestruction versions cannot be used; at their date the
	// material is erased.
	VersionPendingDestruction VersionState = "PENDING_DESTRUCTION"
	// VersionDestroyed versions are tombstones: number, dates and public half
	// without material. They stay for good.
	VersionDestroyed VersionState = "DESTROYED"
)

// Origin says how a key's material came to be.
type Origin string

// The origins. Material that was imported existed outside; material imported
// via the process was in this service's memory on its way into the HSM, and
// never claims more.
const (
	OriginGenerated       Origin = "GENERATED"
	OriginImportedProcess Origin = "IMPORTED_VIA_PROCESS"
)

// Key is a key's authenticated metadata with its versions. Values that the
// store returns are shared by concurrent readers and must not be changed.
type Key struct {
	ID          uuid.UUID
	Tenant      *Tenant
	Project     string
	Name        string // immutable, unique in the tenant
	Spec        Spec
	Usage       Usage
	Protection  Protection
	State       KeyState
	Description string
	Tags        map[string]string
	Created     time.Time
	// DeletionDate is set while the key is pending deletion.
	DeletionDate       time.Time
	DeletionProtection bool
	// Origin of the first version; rotation generates.
	Origin Origin
	// RotationPeriod is the time between scheduled rotations, 0 for none;
	// NextRotation is the date of the next.
	RotationPeriod time.Duration
	NextRotation   time.Time
	// LastUsed and LastUsedOp tell of the last use of the material, as of the
	// last time that uses were stored; zero: never.
	LastUsed   time.Time
	LastUsedOp Op
	// Primary is the number of the version that new operations use.
	Primary  uint32
	Versions []*Version // ascending by number
	Revision uint64     // grows by one with every change, from 1
}

// Version is one version of a key's material.
type Version struct {
	ID      uuid.UUID
	Number  uint32 // from 1, never reused
	State   VersionState
	Created time.Time
	// DestroyAt is set while the version is pending destruction.
	DestroyAt time.Time
	// PublicKey is the SubjectPublicKeyInfo in DER, nil for symmetric keys.
	PublicKey []byte
	// Blob is the sealed material (format SLB1), of use only to a Device.
	Blob []byte
}

// stored counts the versions that are not destroyed.
func (k *Key) stored() (n int) {
	for _, v := range k.Versions {
		if v.State != VersionDestroyed {
			n++
		}
	}
	return n
}

// Version returns the version of a number, nil when there is none.
func (k *Key) Version(number uint32) *Version {
	// Versions are dense except for destroyed ones, so the slot number-1 is
	// nearly always right.
	if i := int(number) - 1; i >= 0 && i < len(k.Versions) && k.Versions[i].Number == number {
		return k.Versions[i]
	}
	for _, v := range k.Versions {
		if v.Number == number {
			return v
		}
	}
	return nil
}

// MaxNameLength is the length in bytes of the longest key, tenant, project,
// credential or component name.
const MaxNameLength = 128

// ValidName tells whether s can name an object: 1 to MaxNameLength bytes of
// ASCII letters, digits and "-_./", beginning and ending with a letter or
// digit, with no empty or dots-only path segment, and not looking like a
// UUID, so that an id and a name can share one place in a path.
func ValidName(s string) bool {
	if len(s) == 0 || len(s) > MaxNameLength {
		return false
	}
	dotsOnly := true // of the current path segment
	segment := 0
	for i := range len(s) {
		c := s[i]
		alnum := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		switch {
		case alnum, c == '-', c == '_':
			dotsOnly = false
			segment++
		case c == '.':
			segment++
		case c == '/':
			if segment == 0 || dotsOnly {
				return false
			}
			segment, dotsOnly = 0, true
		default:
			return false
		}
		if (i == 0 || i == len(s)-1) && !alnum {
			return false
		}
	}
	if _, err := uuid.Parse(s); err == nil {
		return false
	}
	return segment > 0 && !dotsOnly
}
