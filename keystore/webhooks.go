package keystore

import (
	"context"
	"encoding/json/v2"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// CreateWebhook implements kms.Webhooks. ErrNotFound when there is no such
// tenant. Of several at once, more than the last free places can be taken.
func (s *Store) CreateWebhook(ctx context.Context, w *kms.Webhook) error {
	if _, err := s.coder(); err != nil {
		return err
	}
	err := argument(func(fail failFunc) {
		if w.Revision != 1 {
			fail("revision", "must be 1")
		}
		checkWebhook(w, fail)
	})
	if err != nil {
		return err
	}
	rows, err := s.driver.ListWebhooks(ctx, ListWebhooksParams{Tenant: w.Tenant, Limit: kms.MaxWebhooks})
	switch {
	case err != nil:
		return translate(err)
	case len(rows) == kms.MaxWebhooks:
		return kms.Errorf(kms.KindConflict, "the tenant has %d webhooks already", kms.MaxWebhooks)
	}
	record, err := s.webhookRecord(w)
	if err != nil {
		return err
	}
	return translate(s.driver.InsertWebhook(ctx, InsertWebhookParams{Webhook: record}))
}

// webhookRecord is a webhook as it is written, with its code.
func (s *Store) webhookRecord(w *kms.Webhook) (WebhookRecord, error) {
	c, err := s.coder()
	if err != nil {
		return WebhookRecord{}, err
	}
	record, err := encodeWebhook(w)
	if err != nil {
		return WebhookRecord{}, err
	}
	record.Code, err = c.code(codeWebhook, record.fields())
	return record, err
}

// Webhook implements kms.Webhooks.
func (s *Store) Webhook(ctx context.Context, tenant, id uuid.UUID) (*kms.Webhook, error) {
	c, err := s.coder()
	if err != nil {
		return nil, err
	}
	row, err := s.driver.Webhook(ctx, WebhookParams{Tenant: tenant, ID: id})
	if err != nil {
		return nil, translate(err)
	}
	w, err := decodeWebhook(c, tenant, row, &id)
	if err != nil {
		return nil, s.decoded(err)
	}
	return w, nil
}

// ListWebhooks implements kms.Webhooks. Damaged ones are reported to the log
// and left out.
func (s *Store) ListWebhooks(ctx context.Context, tenant uuid.UUID, page kms.Page) ([]*kms.Webhook, string, error) {
	c, err := s.coder()
	if err != nil {
		return nil, "", err
	}
	if _, err := s.tenants.get(ctx, tenant); err != nil {
		return nil, "", err
	}
	l := listing[*WebhookRow, *kms.Webhook]{
		scope: scope{kind: 'w', tenant: tenant},
		rows: func(ctx context.Context, after position, limit int) ([]*WebhookRow, error) {
			return s.driver.ListWebhooks(ctx, ListWebhooksParams{Tenant: tenant, After: []byte(after.id), Limit: limit})
		},
		rowPosition: func(r *WebhookRow) position { return position{id: string(r.ID.Bytes)} },
		decode:      func(r *WebhookRow) (*kms.Webhook, error) { return decodeWebhook(c, tenant, r, nil) },
		damaged:     s.damaged,
	}
	return l.page(ctx, page)
}

// DisableWebhook implements kms.Webhooks.
func (s *Store) DisableWebhook(ctx context.Context, tenant, id uuid.UUID, revision uint64) error {
	w, err := s.Webhook(ctx, tenant, id)
	if err != nil {
		return err
	}
	if w.Revision != revision {
		return errRevision()
	}
	w.State = kms.WebhookDisabled
	w.Revision++
	record, err := s.webhookRecord(w)
	if err != nil {
		return err
	}
	if err := s.driver.UpdateWebhook(ctx, UpdateWebhookParams{Webhook: record}); err != nil {
		return translate(err)
	}
	s.known.raise(rowOf(ObjectWebhook, tenant, id), w.Revision)
	return nil
}

// DeleteWebhook implements kms.Webhooks.
func (s *Store) DeleteWebhook(ctx context.Context, tenant, id uuid.UUID) error {
	if _, err := s.coder(); err != nil {
		return err
	}
	if err := s.driver.DeleteWebhook(ctx, DeleteWebhookParams{Tenant: tenant, ID: id}); err != nil {
		return translate(err)
	}
	s.known.raise(rowOf(ObjectWebhook, tenant, id), kms.RowRemoved)
	return nil
}

// NoteDelivery implements kms.Deliveries. A webhook that is gone is none to
// note anything of.
func (s *Store) NoteDelivery(ctx context.Context, tenant, webhook uuid.UUID, taken bool) error {
	if _, err := s.coder(); err != nil {
		return err
	}
	return translate(s.driver.TouchWebhook(ctx, TouchWebhookParams{Tenant: tenant, ID: webhook, Taken: taken, Now: timestamp(s.now())}))
}

func checkWebhook(w *kms.Webhook, fail failFunc) {
	switch {
	case w.ID == uuid.Nil():
		fail("id", reasonMissing)
	case w.Tenant == uuid.Nil():
		fail("tenant", reasonMissing)
	case w.URL == "" || len(w.URL) > kms.MaxWebhookURL || !storableText(w.URL):
		fail("url", reasonRange)
	case len(w.Secret) == 0:
		fail("secret", reasonMissing)
	case w.State != kms.WebhookActive && w.State != kms.WebhookDisabled:
		fail("state", reasonUnknown)
	case w.Created.IsZero():
		fail("created", reasonMissing)
	}
	for _, t := range w.Types {
		if t == "" || !storableText(string(t)) {
			fail("types", reasonFormat)
		}
	}
}

func encodeWebhook(w *kms.Webhook) (WebhookRecord, error) {
	types := w.Types
	if types == nil {
		types = []kms.EventType{}
	}
	text, err := json.Marshal(types)
	if err != nil {
		return WebhookRecord{}, errArgument("types", "are not text")
	}
	return WebhookRecord{Tenant: w.Tenant, ID: w.ID, URL: w.URL, Types: string(text), Secret: w.Secret, State: string(w.State),
		Created: timestamp(w.Created), Revision: w.Revision}, nil
}

// decodeWebhook keeps types that this version does not know: they want no event
// that it sends.
func decodeWebhook(c *rowCoder, tenant uuid.UUID, r *WebhookRow, want *uuid.UUID) (*kms.Webhook, error) {
	d := newDecoder(ObjectWebhook, tenant, rowID(r.ID))
	w := &kms.Webhook{
		ID: d.id(r.ID, "id"), Tenant: tenant,
		URL:          d.text(r.URL, "url"),
		Secret:       d.bytes(r.Secret, "secret"),
		State:        kms.WebhookState(d.text(r.State, "state")),
		Created:      d.time(r.Created, "created"),
		Revision:     d.revision(r.Revision),
		FailingSince: d.maybeTime(r.FailingSince, "failing_since"),
		Delivered:    d.maybeTime(r.Delivered, "delivered"),
	}
	for _, t := range d.strings(r.Types, "types") {
		w.Types = append(w.Types, kms.EventType(t))
	}
	d.wanted(w.ID, want)
	if d.result() == nil {
		checkWebhook(w, d.fail)
	}
	if d.result() == nil {
		record, err := encodeWebhook(w)
		d.require(err == nil, "types", reasonFormat)
		c.check(d, codeWebhook, record.fields(), r.Code)
		c.current(d, rowOf(ObjectWebhook, tenant, w.ID), w.Revision)
	}
	return w, d.result()
}
