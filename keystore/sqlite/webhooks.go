package sqlite

import (
	"context"
	"database/sql"

	"github.com/sluice-kms/sluice/keystore"
)

const (
	webhookColumns = `id, url, types, secret, state, created, revision, failing_since, delivered, mac, mac_version`

	selectWebhook = `SELECT ` + webhookColumns + ` FROM webhooks WHERE tenant = ? AND id = ?`
	listWebhooks  = `SELECT ` + webhookColumns + ` FROM webhooks WHERE tenant = ? AND id > ? ORDER BY id LIMIT ?`
	insertWebhook = `INSERT INTO webhooks (tenant, id, url, types, secret, state, created, revision, mac, mac_version)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
	updateWebhook = `UPDATE webhooks SET state = ?, revision = ?, mac = ?, mac_version = ?
		WHERE tenant = ? AND id = ? AND revision = ?`
	deleteWebhook = `DELETE FROM webhooks WHERE tenant = ? AND id = ?`
	noteTaken     = `UPDATE webhooks SET delivered = ?, failing_since = NULL WHERE tenant = ? AND id = ?`
	noteFailed    = `UPDATE webhooks SET failing_since = ? WHERE tenant = ? AND id = ? AND failing_since IS NULL`
)

func webhookTargets(r *keystore.WebhookRow) []any {
	return []any{&r.ID, &r.URL, &r.Types, &r.Secret, &r.State, &r.Created, &r.Revision, &r.FailingSince, &r.Delivered,
		&r.Code.MAC, &r.Code.Version}
}

// Webhook implements keystore.WebhookDriver.
func (db *DB) Webhook(ctx context.Context, p keystore.WebhookParams) (*keystore.WebhookRow, error) {
	var r keystore.WebhookRow
	err := db.row(ctx, selectWebhook, p.Tenant[:], p.ID[:]).Scan(webhookTargets(&r)...)
	return &r, db.translate(err)
}

// ListWebhooks implements keystore.WebhookDriver.
func (db *DB) ListWebhooks(ctx context.Context, p keystore.ListWebhooksParams) (all []*keystore.WebhookRow, err error) {
	after := p.After
	if after == nil {
		after = []byte{} // a comparison with NULL finds nothing
	}
	err = db.list(ctx, func(rows *sql.Rows) error {
		r := new(keystore.WebhookRow)
		all = append(all, r)
		return rows.Scan(webhookTargets(r)...)
	}, listWebhooks, p.Tenant[:], after, p.Limit)
	return all, err
}

// InsertWebhook implements keystore.WebhookDriver.
func (db *DB) InsertWebhook(ctx context.Context, p keystore.InsertWebhookParams) error {
	w := &p.Webhook
	return db.write(ctx, func(tx transaction) error {
		_, err := tx.exec(ctx, insertWebhook, w.Tenant[:], w.ID[:], w.URL, w.Types, w.Secret, w.State, w.Created, w.Revision,
			w.Code.MAC, codeVersion(w.Code))
		return err
	})
}

// UpdateWebhook implements keystore.WebhookDriver.
func (db *DB) UpdateWebhook(ctx context.Context, p keystore.UpdateWebhookParams) error {
	w := &p.Webhook
	return db.write(ctx, func(tx transaction) error {
		return tx.execOne(ctx, keystore.ErrStale, updateWebhook, w.State, w.Revision, w.Code.MAC, codeVersion(w.Code),
			w.Tenant[:], w.ID[:], w.Revision-1)
	})
}

// DeleteWebhook implements keystore.WebhookDriver.
func (db *DB) DeleteWebhook(ctx context.Context, p keystore.DeleteWebhookParams) error {
	return db.write(ctx, func(tx transaction) error {
		return tx.execOne(ctx, keystore.ErrMissing, deleteWebhook, p.Tenant[:], p.ID[:])
	})
}

// TouchWebhook implements keystore.WebhookDriver.
func (db *DB) TouchWebhook(ctx context.Context, p keystore.TouchWebhookParams) error {
	statement := noteFailed
	if p.Taken {
		statement = noteTaken
	}
	return db.write(ctx, func(tx transaction) error {
		_, err := tx.exec(ctx, statement, p.Now, p.Tenant[:], p.ID[:])
		return err
	})
}
