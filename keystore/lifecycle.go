package keystore

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// UpdateVersion implements kms.KeyLifecycle. A change after which the version
// would have a date of destruction without being pending destruction, or the
// other way round, is refused with KindInvalidArgument.
func (s *Store) UpdateVersion(ctx context.Context, tenant, key uuid.UUID, revision uint64, number uint32, change kms.VersionChange) (*kms.Key, error) {
	return s.changeVersion(ctx, keyID{tenant, key}, revision, number, func(v *kms.Version) error {
		if change.State == kms.VersionDestroyed {
			return errArgument("state", "is reached by destruction only")
		}
		v.State, v.DestroyAt = change.State, storedTime(change.DestroyAt)
		return nil
	})
}

// DestroyVersion implements kms.KeyLifecycle. KindInvalidArgument when there
// is no such version, when it is destroyed already and when it is the primary
// one, without which the key could do nothing new.
func (s *Store) DestroyVersion(ctx context.Context, tenant, key uuid.UUID, revision uint64, number uint32) (*kms.Key, error) {
	return s.changeVersion(ctx, keyID{tenant, key}, revision, number, func(v *kms.Version) error {
		destroyVersion(v)
		return nil
	})
}

// destroyVersion makes a version a tombstone.
func destroyVersion(v *kms.Version) {
	v.State, v.DestroyAt, v.Blob = kms.VersionDestroyed, time.Time{}, nil
}

func (s *Store) changeVersion(ctx context.Context, id keyID, revision uint64, number uint32,
	change func(*kms.Version) error) (*kms.Key, error) {
	return s.changeKey(ctx, id, revision, func(stored *storedKey) (versionChanges, error) {
		v := stored.key.Version(number)
		if v == nil || v.State == kms.VersionDestroyed {
			return versionChanges{}, errArgument("version", "there is none of that number")
		}
		return versionChanges{changed: []*kms.Version{v}}, change(v)
	})
}

// DestroyKey implements kms.KeyLifecycle.
func (s *Store) DestroyKey(ctx context.Context, tenant, key uuid.UUID, revision uint64) error {
	id := keyID{tenant, key}
	t, err := s.tenants.get(ctx, tenant)
	if err != nil {
		return err
	}
	stored, err := s.readKey(ctx, id)
	if err != nil {
		return err
	}
	k := stored.key
	if k.Revision != revision {
		return errRevision()
	}
	k.Tenant, k.State, k.DeletionDate = t, keyDestroyed, time.Time{}
	k.Revision++
	for _, v := range k.Versions {
		destroyVersion(v)
	}
	c, err := s.coder()
	if err != nil {
		return err
	}
	record, err := c.key(tenant, k, stored.highest)
	if err != nil {
		return err
	}
	versions, err := c.versions(tenant, key, k.Versions)
	if err != nil {
		return err
	}
	// Its names lead to the dropped entry until they are given to others.
	defer s.keys.drop(id)
	if err := s.driver.DestroyKey(ctx, DestroyKeyParams{Key: record, Versions: versions}); err != nil {
		return translate(err)
	}
	s.known.raise(rowOf(ObjectKey, tenant, key), k.Revision)
	return nil
}

// SetRotation implements kms.KeyLifecycle. KindInvalidArgument for a period
// without a date, a date without a period, and a negative period.
func (s *Store) SetRotation(ctx context.Context, tenant, key uuid.UUID, revision uint64, period time.Duration, next time.Time) (*kms.Key, error) {
	return s.changeKey(ctx, keyID{tenant, key}, revision, func(stored *storedKey) (versionChanges, error) {
		stored.key.RotationPeriod, stored.key.NextRotation = period.Truncate(time.Microsecond), storedTime(next)
		return versionChanges{}, nil
	})
}

// DueKeys implements kms.KeyLifecycle. Rows that name no key are reported to the
// log, left out and made up for by those that follow.
func (s *Store) DueKeys(ctx context.Context, now time.Time, after kms.DueKey, limit int) ([]kms.DueKey, error) {
	p := DueKeysParams{Now: timestamp(now), After: DuePosition{timestamp(after.Due), after.Tenant[:], after.Key[:]}}
	return s.due(ctx, ObjectKey, p, limit, s.driver.DueKeys)
}

