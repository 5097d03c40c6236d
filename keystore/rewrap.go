package keystore

import (
	"context"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

var _ kms.RootStore = (*Store)(nil)

// RewrapTenant implements kms.RootStore.
func (s *Store) RewrapTenant(ctx context.Context, id uuid.UUID, rewrap func(*kms.Tenant) (*kms.SealingKey, error)) error {
	t, err := s.loadTenant(ctx, id)
	if err != nil {
		return err
	}
	sealing, err := rewrap(t)
	if err != nil || sealing == nil {
		return err
	}
	_, err = s.changeTenant(ctx, id, t.Revision, func(t *kms.Tenant) error {
		if t.Deleted() {
			return errRevision()
		}
		t.Sealing = *sealing
		return nil
	})
	return err
}

// RewrapKey implements kms.RootStore. Only versions that have a blob can get
// another: KindInvalidArgument otherwise.
func (s *Store) RewrapKey(ctx context.Context, tenant, key uuid.UUID, rewrap func(*kms.Key) (map[uint32][]byte, error)) error {
	id := keyID{tenant, key}
	t, err := s.tenants.get(ctx, tenant)
	if err != nil {
		return err
	}
	next, err := s.readKey(ctx, id)
	if err != nil {
		return err
	}
	next.key.Tenant = t
	blobs, err := rewrap(next.key)
	if err != nil || len(blobs) == 0 {
		return err
	}
	var changes versionChanges
	for number, blob := range blobs {
		v := next.key.Version(number)
		if v == nil || v.Blob == nil || len(blob) == 0 {
			return errArgument("blobs", "are of versions that have none")
		}
		v.Blob = blob
		changes.changed = append(changes.changed, v)
	}
	_, err = s.writeKey(ctx, t, id, &next, changes)
	return err
}
