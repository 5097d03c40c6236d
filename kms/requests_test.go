package kms_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// recordBook keeps records in memory.
type recordBook struct {
	mu     sync.Mutex
	stored []kms.RequestRecord
	sizes  []int // of the batches
	fail   error
}

func (b *recordBook) StoreRecords(_ context.Context, records []kms.RequestRecord) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sizes = append(b.sizes, len(records))
	if b.fail == nil {
		b.stored = append(b.stored, records...)
	}
	return b.fail
}

// state returns what was stored and the sizes of the batches.
func (b *recordBook) state() ([]kms.RequestRecord, []int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.stored), slices.Clone(b.sizes)
}

func (b *recordBook) failWith(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fail = err
}

func (b *recordBook) RequestRecord(ctx context.Context, tenant, request uuid.UUID) (*kms.RequestRecord, error) {
	r, err := b.AnyRequestRecord(ctx, request)
	if err == nil && r.Tenant != tenant {
		return nil, kms.ErrNotFound
	}
	return r, err
}

func (b *recordBook) AnyRequestRecord(_ context.Context, request uuid.UUID) (*kms.RequestRecord, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.IndexFunc(b.stored, func(r kms.RequestRecord) bool { return r.RequestID == request })
	if i < 0 {
		return nil, kms.ErrNotFound
	}
	return &b.stored[i], nil
}

// trailBook is an audit trail in memory. The payload of an entry is its index.
type trailBook struct {
	kms.Trail
	entries []*kms.Entry
}

func (b *trailBook) TrailEntries(_ context.Context, q *kms.TrailQuery) (*kms.TrailPage, error) {
	page := &kms.TrailPage{}
	for i, e := range b.entries {
		if e.RequestID == q.Request && (q.Tenant == uuid.Nil() || e.Tenant == q.Tenant) {
			page.Entries = append(page.Entries, kms.TrailEntry{Tenant: e.Tenant, Payload: []byte{byte(i)}})
		}
	}
	return page, nil
}

func (b *trailBook) read(payload []byte) (*kms.Entry, error) { return b.entries[payload[0]], nil }

// What neither this node's memory nor the records have, the audit trail tells:
// the outcome, to the same callers.
func TestWhyIsToldFromTheTrailWhenNothingElseKnows(t *testing.T) {
	s := newStage(t)
	id := uuid.NewV7()
	s.trail.entries = []*kms.Entry{
		{RequestID: id, Tenant: s.key.Tenant.ID, Project: "default", Phase: kms.PhaseIntent, Op: kms.OpRotateKey},
		{RequestID: id, Tenant: s.key.Tenant.ID, Project: "default", Phase: kms.PhaseOutcome, Op: kms.OpRotateKey, Outcome: "ok", Node: "b",
			Wait: time.Second, Reasons: []kms.Reason{{Code: "SHARE", Waited: time.Second}}},
	}
	record, err := s.svc.Why(t.Context(), s.ticket(t, "usage:read"), id.String())
	if err != nil || record.Outcome != "ok" || record.Node != "b" || len(record.Reasons) != 1 || record.Wait != time.Second {
		t.Fatalf("%+v, %v", record, err)
	}
	operator := s.ticket(t, "operator:auditor")
	operator.By.Tenant = &kms.Tenant{ID: uuid.NewV7(), Name: kms.SystemTenantName}
	if record, err := s.svc.Why(t.Context(), operator, id.String()); err != nil || record.Tenant != s.key.Tenant.ID {
		t.Errorf("an operator: %+v, %v", record, err)
	}
	for what, change := range map[string]func(*kms.Principal){
		"another tenant":  func(p *kms.Principal) { p.Tenant = &kms.Tenant{ID: uuid.NewV7(), Name: "rival"} },
		"another project": func(p *kms.Principal) { p.Project = "other" },
	} {
		ticket := s.ticket(t, "usage:read")
		change(ticket.By)
		if record, err := s.svc.Why(t.Context(), ticket, id.String()); err != kms.ErrNotFound {
			t.Errorf("%s: %+v, %v", what, record, err)
		}
	}
}

