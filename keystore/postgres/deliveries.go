package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/sluice-kms/sluice/keystore"
)

const (
	insertDelivery = `INSERT INTO deliveries (tenant, webhook, event, once, type, body, created, due, attempts, mac, mac_version)
		SELECT tenant, id, $3, $4, $5, $6, $7, $7, 0, $8, $9 FROM webhooks WHERE tenant = $1 AND id = $2 ON CONFLICT DO NOTHING`
	dropDeliveries = `DELETE FROM deliveries WHERE tenant = $1 AND webhook = $2 AND event = ANY
		(ARRAY(SELECT event FROM deliveries WHERE tenant = $1 AND webhook = $2 AND due IS NOT NULL
			ORDER BY created DESC, event DESC OFFSET $3))`
	// Senders act for all tenants.
	claimDeliveries = `SELECT tenant, webhook, event, once, type, body, created, attempts, mac, mac_version
		FROM claim_deliveries($1, $2, $3, $4, $5)`
	retryDelivery  = `UPDATE deliveries SET due = $4 WHERE tenant = $1 AND webhook = $2 AND event = $3 AND due IS NOT NULL`
	endDelivery    = `UPDATE deliveries SET due = NULL, ended = $4 WHERE tenant = $1 AND webhook = $2 AND event = $3 AND due IS NOT NULL`
	deleteDelivery = `DELETE FROM deliveries WHERE tenant = $1 AND webhook = $2 AND event = $3`
	// Housekeeping is for all tenants.
	deleteEndedDeliveries = `SELECT delete_ended_deliveries($1, $2)`
)

// InsertDeliveries implements keystore.DeliveryDriver.
func (db *DB) InsertDeliveries(ctx context.Context, p keystore.InsertDeliveriesParams) (dropped int, err error) {
	err = db.write(ctx, p.Tenant, func(tx transaction) error {
		for i := range p.Deliveries {
			d := &p.Deliveries[i]
			n, err := tx.exec(ctx, insertDelivery, id(p.Tenant), id(d.Webhook), id(d.Event), d.Once, d.Type, d.Body, moment(d.Created),
				d.Code.MAC, codeVersion(d.Code))
			if err != nil {
				return err
			}
			if n == 0 {
				continue
			}
			if n, err = tx.exec(ctx, dropDeliveries, id(p.Tenant), id(d.Webhook), p.Keep); err != nil {
				return err
			}
			dropped += int(n)
		}
		return nil
	})
	return dropped, err
}

// ClaimDeliveries implements keystore.DeliveryDriver.
func (db *DB) ClaimDeliveries(ctx context.Context, p keystore.ClaimDeliveriesParams) (all []*keystore.DeliveryRow, err error) {
	busy := make([]pgtype.UUID, len(p.Busy))
	for i, tenant := range p.Busy {
		busy[i] = id(tenant)
	}
	err = db.list(ctx, everybody, func(rows pgx.Rows) error {
		r := new(keystore.DeliveryRow)
		all = append(all, r)
		return rows.Scan(idColumn{&r.Tenant}, idColumn{&r.Webhook}, idColumn{&r.Event}, &r.Once, &r.Type, &r.Body, timeColumn{&r.Created},
			&r.Attempts, &r.Code.MAC, &r.Code.Version)
	}, claimDeliveries, moment(p.Now), moment(p.Until), busy, p.OfTenant, p.Limit)
	return all, err
}

// RetryDelivery implements keystore.DeliveryDriver.
func (db *DB) RetryDelivery(ctx context.Context, p keystore.RetryDeliveryParams) error {
	return db.changeDelivery(ctx, retryDelivery, &p.DeliveryParams, moment(p.Due))
}

// EndDelivery implements keystore.DeliveryDriver.
func (db *DB) EndDelivery(ctx context.Context, p keystore.EndDeliveryParams) error {
	return db.changeDelivery(ctx, endDelivery, &p.DeliveryParams, moment(p.Now))
}

// DeleteDelivery implements keystore.DeliveryDriver.
func (db *DB) DeleteDelivery(ctx context.Context, p keystore.DeliveryParams) error {
	return db.changeDelivery(ctx, deleteDelivery, &p)
}

func (db *DB) changeDelivery(ctx context.Context, statement string, p *keystore.DeliveryParams, args ...any) error {
	return db.write(ctx, p.Tenant, func(tx transaction) error {
		_, err := tx.exec(ctx, statement, append([]any{id(p.Tenant), id(p.Webhook), id(p.Event)}, args...)...)
		return err
	})
}

// DeleteEndedDeliveries implements keystore.DeliveryDriver.
func (db *DB) DeleteEndedDeliveries(ctx context.Context, p keystore.DeleteEndedDeliveriesParams) (removed int, err error) {
	err = db.write(ctx, everybody, func(tx transaction) error {
		return tx.tx.QueryRow(ctx, deleteEndedDeliveries, moment(p.Before), p.Limit).Scan(&removed)
	})
	return removed, err
}
