package kms

import (
	"context"
	"uuid"
)

// RootDevice takes material from the roots of an earlier generation of a domain
// to the newest. All methods are safe for concurrent use; errors are those of
// Device.
type RootDevice interface {
	// Generation returns the newest generation of a domain's roots; 0 when the
	// domain is not known.
	Generation(domain uuid.UUID) uint32
	// BlobRoot returns the generation of the key root that a version's blob
	// needs; 0 when it needs none, as that of a SEALED version, which depends
	// on the tenant's sealing key alone.
	BlobRoot(blob []byte) uint32
	// RewrapSealingKey returns the same sealing key under the newest sealing
	// root.
	RewrapSealingKey(ctx context.Context, k SealingKey) (SealingKey, error)
	// RewrapVersion returns the version's blob with the same material under the
	// newest key root. The key's Tenant counts.
	RewrapVersion(ctx context.Context, key *Key, v *Version) (blob []byte, err error)
}

// RootStore stores what a RootDevice returns. Both methods read the row from
// the database, hand it over, and write what comes back if nobody changed the
// row meanwhile: KindPreconditionFailed otherwise. Nothing is written when what
// comes back is nil.
type RootStore interface {
	RewrapTenant(ctx context.Context, id uuid.UUID, rewrap func(*Tenant) (*SealingKey, error)) error
	// RewrapKey: the blobs are by version number.
	RewrapKey(ctx context.Context, tenant, key uuid.UUID, rewrap func(*Key) (map[uint32][]byte, error)) error
}