// due reads a list of objects for which something is due; read asks the
// database.
func (s *Store) due(ctx context.Context, object Object, p DueKeysParams, limit int,
	read func(context.Context, DueKeysParams) ([]*DueKeyRow, error)) ([]kms.DueKey, error) {
	if limit < 1 || limit > kms.MaxPageSize {
		return nil, errArgument("limit", reasonRange)
	}
	if _, err := s.coder(); err != nil {
		return nil, err
	}
	due := make([]kms.DueKey, 0, limit)
	for {
		p.Limit = limit - len(due)
		rows, err := read(ctx, p)
		if err != nil {
			return nil, translate(err)
		}
		var last *DueKeyRow // that has a place in the list
		for _, row := range rows {
			if row.Due.Valid && row.Tenant.Valid && row.ID.Valid {
				last = row
			}
			d := newDecoder(object, rowID(row.Tenant), rowID(row.ID))
			k := kms.DueKey{Due: d.time(row.Due, "due"), Tenant: d.id(row.Tenant, "tenant"), Key: d.id(row.ID, "id")}
			if err := d.result(); err != nil {
				s.damaged(err)
				continue
			}
			due = append(due, k)
		}
		if len(rows) < p.Limit || len(due) == limit {
			return due, nil
		}
		if last == nil {
			return nil, kms.Wrap(kms.KindInternal, errOrder, "the list cannot be read")
		}
		p.After = DuePosition{last.Due.Int64, last.Tenant.Bytes, last.ID.Bytes}
	}
}

// LeaseNonces implements kms.KeyLifecycle. ErrNotFound when there is no such
// version or it is destroyed.
func (s *Store) LeaseNonces(ctx context.Context, tenant, key uuid.UUID, number uint32, block uint64) (uint64, error) {
	c, err := s.coder()
	if err != nil {
		return 0, err
	}
	p := NoncesParams{Tenant: tenant, Key: key, Number: number}
	for {
		row, err := s.driver.Nonces(ctx, p)
		if err != nil {
			return 0, translate(err)
		}
		if row.State.String == string(kms.VersionDestroyed) {
			return 0, kms.ErrNotFound
		}
		version, was, err := decodeNonces(c, p, row)
		if err != nil {
			return 0, s.decoded(err)
		}
		if block > math.MaxInt64-was {
			return 0, errArgument("block", reasonRange)
		}
		code, err := c.nonces(p, version, was+block)
		if err != nil {
			return 0, err
		}
		err = s.driver.UpdateNonces(ctx, UpdateNoncesParams{NoncesParams: p, Was: was, Nonces: was + block, Code: code})
		switch {
		case err == nil:
			return was + block, nil
		case err != ErrStale:
			return 0, translate(err)
		}
		// Another lease was faster; each round lets one of them through.
	}
}

func decodeNonces(c *rowCoder, p NoncesParams, r *NoncesRow) (version uuid.UUID, nonces uint64, err error) {
	d := newDecoder(ObjectKey, p.Tenant, p.Key)
	version = d.id(r.Version, "version id")
	nonces = uint64(d.integer(r.Nonces, "version nonces", 0, math.MaxInt64))
	if d.result() == nil {
		c.check(d, codeNonces, noncesFields(p, version, nonces), r.Code)
	}
	return version, nonces, d.result()
}

// touchBatch bounds the uses that one transaction stores, so that it holds up
// a writer no longer than another write would.
const touchBatch = 500

// TouchKeys implements kms.KeyLifecycle. What is cached of the keys stays: a
// last use is no state that anything is decided by.
func (s *Store) TouchKeys(ctx context.Context, uses []kms.KeyUse) error {
	if _, err := s.coder(); err != nil {
		return err
	}
	records := make([]KeyUseRecord, len(uses))
	for i, u := range uses {
		records[i] = KeyUseRecord{Tenant: u.Tenant, Key: u.Key, Time: timestamp(u.Time), Op: string(u.Op)}
	}
	slices.SortFunc(records, func(a, b KeyUseRecord) int {
		return cmp.Or(a.Tenant.Compare(b.Tenant), a.Key.Compare(b.Key), cmp.Compare(a.Time, b.Time))
	})
	for batch := range slices.Chunk(records, touchBatch) {
		if err := s.driver.TouchKeys(ctx, TouchKeysParams{Uses: batch}); err != nil {
			return translate(err)
		}
	}
	return nil
}

// TouchCredentials implements kms.CredentialUses; see TouchKeys.
func (s *Store) TouchCredentials(ctx context.Context, uses []kms.CredentialUse) error {
	if _, err := s.coder(); err != nil {
		return err
	}
	records := make([]CredentialUseRecord, len(uses))
	for i, u := range uses {
		if !storableText(u.Address) {
			return errArgument("address", "is not text")
		}
		records[i] = CredentialUseRecord{Tenant: u.Tenant, Credential: u.Credential, Time: timestamp(u.Time), Address: u.Address}
	}
	slices.SortFunc(records, func(a, b CredentialUseRecord) int {
		return cmp.Or(a.Tenant.Compare(b.Tenant), a.Credential.Compare(b.Credential), cmp.Compare(a.Time, b.Time))
	})
	for batch := range slices.Chunk(records, touchBatch) {
		if err := s.driver.TouchCredentials(ctx, TouchCredentialsParams{Uses: batch}); err != nil {
			return translate(err)
		}
	}
	return nil
}
