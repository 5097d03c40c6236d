package api_test

import (
	"context"
	"strconv"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// The trail of a memory is its journal, shipped at once. The payload of an entry
// is its number, from 1.

func (m *memory) readEntry(payload []byte) (*kms.Entry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := strconv.Atoi(string(payload))
	if err != nil {
		return nil, err
	}
	e := m.entries[n-1]
	return &e, nil
}

func (m *memory) TrailEntries(_ context.Context, q *kms.TrailQuery) (*kms.TrailPage, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	page := &kms.TrailPage{}
	for i := range m.entries {
		e := &m.entries[i]
		if (q.Tenant != uuid.Nil() && e.Tenant != q.Tenant) || (q.Op != "" && e.Op != q.Op) ||
			(q.Request != uuid.Nil() && e.RequestID != q.Request) || len(page.Entries) == q.Page.Size {
			continue
		}
		page.Entries = append(page.Entries, kms.TrailEntry{Node: string(memoryNode), Sequence: uint64(i + 1), Time: e.Time, Tenant: e.Tenant,
			Project: e.Project, Payload: strconv.AppendInt(nil, int64(i+1), 10)})
	}
	if q.Order == kms.ByArrival {
		page.Resume = "token"
	}
	return page, m.storeFault
}

func (m *memory) ShippedNodes(context.Context) ([]kms.ShippedNode, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return []kms.ShippedNode{{Node: string(memoryNode), Head: kms.TrailHead{Sequence: uint64(len(m.entries))}, Until: time.Now()}}, m.storeFault
}

func (m *memory) Usage(_ context.Context, q *kms.UsageQuery) ([]kms.UsageRow, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	row := kms.UsageRow{Start: q.From}
	for i := range m.entries {
		if key, sum, ok := m.entries[i].Usage(); ok && (q.Tenant == uuid.Nil() || key.Tenant == q.Tenant) {
			row.Add(sum)
		}
	}
	return []kms.UsageRow{row}, m.storeFault
}
