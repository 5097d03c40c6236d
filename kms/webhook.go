package kms

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"slices"
	"uuid"
)

// WebhookAddresses decides to which addresses events may be sent.
type WebhookAddresses interface {
	// CheckURL refuses a URL that may not be given; its error says nothing of
	// what the host resolved to.
	CheckURL(ctx context.Context, url string) error
}

// WebhookSecretPrefix begins the text of a webhook's secret, whose rest is the
// base64 of the bytes: the form of Standard Webhooks.
const WebhookSecretPrefix = "whsec_"

// webhookSecretSize is the length of a webhook's secret in bytes: that of the
// hash which it keys (RFC 2104, 3).
const webhookSecretSize = 32

// CreateWebhook makes a webhook of the caller's tenant and returns the secret
// that its deliveries are signed with, which is shown this once. The operators'
// webhooks are those of the system tenant.
func (s *Service) CreateWebhook(ctx context.Context, t *Ticket, url string, types []EventType) (w *Webhook, secret string, err error) {
	err = s.run(ctx, t, &task{op: OpCreateWebhook,
		prepare: func(t *Ticket) error {
			if err := checkEventTypes(types, t.By.Operator()); err != nil {
				return err
			}
			if err := s.addresses.CheckURL(ctx, url); err != nil {
				return Errorf(KindInvalidArgument, "url: %v", err)
			}
			w = &Webhook{ID: newID(), Tenant: t.By.Tenant.ID, URL: url, Types: slices.Clone(types), State: WebhookActive, Revision: 1}
			t.Resource = w.ID.String()
			return nil
		},
		store: func(ctx context.Context, t *Ticket) (err error) {
			raw := make([]byte, webhookSecretSize)
			rand.Read(raw)
			defer clear(raw)
			if w.Secret, err = s.device.Seal(ctx, t.By.Tenant.Sealing, WebhookSecretName(w.ID), 1, raw); err != nil {
				return err
			}
			w.Created = s.clock()
			secret = WebhookSecretPrefix + base64.StdEncoding.EncodeToString(raw)
			return s.webhooks.CreateWebhook(ctx, w)
		}})
	if err != nil {
		return nil, "", err
	}
	return w, secret, nil
}

func checkEventTypes(types []EventType, operator bool) error {
	for i, e := range types {
		info := e.Info()
		if info == nil || info.Operators && !operator {
			return Errorf(KindInvalidArgument, "types[%d]: there is no such type of events", i)
		}
		if slices.Contains(types[:i], e) {
			return Errorf(KindInvalidArgument, "types[%d]: is given twice", i)
		}
	}
	return nil
}

// DescribeWebhook returns a webhook of the caller's tenant.
func (s *Service) DescribeWebhook(ctx context.Context, t *Ticket, id string) (w *Webhook, err error) {
	err = s.run(ctx, t, &task{op: OpReadWebhook, store: func(ctx context.Context, t *Ticket) error {
		w, err = s.webhook(ctx, t, id)
		return err
	}})
	if err != nil {
		return nil, err
	}
	return w, nil
}

func (s *Service) webhook(ctx context.Context, t *Ticket, ref string) (*Webhook, error) {
	id, ok := parseRef(ref)
	if !ok {
		return nil, ErrNotFound
	}
	w, err := s.webhooks.Webhook(ctx, t.By.Tenant.ID, id)
	if err == nil {
		t.Resource, t.Revision = w.ID.String(), w.Revision
	}
	return w, err
}

// ListWebhooks returns a page of the webhooks of the caller's tenant in the
// order in which they were made.
func (s *Service) ListWebhooks(ctx context.Context, t *Ticket, page Page) (list []*Webhook, next string, err error) {
	err = s.run(ctx, t, &task{op: OpReadWebhook,
		prepare: func(*Ticket) error { return checkPage(page) },
		store: func(ctx context.Context, t *Ticket) (err error) {
			list, next, err = s.webhooks.ListWebhooks(ctx, t.By.Tenant.ID, page)
			return err
		}})
	if err != nil {
		return nil, "", err
	}
	return list, next, nil
}

// DeleteWebhook removes a webhook of the caller's tenant with what waits for it.
func (s *Service) DeleteWebhook(ctx context.Context, t *Ticket, id string) (w *Webhook, err error) {
	err = s.run(ctx, t, &task{op: OpDeleteWebhook,
		prepare: func(t *Ticket) (err error) {
			w, err = s.webhook(ctx, t, id)
			return err
		},
		store: func(ctx context.Context, t *Ticket) error {
			return concurrently(s.webhooks.DeleteWebhook(ctx, w.Tenant, w.ID))
		}})
	if err != nil {
		return nil, err
	}
	return w, nil
}

// TestWebhook sends a webhook an event of the type EventTest, whatever types it
// wants, and returns the event's id. It goes the way of all others.
func (s *Service) TestWebhook(ctx context.Context, t *Ticket, id string) (event uuid.UUID, err error) {
	var w *Webhook
	err = s.run(ctx, t, &task{op: OpTestWebhook,
		prepare: func(t *Ticket) (err error) {
			if w, err = s.webhook(ctx, t, id); err == nil && w.State != WebhookActive {
				err = Errorf(KindConflict, "the webhook is disabled")
			}
			return err
		},
		store: func(ctx context.Context, t *Ticket) error {
			e := Event{ID: newID(), Type: EventTest, Time: s.clock(), Tenant: w.Tenant, Fields: []EventField{{"webhook", w.ID.String()}}}
			event = e.ID
			d, err := e.Delivery(w)
			if err == nil {
				_, err = s.deliveries.Enqueue(ctx, w.Tenant, []Delivery{d})
			}
			return err
		}})
	return event, err
}

// ReplayWebhook is Replay for an operation on a webhook. A secret is not shown
// again.
func (s *Service) ReplayWebhook(ctx context.Context, t *Ticket, op Op, id string) (w *Webhook, err error) {
	err = s.replayOther(ctx, t, op, nil, func(t *Ticket) error {
		w, err = s.webhook(ctx, t, id)
		return err
	})
	if err != nil {
		return nil, err
	}
	return w, nil
}

func (s *Service) foundWebhook(ctx context.Context, e *Entry) string {
	id, err := uuid.Parse(e.Resource)
	if err != nil {
		return OutcomeFoundUnknown
	}
	w, err := s.webhooks.Webhook(ctx, e.Tenant, id)
	switch {
	case err == nil:
		return since(e.Revision, w.Revision)
	case KindOf(err) == KindNotFound && e.Op == OpDeleteWebhook:
		return OutcomeFoundDone
	}
	return missing(err, e.Revision)
}
