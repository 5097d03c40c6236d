package keystore

import (
	"context"
	"errors"
	"slices"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// MaxAliases bounds the aliases of one key, which KeyAliases returns at once.
// Calls that meet may exceed it by their number.
const MaxAliases = 100

// SetAlias implements kms.Aliases. ErrNotFound when there is no such key,
// KindConflict also when it has MaxAliases.
func (s *Store) SetAlias(ctx context.Context, tenant, key uuid.UUID, alias string) error {
	if !kms.ValidName(alias) {
		return errArgument("alias", "is not a valid name")
	}
	aliases, err := s.KeyAliases(ctx, tenant, key)
	if err != nil {
		return err
	}
	if len(aliases) >= MaxAliases && !slices.Contains(aliases, alias) {
		return kms.Errorf(kms.KindConflict, "a key has at most %d aliases", MaxAliases)
	}
	return s.changeAlias(ctx, tenant, alias, &key, func(c *rowCoder, revision AliasRevisionRecord) error {
		record, err := c.keyName(KeyNameRecord{Tenant: tenant, Name: alias, Kind: KindAlias, Key: key})
		if err != nil {
			return err
		}
		return s.driver.SetAlias(ctx, SetAliasParams{Name: record, Revision: revision})
	})
}

// DeleteAlias implements kms.Aliases. ErrNotFound when there is no such alias;
// a key's own name is none.
func (s *Store) DeleteAlias(ctx context.Context, tenant uuid.UUID, alias string) error {
	if !kms.ValidName(alias) {
		return kms.ErrNotFound
	}
	return s.changeAlias(ctx, tenant, alias, nil, func(_ *rowCoder, revision AliasRevisionRecord) error {
		return s.driver.DeleteAlias(ctx, DeleteAliasParams{Revision: revision})
	})
}

// changeAlias gives an alias its next revision, with the key that it stands for
// from then on; write is called again when another change of it came first.
func (s *Store) changeAlias(ctx context.Context, tenant uuid.UUID, alias string, key *uuid.UUID,
	write func(*rowCoder, AliasRevisionRecord) error) error {
	c, err := s.coder()
	if err != nil {
		return err
	}
	defer s.keyNames.drop(keyName{tenant, alias})
	for range maxOvertaken {
		stored, revision, err := s.aliasRevision(ctx, c, tenant, alias)
		if err != nil {
			return err
		}
		next := AliasRevisionRecord{Tenant: tenant, Name: alias, Key: key, Was: stored, Revision: max(revision+1, kms.FirstAliasRevision)}
		if next, err = c.aliasRevision(next); err != nil {
			return err
		}
		err = write(c, next)
		if err == nil {
			s.known.raise(rowOfAlias(tenant, alias), next.Revision)
		}
		if !errors.Is(err, ErrOvertaken) {
			return translate(err)
		}
	}
	return translate(ErrOvertaken)
}

// AliasRevision implements kms.Aliases.
func (s *Store) AliasRevision(ctx context.Context, tenant uuid.UUID, alias string) (uint64, error) {
	c, err := s.coder()
	if err != nil {
		return 0, err
	}
	if !kms.ValidName(alias) {
		return 0, nil
	}
	_, revision, err := s.aliasRevision(ctx, c, tenant, alias)
	return revision, err
}

// aliasRevision returns the revision of an alias that is stored, 0 for none, and
// the highest one that it is known to have had: an old row that was put back can
// be set anew.
func (s *Store) aliasRevision(ctx context.Context, c *rowCoder, tenant uuid.UUID, alias string) (stored, revision uint64, err error) {
	known := s.known.of(rowOfAlias(tenant, alias)).revision
	record, err := s.readAliasRevision(ctx, c, tenant, alias)
	switch {
	case errors.Is(err, ErrMissing):
		first, err := s.firstAliasRevision(ctx, tenant, alias)
		return 0, max(first, known), err
	case err != nil:
		return 0, 0, s.decoded(err)
	}
	return record.Revision, max(record.Revision, known), nil
}

// firstAliasRevision is that of an alias without one, which is from before there
// were any; 0 when there is no alias.
func (s *Store) firstAliasRevision(ctx context.Context, tenant uuid.UUID, alias string) (uint64, error) {
	row, err := s.driver.KeyName(ctx, KeyNameParams{Tenant: tenant, Name: alias})
	switch {
	case errors.Is(err, ErrMissing):
		return 0, nil
	case err != nil:
		return 0, translate(err)
	case row.Kind.String != KindAlias:
		return 0, nil
	}
	return kms.FirstAliasRevision, nil
}

// readAlias is readRevision for an alias: that of what it stands for, or of its
// end. An alias that does not go with its revision has the first one, so that it
// is older than any that is known.
func (s *Store) readAlias(ctx context.Context, c *rowCoder, tenant uuid.UUID, alias string) (uint64, error) {
	record, err := s.readAliasRevision(ctx, c, tenant, alias)
	if errors.Is(err, ErrMissing) {
		first, err := s.firstAliasRevision(ctx, tenant, alias)
		if err == nil && first == 0 {
			err = ErrMissing
		}
		return first, err
	}
	if err != nil {
		return 0, err
	}
	row, err := s.driver.KeyName(ctx, KeyNameParams{Tenant: tenant, Name: alias})
	switch {
	case errors.Is(err, ErrMissing) || err == nil && row.Kind.String != KindAlias:
		return s.readMissingAlias(ctx, c, record)
	case err != nil:
		return 0, err
	}
	id, err := decodeKeyName(c, tenant, alias, row)
	if damaged, ok := errors.AsType[*RowError](err); ok && damaged.Old() && (record.Key == nil || *record.Key != id) {
		return kms.FirstAliasRevision, err
	}
	return record.Revision, err
}

func (s *Store) readAliasRevision(ctx context.Context, c *rowCoder, tenant uuid.UUID, alias string) (*AliasRevisionRecord, error) {
	row, err := s.driver.AliasRevision(ctx, AliasRevisionParams{Tenant: tenant, Name: alias})
	if err != nil {
		return nil, err
	}
	d := newDecoder(ObjectKeyName, tenant, rowID(row.Key))
	record := decodeAliasRevision(d, c, tenant, alias, row)
	return &record, d.result()
}

// readMissingAlias is readAlias for one that is missing: ErrMissing where it is to
// stand for a key. A key that was destroyed took its aliases along.
func (s *Store) readMissingAlias(ctx context.Context, c *rowCoder, record *AliasRevisionRecord) (uint64, error) {
	if record.Key == nil {
		return record.Revision, nil
	}
	switch _, err := s.readKey(ctx, keyID{record.Tenant, *record.Key}); {
	case isMissing(err):
		return record.Revision, nil
	case err != nil:
		return 0, err
	}
	// It may have been taken away since the revision was read.
	now, err := s.readAliasRevision(ctx, c, record.Tenant, record.Name)
	if err != nil {
		return 0, err
	}
	if now.Revision == record.Revision {
		return 0, ErrMissing
	}
	return now.Revision, nil
}

// KeyAliases implements kms.Aliases. ErrNotFound when there is no such key.
// Damaged aliases are reported to the log and left out.
func (s *Store) KeyAliases(ctx context.Context, tenant, key uuid.UUID) ([]string, error) {
	c, err := s.coder()
	if err != nil {
		return nil, err
	}
	if _, err := s.keys.get(ctx, keyID{tenant, key}); err != nil {
		return nil, err
	}
	rows, err := s.driver.ListAliases(ctx, ListAliasesParams{Tenant: tenant, Key: &key, Limit: MaxAliases})
	if err != nil {
		return nil, translate(err)
	}
	var names []string
	for _, row := range rows {
		id, err := decodeKeyName(c, tenant, row.Name.String, row)
		if err != nil {
			s.damaged(err)
			continue
		}
		if id == key {
			names = append(names, row.Name.String)
		}
	}
	return names, nil
}

// ListAliases implements kms.Aliases. ErrNotFound when there is no such
// tenant. Damaged aliases are reported to the log and left out.
func (s *Store) ListAliases(ctx context.Context, tenant uuid.UUID, page kms.Page) ([]kms.Alias, string, error) {
	c, err := s.coder()
	if err != nil {
		return nil, "", err
	}
	if _, err := s.tenants.get(ctx, tenant); err != nil {
		return nil, "", err
	}
	l := listing[*KeyNameRow, kms.Alias]{
		scope: scope{kind: 'a', tenant: tenant},
		rows: func(ctx context.Context, after position, limit int) ([]*KeyNameRow, error) {
			return s.driver.ListAliases(ctx, ListAliasesParams{Tenant: tenant, After: after.name, Limit: limit})
		},
		rowPosition: func(r *KeyNameRow) position { return position{name: r.Name.String} },
		decode: func(r *KeyNameRow) (kms.Alias, error) {
			id, err := decodeKeyName(c, tenant, r.Name.String, r)
			return kms.Alias{Name: r.Name.String, Key: id}, err
		},
		damaged: s.damaged,
	}
	return l.page(ctx, page)
}
