package kms_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// stageDeletions has the stage's tenant as the one that may be deleted.
type stageDeletions struct{ *stage }

func (s stageDeletions) DeleteTenant(_ context.Context, _ uuid.UUID, _ uint64, requested, void time.Time) (*kms.Tenant, error) {
	if err := s.step("delete tenant"); err != nil {
		return nil, err
	}
	s.key.Tenant.State, s.key.Tenant.Sealing.Wrapped = kms.TenantDeleting, nil
	s.key.Tenant.Deletion = &kms.Deletion{Requested: requested, Void: void}
	return s.key.Tenant, nil
}

func (s stageDeletions) AdvanceDeletion(_ context.Context, _ uuid.UUID, _ uint64, to kms.TenantState, at time.Time) (*kms.Tenant, error) {
	if err := s.step("advance to " + string(to)); err != nil {
		return nil, err
	}
	d := *s.key.Tenant.Deletion
	if to == kms.TenantDeleted {
		d.Erased = at
	} else {
		d.Shredded = at
	}
	s.key.Tenant.State, s.key.Tenant.Deletion = to, &d
	return s.key.Tenant, nil
}

func (s stageDeletions) DueDeletions(_ context.Context, now time.Time, after uuid.UUID, _ int) ([]uuid.UUID, error) {
	t := s.key.Tenant
	due := t.State == kms.TenantDeleting || t.State == kms.TenantDeleted && !t.Deletion.Void.After(now)
	if !due || after != uuid.Nil() {
		return nil, nil
	}
	return []uuid.UUID{t.ID}, nil
}

// stageTenants has the one tenant.
type stageTenants struct {
	kms.Tenants
	*stage
}

func (s stageTenants) Tenant(context.Context, uuid.UUID) (*kms.Tenant, error) {
	return s.key.Tenant, s.step("read tenant")
}

func (s stageTenants) TenantByRef(context.Context, string) (*kms.Tenant, error) {
	return s.key.Tenant, nil
}

func (s stageTenants) Project(_ context.Context, tenant uuid.UUID, name string) (*kms.Project, error) {
	if !slices.Contains([]string{kms.DefaultProject, "payments", "payments/cards", "a/b/c/d/e/f/g"}, name) {
		return nil, kms.ErrNotFound
	}
	return &kms.Project{Tenant: tenant, Name: name}, nil
}

func (s stageTenants) CreateProject(context.Context, *kms.Project) error { return s.step("project") }

// stageCredentials has the credentials of the tenant in pages of one.
type stageCredentials struct {
	kms.Credentials
	*stage
}

func (s stageCredentials) ListCredentials(_ context.Context, _ uuid.UUID, p kms.Page) ([]*kms.Credential, string, error) {
	at := 0
	fmt.Sscan(p.Token, &at)
	switch n := len(s.credentials); {
	case n == 0:
		return nil, "", nil
	case at == n-1:
		return s.credentials[at:], "", nil
	}
	return s.credentials[at : at+1], fmt.Sprint(at + 1), nil
}

func (s stageCredentials) UpdateCredential(_ context.Context, _, id uuid.UUID, _ uint64, change kms.CredentialChange) (*kms.Credential, error) {
	if change.Revoked != nil {
		if err := s.step("revoke"); err != nil {
			return nil, err
		}
	}
	for i, c := range s.credentials {
		if c.ID == id {
			changed := *c
			changed.Revision++
			if change.Revoked != nil {
				changed.Revoked = *change.Revoked
			}
			s.credentials[i] = &changed
			return &changed, nil
		}
	}
	return nil, kms.ErrNotFound
}

func (s stageCredentials) CreateCredential(context.Context, *kms.Credential) error {
	return s.step("mint")
}

func (s stageCredentials) Credential(_ context.Context, _, id uuid.UUID) (*kms.Credential, error) {
	for _, c := range s.credentials {
		if c.ID == id {
			return c, nil
		}
	}
	return nil, kms.ErrNotFound
}