// Requests of the own tenant and project can be asked about by those who may
// read, an operator may ask about any, and everything else looks like a
// request that never was.
func TestWhyIsToldToTheRequestsOwnTenantAndOperators(t *testing.T) {
	s := newStage(t)
	asked := s.ticket(t, "key:encrypt")
	if err := s.encrypt(t, asked); err != nil {
		t.Fatal(err)
	}
	id := asked.RequestID.String()
	of := func(change func(*kms.Principal), scopes ...string) *kms.Ticket {
		ticket := s.ticket(t, scopes...)
		change(ticket.By)
		return ticket
	}
	same := func(*kms.Principal) {}
	another := func(p *kms.Principal) { p.Tenant = &kms.Tenant{ID: uuid.NewV7(), Name: "rival"} }
	system := func(p *kms.Principal) { p.Tenant = &kms.Tenant{ID: uuid.NewV7(), Name: kms.SystemTenantName} }
	project := func(p *kms.Principal) { p.Project = "other" }
	for _, tt := range []struct {
		name   string
		ticket *kms.Ticket
		ref    string
		want   error
	}{
		{"who reads usage", of(same, "usage:read"), id, nil},
		{"who uses keys", of(same, "key:use"), id, nil},
		{"who reads keys of other names", of(same, "key:use:others-*"), id, nil},
		{"an operator", of(system, "operator:admin"), id, nil},
		{"an auditor", of(system, "operator:auditor"), id, nil},
		{"who may sign only", of(same, "key:sign"), id, kms.ErrPermissionDenied},
		{"another tenant", of(another, "usage:read", "key:*"), id, kms.ErrNotFound},
		{"another tenant that says it is an operator", of(another, "operator:admin"), id, kms.ErrPermissionDenied},
		{"another project", of(project, "usage:read"), id, kms.ErrNotFound},
		{"the administrator, of another project", of(project, "usage:read", "tenant:admin"), id, nil},
		{"unknown", of(same, "usage:read"), uuid.NewV7().String(), kms.ErrNotFound},
		{"unknown to an operator", of(system, "operator:admin"), uuid.NewV7().String(), kms.ErrNotFound},
		{"no id", of(same, "usage:read"), "orders", kms.ErrNotFound},
	} {
		t.Run(tt.name, func(t *testing.T) {
			record, err := s.svc.Why(context.Background(), tt.ticket, tt.ref)
			if err != tt.want || (err == nil) != (record != nil) {
				t.Fatalf("%+v, %v; want %v", record, err, tt.want)
			}
			if err == nil && (record.RequestID != asked.RequestID || record.Outcome != "ok" || record.Node != "a") {
				t.Errorf("%+v", record)
			}
		})
	}
}

// What a node keeps is bounded by number and by time, the newest stay.
func TestMemoryOfRequestsIsBounded(t *testing.T) {
	s := newStage(t)
	var ids []uuid.UUID
	const some = 40_000 // more than are kept
	for range some {
		ticket := s.ticket(t, "key:encrypt")
		ids = append(ids, ticket.RequestID)
		if err := s.encrypt(t, ticket); err != nil {
			t.Fatal(err)
		}
	}
	known, asked := 0, 0
	for i := 0; i < some; i += 40 {
		id := ids[i]
		asked++
		if _, err := s.svc.Why(context.Background(), s.ticket(t, "usage:read"), id.String()); err == nil {
			known++
		}
	}
	// Ids fall to the shards at random, so some shards turn earlier than others.
	if kept := float64(known) / float64(asked) * some; kept > 1.05*32_768 || kept < 0.9*32_768 {
		t.Errorf("%.0f of %d requests are known", kept, some)
	}
	if _, err := s.svc.Why(context.Background(), s.ticket(t, "usage:read"), ids[some-1].String()); err != nil {
		t.Errorf("the last one: %v", err)
	}
	s.clock = s.clock.Add(kms.RecordsKept)
	if _, err := s.svc.Why(context.Background(), s.ticket(t, "usage:read"), ids[some-1].String()); err != kms.ErrNotFound {
		t.Errorf("after %v: %v", kms.RecordsKept, err)
	}
}

