package keystore

import (
	"cmp"
	"context"
	"encoding/json" // which, unlike its second version, has a form for durations
	"slices"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// maxRecordDocument bounds the document of a request's record in bytes: sixteen
// reasons with their numbers and a name of the longest.
const maxRecordDocument = 8192

// StoreRecords implements kms.RequestRecords. A record that is too large is
// left out.
func (s *Store) StoreRecords(ctx context.Context, records []kms.RequestRecord) error {
	if _, err := s.coder(); err != nil {
		return err
	}
	rows := make([]RequestRecordRecord, 0, len(records))
	for i := range records {
		r := &records[i]
		document, err := json.Marshal(r)
		if err != nil {
			return errArgument("record", reasonFormat)
		}
		if len(document) <= maxRecordDocument {
			rows = append(rows, RequestRecordRecord{Tenant: r.Tenant, Request: r.RequestID, Document: document,
				Expires: timestamp(r.Time.Add(kms.RecordsKept))})
		}
	}
	slices.SortFunc(rows, func(a, b RequestRecordRecord) int {
		return cmp.Or(a.Tenant.Compare(b.Tenant), a.Request.Compare(b.Request))
	})
	return translate(s.driver.InsertRequestRecords(ctx, InsertRequestRecordsParams{Records: rows}))
}

// RequestRecord implements kms.RequestRecords.
func (s *Store) RequestRecord(ctx context.Context, tenant, request uuid.UUID) (*kms.RequestRecord, error) {
	if _, err := s.coder(); err != nil {
		return nil, err
	}
	row, err := s.driver.RequestRecord(ctx, RequestRecordParams{Tenant: tenant, Request: request, Now: timestamp(s.now())})
	if err != nil {
		return nil, translate(err)
	}
	return s.decodeRequestRecord(row, request)
}

// AnyRequestRecord implements kms.RequestRecords.
func (s *Store) AnyRequestRecord(ctx context.Context, request uuid.UUID) (*kms.RequestRecord, error) {
	if _, err := s.coder(); err != nil {
		return nil, err
	}
	row, err := s.driver.AnyRequestRecord(ctx, AnyRequestRecordParams{Request: request, Now: timestamp(s.now())})
	if err != nil {
		return nil, translate(err)
	}
	return s.decodeRequestRecord(row, request)
}

// decodeRequestRecord believes the row's tenant, by which it was found, and not
// the document's.
func (s *Store) decodeRequestRecord(row *RequestRecordRow, request uuid.UUID) (*kms.RequestRecord, error) {
	d := newDecoder(ObjectRequestRecord, uuid.Nil(), request)
	record := new(kms.RequestRecord)
	tenant := d.id(row.Tenant, "tenant")
	if document := d.bytes(row.Document, "document"); d.result() == nil {
		d.require(json.Unmarshal(document, record) == nil, "document", reasonFormat)
		d.require(record.RequestID == request, "document", "is another's")
	}
	if err := d.result(); err != nil {
		return nil, s.decoded(err)
	}
	record.Tenant = tenant
	return record, nil
}