// deleting is a stage whose tenant was deleted at a time before the stage's
// present, with three keys and a credential that is revoked beside one that is
// not.
func deleting(before time.Duration) func(*stage) {
	return func(s *stage) {
		s.due, s.keys = 0, 3
		t := s.key.Tenant
		t.State = kms.TenantDeleting
		t.Sealing = kms.SealingKey{Domain: s.domain, RootGeneration: 1}
		t.Deletion = &kms.Deletion{Requested: stageNow.Add(-before), Void: stageNow.Add(time.Hour)}
		s.credentials = []*kms.Credential{
			{ID: uuid.NewV7(), Tenant: t.ID, Project: "default", Name: "a", Revoked: stageNow, Revision: 2},
			{ID: uuid.NewV7(), Tenant: t.ID, Project: "default", Name: "b", Revision: 1},
		}
	}
}

func times(s *stage, step string) (n int) {
	for _, taken := range s.steps {
		if taken == step {
			n++
		}
	}
	return n
}

func TestDeletedTenantIsErasedKeyByKeyInTheJournal(t *testing.T) {
	s := keep(t, deleting(time.Hour), nil)
	if times(s, "destroy key") != 3 || times(s, "revoke") != 1 || s.key.Tenant.State != kms.TenantDeleted {
		t.Errorf("steps %v, state %s", s.steps, s.key.Tenant.State)
	}
	var got []string
	for _, e := range s.entries {
		got = append(got, string(e.Op)+" "+string(e.Phase))
		if e.Component != "keeper" || e.Tenant != s.key.Tenant.ID {
			t.Errorf("an entry is of %s in %s", e.Component, e.Tenant)
		}
	}
	want := []string{}
	for _, op := range []string{"keeper-destroy", "keeper-destroy", "keeper-destroy", "keeper-revoke", "keeper-erase"} {
		want = append(want, op+" intent", op+" outcome")
	}
	if !slices.Equal(got, want) {
		t.Errorf("the journal has %v, want %v", got, want)
	}
}

func TestErasureWaitsForRequestsThatWereUnderWay(t *testing.T) {
	s := keep(t, deleting(time.Second), nil)
	if times(s, "destroy key") != 3 || s.key.Tenant.State != kms.TenantDeleting {
		t.Errorf("steps %v, state %s", s.steps, s.key.Tenant.State)
	}
}

func TestErasureGoesOnAfterACrash(t *testing.T) {
	// The store fails in the middle; the next look finds the rest.
	s := keep(t, func(s *stage) {
		deleting(time.Hour)(s)
		s.failOnce = "revoke"
	}, func(t *testing.T, s *stage) {
		s.mu.Lock()
		state := s.key.Tenant.State
		s.mu.Unlock()
		if state != kms.TenantDeleting {
			t.Errorf("the erasure ended with a credential left: %s", state)
		}
		time.Sleep(2 * time.Minute) // virtual
	})
	if times(s, "destroy key") != 3 || times(s, "revoke") != 2 || s.key.Tenant.State != kms.TenantDeleted {
		t.Errorf("steps %v, state %s", s.steps, s.key.Tenant.State)
	}
}

func TestKeyThatCannotBeErasedKeepsNoOther(t *testing.T) {
	s := keep(t, func(s *stage) {
		deleting(time.Hour)(s)
		s.failOnce = "destroy key"
	}, nil)
	if times(s, "destroy key") != 3 || s.keys != 1 || s.key.Tenant.State != kms.TenantDeleting {
		t.Errorf("steps %v, %d keys left, state %s", s.steps, s.keys, s.key.Tenant.State)
	}
}

func TestErasureWithoutItsIntentDoesNotHappen(t *testing.T) {
	s := keep(t, func(s *stage) {
		deleting(time.Hour)(s)
		s.fail["intent"] = kms.Errorf(kms.KindAuditUnavailable, "disk full")
	}, nil)
	if did(s, "destroy key") || did(s, "revoke") || s.key.Tenant.State != kms.TenantDeleting {
		t.Errorf("steps %v", s.steps)
	}
}

