package sqlite

import (
	"context"
	"database/sql"

	"github.com/sluice-kms/sluice/keystore"
)

// Policies are the operators', of no tenant, and never changed. Documents can
// be long, so lists leave them out.
const (
	policyColumns = `version, digest, comment, created, created_by, mac, mac_version`

	// The condition excludes nothing: with it, the plan is seen to read the index
	// from one end and not as a whole.
	selectNewestPolicy = `SELECT version FROM policies WHERE version >= 1 ORDER BY version DESC LIMIT 1`
	selectPolicy       = `SELECT ` + policyColumns + `, document FROM policies WHERE version = ?`
	listPolicies       = `SELECT ` + policyColumns + ` FROM policies WHERE version < ? ORDER BY version DESC LIMIT ?`
	insertPolicy       = `INSERT INTO policies (` + policyColumns + `, document) VALUES (?, ?, ?, ?, ?, ?, ?, ?)`
)

func policyTargets(r *keystore.PolicyRow) []any {
	return []any{&r.Version, &r.Digest, &r.Comment, &r.Created, &r.By, &r.Code.MAC, &r.Code.Version}
}

// NewestPolicy implements keystore.PolicyDriver.
func (db *DB) NewestPolicy(ctx context.Context) (version keystore.Integer, err error) {
	err = db.row(ctx, selectNewestPolicy).Scan(&version)
	return version, db.translate(err)
}

// Policy implements keystore.PolicyDriver.
func (db *DB) Policy(ctx context.Context, p keystore.PolicyParams) (*keystore.PolicyRow, error) {
	var r keystore.PolicyRow
	err := db.row(ctx, selectPolicy, p.Version).Scan(append(policyTargets(&r), &r.Document)...)
	return &r, db.translate(err)
}

// ListPolicies implements keystore.PolicyDriver.
func (db *DB) ListPolicies(ctx context.Context, p keystore.ListPoliciesParams) (all []*keystore.PolicyRow, err error) {
	err = db.list(ctx, func(rows *sql.Rows) error {
		r := new(keystore.PolicyRow)
		all = append(all, r)
		return rows.Scan(policyTargets(r)...)
	}, listPolicies, p.Before, p.Limit)
	return all, err
}

// InsertPolicy implements keystore.PolicyDriver.
func (db *DB) InsertPolicy(ctx context.Context, p keystore.InsertPolicyParams) error {
	v := &p.Policy
	return db.write(ctx, func(tx transaction) error {
		_, err := tx.exec(ctx, insertPolicy, v.Version, v.Digest, v.Comment, v.Created, v.By[:], v.Code.MAC, codeVersion(v.Code), p.Document)
		return err
	})
}
