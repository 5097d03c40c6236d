package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/sluice-kms/sluice/keystore"
)

// Endpoints are probed once for all tenants.
const (
	wantEndpoints = `INSERT INTO endpoint_probes (url, misses, due, wanted) SELECT unnest($1::text[]), 0, $2, $3
		ON CONFLICT (url) DO UPDATE SET wanted = greatest(endpoint_probes.wanted, excluded.wanted)`
	selectEndpoints = `SELECT url, misses, wanted FROM endpoint_probes WHERE url = ANY ($1::text[])`
	claimEndpoints  = `UPDATE endpoint_probes SET due = $2 WHERE url = ANY (ARRAY(
			SELECT url FROM endpoint_probes WHERE due <= $1 AND wanted > $1 ORDER BY due LIMIT $3 FOR UPDATE SKIP LOCKED))
		RETURNING url, misses, wanted`
	endProbe        = `UPDATE endpoint_probes SET misses = $2, due = $3 WHERE url = $1`
	deleteEndpoints = `DELETE FROM endpoint_probes WHERE url = ANY (ARRAY(
		SELECT url FROM endpoint_probes WHERE wanted <= $1 ORDER BY wanted LIMIT $2 FOR UPDATE SKIP LOCKED))`
)

// WantEndpoints implements keystore.ProbeDriver.
func (db *DB) WantEndpoints(ctx context.Context, p keystore.WantEndpointsParams) error {
	return db.write(ctx, everybody, func(tx transaction) error {
		_, err := tx.exec(ctx, wantEndpoints, p.URLs, moment(p.Due), moment(p.Until))
		return err
	})
}

// Endpoints implements keystore.ProbeDriver.
func (db *DB) Endpoints(ctx context.Context, p keystore.EndpointsParams) (all []*keystore.EndpointRow, err error) {
	err = db.list(ctx, everybody, func(rows pgx.Rows) error {
		r := new(keystore.EndpointRow)
		all = append(all, r)
		return rows.Scan(&r.URL, &r.Misses, timeColumn{&r.Wanted})
	}, selectEndpoints, p.URLs)
	return all, err
}

// ClaimEndpoints implements keystore.ProbeDriver.
func (db *DB) ClaimEndpoints(ctx context.Context, p keystore.ClaimEndpointsParams) (all []*keystore.EndpointRow, err error) {
	err = db.list(ctx, everybody, func(rows pgx.Rows) error {
		r := new(keystore.EndpointRow)
		all = append(all, r)
		return rows.Scan(&r.URL, &r.Misses, timeColumn{&r.Wanted})
	}, claimEndpoints, moment(p.Now), moment(p.Until), p.Limit)
	return all, err
}

// EndProbe implements keystore.ProbeDriver.
func (db *DB) EndProbe(ctx context.Context, p keystore.EndProbeParams) error {
	return db.write(ctx, everybody, func(tx transaction) error {
		_, err := tx.exec(ctx, endProbe, p.URL, p.Misses, moment(p.Due))
		return err
	})
}

// DeleteEndpoints implements keystore.ProbeDriver.
func (db *DB) DeleteEndpoints(ctx context.Context, p keystore.DeleteEndpointsParams) (n int, err error) {
	err = db.write(ctx, everybody, func(tx transaction) error {
		removed, err := tx.exec(ctx, deleteEndpoints, moment(p.Now), p.Limit)
		n = int(removed)
		return err
	})
	return n, err
}
