package postgres

import (
	"context"

	"github.com/sluice-kms/sluice/keystore"
)

const (
	// An expired claim or answer is overwritten as if it were not there.
	insertClaim = `INSERT INTO idempotency (tenant, credential, claim, fingerprint, state, resource, secret, expires)
		VALUES ($1, $2, $3, $4, 'IN_FLIGHT', '', false, $5)
		ON CONFLICT (tenant, credential, claim) DO UPDATE SET fingerprint = excluded.fingerprint,
			state = excluded.state, status = NULL, resource = '', secret = false, expires = excluded.expires
		WHERE idempotency.tenant = excluded.tenant AND idempotency.expires <= $6`
	selectClaim = `SELECT fingerprint, state, status, resource, secret FROM idempotency
		WHERE tenant = $1 AND credential = $2 AND claim = $3`
	finishClaim = `UPDATE idempotency SET state = 'DONE', status = $4, resource = $5, secret = $6, expires = $7
		WHERE tenant = $1 AND credential = $2 AND claim = $3 AND state = 'IN_FLIGHT'`
	deleteClaim = `DELETE FROM idempotency WHERE tenant = $1 AND credential = $2 AND claim = $3 AND state = 'IN_FLIGHT'`
	// Housekeeping is for all tenants.
	deleteExpiredClaims = `SELECT delete_expired_claims($1, $2)`
)

// Claim implements keystore.ClaimDriver.
func (db *DB) Claim(ctx context.Context, p keystore.ClaimParams) (*keystore.ClaimRow, error) {
	var existing *keystore.ClaimRow
	err := db.write(ctx, p.Tenant, func(tx transaction) error {
		n, err := tx.exec(ctx, insertClaim, id(p.Tenant), id(p.Credential), p.Claim, p.Fingerprint, moment(p.Expires), moment(p.Now))
		if err != nil || n != 0 {
			return err
		}
		var r keystore.ClaimRow
		existing = &r
		return tx.tx.QueryRow(ctx, selectClaim, id(p.Tenant), id(p.Credential), p.Claim).
			Scan(&r.Fingerprint, &r.State, &r.Status, &r.Resource, boolColumn{&r.Secret})
	})
	return existing, err
}

// FinishClaim implements keystore.ClaimDriver.
func (db *DB) FinishClaim(ctx context.Context, p keystore.FinishClaimParams) error {
	return db.write(ctx, p.Tenant, func(tx transaction) error {
		return tx.execOne(ctx, keystore.ErrMissing, finishClaim, id(p.Tenant), id(p.Credential), p.Claim, p.Status, p.Resource,
			p.Secret, moment(p.Expires))
	})
}

// DeleteClaim implements keystore.ClaimDriver.
func (db *DB) DeleteClaim(ctx context.Context, p keystore.DeleteClaimParams) error {
	return db.write(ctx, p.Tenant, func(tx transaction) error {
		return tx.execOne(ctx, keystore.ErrMissing, deleteClaim, id(p.Tenant), id(p.Credential), p.Claim)
	})
}

// DeleteExpiredClaims implements keystore.ClaimDriver.
func (db *DB) DeleteExpiredClaims(ctx context.Context, p keystore.DeleteExpiredClaimsParams) (removed int, err error) {
	err = db.write(ctx, everybody, func(tx transaction) error {
		return tx.tx.QueryRow(ctx, deleteExpiredClaims, moment(p.Now), p.Limit).Scan(&removed)
	})
	return removed, err
}
