package storetest

import (
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/keystore"
	"github.com/sluice-kms/sluice/kms"
)

func sampleApproval() *kms.Approval {
	return &kms.Approval{ID: uuid.NewV7(), Op: kms.OpDeleteKey, Resource: "tenant/key", Fingerprint: [32]byte{7},
		RequestedBy: uuid.NewV7(), Created: start, Expires: start.Add(time.Hour)}
}

func (e *env) approval(t testing.TB) *kms.Approval {
	t.Helper()
	a := sampleApproval()
	if err := e.CreateApproval(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	return a
}

func testApprovals(t *testing.T, open func(*testing.T) keystore.Driver) {
	e := newEnv(t, open(t))
	ctx := t.Context()
	second, third := uuid.NewV7(), uuid.NewV7()

	t.Run("ApprovedAndUsedOnce", func(t *testing.T) {
		want := *e.approval(t)
		check := func(what string) {
			t.Helper()
			if got, err := e.Approval(ctx, want.ID); err != nil || !reflect.DeepEqual(got, &want) {
				t.Errorf("%s: Approval = %+v, %v; want %+v", what, got, err, &want)
			}
		}
		check("as asked for")
		wantKind(t, "use before it is approved", e.UseApproval(ctx, want.ID), kms.KindConflict)
		_, err := e.Approve(ctx, want.ID, want.RequestedBy)
		wantKind(t, "approved by who asked", err, kms.KindConflict)
		_, err = e.Approve(ctx, want.ID, uuid.Nil())
		wantKind(t, "approved by nobody", err, kms.KindInvalidArgument)
		check("after refusals")
		want.ApprovedBy = second
		if got, err := e.Approve(ctx, want.ID, second); err != nil || !reflect.DeepEqual(got, &want) {
			t.Errorf("Approve = %+v, %v; want %+v", got, err, &want)
		}
		_, err = e.Approve(ctx, want.ID, third)
		wantKind(t, "approved again", err, kms.KindConflict)
		check("approved")
		if err := e.UseApproval(ctx, want.ID); err != nil {
			t.Fatal(err)
		}
		want.Used = true
		wantKind(t, "used again", e.UseApproval(ctx, want.ID), kms.KindConflict)
		_, err = e.Approve(ctx, want.ID, third)
		wantKind(t, "approved after use", err, kms.KindConflict)
		check("used")
	})
	t.Run("OneOfManyGetsIt", func(t *testing.T) {
		a := e.approval(t)
		other := newEnv(t, e.driver)
		once := func(what string, call func(*env) error) {
			t.Helper()
			var done, refused atomic.Int32
			var group sync.WaitGroup
			for i := range 8 {
				store := []*env{e, other}[i%2]
				group.Go(func() {
					switch err := call(store); {
					case err == nil:
						done.Add(1)
					case kms.KindOf(err) == kms.KindConflict:
						refused.Add(1)
					}
				})
			}
			group.Wait()
			if done.Load() != 1 || refused.Load() != 7 {
				t.Errorf("%s: %d times and %d refusals, want 1 and 7", what, done.Load(), refused.Load())
			}
		}
		once("approved", func(s *env) error { _, err := s.Approve(ctx, a.ID, uuid.NewV7()); return err })
		once("used", func(s *env) error { return s.UseApproval(ctx, a.ID) })
	})
	t.Run("ListIsInTheOrderOfIDs", func(t *testing.T) {
		fresh := newEnv(t, open(t))
		var want []string
		for range 7 {
			want = append(want, fresh.approval(t).ID.String())
		}
		for _, size := range []int{1, 3, 100} {
			checkPages(t, size, want, func(p kms.Page) ([]string, string, error) {
				list, next, err := fresh.ListApprovals(ctx, p)
				return namesOf(list, func(a *kms.Approval) string { return a.ID.String() }), next, err
			})
		}
	})
	t.Run("ExpiredIsMissingAndRemoved", func(t *testing.T) {
		a := e.approval(t)
		e.advance(time.Hour - time.Microsecond)
		if _, err := e.Approve(ctx, a.ID, second); err != nil {
			t.Errorf("before the time: %v", err)
		}
		e.advance(time.Microsecond)
		if _, err := e.Approval(ctx, a.ID); err != kms.ErrNotFound {
			t.Errorf("Approval: %v", err)
		}
		if err := e.UseApproval(ctx, a.ID); err != kms.ErrNotFound {
			t.Errorf("UseApproval: %v", err)
		}
		if list, _, err := e.ListApprovals(ctx, kms.Page{Size: 10}); err != nil || len(list) != 0 {
			t.Errorf("ListApprovals = %v, %v", list, err)
		}
		now := e.clock().UnixMicro()
		if n, err := e.driver.DeleteExpiredApprovals(ctx, keystore.DeleteExpiredApprovalsParams{Now: now, Limit: 2}); n != 2 || err != nil {
			t.Errorf("DeleteExpiredApprovals = %d, %v; want 2", n, err)
		}
	})
	t.Run("UnusableApprovalsAreRefused", func(t *testing.T) {
		for name, spoil := range map[string]func(*kms.Approval){
			"id":          func(a *kms.Approval) { a.ID = uuid.Nil() },
			"op":          func(a *kms.Approval) { a.Op = "party" },
			"resource":    func(a *kms.Approval) { a.Resource = "\x00" },
			"nobody asks": func(a *kms.Approval) { a.RequestedBy = uuid.Nil() },
			"approved":    func(a *kms.Approval) { a.ApprovedBy = second },
			"used":        func(a *kms.Approval) { a.Used = true },
			"no date":     func(a *kms.Approval) { a.Created = time.Time{} },
			"no end":      func(a *kms.Approval) { a.Expires = a.Created },
		} {
			a := sampleApproval()
			spoil(a)
			wantKind(t, name, e.CreateApproval(ctx, a), kms.KindInvalidArgument)
		}
		a := e.approval(t)
		wantKind(t, "an id that is taken", e.CreateApproval(ctx, a), kms.KindConflict)
	})
}
