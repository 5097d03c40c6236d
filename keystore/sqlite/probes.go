package sqlite

import (
	"context"
	"database/sql"
	"encoding/json/v2"

	"github.com/sluice-kms/sluice/keystore"
)

// Endpoints are probed once for all tenants. Lists of addresses are JSON arrays.
const (
	wantEndpoints = `INSERT INTO endpoint_probes (url, misses, due, wanted) SELECT value, 0, ?2, ?3 FROM json_each(?1) WHERE true
		ON CONFLICT (url) DO UPDATE SET wanted = max(wanted, excluded.wanted)`
	selectEndpoints = `SELECT url, misses, wanted FROM endpoint_probes WHERE url IN (SELECT value FROM json_each(?))`
	claimEndpoints  = `UPDATE endpoint_probes SET due = ?2 WHERE url IN
		(SELECT url FROM endpoint_probes WHERE due <= ?1 AND wanted > ?1 ORDER BY due LIMIT ?3) RETURNING url, misses, wanted`
	endProbe        = `UPDATE endpoint_probes SET misses = ?2, due = ?3 WHERE url = ?1`
	deleteEndpoints = `DELETE FROM endpoint_probes WHERE url IN (SELECT url FROM endpoint_probes WHERE wanted <= ? ORDER BY wanted LIMIT ?)`
)

// WantEndpoints implements keystore.ProbeDriver.
func (db *DB) WantEndpoints(ctx context.Context, p keystore.WantEndpointsParams) error {
	urls, err := json.Marshal(p.URLs)
	if err != nil {
		return err
	}
	return db.write(ctx, func(tx transaction) error {
		_, err := tx.exec(ctx, wantEndpoints, string(urls), p.Due, p.Until)
		return err
	})
}

// Endpoints implements keystore.ProbeDriver.
func (db *DB) Endpoints(ctx context.Context, p keystore.EndpointsParams) (all []*keystore.EndpointRow, err error) {
	urls, err := json.Marshal(p.URLs)
	if err != nil {
		return nil, err
	}
	err = db.list(ctx, func(rows *sql.Rows) error {
		r := new(keystore.EndpointRow)
		all = append(all, r)
		return rows.Scan(&r.URL, &r.Misses, &r.Wanted)
	}, selectEndpoints, string(urls))
	return all, err
}

// ClaimEndpoints implements keystore.ProbeDriver.
func (db *DB) ClaimEndpoints(ctx context.Context, p keystore.ClaimEndpointsParams) (all []*keystore.EndpointRow, err error) {
	err = db.write(ctx, func(tx transaction) error {
		rows, err := tx.statement(ctx, claimEndpoints).QueryContext(ctx, p.Now, p.Until, p.Limit)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			r := new(keystore.EndpointRow)
			all = append(all, r)
			if err := rows.Scan(&r.URL, &r.Misses, &r.Wanted); err != nil {
				return err
			}
		}
		return rows.Err()
	})
	return all, err
}

// EndProbe implements keystore.ProbeDriver.
func (db *DB) EndProbe(ctx context.Context, p keystore.EndProbeParams) error {
	return db.write(ctx, func(tx transaction) error {
		_, err := tx.exec(ctx, endProbe, p.URL, p.Misses, p.Due)
		return err
	})
}

// DeleteEndpoints implements keystore.ProbeDriver.
func (db *DB) DeleteEndpoints(ctx context.Context, p keystore.DeleteEndpointsParams) (n int, err error) {
	err = db.write(ctx, func(tx transaction) error {
		removed, err := tx.exec(ctx, deleteEndpoints, p.Now, p.Limit)
		n = int(removed)
		return err
	})
	return n, err
}
