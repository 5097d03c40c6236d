package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sluice-kms/sluice/keystore"
)

// The record of changes is for all tenants.
const (
	// One statement has one snapshot, which is both what it shows and where the
	// next one begins. The condition on xid finds the rows by their index; the
	// other one leaves out those that the last snapshot showed. Without a last
	// snapshot there is nothing to show.
	selectChanges = `SELECT s.snapshot::text, pg_postmaster_start_time()::text, c.object, c.tenant, c.id, c.name, c.revision
		FROM (SELECT pg_current_snapshot() AS snapshot, nullif($1, '')::pg_snapshot AS since) s
		LEFT JOIN changes c ON c.xid >= pg_snapshot_xmin(s.since) AND NOT pg_visible_in_snapshot(c.xid, s.since)
		LIMIT $2`
	// Rows are found by their places, an array of which is read in order, so that
	// processes which remove the same ones wait for each other and cannot lock
	// each other out. They never move: changes are not changed.
	deleteOldChanges = `DELETE FROM changes WHERE ctid = ANY
		(ARRAY(SELECT ctid FROM changes WHERE made <= $1 ORDER BY made LIMIT $2))`
	listenToChanges = `LISTEN sluice_changes`
	answer          = `SELECT 1`
)

const (
	// quiet is how long no announcement may come before the connection is
	// asked whether it still is one.
	quiet = 10 * time.Second
	// answerTimeout is how long it has to answer.
	answerTimeout = 2 * time.Second
)

// Changes implements keystore.ChangeDriver.
func (db *DB) Changes(ctx context.Context, p keystore.ChangesParams) (*keystore.ChangesResult, error) {
	r := new(keystore.ChangesResult)
	err := db.list(ctx, everybody, func(rows pgx.Rows) error {
		var c keystore.ChangeRow
		err := rows.Scan(&r.Position, &r.Server, &c.Object, idColumn{&c.Tenant}, idColumn{&c.ID}, &c.Name, &c.Revision)
		if err == nil && !c.Object.Null {
			r.Changes = append(r.Changes, c)
		}
		return err
	}, selectChanges, p.Since, p.Limit)
	return r, err
}

// DeleteOldChanges implements keystore.ChangeDriver.
func (db *DB) DeleteOldChanges(ctx context.Context, p keystore.DeleteOldChangesParams) (removed int, err error) {
	err = db.write(ctx, everybody, func(tx transaction) error {
		n, err := tx.exec(ctx, deleteOldChanges, moment(p.Before), p.Limit)
		removed = int(n)
		return err
	})
	return removed, err
}

// Announcements implements keystore.ChangeDriver. It has a connection of its
// own, which it makes and closes.
func (db *DB) Announcements(ctx context.Context, announce func()) error {
	conn, err := pgx.ConnectConfig(ctx, db.listen)
	if err != nil {
		return translate(err)
	}
	defer func() {
		// The end of ctx must not keep the server from learning of it.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerTimeout)
		defer cancel()
		_ = conn.Close(ctx) // it may be lost already
	}()
	if _, err := conn.Exec(ctx, listenToChanges); err != nil {
		return translate(err)
	}
	announce() // of what changed before it could be heard
	for {
		switch err := hear(ctx, conn); {
		case err == nil:
			announce()
		case ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded):
			return translate(err)
		default:
			if err := ask(ctx, conn); err != nil {
				return translate(err)
			}
		}
	}
}

// hear waits for an announcement, for a while.
func hear(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, quiet)
	defer cancel()
	_, err := conn.WaitForNotification(ctx)
	return err
}

// ask finds out whether the server is still there.
func ask(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	_, err := conn.Exec(ctx, answer)
	return err
}
