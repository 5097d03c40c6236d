package keystore

import (
	"context"
	"encoding/json/v2"
	"errors"
	"slices"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// guardDocument is what is known against a credential, as it is stored: JSON in
// its one encoding.
type guardDocument struct {
	Flagged  Timestamp         `json:"flagged,omitzero"`
	Action   string            `json:"action,omitzero"`
	Readings []readingDocument `json:"readings,omitempty"`
	Ends     Timestamp         `json:"ends,omitzero"`
	Cleared  Timestamp         `json:"cleared,omitzero"`
	Proven   Timestamp         `json:"proven,omitzero"`
	Code     *codeDocument     `json:"code,omitzero"`
}

type readingDocument struct {
	Signal string `json:"signal"`
	Value  int64  `json:"value"`
	Usual  int64  `json:"usual"`
	Gross  bool   `json:"gross,omitzero"`
}

type codeDocument struct {
	Sealed  []byte    `json:"sealed"`
	Version uint32    `json:"version"`
	Created Timestamp `json:"created"`
	Step    uint64    `json:"step,omitzero"`
}

// encodeGuard encodes what is known, nil for nothing.
func encodeGuard(g *kms.Guard) ([]byte, error) {
	if g == nil {
		return nil, nil
	}
	d := guardDocument{Flagged: documentTime(g.Flagged), Action: string(g.Action), Ends: documentTime(g.Ends),
		Cleared: documentTime(g.Cleared), Proven: documentTime(g.Proven)}
	for _, r := range g.Readings {
		d.Readings = append(d.Readings, readingDocument{string(r.Signal), r.Value, r.Usual, r.Gross})
	}
	if c := g.Code; c != nil {
		d.Code = &codeDocument{Sealed: c.Sealed, Version: c.Version, Created: documentTime(c.Created), Step: c.Step}
	}
	document, err := json.Marshal(&d, json.Deterministic(true))
	if err != nil {
		return nil, errArgument("guard", "is not text")
	}
	return document, nil
}

// guard decodes what is known against a credential. It must be in its one
// encoding, as the row's code is checked over that.
func (d *decoder) guard(c Bytes, column string) *kms.Guard {
	if c.Null {
		return nil
	}
	var doc guardDocument
	if err := json.Unmarshal(d.bytes(c, column), &doc, json.RejectUnknownMembers(true)); err != nil {
		d.fail(column, reasonFormat)
		return nil
	}
	g := &kms.Guard{Flagged: timeOfDocument(doc.Flagged), Action: kms.AbuseAction(word(doc.Action)), Ends: timeOfDocument(doc.Ends),
		Cleared: timeOfDocument(doc.Cleared), Proven: timeOfDocument(doc.Proven)}
	for _, r := range doc.Readings {
		g.Readings = append(g.Readings, kms.AbuseReading{Signal: kms.AbuseSignal(word(r.Signal)), Value: r.Value, Usual: r.Usual, Gross: r.Gross})
	}
	if c := doc.Code; c != nil {
		g.Code = &kms.OneTimeKey{Sealed: c.Sealed, Version: c.Version, Created: timeOfDocument(c.Created), Step: c.Step}
	}
	return g
}

// storedGuard is a copy with its times as they are stored.
func storedGuard(g *kms.Guard) *kms.Guard {
	stored := *g
	stored.Readings = slices.Clone(g.Readings)
	stored.Flagged, stored.Ends, stored.Cleared, stored.Proven = storedTime(g.Flagged), storedTime(g.Ends), storedTime(g.Cleared), storedTime(g.Proven)
	if g.Code != nil {
		code := *g.Code
		code.Created = storedTime(code.Created)
		stored.Code = &code
	}
	return &stored
}

func checkGuard(g *kms.Guard, fail failFunc) {
	switch {
	case g == nil:
	case (g.Flagged.IsZero()) != (g.Action == "") || g.Action != "" && !slices.Contains(kms.AbuseActions(), g.Action):
		fail("guard", "has an unknown action")
	case len(g.Readings) > kms.MaxAbuseReadings:
		fail("guard", reasonRange)
	case g.Code != nil && (g.Code.Version == 0 || len(g.Code.Sealed) == 0 || len(g.Code.Sealed) > maxSealedCode):
		fail("guard", "has a one-time key that is none")
	}
}

// maxSealedCode bounds a sealed key of one-time codes, of which 20 bytes are
// the key.
const maxSealedCode = 4096

// The parameters and rows of baselines.
type (
	BaselineParams struct{ Tenant, Credential uuid.UUID }
	// PutBaselinesParams has them ordered by tenant.
	PutBaselinesParams struct{ Baselines []BaselineRecord }
)

// BaselineRecord is a baseline as it is written.
type BaselineRecord struct {
	Tenant, Credential uuid.UUID
	Document           []byte
	Stored             Timestamp
	Code               Code
}

// BaselineRow is a baseline as it was found.
type BaselineRow struct {
	Document Bytes
	Stored   Integer
	Code     CodeRow
}

func (r *BaselineRecord) fields() fields {
	return fields{}.id(r.Tenant).id(r.Credential).bytes(r.Document).time(r.Stored)
}

// Baseline implements kms.CredentialBaselines. A damaged one is reported to the
// log; then nothing is known, and the next one replaces it.
func (s *Store) Baseline(ctx context.Context, tenant, credential uuid.UUID) ([]byte, error) {
	c, err := s.coder()
	if err != nil {
		return nil, err
	}
	row, err := s.driver.Baseline(ctx, BaselineParams{Tenant: tenant, Credential: credential})
	if errors.Is(err, ErrMissing) {
		return nil, nil
	}
	if err != nil {
		return nil, translate(err)
	}
	d := newDecoder(ObjectBaseline, tenant, credential)
	record := BaselineRecord{Tenant: tenant, Credential: credential, Document: d.bytes(row.Document, "document"), Stored: timestamp(d.time(row.Stored, "stored"))}
	if d.result() == nil {
		c.check(d, codeBaseline, record.fields(), row.Code)
	}
	if err := d.result(); err != nil {
		s.damaged(err)
		return nil, nil
	}
	return record.Document, nil
}

// PutBaselines implements kms.CredentialBaselines.
func (s *Store) PutBaselines(ctx context.Context, list []kms.StoredBaseline) error {
	c, err := s.coder()
	if err != nil {
		return err
	}
	now := timestamp(s.now())
	p := PutBaselinesParams{Baselines: make([]BaselineRecord, len(list))}
	for i, b := range list {
		if len(b.Document) == 0 || len(b.Document) > kms.MaxBaseline {
			return errArgument("baseline", reasonRange)
		}
		r := BaselineRecord{Tenant: b.Tenant, Credential: b.Credential, Document: b.Document, Stored: now}
		if r.Code, err = c.code(codeBaseline, r.fields()); err != nil {
			return err
		}
		p.Baselines[i] = r
	}
	slices.SortFunc(p.Baselines, func(a, b BaselineRecord) int { return a.Tenant.Compare(b.Tenant) })
	return translate(s.driver.PutBaselines(ctx, p))
}
