package keystore

import (
	"context"
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
	c, err := s.coder()
	if err != nil {
		return err
	}
	record, err := c.keyName(KeyNameRecord{Tenant: tenant, Name: alias, Kind: KindAlias, Key: key})
	if err != nil {
		return err
	}
	defer s.keyNames.drop(keyName{tenant, alias})
	return translate(s.driver.SetAlias(ctx, SetAliasParams{Name: record}))
}

// DeleteAlias implements kms.Aliases. ErrNotFound when there is no such alias;
// a key's own name is none.
func (s *Store) DeleteAlias(ctx context.Context, tenant uuid.UUID, alias string) error {
	if !kms.ValidName(alias) {
		return kms.ErrNotFound
	}
	if _, err := s.coder(); err != nil {
		return err
	}
	defer s.keyNames.drop(keyName{tenant, alias})
	return translate(s.driver.DeleteAlias(ctx, DeleteAliasParams{Tenant: tenant, Name: alias}))
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
