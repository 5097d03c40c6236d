package sqlite

import (
	"context"
	"database/sql"

	"github.com/sluice-kms/sluice/keystore"
)

// Names and aliases of keys are one namespace and one table.
const (
	selectKeyName = `SELECT name, kind, key_id, mac, mac_version FROM key_names WHERE tenant = ? AND name = ?`
	listAliases   = `SELECT name, kind, key_id, mac, mac_version FROM key_names
		WHERE tenant = ? AND name > ? AND kind = 'ALIAS' AND typeof(name) = 'text' ORDER BY name LIMIT ?`
	listAliasesOfKey = `SELECT name, kind, key_id, mac, mac_version FROM key_names
		WHERE tenant = ? AND key_id = ? AND name > ? AND kind = 'ALIAS' AND typeof(name) = 'text' ORDER BY name LIMIT ?`

	insertKeyName = `INSERT INTO key_names (tenant, name, kind, key_id, mac, mac_version) VALUES (?, ?, ?, ?, ?, ?)`
	selectLiveKey = `SELECT 1 FROM keys WHERE tenant = ? AND id = ? AND state <> 'DESTROYED'`
	upsertAlias   = `INSERT INTO key_names (tenant, name, kind, key_id, mac, mac_version) VALUES (?, ?, ?, ?, ?, ?)
		ON CONFLICT (tenant, name) DO UPDATE SET key_id = excluded.key_id, mac = excluded.mac,
			mac_version = excluded.mac_version
		WHERE key_names.tenant = excluded.tenant AND key_names.kind = 'ALIAS'`
	deleteAlias      = `DELETE FROM key_names WHERE tenant = ? AND name = ? AND kind = 'ALIAS'`
	deleteNamesOfKey = `DELETE FROM key_names WHERE tenant = ? AND key_id = ?`
)

func keyNameTargets(r *keystore.KeyNameRow) []any {
	return []any{&r.Name, &r.Kind, &r.Key, &r.Code.MAC, &r.Code.Version}
}

// KeyName implements keystore.KeyDriver.
func (db *DB) KeyName(ctx context.Context, p keystore.KeyNameParams) (*keystore.KeyNameRow, error) {
	var r keystore.KeyNameRow
	err := db.row(ctx, selectKeyName, p.Tenant[:], p.Name).Scan(keyNameTargets(&r)...)
	return &r, db.translate(err)
}

// SetAlias implements keystore.AliasDriver.
func (db *DB) SetAlias(ctx context.Context, p keystore.SetAliasParams) error {
	n := &p.Name
	return db.write(ctx, func(tx transaction) error {
		var live int
		if err := tx.statement(ctx, selectLiveKey).QueryRowContext(ctx, n.Tenant[:], n.Key[:]).Scan(&live); err != nil {
			return err
		}
		return tx.execOne(ctx, keystore.ErrExists, upsertAlias, n.Tenant[:], n.Name, n.Kind, n.Key[:],
			n.Code.MAC, codeVersion(n.Code))
	})
}

// DeleteAlias implements keystore.AliasDriver.
func (db *DB) DeleteAlias(ctx context.Context, p keystore.DeleteAliasParams) error {
	return db.write(ctx, func(tx transaction) error {
		return tx.execOne(ctx, keystore.ErrMissing, deleteAlias, p.Tenant[:], p.Name)
	})
}

// ListAliases implements keystore.AliasDriver.
func (db *DB) ListAliases(ctx context.Context, p keystore.ListAliasesParams) (all []*keystore.KeyNameRow, err error) {
	scan := func(rows *sql.Rows) error {
		r := new(keystore.KeyNameRow)
		all = append(all, r)
		return rows.Scan(keyNameTargets(r)...)
	}
	if p.Key == nil {
		err = db.list(ctx, scan, listAliases, p.Tenant[:], p.After, p.Limit)
	} else {
		err = db.list(ctx, scan, listAliasesOfKey, p.Tenant[:], p.Key[:], p.After, p.Limit)
	}
	return all, err
}
