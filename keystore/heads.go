package keystore

import (
	"context"
	"math"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// Heads of journals have no code: an HSM has signed them, and whoever measures
// a journal by them checks that.

// PutJournalHead implements kms.JournalHeads.
func (s *Store) PutJournalHead(ctx context.Context, h *kms.JournalHead) error {
	if err := argument(func(fail failFunc) { checkJournalHead(h, fail) }); err != nil {
		return err
	}
	return translate(s.driver.PutJournalHead(ctx, PutJournalHeadParams{Head: JournalHeadRecord{
		Node: h.Node, Hour: hourOf(h.Signed), Sequence: h.Sequence, Hash: h.Hash[:], Signed: timestamp(h.Signed),
		Algorithm: string(h.Algorithm), KeyVersion: h.KeyVersion, Signature: h.Signature,
	}}))
}

// JournalHeads implements kms.JournalHeads.
func (s *Store) JournalHeads(ctx context.Context, node string, limit int) ([]kms.JournalHead, error) {
	if limit < 1 || limit > kms.MaxPageSize {
		return nil, errArgument("limit", reasonRange)
	}
	rows, err := s.driver.ListJournalHeads(ctx, ListJournalHeadsParams{Node: node, Limit: limit})
	if err != nil {
		return nil, translate(err)
	}
	var heads []kms.JournalHead
	for _, row := range rows {
		h, err := decodeJournalHead(row, node)
		if err != nil {
			_ = s.decoded(err)
			continue
		}
		heads = append(heads, h)
	}
	return heads, nil
}

// hourOf counts the hours since 1970.
func hourOf(t time.Time) int64 { return t.Unix() / int64(time.Hour/time.Second) }

func checkJournalHead(h *kms.JournalHead, fail failFunc) {
	switch {
	case h.Node == "" || len(h.Node) > kms.MaxNameLength || !storableText(h.Node):
		fail("node", reasonRange)
	case h.Sequence == 0 || h.Sequence > math.MaxInt64:
		fail("sequence", reasonRange)
	case h.Signed.Unix() < 0 || !h.Signed.Equal(h.Signed.Truncate(time.Microsecond)):
		fail("signed", reasonRange)
	case h.Algorithm == "" || len(h.Algorithm) > kms.MaxNameLength || !storableText(string(h.Algorithm)):
		fail("algorithm", reasonRange)
	case h.KeyVersion == 0:
		fail("key_version", reasonRange)
	case len(h.Signature) == 0 || len(h.Signature) > kms.MaxHeadSignature:
		fail("signature", reasonRange)
	}
}

func decodeJournalHead(r *JournalHeadRow, node string) (kms.JournalHead, error) {
	d := newDecoder(ObjectJournalHead, uuid.Nil(), uuid.Nil())
	h := kms.JournalHead{
		Node:       node,
		Sequence:   uint64(d.integer(r.Sequence, "sequence", 1, math.MaxInt64)),
		Signed:     d.time(r.Signed, "signed"),
		Algorithm:  kms.Algorithm(d.text(r.Algorithm, "algorithm")),
		KeyVersion: d.number(r.KeyVersion, "key_version"),
		Signature:  d.bytes(r.Signature, "signature"),
	}
	hash := d.bytes(r.Hash, "hash")
	d.require(len(hash) == len(h.Hash), "hash", "has the wrong length")
	copy(h.Hash[:], hash)
	if d.result() == nil {
		checkJournalHead(&h, d.fail)
	}
	return h, d.result()
}
