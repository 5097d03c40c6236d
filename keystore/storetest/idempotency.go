package storetest

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/keystore"
	"github.com/sluice-kms/sluice/kms"
)

func testIdempotency(t *testing.T, open func(*testing.T) keystore.Driver) {
	e := newEnv(t, open(t))
	ctx := t.Context()
	tenant := e.tenant(t, "idempotent")
	newKey := func() kms.IdempotencyKey {
		return kms.IdempotencyKey{Tenant: tenant.ID, Credential: uuid.NewV7(), Key: "a key\xff"}
	}
	request, another := [32]byte{1}, [32]byte{2}
	begin := func(t *testing.T, k kms.IdempotencyKey) {
		t.Helper()
		if r, err := e.Begin(ctx, k, request); r != nil || err != nil {
			t.Fatalf("Begin = %v, %v; want a new claim", r, err)
		}
	}
	answer := kms.IdempotencyRecord{Status: 201, Resource: "0198c2a0-0000-7000-8000-000000000001", Secret: true}

	t.Run("AnswerIsReplayed", func(t *testing.T) {
		k := newKey()
		begin(t, k)
		if err := e.Finish(ctx, k, answer); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if r, err := e.Begin(ctx, k, request); err != nil || r == nil || *r != answer {
				t.Errorf("Begin = %v, %v; want %v", r, err, answer)
			}
		}
	})
	t.Run("AnotherRequestIsRefused", func(t *testing.T) {
		k := newKey()
		begin(t, k)
		_, err := e.Begin(ctx, k, another)
		wantKind(t, "while the first is in flight", err, kms.KindInvalidArgument)
		if err := e.Finish(ctx, k, answer); err != nil {
			t.Fatal(err)
		}
		_, err = e.Begin(ctx, k, another)
		wantKind(t, "after the first was answered", err, kms.KindInvalidArgument)
	})
	t.Run("SameRequestInFlightIsAConflict", func(t *testing.T) {
		k := newKey()
		begin(t, k)
		_, err := e.Begin(ctx, k, request)
		wantKind(t, "second request", err, kms.KindConflict)
	})
	t.Run("OneOfManyGetsTheClaim", func(t *testing.T) {
		k := newKey()
		var claims, conflicts atomic.Int32
		var group sync.WaitGroup
		for range 16 {
			group.Go(func() {
				r, err := e.Begin(ctx, k, request)
				switch {
				case r == nil && err == nil:
					claims.Add(1)
				case kms.KindOf(err) == kms.KindConflict:
					conflicts.Add(1)
				}
			})
		}
		group.Wait()
		if claims.Load() != 1 || conflicts.Load() != 15 {
			t.Errorf("%d claims and %d conflicts, want 1 and 15", claims.Load(), conflicts.Load())
		}
	})
	t.Run("AbandonedClaimIsFree", func(t *testing.T) {
		k := newKey()
		begin(t, k)
		if err := e.Abandon(ctx, k); err != nil {
			t.Fatal(err)
		}
		begin(t, k)
	})
	t.Run("AnswerCannotBeAbandonedOrReplaced", func(t *testing.T) {
		k := newKey()
		begin(t, k)
		if err := e.Finish(ctx, k, answer); err != nil {
			t.Fatal(err)
		}
		if err := e.Abandon(ctx, k); err != kms.ErrNotFound {
			t.Errorf("Abandon: %v", err)
		}
		if err := e.Finish(ctx, k, kms.IdempotencyRecord{Status: 500}); err != kms.ErrNotFound {
			t.Errorf("Finish: %v", err)
		}
		if r, err := e.Begin(ctx, k, request); err != nil || r == nil || *r != answer {
			t.Errorf("Begin = %v, %v; want %v", r, err, answer)
		}
	})
	t.Run("CredentialsNeverMeet", func(t *testing.T) {
		k := newKey()
		begin(t, k)
		k.Credential = uuid.NewV7()
		begin(t, k)
	})
	t.Run("ClaimThatACrashLeftExpires", func(t *testing.T) {
		k := newKey()
		begin(t, k)
		e.advance(kms.IdempotencyClaimTTL - time.Microsecond)
		_, err := e.Begin(ctx, k, request)
		wantKind(t, "before the time", err, kms.KindConflict)
		e.advance(time.Microsecond)
		begin(t, k)
	})
	t.Run("AnswerExpires", func(t *testing.T) {
		k := newKey()
		begin(t, k)
		if err := e.Finish(ctx, k, answer); err != nil {
			t.Fatal(err)
		}
		e.advance(kms.IdempotencyTTL - time.Microsecond)
		if r, err := e.Begin(ctx, k, request); err != nil || r == nil {
			t.Errorf("Begin = %v, %v before the time", r, err)
		}
		e.advance(time.Microsecond)
		begin(t, k)
	})
	t.Run("PurgeRemovesWhatExpiredInBatches", func(t *testing.T) {
		e.advance(2 * kms.IdempotencyTTL)
		for {
			// What earlier cases left.
			n, err := e.driver.DeleteExpiredClaims(ctx, keystore.DeleteExpiredClaimsParams{Now: e.clock().UnixMicro(), Limit: 100})
			if err != nil {
				t.Fatal(err)
			}
			if n == 0 {
				break
			}
		}
		for range 5 {
			begin(t, newKey())
		}
		e.advance(kms.IdempotencyClaimTTL)
		live := newKey()
		begin(t, live)
		for _, want := range []int{3, 2, 0} {
			n, err := e.driver.DeleteExpiredClaims(ctx, keystore.DeleteExpiredClaimsParams{Now: e.clock().UnixMicro(), Limit: 3})
			if err != nil || n != want {
				t.Errorf("DeleteExpiredClaims = %d, %v; want %d", n, err, want)
			}
		}
		_, err := e.Begin(ctx, live, request)
		wantKind(t, "a live claim", err, kms.KindConflict)
	})
	t.Run("UnusableInputIsRefused", func(t *testing.T) {
		k := newKey()
		for _, bad := range []string{"", strings.Repeat("x", 256)} {
			k.Key = bad
			_, err := e.Begin(ctx, k, request)
			wantKind(t, "Begin", err, kms.KindInvalidArgument)
			wantKind(t, "Finish", e.Finish(ctx, k, answer), kms.KindInvalidArgument)
			wantKind(t, "Abandon", e.Abandon(ctx, k), kms.KindInvalidArgument)
		}
		k.Key = strings.Repeat("x", 255)
		begin(t, k)
		wantKind(t, "no status", e.Finish(ctx, k, kms.IdempotencyRecord{}), kms.KindInvalidArgument)
		wantKind(t, "resource", e.Finish(ctx, k, kms.IdempotencyRecord{Status: 200, Resource: "\x00"}), kms.KindInvalidArgument)
	})
}
