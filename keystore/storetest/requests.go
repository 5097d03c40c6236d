package storetest

import (
	"reflect"
	"testing"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/keystore"
	"github.com/sluice-kms/sluice/kms"
)

func sampleRecord(tenant uuid.UUID) kms.RequestRecord {
	return kms.RequestRecord{
		RequestID: uuid.NewV7(), Tenant: tenant, Project: "team", Time: start, Op: kms.OpSign, Key: uuid.NewV7(), Outcome: "wait_exceeded",
		Reasons: []kms.Reason{
			{Code: kms.ReasonWaitExceeded, Limit: 2e9, Have: 2e9, RetryIn: time.Second},
			{Code: "SHARE", Limit: 1500, Have: 2000, Waited: 1500 * time.Millisecond},
		},
		Class: "MID", Urgency: kms.UrgencyBulk, Estimate: time.Second, Aged: true, Away: true, ColdLoad: true, Attempts: 2, Node: "hsm-1",
		Wait: 1500 * time.Millisecond, SlotTime: time.Millisecond, Total: 2 * time.Second, Cost: 12 * kms.Credit, Charged: 3 * kms.Credit, PolicyVersion: 7,
	}
}

func testRequestRecords(t *testing.T, open func(*testing.T) keystore.Driver) {
	e := newEnv(t, open(t))
	ctx := t.Context()
	owner, other := e.tenant(t, "asks"), e.tenant(t, "asks-too")
	a, b := sampleRecord(owner.ID), sampleRecord(other.ID)
	if err := e.StoreRecords(ctx, []kms.RequestRecord{b, a}); err != nil {
		t.Fatal(err)
	}

	t.Run("RecordIsReadBackAsItWasStored", func(t *testing.T) {
		for _, want := range []kms.RequestRecord{a, b} {
			got, err := e.RequestRecord(ctx, want.Tenant, want.RequestID)
			if err != nil || !reflect.DeepEqual(*got, want) {
				t.Errorf("read back as\n%+v, %v, want\n%+v", got, err, want)
			}
			if got, err := e.AnyRequestRecord(ctx, want.RequestID); err != nil || !reflect.DeepEqual(*got, want) {
				t.Errorf("an operator reads\n%+v, %v", got, err)
			}
		}
	})
	t.Run("UnknownOnesAreNotFound", func(t *testing.T) {
		if _, err := e.RequestRecord(ctx, owner.ID, b.RequestID); err != kms.ErrNotFound {
			t.Errorf("another tenant's: %v", err)
		}
		if _, err := e.AnyRequestRecord(ctx, uuid.NewV7()); err != kms.ErrNotFound {
			t.Errorf("an operator's: %v", err)
		}
	})
	t.Run("StoringAgainChangesNothing", func(t *testing.T) {
		again := a
		again.Outcome = "ok"
		if err := e.StoreRecords(ctx, []kms.RequestRecord{again}); err != nil {
			t.Fatal(err)
		}
		if got, err := e.RequestRecord(ctx, owner.ID, a.RequestID); err != nil || got.Outcome != a.Outcome {
			t.Errorf("it is now %+v, %v", got, err)
		}
	})
	t.Run("RecordsOfUnknownTenantsAreLeftOut", func(t *testing.T) {
		unknown, mine := sampleRecord(uuid.NewV7()), sampleRecord(owner.ID)
		if err := e.StoreRecords(ctx, []kms.RequestRecord{unknown, mine}); err != nil {
			t.Fatal(err)
		}
		if _, err := e.AnyRequestRecord(ctx, unknown.RequestID); err != kms.ErrNotFound {
			t.Errorf("it was stored: %v", err)
		}
		if _, err := e.RequestRecord(ctx, owner.ID, mine.RequestID); err != nil {
			t.Errorf("the others are lost: %v", err)
		}
	})
	t.Run("TooLargeOnesAreLeftOut", func(t *testing.T) {
		large, small := sampleRecord(owner.ID), sampleRecord(owner.ID)
		large.Reasons = make([]kms.Reason, 1000)
		if err := e.StoreRecords(ctx, []kms.RequestRecord{large, small}); err != nil {
			t.Fatal(err)
		}
		if _, err := e.RequestRecord(ctx, owner.ID, large.RequestID); err != kms.ErrNotFound {
			t.Errorf("it was stored: %v", err)
		}
		if _, err := e.RequestRecord(ctx, owner.ID, small.RequestID); err != nil {
			t.Errorf("the others are lost: %v", err)
		}
	})
	t.Run("RecordsExpireAndAreRemoved", func(t *testing.T) {
		e.advance(kms.RecordsKept - time.Microsecond)
		if _, err := e.RequestRecord(ctx, owner.ID, a.RequestID); err != nil {
			t.Errorf("just before: %v", err)
		}
		e.advance(time.Microsecond)
		if _, err := e.RequestRecord(ctx, owner.ID, a.RequestID); err != kms.ErrNotFound {
			t.Errorf("afterwards: %v", err)
		}
		if _, err := e.AnyRequestRecord(ctx, a.RequestID); err != kms.ErrNotFound {
			t.Errorf("an operator finds it afterwards: %v", err)
		}
		removed, err := e.driver.DeleteExpiredRecords(ctx, keystore.DeleteExpiredRecordsParams{Now: e.clock().UnixMicro(), Limit: 2})
		if err != nil || removed != 2 {
			t.Errorf("%d removed, %v; want as many as the limit", removed, err)
		}
		removed, err = e.driver.DeleteExpiredRecords(ctx, keystore.DeleteExpiredRecordsParams{Now: e.clock().UnixMicro(), Limit: 100})
		if err != nil || removed != 2 {
			t.Errorf("%d removed, %v; want the rest", removed, err)
		}
	})
}
