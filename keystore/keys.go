package keystore

import (
	"context"
	"maps"
	"sync/atomic"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// MaxVersions bounds the versions of one key, since a key is loaded and
// changed as a whole: a rotation a day for eleven years.
const MaxVersions = 4096

// boundKey is a key in the cache with the tenant that it belonged to when it
// was last looked up.
type boundKey struct {
	// epoch is the tenant epoch at which key.Tenant was the current one; 0
	// while key.Tenant is nil.
	epoch atomic.Uint64
	key   kms.Key
}

// Lookup implements kms.Keys. A warm look-up takes no lock that all tenants
// share and allocates nothing.
func (s *Store) Lookup(ctx context.Context, tenant uuid.UUID, ref string) (*kms.Key, error) {
	// Read before anything else: see bind.
	epoch := s.tenantEpoch.Load()
	id, isID := parseID(ref)
	if !isID {
		if len(ref) > kms.MaxNameLength {
			return nil, kms.ErrNotFound
		}
		var err error
		if id, err = s.keyNames.get(ctx, keyName{tenant, ref}); err != nil {
			return nil, err
		}
	}
	found, err := s.keys.get(ctx, keyID{tenant, id})
	if err != nil {
		return nil, err
	}
	if found.epoch.Load() == epoch {
		return &found.key, nil
	}
	return s.bind(ctx, tenant, found, epoch)
}

// bind returns the key as it belongs to its tenant now, and leaves that in the
// cache for those who come next. The epoch was read before: should the tenant
// change in the meantime, what is left is of an old epoch and will be bound
// again.
func (s *Store) bind(ctx context.Context, tenant uuid.UUID, found *boundKey, epoch uint64) (*kms.Key, error) {
	t, err := s.tenants.get(ctx, tenant)
	if err != nil {
		return nil, err
	}
	if found.key.Tenant == t {
		found.epoch.Store(epoch) // another tenant began the new epoch
		return &found.key, nil
	}
	// What was handed out stays as it is.
	bound := &boundKey{key: found.key}
	bound.key.Tenant = t
	bound.epoch.Store(epoch)
	s.keys.swap(keyID{tenant, bound.key.ID}, found, bound)
	return &bound.key, nil
}

// parseID tells whether ref is an id, in any of the spellings that
// uuid.Parse knows, without allocating when it is not.
func parseID(ref string) (uuid.UUID, bool) {
	// The spellings have 32, 36, 38 and 45 bytes.
	var buf [45]byte
	if len(ref) < 32 || len(ref) > len(buf) {
		return uuid.UUID{}, false
	}
	var id uuid.UUID
	err := id.UnmarshalText(buf[:copy(buf[:], ref)])
	return id, err == nil
}

func (s *Store) loadKeyID(ctx context.Context, k keyName) (uuid.UUID, error) {
	if !kms.ValidName(k.name) {
		return uuid.UUID{}, kms.ErrNotFound
	}
	c, err := s.coder()
	if err != nil {
		return uuid.UUID{}, err
	}
	row, err := s.driver.KeyName(ctx, KeyNameParams{Tenant: k.tenant, Name: k.name})
	if err != nil {
		return uuid.UUID{}, translate(err)
	}
	id, err := decodeKeyName(c, k.tenant, k.name, row)
	return id, s.decoded(err)
}

func (s *Store) loadKey(ctx context.Context, k keyID) (*boundKey, error) {
	stored, err := s.readKey(ctx, k)
	if err != nil {
		return nil, err
	}
	return &boundKey{key: *stored.key}, nil
}

func (s *Store) readKey(ctx context.Context, k keyID) (storedKey, error) {
	c, err := s.coder()
	if err != nil {
		return storedKey{}, err
	}
	row, err := s.driver.Key(ctx, KeyParams{Tenant: k.tenant, ID: k.key})
	if err != nil {
		return storedKey{}, translate(err)
	}
	stored, err := decodeKey(c, k.tenant, row, &k.key)
	if err != nil {
		return storedKey{}, s.decoded(err)
	}
	if stored.destroyed() {
		return storedKey{}, kms.ErrNotFound
	}
	return stored, nil
}

// CreateKey implements kms.Keys. The key has the revision 1 and one version,
// its primary one, with the number 1. ErrNotFound when the tenant has no such
// project, KindConflict also when a key that was destroyed had the id.
func (s *Store) CreateKey(ctx context.Context, key *kms.Key) error {
	err := argument(func(fail failFunc) {
		switch {
		case key.Tenant == nil:
			fail("tenant", reasonMissing)
		case key.Revision != 1:
			fail("revision", "must be 1")
		case len(key.Versions) != 1 || key.Versions[0].Number != 1:
			fail("versions", "must be one with the number 1")
		default:
			checkKey(key, 1, fail)
		}
	})
	if err != nil {
		return err
	}
	c, err := s.coder()
	if err != nil {
		return err
	}
	p, err := c.newKey(key)
	if err != nil {
		return err
	}
	defer s.keyNames.drop(keyName{key.Tenant.ID, key.Name})
	defer s.keys.drop(keyID{key.Tenant.ID, key.ID})
	return translate(s.driver.InsertKey(ctx, p))
}

// AddVersion implements kms.Keys. A version that has a number already (its
// blob may be bound to it) is refused with KindPreconditionFailed unless the
// number is the next one. KindConflict when the key has MaxVersions.
func (s *Store) AddVersion(ctx context.Context, tenant, key uuid.UUID, revision uint64, v *kms.Version) (*kms.Key, error) {
	return s.changeKey(ctx, keyID{tenant, key}, revision, func(stored *storedKey) (versionChanges, error) {
		number := stored.highest + 1
		if v.Number != 0 && v.Number != number {
			return versionChanges{}, errRevision()
		}
		k := stored.key
		if len(k.Versions) >= MaxVersions {
			return versionChanges{}, kms.Errorf(kms.KindConflict, "a key has at most %d versions", MaxVersions)
		}
		added := *v
		added.Number, added.Created, added.DestroyAt = number, storedTime(v.Created), storedTime(v.DestroyAt)
		k.Versions = append(k.Versions, &added)
		k.Primary, stored.highest = number, number
		return versionChanges{added: &added}, nil
	})
}

// UpdateKey implements kms.Keys. A change after which the key would have a
// deletion date without being pending deletion, or the other way round, is
// refused with KindInvalidArgument.
func (s *Store) UpdateKey(ctx context.Context, tenant, key uuid.UUID, revision uint64, change kms.KeyChange) (*kms.Key, error) {
	return s.changeKey(ctx, keyID{tenant, key}, revision, func(stored *storedKey) (versionChanges, error) {
		k := stored.key
		if change.State != nil {
			k.State = *change.State
		}
		if change.DeletionDate != nil {
			k.DeletionDate = storedTime(*change.DeletionDate)
		}
		if change.Description != nil {
			k.Description = *change.Description
		}
		if change.Tags != nil {
			k.Tags = nil
			if len(change.Tags) > 0 {
				k.Tags = maps.Clone(change.Tags)
			}
		}
		if change.DeletionProtection != nil {
			k.DeletionProtection = *change.DeletionProtection
		}
		return versionChanges{}, nil
	})
}

// versionChanges is what a change of a key does to its versions.
type versionChanges struct {
	added   *kms.Version // nil: none
	changed []*kms.Version
}

// changeKey reads the key, lets change make its next state, and writes that if
// the revision is still the given one.
func (s *Store) changeKey(ctx context.Context, id keyID, revision uint64,
	change func(*storedKey) (versionChanges, error)) (*kms.Key, error) {
	t, err := s.tenants.get(ctx, id.tenant)
	if err != nil {
		return nil, err
	}
	next, err := s.readKey(ctx, id)
	if err != nil {
		return nil, err
	}
	if next.key.Revision != revision {
		return nil, errRevision()
	}
	versions, err := change(&next)
	if err != nil {
		return nil, err
	}
	return s.writeKey(ctx, t, id, &next, versions)
}

// writeKey writes the next state of a key that was just read.
func (s *Store) writeKey(ctx context.Context, t *kms.Tenant, id keyID, next *storedKey, versions versionChanges) (*kms.Key, error) {
	k := next.key // just read: nobody shares it
	k.Tenant = t
	k.Revision++
	if err := argument(func(fail failFunc) { checkKey(k, next.highest, fail) }); err != nil {
		return nil, err
	}
	c, err := s.coder()
	if err != nil {
		return nil, err
	}
	p, err := c.changedKey(next, versions)
	if err != nil {
		return nil, err
	}
	defer s.keys.drop(id)
	if err := s.driver.UpdateKey(ctx, p); err != nil {
		return nil, translate(err)
	}
	s.known.raise(rowOf(ObjectKey, id.tenant, id.key), k.Revision)
	return k, nil
}

// ListKeys implements kms.Keys. Damaged keys are reported to the log and left
// out.
func (s *Store) ListKeys(ctx context.Context, tenant uuid.UUID, project string, page kms.Page) ([]*kms.Key, string, error) {
	t, err := s.tenants.get(ctx, tenant)
	if err != nil {
		return nil, "", err
	}
	c, err := s.coder()
	if err != nil {
		return nil, "", err
	}
	l := listing[*KeyRow, *kms.Key]{
		scope: scope{kind: 'k', tenant: tenant, project: project},
		rows: func(ctx context.Context, after position, limit int) ([]*KeyRow, error) {
			return s.driver.ListKeys(ctx, ListKeysParams{Tenant: tenant, Project: project, After: after.name, Limit: limit})
		},
		rowPosition: func(r *KeyRow) position { return position{name: r.Name.String} },
		decode: func(r *KeyRow) (*kms.Key, error) {
			stored, err := decodeKey(c, tenant, r, nil)
			stored.key.Tenant = t
			return stored.key, err
		},
		damaged: s.damaged,
	}
	return l.page(ctx, page)
}

// storedTime is a time as it will come back from the database.
func storedTime(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return time.UnixMicro(t.UnixMicro()).UTC()
}
