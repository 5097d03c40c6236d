package sqlite

import (
	"context"
	"database/sql"

	"github.com/sluice-kms/sluice/keystore"
)

// A listing leaves out names that are not text (typeof): in a damaged table
// they would sort behind all text for ever.
const (
	tenantColumns = `id, name, tier, state, allow_sealed, sealing_id, sealing_domain, sealing_generation,
		sealing_wrapped, created, revision, deleted_at, void_at, erased_at, shredded_at, mac, mac_version`

	selectTenant   = `SELECT ` + tenantColumns + ` FROM tenants WHERE id = ?`
	selectTenantID = `SELECT id FROM tenants WHERE name = ?`
	listTenants    = `SELECT ` + tenantColumns + ` FROM tenants
		WHERE name > ? AND typeof(name) = 'text' ORDER BY name LIMIT ?`
	insertTenant = `INSERT INTO tenants (` + tenantColumns + `) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, NULL, NULL, NULL, NULL, ?, ?)`
	updateTenant = `UPDATE tenants SET tier = ?, state = ?, allow_sealed = ?, sealing_id = ?, sealing_domain = ?,
		sealing_generation = ?, sealing_wrapped = ?, revision = ?, deleted_at = ?, void_at = ?, erased_at = ?,
		shredded_at = ?, mac = ?, mac_version = ? WHERE id = ? AND revision = ?`
	selectDueDeletions = `SELECT id FROM tenants
		WHERE state IN ('DELETING', 'DELETED') AND (state = 'DELETING' OR void_at <= ?) AND id > ? ORDER BY id LIMIT ?`
	countObjects = `SELECT (SELECT count(*) FROM keys WHERE tenant = ?1 AND state <> 'DESTROYED'),
		(SELECT count(*) FROM secrets WHERE tenant = ?1 AND state <> 'DESTROYED'),
		(SELECT count(*) FROM credentials WHERE tenant = ?1 AND revoked IS NULL AND (expires IS NULL OR expires > ?2))`
	// It reads the whole table: an operator sells capacity now and then.
	countTenants = `SELECT tier, count(*) FROM tenants WHERE deleted_at IS NULL AND name <> ? GROUP BY tier`

	selectProject = `SELECT name, created, mac, mac_version FROM projects WHERE tenant = ? AND name = ?`
	listProjects  = `SELECT name, created, mac, mac_version FROM projects
		WHERE tenant = ? AND name > ? AND typeof(name) = 'text' ORDER BY name LIMIT ?`
	insertProject = `INSERT INTO projects (tenant, name, created, mac, mac_version) VALUES (?, ?, ?, ?, ?)`
)

// Tenant implements keystore.TenantDriver.
func (db *DB) Tenant(ctx context.Context, p keystore.TenantParams) (*keystore.TenantRow, error) {
	var r keystore.TenantRow
	err := db.row(ctx, selectTenant, p.ID[:]).Scan(tenantTargets(&r)...)
	return &r, db.translate(err)
}

// TenantID implements keystore.TenantDriver.
func (db *DB) TenantID(ctx context.Context, p keystore.TenantIDParams) (id keystore.Bytes, err error) {
	err = db.row(ctx, selectTenantID, p.Name).Scan(&id)
	return id, db.translate(err)
}

// ListTenants implements keystore.TenantDriver.
func (db *DB) ListTenants(ctx context.Context, p keystore.ListTenantsParams) (all []*keystore.TenantRow, err error) {
	err = db.list(ctx, func(rows *sql.Rows) error {
		r := new(keystore.TenantRow)
		all = append(all, r)
		return rows.Scan(tenantTargets(r)...)
	}, listTenants, p.After, p.Limit)
	return all, err
}

func tenantTargets(r *keystore.TenantRow) []any {
	return []any{&r.ID, &r.Name, &r.Tier, &r.State, &r.AllowSealed, &r.SealingID, &r.SealingDomain,
		&r.SealingGeneration, &r.SealingWrapped, &r.Created, &r.Revision, &r.Deleted, &r.Void, &r.Erased, &r.Shredded,
		&r.Code.MAC, &r.Code.Version}
}

