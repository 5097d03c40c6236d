package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/sluice-kms/sluice/keystore"
)

const (
	tenantColumns = `id, name, tier, state, allow_sealed, sealing_id, sealing_domain, sealing_generation,
		sealing_wrapped, created, revision, deleted_at, void_at, erased_at, shredded_at, mac, mac_version`

	selectTenant   = `SELECT ` + tenantColumns + ` FROM tenants WHERE id = $1`
	selectTenantID = `SELECT tenant_of_name($1)`
	listTenants    = `SELECT ` + tenantColumns + ` FROM tenants_after($1, $2) ORDER BY name`
	insertTenant   = `INSERT INTO tenants (` + tenantColumns + `)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, NULL, NULL, NULL, NULL, $12, $13)`
	updateTenant = `UPDATE tenants SET tier = $3, state = $4, allow_sealed = $5, sealing_id = $6, sealing_domain = $7,
		sealing_generation = $8, sealing_wrapped = $9, revision = $10, mac = $11, mac_version = $12, deleted_at = $13,
		void_at = $14, erased_at = $15, shredded_at = $16
		WHERE id = $1 AND revision = $2`
	selectDueDeletions = `SELECT due_deletions($1, $2, $3)`
	countObjects       = `SELECT (SELECT count(*) FROM keys WHERE tenant = $1 AND state <> 'DESTROYED'),
		(SELECT count(*) FROM secrets WHERE tenant = $1 AND state <> 'DESTROYED'),
		(SELECT count(*) FROM credentials WHERE tenant = $1 AND revoked IS NULL AND (expires IS NULL OR expires > $2))`
	// The function sees the tenants of all; bigint's largest is no limit.
	countTenants = `SELECT tier, count(*) FROM tenants_after('', 9223372036854775807)
		WHERE deleted_at IS NULL AND name <> $1 GROUP BY tier`

	selectProject = `SELECT name, created, mac, mac_version FROM projects WHERE tenant = $1 AND name = $2`
	listProjects  = `SELECT name, created, mac, mac_version FROM projects
		WHERE tenant = $1 AND name > $2 ORDER BY name LIMIT $3`
	insertProject = `INSERT INTO projects (tenant, name, created, mac, mac_version) VALUES ($1, $2, $3, $4, $5)`
)

// Tenant implements keystore.TenantDriver.
func (db *DB) Tenant(ctx context.Context, p keystore.TenantParams) (*keystore.TenantRow, error) {
	var r keystore.TenantRow
	return &r, db.row(ctx, p.ID, tenantTargets(&r), selectTenant, id(p.ID))
}

// TenantID implements keystore.TenantDriver.
func (db *DB) TenantID(ctx context.Context, p keystore.TenantIDParams) (found keystore.Bytes, err error) {
	err = db.row(ctx, everybody, []any{idColumn{&found}}, selectTenantID, p.Name)
	if err == nil && found.Null {
		err = keystore.ErrMissing
	}
	return found, err
}

// ListTenants implements keystore.TenantDriver.
func (db *DB) ListTenants(ctx context.Context, p keystore.ListTenantsParams) (all []*keystore.TenantRow, err error) {
	err = db.list(ctx, everybody, func(rows pgx.Rows) error {
		r := new(keystore.TenantRow)
		all = append(all, r)
		return rows.Scan(tenantTargets(r)...)
	}, listTenants, p.After, p.Limit)
	return all, err
}

func tenantTargets(r *keystore.TenantRow) []any {
	return []any{idColumn{&r.ID}, &r.Name, &r.Tier, &r.State, boolColumn{&r.AllowSealed}, idColumn{&r.SealingID},
		idColumn{&r.SealingDomain}, &r.SealingGeneration, &r.SealingWrapped, timeColumn{&r.Created}, &r.Revision,
		timeColumn{&r.Deleted}, timeColumn{&r.Void}, timeColumn{&r.Erased}, timeColumn{&r.Shredded},
		&r.Code.MAC, &r.Code.Version}
}

