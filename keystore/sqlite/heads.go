package sqlite

import (
	"context"
	"database/sql"

	"github.com/sluice-kms/sluice/keystore"
)

// Signed heads of journals are the operators', of no tenant. A head takes the
// place of an earlier one of its hour, or of itself, and of nothing else.
const (
	listJournalHeads = `SELECT sequence, hash, signed, algorithm, key_version, signature FROM journal_heads
		WHERE node = ? ORDER BY hour DESC LIMIT ?`
	putJournalHead = `INSERT INTO journal_heads (node, hour, sequence, hash, signed, algorithm, key_version, signature)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (node, hour) DO UPDATE SET sequence = excluded.sequence, hash = excluded.hash, signed = excluded.signed,
			algorithm = excluded.algorithm, key_version = excluded.key_version, signature = excluded.signature
		WHERE sequence < excluded.sequence OR sequence = excluded.sequence AND hash = excluded.hash`
)

// ListJournalHeads implements keystore.JournalHeadDriver.
func (db *DB) ListJournalHeads(ctx context.Context, p keystore.ListJournalHeadsParams) (all []*keystore.JournalHeadRow, err error) {
	err = db.list(ctx, func(rows *sql.Rows) error {
		r := new(keystore.JournalHeadRow)
		all = append(all, r)
		return rows.Scan(&r.Sequence, &r.Hash, &r.Signed, &r.Algorithm, &r.KeyVersion, &r.Signature)
	}, listJournalHeads, p.Node, p.Limit)
	return all, err
}

// PutJournalHead implements keystore.JournalHeadDriver.
func (db *DB) PutJournalHead(ctx context.Context, p keystore.PutJournalHeadParams) error {
	h := &p.Head
	return db.write(ctx, func(tx transaction) error {
		return tx.execOne(ctx, keystore.ErrStale, putJournalHead,
			h.Node, h.Hour, h.Sequence, h.Hash, h.Signed, h.Algorithm, h.KeyVersion, h.Signature)
	})
}
