package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/sluice-kms/sluice/keystore"
)

// Names and aliases of keys are one namespace and one table.
const (
	selectKeyName = `SELECT name, kind, key_id, mac, mac_version FROM key_names WHERE tenant = $1 AND name = $2`
	listAliases   = `SELECT name, kind, key_id, mac, mac_version FROM key_names
		WHERE tenant = $1 AND name > $2 AND kind = 'ALIAS' ORDER BY name LIMIT $3`
	listAliasesOfKey = `SELECT name, kind, key_id, mac, mac_version FROM key_names
		WHERE tenant = $1 AND key_id = $4 AND name > $2 AND kind = 'ALIAS' ORDER BY name LIMIT $3`

	insertKeyName = `INSERT INTO key_names (tenant, name, kind, key_id, mac, mac_version) VALUES ($1, $2, $3, $4, $5, $6)`
	// The lock keeps the key from being destroyed before it has the alias.
	selectLiveKey = `SELECT 1 FROM keys WHERE tenant = $1 AND id = $2 AND state <> 'DESTROYED' FOR SHARE`
	upsertAlias   = `INSERT INTO key_names (tenant, name, kind, key_id, mac, mac_version) VALUES ($1, $2, $3, $4, $5, $6)
		ON CONFLICT (tenant, name) DO UPDATE SET key_id = excluded.key_id, mac = excluded.mac,
			mac_version = excluded.mac_version
		WHERE key_names.tenant = excluded.tenant AND key_names.kind = 'ALIAS'`
	deleteAlias      = `DELETE FROM key_names WHERE tenant = $1 AND name = $2 AND kind = 'ALIAS'`
	deleteNamesOfKey = `DELETE FROM key_names WHERE tenant = $1 AND key_id = $2`
)

func keyNameTargets(r *keystore.KeyNameRow) []any {
	return []any{&r.Name, &r.Kind, idColumn{&r.Key}, &r.Code.MAC, &r.Code.Version}
}

// KeyName implements keystore.KeyDriver.
func (db *DB) KeyName(ctx context.Context, p keystore.KeyNameParams) (*keystore.KeyNameRow, error) {
	var r keystore.KeyNameRow
	return &r, db.row(ctx, p.Tenant, keyNameTargets(&r), selectKeyName, id(p.Tenant), p.Name)
}

// SetAlias implements keystore.AliasDriver.
func (db *DB) SetAlias(ctx context.Context, p keystore.SetAliasParams) error {
	n := &p.Name
	return db.write(ctx, n.Tenant, func(tx transaction) error {
		if err := tx.execOne(ctx, keystore.ErrMissing, selectLiveKey, id(n.Tenant), id(n.Key)); err != nil {
			return err
		}
		return tx.execOne(ctx, keystore.ErrExists, upsertAlias, id(n.Tenant), n.Name, n.Kind, id(n.Key),
			n.Code.MAC, codeVersion(n.Code))
	})
}

// DeleteAlias implements keystore.AliasDriver.
func (db *DB) DeleteAlias(ctx context.Context, p keystore.DeleteAliasParams) error {
	return db.write(ctx, p.Tenant, func(tx transaction) error {
		return tx.execOne(ctx, keystore.ErrMissing, deleteAlias, id(p.Tenant), p.Name)
	})
}

// ListAliases implements keystore.AliasDriver.
func (db *DB) ListAliases(ctx context.Context, p keystore.ListAliasesParams) (all []*keystore.KeyNameRow, err error) {
	scan := func(rows pgx.Rows) error {
		r := new(keystore.KeyNameRow)
		all = append(all, r)
		return rows.Scan(keyNameTargets(r)...)
	}
	if p.Key == nil {
		err = db.list(ctx, p.Tenant, scan, listAliases, id(p.Tenant), p.After, p.Limit)
	} else {
		err = db.list(ctx, p.Tenant, scan, listAliasesOfKey, id(p.Tenant), p.After, p.Limit, id(*p.Key))
	}
	return all, err
}
