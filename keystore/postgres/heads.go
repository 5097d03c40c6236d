package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/sluice-kms/sluice/keystore"
)

// Signed heads of journals are the operators', of no tenant. A head takes the
// place of an earlier one of its hour, or of itself, and of nothing else.
const (
	listJournalHeads = `SELECT sequence, hash, signed, algorithm, key_version, signature FROM journal_heads
		WHERE node = $1 ORDER BY hour DESC LIMIT $2`
	putJournalHead = `INSERT INTO journal_heads AS h (node, hour, sequence, hash, signed, algorithm, key_version, signature)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
		ON CONFLICT (node, hour) DO UPDATE SET sequence = excluded.sequence, hash = excluded.hash, signed = excluded.signed,
			algorithm = excluded.algorithm, key_version = excluded.key_version, signature = excluded.signature
		WHERE h.sequence < excluded.sequence OR h.sequence = excluded.sequence AND h.hash = excluded.hash`
)

// ListJournalHeads implements keystore.JournalHeadDriver.
func (db *DB) ListJournalHeads(ctx context.Context, p keystore.ListJournalHeadsParams) (all []*keystore.JournalHeadRow, err error) {
	err = db.list(ctx, everybody, func(rows pgx.Rows) error {
		r := new(keystore.JournalHeadRow)
		all = append(all, r)
		return rows.Scan(&r.Sequence, &r.Hash, timeColumn{&r.Signed}, &r.Algorithm, &r.KeyVersion, &r.Signature)
	}, listJournalHeads, p.Node, p.Limit)
	return all, err
}

// PutJournalHead implements keystore.JournalHeadDriver.
func (db *DB) PutJournalHead(ctx context.Context, p keystore.PutJournalHeadParams) error {
	h := &p.Head
	return db.write(ctx, everybody, func(tx transaction) error {
		return tx.execOne(ctx, keystore.ErrStale, putJournalHead,
			h.Node, h.Hour, h.Sequence, h.Hash, moment(h.Signed), h.Algorithm, h.KeyVersion, h.Signature)
	})
}