// TestShreddingIsNotedOnceNoRootOpensACopy has copies whose date has passed.
func TestShreddingIsNotedOnceNoRootOpensACopy(t *testing.T) {
	for _, c := range []struct {
		name       string
		void       time.Duration // after the present
		generation uint32        // of the domain's newest roots now
		oldest     uint32        // of those that exist still
		elsewhere  bool          // the domain is not known here
		want       kms.TenantState
	}{
		{"date passed, root replaced", -time.Second, 2, 2, false, kms.TenantShredded},
		{"at its date", 0, 2, 2, false, kms.TenantShredded},
		{"before its date", time.Second, 2, 2, false, kms.TenantDeleted},
		{"the same root still", -time.Second, 1, 1, false, kms.TenantDeleted},
		{"root replaced and not retired", -time.Second, 2, 1, false, kms.TenantDeleted},
		{"nobody knows of the root", -time.Second, 2, 2, true, kms.TenantDeleted},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := keep(t, func(s *stage) {
				deleting(time.Hour)(s)
				s.generation, s.oldest = c.generation, c.oldest
				t := s.key.Tenant
				t.State = kms.TenantDeleted
				t.Deletion = &kms.Deletion{Requested: stageNow.Add(-time.Hour), Erased: stageNow.Add(-time.Minute), Void: stageNow.Add(c.void)}
				if c.elsewhere {
					t.Sealing.Domain = uuid.NewV7()
				}
			}, nil)
			if s.key.Tenant.State != c.want {
				t.Errorf("state %s, want %s (%v)", s.key.Tenant.State, c.want, s.steps)
			}
			if c.want == kms.TenantShredded && (len(s.entries) != 2 || s.entries[1].Op != kms.OpKeeperShred || s.entries[1].Outcome != "ok") {
				t.Errorf("the journal has %+v", s.entries)
			}
		})
	}
}

func TestKeyOfADeletedTenantIsNotRotated(t *testing.T) {
	s := keep(t, func(s *stage) {
		deleting(time.Hour)(s)
		s.due, s.keys = 1, 0
		s.key.RotationPeriod, s.key.NextRotation = 48*time.Hour, stageNow
	}, nil)
	if did(s, "set rotation") {
		t.Errorf("steps %v", s.steps)
	}
}

func TestDeletionSetsTheDateByWhichCopiesAreVoid(t *testing.T) {
	s := newStage(t)
	operator := s.operatorTicket(t)
	if _, err := s.svc.DeleteTenant(context.Background(), operator, "acme"); kms.KindOf(err) != kms.KindConflict {
		t.Errorf("a tenant in use: %v", err)
	}
	s.key.Tenant.State = kms.TenantSuspended
	gone, err := s.svc.DeleteTenant(context.Background(), s.operatorTicket(t), "acme")
	if err != nil {
		t.Fatal(err)
	}
	if want := stageNow.Add(stageRotation + stageRetention); !gone.Deletion.Void.Equal(want) || gone.State != kms.TenantDeleting {
		t.Errorf("void at %v in state %s, want %v", gone.Deletion.Void, gone.State, want)
	}
	if _, err := s.svc.DeleteTenant(context.Background(), s.operatorTicket(t), "acme"); kms.KindOf(err) != kms.KindConflict {
		t.Errorf("deleted again: %v", err)
	}
	active := kms.TenantActive
	if _, err := s.svc.UpdateTenant(context.Background(), s.operatorTicket(t), "acme", kms.TenantChange{State: &active}, false); kms.KindOf(err) != kms.KindConflict {
		t.Errorf("resumed: %v", err)
	}
	_, _, err = s.svc.CreateCredential(context.Background(), s.operatorTicket(t), "acme", kms.CreateCredentialInput{Name: "x", Scopes: []string{"key:*"}})
	if kms.KindOf(err) != kms.KindConflict {
		t.Errorf("a credential for it: %v", err)
	}
	if _, err := s.svc.CreateProject(context.Background(), s.operatorTicket(t), "acme", "x"); kms.KindOf(err) != kms.KindConflict {
		t.Errorf("a project in it: %v", err)
	}
}

func TestSystemTenantCannotBeDeleted(t *testing.T) {
	s := newStage(t)
	operator := s.operatorTicket(t)
	s.key.Tenant.Name, s.key.Tenant.State = kms.SystemTenantName, kms.TenantSuspended
	if _, err := s.svc.DeleteTenant(context.Background(), operator, "system"); kms.KindOf(err) != kms.KindConflict || did(s, "delete tenant") {
		t.Errorf("%v, %v", err, s.steps)
	}
}

func TestKeeperStopsInTheMiddleOfAnErasure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		deleting(time.Hour)(s)
		s.keys = 1 << 30 // more than it could ever erase
		reached := make(chan struct{})
		s.reached = func(step string) {
			if step == "destroy key" {
				select {
				case reached <- struct{}{}:
				default:
				}
			}
		}
		k := s.svc.StartKeeper()
		<-reached
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	})
}
