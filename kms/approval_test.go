package kms_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// approvalBook keeps approvals as the store does: each change once.
type approvalBook struct {
	mu   sync.Mutex
	list []*kms.Approval
}

func (b *approvalBook) change(id uuid.UUID, f func(*kms.Approval) error) (*kms.Approval, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, a := range b.list {
		if a.ID == id {
			changed := *a
			if err := f(&changed); err != nil {
				return nil, err
			}
			b.list[i] = &changed
			return &changed, nil
		}
	}
	return nil, kms.ErrNotFound
}

func (b *approvalBook) CreateApproval(_ context.Context, a *kms.Approval) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.list = append(b.list, a)
	return nil
}

func (b *approvalBook) Approval(_ context.Context, id uuid.UUID) (*kms.Approval, error) {
	return b.change(id, func(*kms.Approval) error { return nil })
}

func (b *approvalBook) Approve(_ context.Context, id, by uuid.UUID) (*kms.Approval, error) {
	return b.change(id, func(a *kms.Approval) error {
		if a.ApprovedBy != uuid.Nil() || a.RequestedBy == by {
			return kms.Errorf(kms.KindConflict, "given already")
		}
		a.ApprovedBy = by
		return nil
	})
}

func (b *approvalBook) UseApproval(_ context.Context, id uuid.UUID) error {
	_, err := b.change(id, func(a *kms.Approval) error {
		if a.Used || a.ApprovedBy == uuid.Nil() {
			return kms.Errorf(kms.KindConflict, "used already")
		}
		a.Used = true
		return nil
	})
	return err
}

func (b *approvalBook) ListApprovals(_ context.Context, p kms.Page) ([]*kms.Approval, string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.list[:min(len(b.list), p.Size)]), "", nil
}

// guarded is a stage where deleting its suspended tenant takes two operators,
// who are there.
type guarded struct {
	*stage
	system        *kms.Tenant
	first, second *kms.Ticket
}

func newGuarded(t *testing.T) *guarded {
	t.Helper()
	g := &guarded{stage: newStageFor(t, true)}
	g.key.Tenant.State = kms.TenantSuspended
	g.first, g.second = g.operatorTicket(t), g.operatorTicket(t)
	g.system = g.first.By.Tenant
	g.second.By.Tenant = g.system
	for _, o := range []*kms.Ticket{g.first, g.second} {
		g.credentials = append(g.credentials, &kms.Credential{ID: o.By.Credential, Tenant: g.system.ID, Project: "default", Name: "operator",
			Scopes: []string{"operator:admin", "tenant:admin"}, Revision: 1})
	}
	return g
}

// as is a new request of an operator, naming an approval.
func (g *guarded) as(operator *kms.Ticket, approval uuid.UUID) *kms.Ticket {
	return &kms.Ticket{RequestID: uuid.NewV7(), Received: stageNow, Urgency: kms.UrgencyNormal, By: operator.By, Approval: approval}
}

func (g *guarded) delete(operator *kms.Ticket, approval uuid.UUID) error {
	_, err := g.svc.DeleteTenant(context.Background(), g.as(operator, approval), "acme")
	return err
}

func (g *guarded) approve(operator *kms.Ticket, approval uuid.UUID) error {
	_, err := g.svc.Approve(context.Background(), g.as(operator, uuid.Nil()), approval.String())
	return err
}

// ask asks for the approval of the tenant's deletion.
func (g *guarded) ask(t *testing.T) uuid.UUID {
	t.Helper()
	return required(t, g.delete(g.first, uuid.Nil()))
}

// required is the approval that an error asks for.
func required(t *testing.T, err error) uuid.UUID {
	t.Helper()
	e, ok := errors.AsType[*kms.Error](err)
	if !ok || e.Kind != kms.KindApprovalRequired || e.Approval == uuid.Nil() {
		t.Fatalf("got %v, want that an approval is required", err)
	}
	return e.Approval
}

func TestDestructionTakesTwoOperators(t *testing.T) {
	g := newGuarded(t)
	id := g.ask(t)
	if again := g.ask(t); again != id {
		t.Error("asking again asks for another approval")
	}
	if got := required(t, g.delete(g.first, id)); got != id {
		t.Error("naming an approval that was not given asks for another")
	}
	if err := g.approve(g.first, id); kms.KindOf(err) != kms.KindPermissionDenied || err == nil {
		t.Errorf("approved by who asked: %v", err)
	}
	if err := g.approve(g.second, id); err != nil {
		t.Fatal(err)
	}
	if err := g.approve(g.second, id); kms.KindOf(err) != kms.KindConflict || err == nil {
		t.Errorf("approved twice: %v", err)
	}
	if did(g.stage, "delete tenant") {
		t.Fatal("the tenant was deleted before who asked came back")
	}
	if err := g.delete(g.second, id); kms.KindOf(err) != kms.KindConflict || err == nil {
		t.Errorf("used by who gave it: %v", err)
	}
	if err := g.delete(g.first, id); err != nil {
		t.Fatal(err)
	}
	if !did(g.stage, "delete tenant") {
		t.Error("nothing was done")
	}
	last := g.entries[len(g.entries)-1]
	if last.Op != kms.OpDeleteTenant || last.Approval != id || last.Outcome != "ok" {
		t.Errorf("the journal has %+v", last)
	}
	if asked := g.entries[1]; asked.Phase != kms.PhaseOutcome || asked.Approval != id || asked.Outcome != "approval_required" || asked.Charged != 0 {
		t.Errorf("the request for it is recorded as %+v", asked)
	}
}