// InsertTenant implements keystore.TenantDriver.
func (db *DB) InsertTenant(ctx context.Context, p keystore.InsertTenantParams) error {
	return db.write(ctx, func(tx transaction) error { return execInsertTenant(ctx, tx, &p) })
}

func execInsertTenant(ctx context.Context, tx transaction, p *keystore.InsertTenantParams) error {
	t := &p.Tenant
	_, err := tx.exec(ctx, insertTenant, t.ID[:], t.Name, t.Tier, t.State, t.AllowSealed,
		t.SealingID[:], t.SealingDomain[:], t.SealingGeneration, t.SealingWrapped, t.Created, t.Revision, t.Code.MAC, codeVersion(t.Code))
	if err != nil {
		return err
	}
	return execInsertProject(ctx, tx, &p.Project)
}

// UpdateTenant implements keystore.TenantDriver.
func (db *DB) UpdateTenant(ctx context.Context, p keystore.UpdateTenantParams) error {
	t := &p.Tenant
	return db.write(ctx, func(tx transaction) error {
		return tx.execOne(ctx, keystore.ErrStale, updateTenant, t.Tier, t.State, t.AllowSealed, t.SealingID[:],
			t.SealingDomain[:], t.SealingGeneration, t.SealingWrapped, t.Revision, t.Deleted, t.Void, t.Erased, t.Shredded,
			t.Code.MAC, codeVersion(t.Code), t.ID[:], t.Revision-1)
	})
}

// DueDeletions implements keystore.TenantDriver.
func (db *DB) DueDeletions(ctx context.Context, p keystore.DueDeletionsParams) (due []keystore.Bytes, err error) {
	err = db.list(ctx, func(rows *sql.Rows) error {
		var id keystore.Bytes
		err := rows.Scan(&id)
		due = append(due, id)
		return err
	}, selectDueDeletions, p.Now, p.After[:], p.Limit)
	return due, err
}

// CountObjects implements keystore.TenantDriver.
func (db *DB) CountObjects(ctx context.Context, p keystore.CountObjectsParams) (n keystore.ObjectCounts, err error) {
	err = db.row(ctx, countObjects, p.Tenant[:], p.Now).Scan(&n.Keys, &n.Secrets, &n.Credentials)
	return n, db.translate(err)
}

// CountTenants implements keystore.TenantDriver.
func (db *DB) CountTenants(ctx context.Context, p keystore.CountTenantsParams) (all []*keystore.TenantCountRow, err error) {
	err = db.list(ctx, func(rows *sql.Rows) error {
		r := new(keystore.TenantCountRow)
		all = append(all, r)
		return rows.Scan(&r.Tier, &r.Count)
	}, countTenants, p.Except)
	return all, err
}

// Project implements keystore.TenantDriver.
func (db *DB) Project(ctx context.Context, p keystore.ProjectParams) (*keystore.ProjectRow, error) {
	var r keystore.ProjectRow
	err := db.row(ctx, selectProject, p.Tenant[:], p.Name).Scan(projectTargets(&r)...)
	return &r, db.translate(err)
}

// ListProjects implements keystore.TenantDriver.
func (db *DB) ListProjects(ctx context.Context, p keystore.ListProjectsParams) (all []*keystore.ProjectRow, err error) {
	err = db.list(ctx, func(rows *sql.Rows) error {
		r := new(keystore.ProjectRow)
		all = append(all, r)
		return rows.Scan(projectTargets(r)...)
	}, listProjects, p.Tenant[:], p.After, p.Limit)
	return all, err
}

func projectTargets(r *keystore.ProjectRow) []any {
	return []any{&r.Name, &r.Created, &r.Code.MAC, &r.Code.Version}
}

// InsertProject implements keystore.TenantDriver.
func (db *DB) InsertProject(ctx context.Context, p keystore.InsertProjectParams) error {
	return db.write(ctx, func(tx transaction) error { return execInsertProject(ctx, tx, &p.Project) })
}

func execInsertProject(ctx context.Context, tx transaction, p *keystore.ProjectRecord) error {
	_, err := tx.exec(ctx, insertProject, p.Tenant[:], p.Name, p.Created, p.Code.MAC, codeVersion(p.Code))
	return err
}
