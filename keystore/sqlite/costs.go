package sqlite

import (
	"context"
	"database/sql"

	"github.com/sluice-kms/sluice/keystore"
)

const (
	selectCostIncident = `SELECT id, ended, document, mac, mac_version FROM cost_incidents WHERE tenant = ? AND id = ?`
	listCostIncidents  = `SELECT id, ended, document, mac, mac_version FROM cost_incidents WHERE tenant = ? AND id < ?
		ORDER BY id DESC LIMIT ?`
	insertCostIncident = `INSERT INTO cost_incidents (tenant, id, ended, document, mac, mac_version) VALUES (?, ?, ?, ?, ?, ?)`
	dropCostIncidents  = `DELETE FROM cost_incidents WHERE tenant = ?1 AND id IN
		(SELECT id FROM cost_incidents WHERE tenant = ?1 ORDER BY id DESC LIMIT -1 OFFSET ?2)`
	deleteCostIncidents = `DELETE FROM cost_incidents WHERE rowid IN
		(SELECT rowid FROM cost_incidents WHERE ended <= ? ORDER BY ended LIMIT ?)`

	selectCostLift = `SELECT lifted, mac, mac_version FROM cost_lifts WHERE tenant = ?`
	putCostLift    = `INSERT INTO cost_lifts (tenant, lifted, mac, mac_version) VALUES (?, ?, ?, ?)
		ON CONFLICT (tenant) DO UPDATE SET lifted = excluded.lifted, mac = excluded.mac, mac_version = excluded.mac_version`
)

func costIncidentTargets(r *keystore.CostIncidentRow) []any {
	return []any{&r.ID, &r.Ended, &r.Document, &r.Code.MAC, &r.Code.Version}
}

// InsertCostIncident implements keystore.CostIncidentDriver.
func (db *DB) InsertCostIncident(ctx context.Context, p keystore.InsertCostIncidentParams) error {
	i := &p.Incident
	return db.write(ctx, func(tx transaction) error {
		if err := tx.execOne(ctx, keystore.ErrMissing, insertCostIncident, i.Tenant[:], i.ID[:], i.Ended, i.Document, i.Code.MAC, codeVersion(i.Code)); err != nil {
			return err
		}
		_, err := tx.exec(ctx, dropCostIncidents, i.Tenant[:], p.Keep)
		return err
	})
}

// CostIncident implements keystore.CostIncidentDriver.
func (db *DB) CostIncident(ctx context.Context, p keystore.CostIncidentParams) (*keystore.CostIncidentRow, error) {
	var r keystore.CostIncidentRow
	err := db.row(ctx, selectCostIncident, p.Tenant[:], p.ID[:]).Scan(costIncidentTargets(&r)...)
	return &r, db.translate(err)
}

// ListCostIncidents implements keystore.CostIncidentDriver.
func (db *DB) ListCostIncidents(ctx context.Context, p keystore.ListCostIncidentsParams) (all []*keystore.CostIncidentRow, err error) {
	err = db.list(ctx, func(rows *sql.Rows) error {
		r := new(keystore.CostIncidentRow)
		all = append(all, r)
		return rows.Scan(costIncidentTargets(r)...)
	}, listCostIncidents, p.Tenant[:], p.Before, p.Limit)
	return all, err
}

// DeleteCostIncidents implements keystore.CostIncidentDriver.
func (db *DB) DeleteCostIncidents(ctx context.Context, p keystore.DeleteCostIncidentsParams) (n int, err error) {
	err = db.write(ctx, func(tx transaction) error {
		removed, err := tx.exec(ctx, deleteCostIncidents, p.Before, p.Limit)
		n = int(removed)
		return err
	})
	return n, err
}

// PutCostLift implements keystore.CostIncidentDriver.
func (db *DB) PutCostLift(ctx context.Context, p keystore.PutCostLiftParams) error {
	l := &p.Lift
	return db.write(ctx, func(tx transaction) error {
		return tx.execOne(ctx, keystore.ErrMissing, putCostLift, l.Tenant[:], l.Lifted, l.Code.MAC, codeVersion(l.Code))
	})
}

// CostLift implements keystore.CostIncidentDriver.
func (db *DB) CostLift(ctx context.Context, p keystore.CostLiftParams) (*keystore.CostLiftRow, error) {
	var r keystore.CostLiftRow
	err := db.row(ctx, selectCostLift, p.Tenant[:]).Scan(&r.Lifted, &r.Code.MAC, &r.Code.Version)
	return &r, db.translate(err)
}
