package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/sluice-kms/sluice/keystore"
)

// Policies are the operators', of no tenant, and never changed. Documents can
// be long, so lists leave them out.
const (
	policyColumns = `version, digest, comment, created, created_by, mac, mac_version`

	// The condition excludes nothing: with it, the plan is seen to read the index
	// from one end and not as a whole.
	selectNewestPolicy = `SELECT version FROM policies WHERE version >= 1 ORDER BY version DESC LIMIT 1`
	selectPolicy       = `SELECT ` + policyColumns + `, document FROM policies WHERE version = $1`
	listPolicies       = `SELECT ` + policyColumns + ` FROM policies WHERE version < $1 ORDER BY version DESC LIMIT $2`
	insertPolicy       = `INSERT INTO policies (` + policyColumns + `, document) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`
)

func policyTargets(r *keystore.PolicyRow) []any {
	return []any{&r.Version, &r.Digest, &r.Comment, timeColumn{&r.Created}, idColumn{&r.By}, &r.Code.MAC, &r.Code.Version}
}

// NewestPolicy implements keystore.PolicyDriver.
func (db *DB) NewestPolicy(ctx context.Context) (version keystore.Integer, err error) {
	err = db.row(ctx, everybody, []any{&version}, selectNewestPolicy)
	return version, err
}

// Policy implements keystore.PolicyDriver.
func (db *DB) Policy(ctx context.Context, p keystore.PolicyParams) (*keystore.PolicyRow, error) {
	var r keystore.PolicyRow
	return &r, db.row(ctx, everybody, append(policyTargets(&r), &r.Document), selectPolicy, p.Version)
}

// ListPolicies implements keystore.PolicyDriver.
func (db *DB) ListPolicies(ctx context.Context, p keystore.ListPoliciesParams) (all []*keystore.PolicyRow, err error) {
	err = db.list(ctx, everybody, func(rows pgx.Rows) error {
		r := new(keystore.PolicyRow)
		all = append(all, r)
		return rows.Scan(policyTargets(r)...)
	}, listPolicies, p.Before, p.Limit)
	return all, err
}

// InsertPolicy implements keystore.PolicyDriver.
func (db *DB) InsertPolicy(ctx context.Context, p keystore.InsertPolicyParams) error {
	v := &p.Policy
	return db.write(ctx, everybody, func(tx transaction) error {
		_, err := tx.exec(ctx, insertPolicy, v.Version, v.Digest, v.Comment, moment(v.Created), id(v.By), v.Code.MAC, codeVersion(v.Code), p.Document)
		return err
	})
}
