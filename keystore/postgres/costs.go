package postgres

import (
	"context"
	"uuid"

	"github.com/jackc/pgx/v5"

	"github.com/sluice-kms/sluice/keystore"
)

const (
	selectCostIncident = `SELECT id, ended, document, mac, mac_version FROM cost_incidents WHERE tenant = $1 AND id = $2`
	listCostIncidents  = `SELECT id, ended, document, mac, mac_version FROM cost_incidents WHERE tenant = $1 AND id < $2
		ORDER BY id DESC LIMIT $3`
	insertCostIncident = `INSERT INTO cost_incidents (tenant, id, ended, document, mac, mac_version) VALUES ($1, $2, $3, $4, $5, $6)`
	dropCostIncidents  = `DELETE FROM cost_incidents WHERE tenant = $1 AND id IN
		(SELECT id FROM cost_incidents WHERE tenant = $1 ORDER BY id DESC OFFSET $2)`
	deleteCostIncidents = `SELECT delete_cost_incidents($1, $2)`

	selectCostLift = `SELECT lifted, mac, mac_version FROM cost_lifts WHERE tenant = $1`
	putCostLift    = `INSERT INTO cost_lifts (tenant, lifted, mac, mac_version) VALUES ($1, $2, $3, $4)
		ON CONFLICT (tenant) DO UPDATE SET lifted = excluded.lifted, mac = excluded.mac, mac_version = excluded.mac_version`
)

func costIncidentTargets(r *keystore.CostIncidentRow) []any {
	return []any{idColumn{&r.ID}, timeColumn{&r.Ended}, &r.Document, &r.Code.MAC, &r.Code.Version}
}

// InsertCostIncident implements keystore.CostIncidentDriver.
func (db *DB) InsertCostIncident(ctx context.Context, p keystore.InsertCostIncidentParams) error {
	i := &p.Incident
	return db.write(ctx, i.Tenant, func(tx transaction) error {
		if err := tx.execOne(ctx, keystore.ErrMissing, insertCostIncident, id(i.Tenant), id(i.ID), moment(i.Ended), i.Document,
			i.Code.MAC, codeVersion(i.Code)); err != nil {
			return err
		}
		_, err := tx.exec(ctx, dropCostIncidents, id(i.Tenant), p.Keep)
		return err
	})
}

// CostIncident implements keystore.CostIncidentDriver.
func (db *DB) CostIncident(ctx context.Context, p keystore.CostIncidentParams) (*keystore.CostIncidentRow, error) {
	var r keystore.CostIncidentRow
	return &r, db.row(ctx, p.Tenant, costIncidentTargets(&r), selectCostIncident, id(p.Tenant), id(p.ID))
}

// ListCostIncidents implements keystore.CostIncidentDriver.
func (db *DB) ListCostIncidents(ctx context.Context, p keystore.ListCostIncidentsParams) (all []*keystore.CostIncidentRow, err error) {
	var before uuid.UUID
	copy(before[:], p.Before)
	err = db.list(ctx, p.Tenant, func(rows pgx.Rows) error {
		r := new(keystore.CostIncidentRow)
		all = append(all, r)
		return rows.Scan(costIncidentTargets(r)...)
	}, listCostIncidents, id(p.Tenant), id(before), p.Limit)
	return all, err
}

// DeleteCostIncidents implements keystore.CostIncidentDriver.
func (db *DB) DeleteCostIncidents(ctx context.Context, p keystore.DeleteCostIncidentsParams) (removed int, err error) {
	err = db.write(ctx, everybody, func(tx transaction) error {
		return tx.tx.QueryRow(ctx, deleteCostIncidents, moment(p.Before), p.Limit).Scan(&removed)
	})
	return removed, err
}

// PutCostLift implements keystore.CostIncidentDriver.
func (db *DB) PutCostLift(ctx context.Context, p keystore.PutCostLiftParams) error {
	l := &p.Lift
	return db.write(ctx, l.Tenant, func(tx transaction) error {
		return tx.execOne(ctx, keystore.ErrMissing, putCostLift, id(l.Tenant), moment(l.Lifted), l.Code.MAC, codeVersion(l.Code))
	})
}

// CostLift implements keystore.CostIncidentDriver.
func (db *DB) CostLift(ctx context.Context, p keystore.CostLiftParams) (*keystore.CostLiftRow, error) {
	var r keystore.CostLiftRow
	return &r, db.row(ctx, p.Tenant, []any{timeColumn{&r.Lifted}, &r.Code.MAC, &r.Code.Version}, selectCostLift, id(p.Tenant))
}