// What waited or was refused is stored, in batches that are bounded; no request
// waits for it, and what is too much or cannot be stored is counted.
func TestRecordsAreStoredInBoundedBatchesAndHoldUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		s.fail["schedule"] = &kms.Error{Kind: kms.KindReducedCapacity, Reasons: []kms.Reason{{Code: kms.ReasonQueueFull}}}
		began := time.Now()
		for range 1000 {
			_ = s.encrypt(t, s.ticket(t, "key:encrypt"))
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("requests waited for %v", took)
		}
		recorder := s.svc.StartRecorder()
		time.Sleep(time.Second + time.Millisecond)
		stored, sizes := s.records.state()
		for _, n := range sizes {
			if n > 64 {
				t.Errorf("a batch of %d", n)
			}
		}
		if n := len(stored); n != 256 || s.svc.Unrecorded() != 1000-256 {
			t.Fatalf("%d stored and %d not, of 1000", n, s.svc.Unrecorded())
		}
		if r := stored[0]; len(r.Reasons) != 1 || r.Reasons[0].Code != kms.ReasonQueueFull || r.Outcome != "reduced_capacity" || r.Urgency == "" {
			t.Errorf("stored is %+v", r)
		}
		delete(s.fail, "schedule")
		s.waits = nil
		_ = s.encrypt(t, s.ticket(t, "key:encrypt"))
		time.Sleep(time.Second)
		if now, _ := s.records.state(); len(now) != len(stored) {
			t.Error("a request that did not wait was stored")
		}
		s.records.failWith(errors.New("away"))
		s.fail["schedule"] = &kms.Error{Kind: kms.KindReducedCapacity, Reasons: []kms.Reason{{Code: kms.ReasonQueueFull}}}
		before := s.svc.Unrecorded()
		_ = s.encrypt(t, s.ticket(t, "key:encrypt"))
		if err := recorder.Close(); err != nil || s.svc.Unrecorded() != before+1 {
			t.Errorf("%v, %d more were not recorded", err, s.svc.Unrecorded()-before)
		}
	})
}

// Waits on several nodes add up in the ticket and in the entry, by reason; a
// request that waited for nothing has no more in its entry than before.
func TestWaitsOnSeveralNodesAddUp(t *testing.T) {
	s := newStage(t)
	s.down["a"] = true
	s.waits = []kms.Reason{{Code: "SHARE", Waited: 2 * time.Millisecond}, {Code: "OWN_QUEUE", Waited: time.Millisecond}}
	ticket := s.ticket(t, "key:encrypt")
	if err := s.encrypt(t, ticket); err != nil {
		t.Fatal(err)
	}
	e := s.entries[len(s.entries)-1]
	want := []kms.Reason{{Code: "SHARE", Waited: 4 * time.Millisecond}, {Code: "OWN_QUEUE", Waited: 2 * time.Millisecond}}
	if !slices.Equal(e.Reasons, want) || e.Wait != 6*time.Millisecond || e.Urgency != kms.UrgencyNormal || e.Class != "MID" || ticket.Attempts != 2 {
		t.Errorf("the entry is %+v", e)
	}
	quiet := newStage(t)
	quiet.waits = []kms.Reason{}
	if err := quiet.encrypt(t, quiet.ticket(t, "key:encrypt")); err != nil {
		t.Fatal(err)
	}
	if e := quiet.entries[len(quiet.entries)-1]; len(e.Reasons) > 0 || e.Class != "" || e.Urgency != "" || e.Estimate != 0 {
		t.Errorf("an entry of nothing has %+v", e)
	}
}

// A wait for this node's part of a shared limit is a part of the wait, with its
// own reason.
func TestWaitForALeaseIsAReasonOfItsOwn(t *testing.T) {
	s := newStage(t)
	s.leaseWait = 3 * time.Millisecond
	if err := s.encrypt(t, s.ticket(t, "key:encrypt")); err != nil {
		t.Fatal(err)
	}
	e := s.entries[len(s.entries)-1]
	want := []kms.Reason{{Code: kms.ReasonLease, Waited: 3 * time.Millisecond}, {Code: "SHARE", Waited: time.Millisecond}}
	if !slices.Equal(e.Reasons, want) || e.Wait != 4*time.Millisecond {
		t.Errorf("%+v for a wait of %v", e.Reasons, e.Wait)
	}
}