// InsertTenant implements keystore.TenantDriver.
func (db *DB) InsertTenant(ctx context.Context, p keystore.InsertTenantParams) error {
	t := &p.Tenant
	return db.write(ctx, t.ID, func(tx transaction) error {
		_, err := tx.exec(ctx, insertTenant, id(t.ID), t.Name, t.Tier, t.State, t.AllowSealed, id(t.SealingID),
			id(t.SealingDomain), t.SealingGeneration, t.SealingWrapped, moment(t.Created), t.Revision,
			t.Code.MAC, codeVersion(t.Code))
		if err != nil {
			return err
		}
		return execInsertProject(ctx, tx, &p.Project)
	})
}

// UpdateTenant implements keystore.TenantDriver.
func (db *DB) UpdateTenant(ctx context.Context, p keystore.UpdateTenantParams) error {
	t := &p.Tenant
	return db.write(ctx, t.ID, func(tx transaction) error {
		return tx.execOne(ctx, keystore.ErrStale, updateTenant, id(t.ID), t.Revision-1, t.Tier, t.State, t.AllowSealed,
			id(t.SealingID), id(t.SealingDomain), t.SealingGeneration, t.SealingWrapped, t.Revision,
			t.Code.MAC, codeVersion(t.Code), maybeMoment(t.Deleted), maybeMoment(t.Void), maybeMoment(t.Erased),
			maybeMoment(t.Shredded))
	})
}

// DueDeletions implements keystore.TenantDriver.
func (db *DB) DueDeletions(ctx context.Context, p keystore.DueDeletionsParams) (due []keystore.Bytes, err error) {
	err = db.list(ctx, everybody, func(rows pgx.Rows) error {
		var found keystore.Bytes
		err := rows.Scan(idColumn{&found})
		due = append(due, found)
		return err
	}, selectDueDeletions, moment(p.Now), id(p.After), p.Limit)
	return due, err
}

// CountObjects implements keystore.TenantDriver.
func (db *DB) CountObjects(ctx context.Context, p keystore.CountObjectsParams) (n keystore.ObjectCounts, err error) {
	err = db.row(ctx, p.Tenant, []any{&n.Keys, &n.Secrets, &n.Credentials}, countObjects, id(p.Tenant), moment(p.Now))
	return n, err
}

// CountTenants implements keystore.TenantDriver.
func (db *DB) CountTenants(ctx context.Context, p keystore.CountTenantsParams) (all []*keystore.TenantCountRow, err error) {
	err = db.list(ctx, everybody, func(rows pgx.Rows) error {
		r := new(keystore.TenantCountRow)
		all = append(all, r)
		return rows.Scan(&r.Tier, &r.Count)
	}, countTenants, p.Except)
	return all, err
}

func projectTargets(r *keystore.ProjectRow) []any {
	return []any{&r.Name, timeColumn{&r.Created}, &r.Code.MAC, &r.Code.Version}
}

// Project implements keystore.TenantDriver.
func (db *DB) Project(ctx context.Context, p keystore.ProjectParams) (*keystore.ProjectRow, error) {
	var r keystore.ProjectRow
	return &r, db.row(ctx, p.Tenant, projectTargets(&r), selectProject, id(p.Tenant), p.Name)
}

// ListProjects implements keystore.TenantDriver.
func (db *DB) ListProjects(ctx context.Context, p keystore.ListProjectsParams) (all []*keystore.ProjectRow, err error) {
	err = db.list(ctx, p.Tenant, func(rows pgx.Rows) error {
		r := new(keystore.ProjectRow)
		all = append(all, r)
		return rows.Scan(projectTargets(r)...)
	}, listProjects, id(p.Tenant), p.After, p.Limit)
	return all, err
}

// InsertProject implements keystore.TenantDriver.
func (db *DB) InsertProject(ctx context.Context, p keystore.InsertProjectParams) error {
	return db.write(ctx, p.Project.Tenant, func(tx transaction) error { return execInsertProject(ctx, tx, &p.Project) })
}

func execInsertProject(ctx context.Context, tx transaction, p *keystore.ProjectRecord) error {
	_, err := tx.exec(ctx, insertProject, id(p.Tenant), p.Name, moment(p.Created), p.Code.MAC, codeVersion(p.Code))
	return err
}
