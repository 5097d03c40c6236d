package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/sluice-kms/sluice/keystore"
)

// Names and aliases of keys are one namespace and one table.
const (
	selectKeyName = `SELECT n.name, n.kind, n.key_id, n.mac, n.mac_version, r.revision, r.key_id, r.mac, r.mac_version FROM key_names n
		LEFT JOIN alias_revisions r ON r.tenant = n.tenant AND r.name = n.name AND n.kind = 'ALIAS'
		WHERE n.tenant = $1 AND n.name = $2`
	listAliases = `SELECT n.name, n.kind, n.key_id, n.mac, n.mac_version, r.revision, r.key_id, r.mac, r.mac_version FROM key_names n
		LEFT JOIN alias_revisions r ON r.tenant = n.tenant AND r.name = n.name AND n.kind = 'ALIAS'
		WHERE n.tenant = $1 AND n.name > $2 AND n.kind = 'ALIAS' ORDER BY n.name LIMIT $3`
	listAliasesOfKey = `SELECT n.name, n.kind, n.key_id, n.mac, n.mac_version, r.revision, r.key_id, r.mac, r.mac_version FROM key_names n
		LEFT JOIN alias_revisions r ON r.tenant = n.tenant AND r.name = n.name AND n.kind = 'ALIAS'
		WHERE n.tenant = $1 AND n.key_id = $4 AND n.name > $2 AND n.kind = 'ALIAS' ORDER BY n.name LIMIT $3`

	selectAliasRevision = `SELECT revision, key_id, mac, mac_version FROM alias_revisions WHERE tenant = $1 AND name = $2`
	putAliasRevision    = `INSERT INTO alias_revisions (tenant, name, key_id, revision, mac, mac_version) VALUES ($1, $2, $3, $4, $5, $6)
		ON CONFLICT (tenant, name) DO UPDATE SET key_id = excluded.key_id, revision = excluded.revision, mac = excluded.mac,
			mac_version = excluded.mac_version
		WHERE alias_revisions.tenant = excluded.tenant AND alias_revisions.revision = $7`

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
	return append([]any{&r.Name, &r.Kind, idColumn{&r.Key}, &r.Code.MAC, &r.Code.Version}, aliasRevisionTargets(&r.Alias)...)
}

func aliasRevisionTargets(r *keystore.AliasRevisionRow) []any {
	return []any{&r.Revision, idColumn{&r.Key}, &r.Code.MAC, &r.Code.Version}
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
		if err := execAliasRevision(ctx, tx, &p.Revision); err != nil {
			return err
		}
		return tx.execOne(ctx, keystore.ErrExists, upsertAlias, id(n.Tenant), n.Name, n.Kind, id(n.Key),
			n.Code.MAC, codeVersion(n.Code))
	})
}

// DeleteAlias implements keystore.AliasDriver.
func (db *DB) DeleteAlias(ctx context.Context, p keystore.DeleteAliasParams) error {
	r := &p.Revision
	return db.write(ctx, r.Tenant, func(tx transaction) error {
		if err := execAliasRevision(ctx, tx, r); err != nil {
			return err
		}
		return tx.execOne(ctx, keystore.ErrMissing, deleteAlias, id(r.Tenant), r.Name)
	})
}

// execAliasRevision comes before the change of the name, so that changes of one
// alias wait for each other in one order.
func execAliasRevision(ctx context.Context, tx transaction, r *keystore.AliasRevisionRecord) error {
	return tx.execOne(ctx, keystore.ErrOvertaken, putAliasRevision, id(r.Tenant), r.Name, maybeID(r.Key), r.Revision,
		r.Code.MAC, codeVersion(r.Code), r.Was)
}

// AliasRevision implements keystore.AliasDriver.
func (db *DB) AliasRevision(ctx context.Context, p keystore.AliasRevisionParams) (*keystore.AliasRevisionRow, error) {
	var r keystore.AliasRevisionRow
	return &r, db.row(ctx, p.Tenant, aliasRevisionTargets(&r), selectAliasRevision, id(p.Tenant), p.Name)
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
