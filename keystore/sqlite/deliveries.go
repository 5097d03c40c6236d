package sqlite

import (
	"context"
	"encoding/hex"
	"encoding/json/v2"
	"strings"

	"github.com/sluice-kms/sluice/keystore"
)

const (
	insertDelivery = `INSERT INTO deliveries (tenant, webhook, event, once, type, body, created, due, attempts, mac, mac_version)
		SELECT tenant, id, ?3, ?4, ?5, ?6, ?7, ?7, 0, ?8, ?9 FROM webhooks WHERE tenant = ?1 AND id = ?2 ON CONFLICT DO NOTHING`
	dropDeliveries = `DELETE FROM deliveries WHERE tenant = ?1 AND webhook = ?2 AND event IN
		(SELECT event FROM deliveries WHERE tenant = ?1 AND webhook = ?2 AND due IS NOT NULL
			ORDER BY created DESC, event DESC LIMIT -1 OFFSET ?3)`
	// Senders act for all tenants. The tenants that are busy are a JSON array of
	// hexadecimal ids.
	claimDeliveries = `UPDATE deliveries SET due = ?2, attempts = attempts + 1 WHERE rowid IN
		(SELECT place FROM (
			SELECT place, due, row_number() OVER (PARTITION BY tenant ORDER BY due, event) AS of_tenant FROM (
				SELECT rowid AS place, tenant, event, due,
					row_number() OVER (PARTITION BY tenant, webhook ORDER BY due, event) AS of_webhook
				FROM deliveries WHERE due <= ?1 AND hex(tenant) NOT IN (SELECT value FROM json_each(?3))) w
			WHERE of_webhook = 1)
		WHERE of_tenant <= ?4 ORDER BY due LIMIT ?5)
		RETURNING tenant, webhook, event, once, type, body, created, attempts, mac, mac_version`
	retryDelivery  = `UPDATE deliveries SET due = ?4 WHERE tenant = ?1 AND webhook = ?2 AND event = ?3 AND due IS NOT NULL`
	endDelivery    = `UPDATE deliveries SET due = NULL, ended = ?4 WHERE tenant = ?1 AND webhook = ?2 AND event = ?3 AND due IS NOT NULL`
	deleteDelivery = `DELETE FROM deliveries WHERE tenant = ?1 AND webhook = ?2 AND event = ?3`

	deleteEndedDeliveries = `DELETE FROM deliveries WHERE rowid IN
		(SELECT rowid FROM deliveries WHERE ended <= ? ORDER BY ended LIMIT ?)`
)

// InsertDeliveries implements keystore.DeliveryDriver.
func (db *DB) InsertDeliveries(ctx context.Context, p keystore.InsertDeliveriesParams) (dropped int, err error) {
	err = db.write(ctx, func(tx transaction) error {
		for i := range p.Deliveries {
			d := &p.Deliveries[i]
			n, err := tx.exec(ctx, insertDelivery, p.Tenant[:], d.Webhook[:], d.Event[:], d.Once, d.Type, d.Body, d.Created,
				d.Code.MAC, codeVersion(d.Code))
			if err != nil {
				return err
			}
			if n == 0 {
				continue
			}
			if n, err = tx.exec(ctx, dropDeliveries, p.Tenant[:], d.Webhook[:], p.Keep); err != nil {
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
	names := make([]string, len(p.Busy))
	for i, tenant := range p.Busy {
		names[i] = strings.ToUpper(hex.EncodeToString(tenant[:]))
	}
	busy, err := json.Marshal(names)
	if err != nil {
		return nil, db.translate(err)
	}
	err = db.write(ctx, func(tx transaction) error {
		rows, err := tx.statement(ctx, claimDeliveries).QueryContext(ctx, p.Now, p.Until, string(busy), p.OfTenant, p.Limit)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			r := new(keystore.DeliveryRow)
			all = append(all, r)
			if err := rows.Scan(&r.Tenant, &r.Webhook, &r.Event, &r.Once, &r.Type, &r.Body, &r.Created, &r.Attempts,
				&r.Code.MAC, &r.Code.Version); err != nil {
				return err
			}
		}
		return rows.Err()
	})
	return all, err
}

// RetryDelivery implements keystore.DeliveryDriver.
func (db *DB) RetryDelivery(ctx context.Context, p keystore.RetryDeliveryParams) error {
	return db.changeDelivery(ctx, retryDelivery, &p.DeliveryParams, p.Due)
}

// EndDelivery implements keystore.DeliveryDriver.
func (db *DB) EndDelivery(ctx context.Context, p keystore.EndDeliveryParams) error {
	return db.changeDelivery(ctx, endDelivery, &p.DeliveryParams, p.Now)
}

// DeleteDelivery implements keystore.DeliveryDriver.
func (db *DB) DeleteDelivery(ctx context.Context, p keystore.DeliveryParams) error {
	return db.changeDelivery(ctx, deleteDelivery, &p)
}

func (db *DB) changeDelivery(ctx context.Context, statement string, p *keystore.DeliveryParams, args ...any) error {
	return db.write(ctx, func(tx transaction) error {
		_, err := tx.exec(ctx, statement, append([]any{p.Tenant[:], p.Webhook[:], p.Event[:]}, args...)...)
		return err
	})
}

// DeleteEndedDeliveries implements keystore.DeliveryDriver.
func (db *DB) DeleteEndedDeliveries(ctx context.Context, p keystore.DeleteEndedDeliveriesParams) (removed int, err error) {
	err = db.write(ctx, func(tx transaction) error {
		n, err := tx.exec(ctx, deleteEndedDeliveries, p.Before, p.Limit)
		removed = int(n)
		return err
	})
	return removed, err
}
