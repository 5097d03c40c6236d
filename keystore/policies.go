package keystore

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"math"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// A policy's code covers the digest of its document instead of the document,
// so that a list can be authenticated without reading a megabyte a row.

// NewestPolicy implements kms.Policies.
func (s *Store) NewestPolicy(ctx context.Context) (uint64, error) {
	if _, err := s.coder(); err != nil {
		return 0, err
	}
	found, err := s.driver.NewestPolicy(ctx)
	switch {
	case errors.Is(err, ErrMissing):
		return 0, nil
	case err != nil:
		return 0, translate(err)
	}
	d := newDecoder(ObjectPolicy, uuid.Nil(), uuid.Nil())
	version := d.policyVersion(found)
	return version, s.decoded(d.result())
}

// Policy implements kms.Policies.
func (s *Store) Policy(ctx context.Context, version uint64) (*kms.PolicyVersion, error) {
	c, err := s.coder()
	if err != nil {
		return nil, err
	}
	if version == 0 || version > math.MaxInt64 {
		return nil, kms.ErrNotFound
	}
	row, err := s.driver.Policy(ctx, PolicyParams{Version: version})
	if err != nil {
		return nil, translate(err)
	}
	p, err := decodePolicy(c, row, true)
	if err != nil {
		return nil, s.decoded(err)
	}
	return p, nil
}

// ListPolicies implements kms.Policies. Damaged versions are reported to the
// log and left out.
func (s *Store) ListPolicies(ctx context.Context, page kms.Page) ([]*kms.PolicyVersion, string, error) {
	c, err := s.coder()
	if err != nil {
		return nil, "", err
	}
	l := listing[*PolicyRow, *kms.PolicyVersion]{
		scope: scope{kind: 'y'},
		rows: func(ctx context.Context, after position, limit int) ([]*PolicyRow, error) {
			return s.driver.ListPolicies(ctx, ListPoliciesParams{Before: beforePosition(after), Limit: limit})
		},
		rowPosition: func(r *PolicyRow) position { return policyPosition(uint64(r.Version.Int64)) },
		decode:      func(r *PolicyRow) (*kms.PolicyVersion, error) { return decodePolicy(c, r, false) },
		damaged:     s.damaged,
	}
	return l.page(ctx, page)
}

// policyPosition makes positions that ascend while versions descend.
func policyPosition(version uint64) position {
	return position{id: string(binary.BigEndian.AppendUint64(nil, math.MaxUint64-version))}
}

// beforePosition is the version that policyPosition made a position of, and
// one above all for the beginning of the list.
func beforePosition(p position) uint64 {
	if len(p.id) != 8 {
		return math.MaxInt64
	}
	return min(math.MaxUint64-binary.BigEndian.Uint64([]byte(p.id)), math.MaxInt64)
}

// PutPolicy implements kms.Policies.
func (s *Store) PutPolicy(ctx context.Context, p *kms.PolicyVersion) error {
	if err := argument(func(fail failFunc) { checkPolicy(p, fail); checkDocument(p, fail) }); err != nil {
		return err
	}
	c, err := s.coder()
	if err != nil {
		return err
	}
	newest, err := s.NewestPolicy(ctx)
	if err != nil {
		return err
	}
	if newest != p.Version-1 {
		return errRevision()
	}
	record := encodePolicy(p)
	if record.Code, err = c.code(codePolicy, record.fields()); err != nil {
		return err
	}
	err = s.driver.InsertPolicy(ctx, InsertPolicyParams{Policy: record, Document: p.Document})
	if errors.Is(err, ErrExists) {
		err = ErrStale // another one was first
	}
	if err == nil {
		s.known.raise(rowOfPolicy, p.Version)
	}
	return translate(err)
}

func checkPolicy(p *kms.PolicyVersion, fail failFunc) {
	switch {
	case p.Version == 0 || p.Version > math.MaxInt64:
		fail("version", reasonRange)
	case len(p.Comment) > kms.MaxPolicyComment || !storableText(p.Comment):
		fail("comment", reasonRange)
	case p.Created.IsZero():
		fail("created", reasonMissing)
	case p.By == uuid.Nil():
		fail("created_by", reasonMissing)
	}
}

func checkDocument(p *kms.PolicyVersion, fail failFunc) {
	switch {
	case len(p.Document) == 0 || len(p.Document) > kms.MaxPolicyDocument:
		fail("document", reasonRange)
	case sha256.Sum256(p.Document) != p.Digest:
		fail("document", "is not that of its digest")
	}
}

func encodePolicy(p *kms.PolicyVersion) PolicyRecord {
	return PolicyRecord{Version: p.Version, Digest: p.Digest[:], Comment: p.Comment, Created: timestamp(p.Created), By: p.By}
}

func (d *decoder) policyVersion(c Integer) uint64 {
	return uint64(d.integer(c, "version", 1, math.MaxInt64))
}

// decodePolicy decodes a version; rows of lists have no document.
func decodePolicy(c *rowCoder, r *PolicyRow, whole bool) (*kms.PolicyVersion, error) {
	d := newDecoder(ObjectPolicy, uuid.Nil(), uuid.Nil())
	p := &kms.PolicyVersion{
		Version: d.policyVersion(r.Version),
		Comment: d.maybeBlank(r.Comment, "comment"),
		Created: d.time(r.Created, "created"),
		By:      d.id(r.By, "created_by"),
	}
	digest := d.bytes(r.Digest, "digest")
	d.require(len(digest) == len(p.Digest), "digest", "has the wrong length")
	copy(p.Digest[:], digest)
	if d.result() == nil {
		checkPolicy(p, d.fail)
	}
	if d.result() == nil {
		record := encodePolicy(p)
		c.check(d, codePolicy, record.fields(), r.Code)
	}
	if whole && d.result() == nil {
		p.Document = d.bytes(r.Document, "document")
		checkDocument(p, d.fail)
	}
	return p, d.result()
}
