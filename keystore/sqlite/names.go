package sqlite

import (
	"context"
	"database/sql"

	"github.com/sluice-kms/sluice/keystore"
)

// Names and aliases of keys are one namespace and one table.
const (
	selectKeyName = `SELECT n.name, n.kind, n.key_id, n.mac, n.mac_version, r.revision, r.key_id, r.mac, r.mac_version FROM key_names n
		LEFT JOIN alias_revisions r ON r.tenant = n.tenant AND r.name = n.name AND n.kind = 'ALIAS'
		WHERE n.tenant = ? AND n.name = ?`
	listAliases = `SELECT n.name, n.kind, n.key_id, n.mac, n.mac_version, r.revision, r.key_id, r.mac, r.mac_version FROM key_names n
		LEFT JOIN alias_revisions r ON r.tenant = n.tenant AND r.name = n.name AND n.kind = 'ALIAS'
		WHERE n.tenant = ? AND n.name > ? AND n.kind = 'ALIAS' AND typeof(n.name) = 'text' ORDER BY n.name LIMIT ?`
	listAliasesOfKey = `SELECT n.name, n.kind, n.key_id, n.mac, n.mac_version, r.revision, r.key_id, r.mac, r.mac_version FROM key_names n
		LEFT JOIN alias_revisions r ON r.tenant = n.tenant AND r.name = n.name AND n.kind = 'ALIAS'
		WHERE n.tenant = ? AND n.key_id = ? AND n.name > ? AND n.kind = 'ALIAS' AND typeof(n.name) = 'text' ORDER BY n.name LIMIT ?`

	selectAliasRevision = `SELECT revision, key_id, mac, mac_version FROM alias_revisions WHERE tenant = ? AND name = ?`
	putAliasRevision    = `INSERT INTO alias_revisions (tenant, name, key_id, revision, mac, mac_version) VALUES (?, ?, ?, ?, ?, ?)
		ON CONFLICT (tenant, name) DO UPDATE SET key_id = excluded.key_id, revision = excluded.revision, mac = excluded.mac,
			mac_version = excluded.mac_version
		WHERE alias_revisions.tenant = excluded.tenant AND alias_revisions.revision = ?`

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
	return append([]any{&r.Name, &r.Kind, &r.Key, &r.Code.MAC, &r.Code.Version}, aliasRevisionTargets(&r.Alias)...)
}

func aliasRevisionTargets(r *keystore.AliasRevisionRow) []any {
	return []any{&r.Revision, &r.Key, &r.Code.MAC, &r.Code.Version}
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
		if err := execAliasRevision(ctx, tx, &p.Revision); err != nil {
			return err
		}
		return tx.execOne(ctx, keystore.ErrExists, upsertAlias, n.Tenant[:], n.Name, n.Kind, n.Key[:],
			n.Code.MAC, codeVersion(n.Code))
	})
}

// DeleteAlias implements keystore.AliasDriver.
func (db *DB) DeleteAlias(ctx context.Context, p keystore.DeleteAliasParams) error {
	r := &p.Revision
	return db.write(ctx, func(tx transaction) error {
		if err := execAliasRevision(ctx, tx, r); err != nil {
			return err
		}
		return tx.execOne(ctx, keystore.ErrMissing, deleteAlias, r.Tenant[:], r.Name)
	})
}

func execAliasRevision(ctx context.Context, tx transaction, r *keystore.AliasRevisionRecord) error {
	return tx.execOne(ctx, keystore.ErrOvertaken, putAliasRevision, r.Tenant[:], r.Name, maybeID(r.Key), r.Revision,
		r.Code.MAC, codeVersion(r.Code), r.Was)
}

// AliasRevision implements keystore.AliasDriver.
func (db *DB) AliasRevision(ctx context.Context, p keystore.AliasRevisionParams) (*keystore.AliasRevisionRow, error) {
	var r keystore.AliasRevisionRow
	err := db.row(ctx, selectAliasRevision, p.Tenant[:], p.Name).Scan(aliasRevisionTargets(&r)...)
	return &r, db.translate(err)
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
