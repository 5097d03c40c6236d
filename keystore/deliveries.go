package keystore

import (
	"context"
	"math"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// Enqueue implements kms.Deliveries. A webhook that is gone gets nothing.
func (s *Store) Enqueue(ctx context.Context, tenant uuid.UUID, list []kms.Delivery) (dropped int, err error) {
	c, err := s.coder()
	if err != nil {
		return 0, err
	}
	p := InsertDeliveriesParams{Tenant: tenant, Keep: kms.MaxWaiting}
	for i := range list {
		d := list[i]
		d.Created = storedTime(d.Created)
		err := argument(func(fail failFunc) {
			if d.Tenant != tenant {
				fail("tenant", "is another")
			}
			checkDelivery(&d, fail)
		})
		if err != nil {
			return 0, err
		}
		record := encodeDelivery(&d)
		if record.Code, err = c.code(codeDelivery, record.fields()); err != nil {
			return 0, err
		}
		p.Deliveries = append(p.Deliveries, record)
	}
	dropped, err = s.driver.InsertDeliveries(ctx, p)
	return dropped, translate(err)
}

// ClaimDeliveries implements kms.Deliveries. Damaged ones are reported to the
// log and left out, each time that they are due.
func (s *Store) ClaimDeliveries(ctx context.Context, lease time.Duration, busy []uuid.UUID, limit int) ([]kms.Delivery, error) {
	c, err := s.coder()
	if err != nil {
		return nil, err
	}
	now := s.now()
	rows, err := s.driver.ClaimDeliveries(ctx, ClaimDeliveriesParams{Now: timestamp(now), Until: timestamp(now.Add(lease)),
		Busy: busy, OfTenant: kms.MaxClaims, Limit: limit})
	if err != nil {
		return nil, translate(err)
	}
	var list []kms.Delivery
	for _, row := range rows {
		d, err := decodeDelivery(c, row)
		if err != nil {
			s.damaged(err)
			continue
		}
		list = append(list, d)
	}
	return list, nil
}

// EndDelivery implements kms.Deliveries. One whose Once is of its own event has
// nothing to be kept for.
func (s *Store) EndDelivery(ctx context.Context, d *kms.Delivery) error {
	if _, err := s.coder(); err != nil {
		return err
	}
	p := DeliveryParams{Tenant: d.Tenant, Webhook: d.Webhook, Event: d.Event}
	if d.Once == d.Event.String() {
		return translate(s.driver.DeleteDelivery(ctx, p))
	}
	return translate(s.driver.EndDelivery(ctx, EndDeliveryParams{p, timestamp(s.now())}))
}

// RetryDelivery implements kms.Deliveries.
func (s *Store) RetryDelivery(ctx context.Context, d *kms.Delivery, due time.Time) error {
	if _, err := s.coder(); err != nil {
		return err
	}
	return translate(s.driver.RetryDelivery(ctx, RetryDeliveryParams{
		DeliveryParams{Tenant: d.Tenant, Webhook: d.Webhook, Event: d.Event}, timestamp(due)}))
}

// maxOnce bounds what tells happenings apart, in bytes.
const maxOnce = 128

func checkDelivery(d *kms.Delivery, fail failFunc) {
	switch {
	case d.Tenant == uuid.Nil():
		fail("tenant", reasonMissing)
	case d.Webhook == uuid.Nil():
		fail("webhook", reasonMissing)
	case d.Event == uuid.Nil():
		fail("event", reasonMissing)
	case d.Once == "" || len(d.Once) > maxOnce || !storableText(d.Once):
		fail("once", reasonRange)
	case d.Type == "" || !storableText(string(d.Type)):
		fail("type", reasonRange)
	case len(d.Body) == 0 || len(d.Body) > kms.MaxEventBody:
		fail("body", reasonRange)
	case d.Created.IsZero():
		fail("created", reasonMissing)
	}
}

func encodeDelivery(d *kms.Delivery) DeliveryRecord {
	return DeliveryRecord{Tenant: d.Tenant, Webhook: d.Webhook, Event: d.Event, Once: d.Once, Type: string(d.Type), Body: d.Body,
		Created: timestamp(d.Created)}
}

func decodeDelivery(c *rowCoder, r *DeliveryRow) (kms.Delivery, error) {
	d := newDecoder(ObjectDelivery, rowID(r.Tenant), rowID(r.Event))
	out := kms.Delivery{
		Tenant:   d.id(r.Tenant, "tenant"),
		Webhook:  d.id(r.Webhook, "webhook"),
		Event:    d.id(r.Event, "event"),
		Once:     d.text(r.Once, "once"),
		Type:     kms.EventType(d.text(r.Type, "type")),
		Body:     d.bytes(r.Body, "body"),
		Created:  d.time(r.Created, "created"),
		Attempts: int(d.integer(r.Attempts, "attempts", 0, math.MaxInt32)),
	}
	if d.result() == nil {
		checkDelivery(&out, d.fail)
	}
	if d.result() == nil {
		record := encodeDelivery(&out)
		c.check(d, codeDelivery, record.fields(), r.Code)
	}
	return out, d.result()
}
