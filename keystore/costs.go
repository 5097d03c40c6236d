package keystore

import (
	"bytes"
	"context"
	"encoding/json/v2"
	"errors"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// AddCostIncident implements kms.CostIncidents. ErrNotFound when there is no
// such tenant.
func (s *Store) AddCostIncident(ctx context.Context, i *kms.CostIncident) error {
	if err := argument(func(fail failFunc) { checkCostIncident(i, fail) }); err != nil {
		return err
	}
	c, err := s.coder()
	if err != nil {
		return err
	}
	document, err := json.Marshal(i, json.Deterministic(true))
	if err != nil || len(document) > kms.MaxCostIncidentSize {
		return errArgument("incident", reasonRange)
	}
	record := CostIncidentRecord{Tenant: i.Tenant, ID: i.ID, Ended: timestamp(i.Ended), Document: document}
	if record.Code, err = c.code(codeCostIncident, record.fields()); err != nil {
		return err
	}
	err = s.driver.InsertCostIncident(ctx, InsertCostIncidentParams{Incident: record, Keep: kms.MaxCostIncidents})
	if errors.Is(err, ErrExists) {
		return nil
	}
	return translate(err)
}

// CostIncident implements kms.CostIncidents.
func (s *Store) CostIncident(ctx context.Context, tenant, id uuid.UUID) (*kms.CostIncident, error) {
	c, err := s.coder()
	if err != nil {
		return nil, err
	}
	row, err := s.driver.CostIncident(ctx, CostIncidentParams{Tenant: tenant, ID: id})
	if err != nil {
		return nil, translate(err)
	}
	i, err := decodeCostIncident(c, tenant, row, &id)
	if err != nil {
		return nil, s.decoded(err)
	}
	return i, nil
}

// ListCostIncidents implements kms.CostIncidents. Damaged ones are reported to
// the log and left out.
func (s *Store) ListCostIncidents(ctx context.Context, tenant uuid.UUID, page kms.Page) ([]*kms.CostIncident, string, error) {
	c, err := s.coder()
	if err != nil {
		return nil, "", err
	}
	if _, err := s.tenants.get(ctx, tenant); err != nil {
		return nil, "", err
	}
	l := listing[*CostIncidentRow, *kms.CostIncident]{
		scope: scope{kind: 'i', tenant: tenant},
		rows: func(ctx context.Context, after position, limit int) ([]*CostIncidentRow, error) {
			before := []byte(after.id)
			if after.id == "" {
				before = bytes.Repeat([]byte{0xff}, 16) // no UUID of version 7 is this
			}
			return s.driver.ListCostIncidents(ctx, ListCostIncidentsParams{Tenant: tenant, Before: before, Limit: limit})
		},
		rowPosition: func(r *CostIncidentRow) position { return position{id: string(r.ID.Bytes)} },
		decode:      func(r *CostIncidentRow) (*kms.CostIncident, error) { return decodeCostIncident(c, tenant, r, nil) },
		damaged:     s.damaged,
	}
	return l.page(ctx, page)
}

// NoteCostLift implements kms.CostIncidents. ErrNotFound when there is no such
// tenant.
func (s *Store) NoteCostLift(ctx context.Context, tenant uuid.UUID) error {
	c, err := s.coder()
	if err != nil {
		return err
	}
	record := CostLiftRecord{Tenant: tenant, Lifted: timestamp(s.now())}
	if record.Code, err = c.code(codeCostLift, record.fields()); err != nil {
		return err
	}
	return translate(s.driver.PutCostLift(ctx, PutCostLiftParams{Lift: record}))
}

// CostLifted implements kms.CostIncidents.
func (s *Store) CostLifted(ctx context.Context, tenant uuid.UUID) (time.Time, error) {
	c, err := s.coder()
	if err != nil {
		return time.Time{}, err
	}
	row, err := s.driver.CostLift(ctx, CostLiftParams{Tenant: tenant})
	if errors.Is(err, ErrMissing) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, translate(err)
	}
	d := newDecoder(ObjectCostLift, tenant, tenant)
	record := CostLiftRecord{Tenant: tenant, Lifted: timestamp(d.time(row.Lifted, "lifted"))}
	c.check(d, codeCostLift, record.fields(), row.Code)
	if err := d.result(); err != nil {
		return time.Time{}, s.decoded(err)
	}
	return timeOfDocument(record.Lifted), nil
}

func checkCostIncident(i *kms.CostIncident, fail failFunc) {
	switch {
	case i.ID == uuid.Nil():
		fail("id", reasonMissing)
	case i.Tenant == uuid.Nil():
		fail("tenant", reasonMissing)
	case i.Began.IsZero() || i.Ended.Before(i.Began):
		fail("ended", reasonRange)
	}
}

func decodeCostIncident(c *rowCoder, tenant uuid.UUID, row *CostIncidentRow, want *uuid.UUID) (*kms.CostIncident, error) {
	d := newDecoder(ObjectCostIncident, tenant, rowID(row.ID))
	record := CostIncidentRecord{Tenant: tenant, ID: d.id(row.ID, "id"), Ended: timestamp(d.time(row.Ended, "ended")), Document: d.bytes(row.Document, "document")}
	d.wanted(record.ID, want)
	if d.result() == nil {
		// Before what it says is looked at.
		c.check(d, codeCostIncident, record.fields(), row.Code)
	}
	if d.result() != nil {
		return nil, d.result()
	}
	i := new(kms.CostIncident)
	if err := json.Unmarshal(record.Document, i); err != nil {
		d.fail("document", reasonFormat)
		return nil, d.result()
	}
	checkCostIncident(i, d.fail)
	return i, d.result()
}

func (r *CostIncidentRecord) fields() fields {
	return fields{}.id(r.Tenant).id(r.ID).time(r.Ended).bytes(r.Document)
}

func (r *CostLiftRecord) fields() fields { return fields{}.id(r.Tenant).time(r.Lifted) }