// TestAnApprovalIsUsedOnce prevents what CVE-2025-6014 was: a code that is
// checked and spent in two steps is good for as many as come in between.
func TestAnApprovalIsUsedOnce(t *testing.T) {
	g := newGuarded(t)
	id := g.ask(t)
	if err := g.approve(g.second, id); err != nil {
		t.Fatal(err)
	}
	// Only the approval keeps the second one out: the tenant stays as it is.
	g.fail["delete tenant"] = errors.New("down")
	var passed, refused atomic.Int32
	var group sync.WaitGroup
	start := make(chan struct{})
	for range 100 {
		group.Go(func() {
			<-start
			err := g.delete(g.first, id)
			if kms.KindOf(err) == kms.KindConflict && err != nil {
				refused.Add(1)
			} else {
				passed.Add(1)
			}
		})
	}
	close(start)
	group.Wait()
	if passed.Load() != 1 || refused.Load() != 99 || times(g.stage, "delete tenant") != 1 {
		t.Errorf("%d passed, %d were refused, the act was tried %d times", passed.Load(), refused.Load(), times(g.stage, "delete tenant"))
	}
}

func TestApprovalIsGoodForItsActOnly(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(*guarded)
	}{
		{"another tenant", func(g *guarded) { g.key.Tenant.ID = uuid.NewV7() }},
		{"another operation", func(g *guarded) {
			g.approvals.change(g.approvals.list[0].ID, func(a *kms.Approval) error { a.Op = kms.OpCreateCredential; return nil })
		}},
		{"another operator's", func(g *guarded) { g.first.By.Credential = uuid.NewV7() }},
		{"no such approval", func(g *guarded) { g.approvals.list = nil }},
		{"its giver is revoked", func(g *guarded) { g.credentials[1].Revoked = stageNow }},
		{"its giver has expired", func(g *guarded) { g.credentials[1].Expires = stageNow }},
		{"its giver is gone", func(g *guarded) { g.credentials = g.credentials[:1] }},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newGuarded(t)
			id := g.ask(t)
			if err := g.approve(g.second, id); err != nil {
				t.Fatal(err)
			}
			c.spoil(g)
			if err := g.delete(g.first, id); kms.KindOf(err) != kms.KindConflict || err == nil || did(g.stage, "delete tenant") {
				t.Errorf("%v, %v", err, g.steps)
			}
		})
	}
}

func TestDryRunSpendsNoApprovalAndAsksForNone(t *testing.T) {
	g := newGuarded(t)
	ticket := g.as(g.first, uuid.Nil())
	ticket.DryRun = true
	if _, err := g.svc.DeleteTenant(context.Background(), ticket, "acme"); err != nil || len(g.approvals.list) != 0 {
		t.Errorf("%v, %d approvals", err, len(g.approvals.list))
	}
}

func TestOneOperatorIsEnoughWhereTheServiceSaysSo(t *testing.T) {
	s := newStage(t)
	s.key.Tenant.State = kms.TenantSuspended
	if _, err := s.svc.DeleteTenant(context.Background(), s.operatorTicket(t), "acme"); err != nil {
		t.Error(err)
	}
}

// TestNobodyMakesHimselfASecondOperator tries the ways around two operators
// that lead over credentials.
func TestNobodyMakesHimselfASecondOperator(t *testing.T) {
	ctx := context.Background()
	mint := kms.CreateCredentialInput{Name: "me-again", Scopes: []string{"operator:admin"}}
	newOperators := func(t *testing.T) *guarded {
		g := newGuarded(t)
		// The stage's one tenant is theirs, as far as references go.
		g.key.Tenant.Name, g.key.Tenant.ID = kms.SystemTenantName, g.system.ID
		return g
	}
	for _, ref := range []string{"", "system"} {
		g := newOperators(t)
		_, _, err := g.svc.CreateCredential(ctx, g.as(g.first, uuid.Nil()), ref, mint)
		id := required(t, err)
		wider := mint
		wider.Scopes = []string{"operator:admin", "tenant:admin"}
		if err := g.approve(g.second, id); err != nil {
			t.Fatal(err)
		}
		if _, _, err := g.svc.CreateCredential(ctx, g.as(g.first, id), ref, wider); kms.KindOf(err) != kms.KindConflict || err == nil {
			t.Errorf("what was approved with fewer scopes: %v", err)
		}
		if _, _, err := g.svc.CreateCredential(ctx, g.as(g.first, id), ref, mint); err != nil {
			t.Errorf("what was approved: %v", err)
		}
		_, _, err = g.svc.RotateCredential(ctx, g.as(g.first, uuid.Nil()), ref, g.second.By.Credential.String(), time.Hour)
		required(t, err)
		if _, _, err := g.svc.RotateCredential(ctx, g.as(g.first, uuid.Nil()), ref, g.first.By.Credential.String(), time.Hour); err != nil {
			t.Errorf("the own credential: %v", err)
		}
		if _, err := g.svc.RevokeCredential(ctx, g.as(g.first, uuid.Nil()), ref, g.second.By.Credential.String()); err != nil {
			t.Errorf("revoking, which must not wait: %v", err)
		}
		_, _, err = g.svc.CreateCredential(ctx, g.as(g.first, uuid.Nil()), ref, wider)
		required(t, err) // a revoked operator counts: he was one
	}
	g := newOperators(t)
	g.credentials = g.credentials[:1]
	if _, _, err := g.svc.CreateCredential(ctx, g.as(g.first, uuid.Nil()), "", mint); err != nil {
		t.Errorf("the first operator mints the second: %v", err)
	}
}
