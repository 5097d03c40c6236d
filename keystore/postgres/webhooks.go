package postgres

import (
	"context"
	"uuid"

	"github.com/jackc/pgx/v5"

	"github.com/sluice-kms/sluice/keystore"
)

const (
	webhookColumns = `id, url, types, secret, state, created, revision, failing_since, delivered, mac, mac_version`

	selectWebhook = `SELECT ` + webhookColumns + ` FROM webhooks WHERE tenant = $1 AND id = $2`
	listWebhooks  = `SELECT ` + webhookColumns + ` FROM webhooks WHERE tenant = $1 AND id > $2 ORDER BY id LIMIT $3`
	insertWebhook = `INSERT INTO webhooks (tenant, id, url, types, secret, state, created, revision, mac, mac_version)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`
	updateWebhook = `UPDATE webhooks SET state = $4, revision = $5, mac = $6, mac_version = $7
		WHERE tenant = $1 AND id = $2 AND revision = $3`
	deleteWebhook = `DELETE FROM webhooks WHERE tenant = $1 AND id = $2`
	noteTaken     = `UPDATE webhooks SET delivered = $3, failing_since = NULL WHERE tenant = $1 AND id = $2`
	noteFailed    = `UPDATE webhooks SET failing_since = $3 WHERE tenant = $1 AND id = $2 AND failing_since IS NULL`
)

func webhookTargets(r *keystore.WebhookRow) []any {
	return []any{idColumn{&r.ID}, &r.URL, &r.Types, &r.Secret, &r.State, timeColumn{&r.Created}, &r.Revision,
		timeColumn{&r.FailingSince}, timeColumn{&r.Delivered}, &r.Code.MAC, &r.Code.Version}
}

// Webhook implements keystore.WebhookDriver.
func (db *DB) Webhook(ctx context.Context, p keystore.WebhookParams) (*keystore.WebhookRow, error) {
	var r keystore.WebhookRow
	return &r, db.row(ctx, p.Tenant, webhookTargets(&r), selectWebhook, id(p.Tenant), id(p.ID))
}

// ListWebhooks implements keystore.WebhookDriver.
func (db *DB) ListWebhooks(ctx context.Context, p keystore.ListWebhooksParams) (all []*keystore.WebhookRow, err error) {
	var after uuid.UUID // the lowest, for the first page
	copy(after[:], p.After)
	err = db.list(ctx, p.Tenant, func(rows pgx.Rows) error {
		r := new(keystore.WebhookRow)
		all = append(all, r)
		return rows.Scan(webhookTargets(r)...)
	}, listWebhooks, id(p.Tenant), id(after), p.Limit)
	return all, err
}

// InsertWebhook implements keystore.WebhookDriver.
func (db *DB) InsertWebhook(ctx context.Context, p keystore.InsertWebhookParams) error {
	w := &p.Webhook
	return db.write(ctx, w.Tenant, func(tx transaction) error {
		_, err := tx.exec(ctx, insertWebhook, id(w.Tenant), id(w.ID), w.URL, w.Types, w.Secret, w.State, moment(w.Created), w.Revision,
			w.Code.MAC, codeVersion(w.Code))
		return err
	})
}

// UpdateWebhook implements keystore.WebhookDriver.
func (db *DB) UpdateWebhook(ctx context.Context, p keystore.UpdateWebhookParams) error {
	w := &p.Webhook
	return db.write(ctx, w.Tenant, func(tx transaction) error {
		return tx.execOne(ctx, keystore.ErrStale, updateWebhook, id(w.Tenant), id(w.ID), w.Revision-1, w.State, w.Revision,
			w.Code.MAC, codeVersion(w.Code))
	})
}

// DeleteWebhook implements keystore.WebhookDriver.
func (db *DB) DeleteWebhook(ctx context.Context, p keystore.DeleteWebhookParams) error {
	return db.write(ctx, p.Tenant, func(tx transaction) error {
		return tx.execOne(ctx, keystore.ErrMissing, deleteWebhook, id(p.Tenant), id(p.ID))
	})
}

// TouchWebhook implements keystore.WebhookDriver.
func (db *DB) TouchWebhook(ctx context.Context, p keystore.TouchWebhookParams) error {
	statement := noteFailed
	if p.Taken {
		statement = noteTaken
	}
	return db.write(ctx, p.Tenant, func(tx transaction) error {
		_, err := tx.exec(ctx, statement, id(p.Tenant), id(p.ID), moment(p.Now))
		return err
	})
}
