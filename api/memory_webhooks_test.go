package api_test

import (
	"cmp"
	"context"
	"slices"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/egress"
	"github.com/sluice-kms/sluice/kms"
)

// addresses allows public addresses; no test looks a name up.
var addresses = &egress.Guard{}

func (m *memory) CreateWebhook(_ context.Context, w *kms.Webhook) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.webhooks = append(m.webhooks, w)
	return nil
}

func (m *memory) Webhook(_ context.Context, tenant, id uuid.UUID) (*kms.Webhook, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, w := range m.webhooks {
		if w.Tenant == tenant && w.ID == id {
			return w, nil
		}
	}
	return nil, kms.ErrNotFound
}

func (m *memory) ListWebhooks(_ context.Context, tenant uuid.UUID, p kms.Page) ([]*kms.Webhook, string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	own := slices.DeleteFunc(slices.Clone(m.webhooks), func(w *kms.Webhook) bool { return w.Tenant != tenant })
	return page(own, func(w *kms.Webhook) string { return w.ID.String() }, p)
}

func (m *memory) DisableWebhook(_ context.Context, tenant, id uuid.UUID, _ uint64) error {
	panic("nothing is delivered here")
}

func (m *memory) DeleteWebhook(_ context.Context, tenant, id uuid.UUID) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.webhooks = slices.DeleteFunc(m.webhooks, func(w *kms.Webhook) bool { return w.Tenant == tenant && w.ID == id })
	return nil
}

func (m *memory) Enqueue(_ context.Context, _ uuid.UUID, list []kms.Delivery) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.queued = append(m.queued, list...)
	return 0, nil
}

func (m *memory) ClaimDeliveries(context.Context, time.Duration, []uuid.UUID, int) ([]kms.Delivery, error) {
	panic("nothing is delivered here")
}

func (m *memory) EndDelivery(context.Context, *kms.Delivery) error {
	panic("nothing is delivered here")
}

func (m *memory) RetryDelivery(context.Context, *kms.Delivery, time.Time) error {
	panic("nothing is delivered here")
}

func (m *memory) NoteDelivery(context.Context, uuid.UUID, uuid.UUID, bool) error {
	panic("nothing is delivered here")
}

func (m *memory) Standings(limit int) ([]kms.QuotaStanding, int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []kms.QuotaStanding
	for _, t := range m.tenants {
		list = append(list, kms.QuotaStanding{Tenant: t.ID, Tier: t.Tier, Near: 900, Debt: 5 * kms.Credit, Admitted: 3, Refused: 1, Early: 1})
	}
	slices.SortFunc(list, func(a, b kms.QuotaStanding) int { return cmp.Compare(a.Tenant.String(), b.Tenant.String()) })
	return list[:min(limit, len(list))], len(list)
}
