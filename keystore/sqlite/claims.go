package sqlite

import (
	"context"

	"github.com/sluice-kms/sluice/keystore"
)

const (
	// An expired claim or answer is overwritten as if it were not there.
	insertClaim = `INSERT INTO idempotency (tenant, credential, claim, fingerprint, state, resource, secret, expires)
		VALUES (?, ?, ?, ?, 'IN_FLIGHT', '', 0, ?)
		ON CONFLICT (tenant, credential, claim) DO UPDATE SET fingerprint = excluded.fingerprint,
			state = excluded.state, status = NULL, resource = '', secret = 0, expires = excluded.expires
		WHERE idempotency.tenant = excluded.tenant AND idempotency.expires <= ?`
	selectClaim = `SELECT fingerprint, state, status, resource, secret FROM idempotency
		WHERE tenant = ? AND credential = ? AND claim = ?`
	finishClaim = `UPDATE idempotency SET state = 'DONE', status = ?, resource = ?, secret = ?, expires = ?
		WHERE tenant = ? AND credential = ? AND claim = ? AND state = 'IN_FLIGHT'`
	deleteClaim = `DELETE FROM idempotency WHERE tenant = ? AND credential = ? AND claim = ? AND state = 'IN_FLIGHT'`
	// Housekeeping is for all tenants.
	deleteExpiredClaims = `DELETE FROM idempotency WHERE rowid IN
		(SELECT rowid FROM idempotency WHERE expires <= ? ORDER BY expires LIMIT ?)`
)

// Claim implements keystore.ClaimDriver.
func (db *DB) Claim(ctx context.Context, p keystore.ClaimParams) (*keystore.ClaimRow, error) {
	var existing *keystore.ClaimRow
	err := db.write(ctx, func(tx transaction) error {
		n, err := tx.exec(ctx, insertClaim, p.Tenant[:], p.Credential[:], p.Claim, p.Fingerprint, p.Expires, p.Now)
		if err != nil || n != 0 {
			return err
		}
		var r keystore.ClaimRow
		existing = &r
		return tx.statement(ctx, selectClaim).QueryRowContext(ctx, p.Tenant[:], p.Credential[:], p.Claim).
			Scan(&r.Fingerprint, &r.State, &r.Status, &r.Resource, &r.Secret)
	})
	return existing, err
}

// FinishClaim implements keystore.ClaimDriver.
func (db *DB) FinishClaim(ctx context.Context, p keystore.FinishClaimParams) error {
	return db.write(ctx, func(tx transaction) error {
		return tx.execOne(ctx, keystore.ErrMissing, finishClaim, p.Status, p.Resource, p.Secret, p.Expires,
			p.Tenant[:], p.Credential[:], p.Claim)
	})
}

// DeleteClaim implements keystore.ClaimDriver.
func (db *DB) DeleteClaim(ctx context.Context, p keystore.DeleteClaimParams) error {
	return db.write(ctx, func(tx transaction) error {
		return tx.execOne(ctx, keystore.ErrMissing, deleteClaim, p.Tenant[:], p.Credential[:], p.Claim)
	})
}

// DeleteExpiredClaims implements keystore.ClaimDriver.
func (db *DB) DeleteExpiredClaims(ctx context.Context, p keystore.DeleteExpiredClaimsParams) (removed int, err error) {
	err = db.write(ctx, func(tx transaction) error {
		n, err := tx.exec(ctx, deleteExpiredClaims, p.Now, p.Limit)
		removed = int(n)
		return err
	})
	return removed, err
}
