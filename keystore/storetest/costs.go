package storetest

import (
	"fmt"
	"reflect"
	"testing"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/keystore"
	"github.com/sluice-kms/sluice/kms"
)

func sampleCostIncident(tenant uuid.UUID) *kms.CostIncident {
	share := []kms.CostShare{{Name: "loop", Credits: 12 * kms.Credit, Calls: 3}}
	return &kms.CostIncident{ID: uuid.NewV7(), Tenant: tenant, Node: "api-1", Began: start, Ended: start.Add(5 * time.Minute), Tier: kms.TierGold,
		PolicyVersion: 7, Factor: 400, Line: 2000, Recover: 1000, PeakRisk: 3100, PeakAt: start.Add(time.Minute),
		Used: 12 * kms.Credit, Refused: kms.Credit, Calls: 3, RefusedCalls: 1, Planned: kms.Credit, Over: 11 * kms.Credit,
		Stopped: start.Add(3 * time.Minute), StoppedUsed: 12 * kms.Credit, SpanSeconds: 60,
		Predicted:  kms.CostPrediction{StopsAt: start.Add(3 * time.Minute), Credits: 12 * kms.Credit},
		Timeline:   []kms.CostPoint{{Used: 12 * kms.Credit, Calls: 3, Risk: 3100, Stage: kms.CostStopped}},
		Changes:    []kms.CostChange{{At: start, Component: "loop", To: kms.CostNoBulk, Risk: 2100, PerMinute: kms.Credit}},
		Components: share, Keys: share, Operations: share, Credentials: share,
		Causes: []kms.CostCause{{Code: kms.CauseHotKey, Detail: "detail", Advice: "advice"}}}
}

// incident stores an incident, and a lift.
func (e *env) incident(t testing.TB, tenant uuid.UUID) *kms.CostIncident {
	t.Helper()
	i := sampleCostIncident(tenant)
	if err := e.AddCostIncident(t.Context(), i); err != nil {
		t.Fatal(err)
	}
	if err := e.NoteCostLift(t.Context(), tenant); err != nil {
		t.Fatal(err)
	}
	return i
}

func testCostIncidents(t *testing.T, open func(*testing.T) keystore.Driver) {
	e := newEnv(t, open(t))
	ctx := t.Context()
	t.Run("ComeBackAsTheyWereStored", func(t *testing.T) {
		i := e.incident(t, e.tenant(t, "kept").ID)
		again := *i
		again.Node = "another"
		if err := e.AddCostIncident(ctx, &again); err != nil {
			t.Fatal(err)
		}
		if got, err := e.CostIncident(ctx, i.Tenant, i.ID); err != nil || !reflect.DeepEqual(got, i) {
			t.Errorf("%+v, %v, want %+v", got, err, i)
		}
	})
	t.Run("ListBeginsWithTheLatest", func(t *testing.T) {
		tenant := e.tenant(t, "listed").ID
		var want []uuid.UUID
		for range 5 {
			want = append([]uuid.UUID{e.incident(t, tenant).ID}, want...)
		}
		var got []uuid.UUID
		page := kms.Page{Size: 2}
		for {
			list, next, err := e.ListCostIncidents(ctx, tenant, page)
			if err != nil {
				t.Fatal(err)
			}
			for _, i := range list {
				got = append(got, i.ID)
			}
			if page.Token = next; next == "" {
				break
			}
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	})
	t.Run("OfTooManyTheOldestGo", func(t *testing.T) {
		tenant, other := e.tenant(t, "many").ID, e.tenant(t, "other")
		theirs := e.incident(t, other.ID)
		first := e.incident(t, tenant)
		for range kms.MaxCostIncidents {
			e.incident(t, tenant)
		}
		list, _, err := e.ListCostIncidents(ctx, tenant, kms.Page{Size: kms.MaxPageSize})
		if err != nil || len(list) != kms.MaxCostIncidents {
			t.Errorf("%d are kept, %v", len(list), err)
		}
		_, err = e.CostIncident(ctx, tenant, first.ID)
		wantKind(t, "the oldest", err, kms.KindNotFound)
		if _, err := e.CostIncident(ctx, other.ID, theirs.ID); err != nil {
			t.Errorf("another tenant's: %v", err)
		}
	})
	t.Run("OldOnesAreRemoved", func(t *testing.T) {
		i := e.incident(t, e.tenant(t, "old").ID)
		for _, before := range []time.Time{i.Ended.Add(-time.Second), i.Ended} {
			n, err := e.driver.DeleteCostIncidents(ctx, keystore.DeleteCostIncidentsParams{Before: before.UnixMicro(), Limit: 1000})
			if gone := n > 0; err != nil || gone == before.Before(i.Ended) {
				t.Errorf("%d of those that ended by %v are removed, %v", n, before, err)
			}
		}
		_, err := e.CostIncident(ctx, i.Tenant, i.ID)
		wantKind(t, "the removed one", err, kms.KindNotFound)
	})
	t.Run("LiftIsTheLast", func(t *testing.T) {
		tenant := e.tenant(t, "lifted").ID
		if at, err := e.CostLifted(ctx, tenant); err != nil || !at.IsZero() {
			t.Errorf("before there is one: %v, %v", at, err)
		}
		for range 2 {
			e.advance(time.Hour)
			if err := e.NoteCostLift(ctx, tenant); err != nil {
				t.Fatal(err)
			}
			if got, err := e.CostLifted(ctx, tenant); err != nil || !got.Equal(e.clock()) {
				t.Errorf("lifted at %v, %v, want %v", got, err, e.clock())
			}
		}
	})
	t.Run("WhatIsNoIncidentIsNotStored", func(t *testing.T) {
		tenant := e.tenant(t, "wrong").ID
		for name, edit := range map[string]func(*kms.CostIncident){
			"no id":           func(i *kms.CostIncident) { i.ID = uuid.UUID{} },
			"no tenant":       func(i *kms.CostIncident) { i.Tenant = uuid.UUID{} },
			"ended too early": func(i *kms.CostIncident) { i.Ended = i.Began.Add(-time.Second) },
			"too large": func(i *kms.CostIncident) {
				for n := range 3000 {
					i.Keys = append(i.Keys, kms.CostShare{Name: fmt.Sprint("a name that is not short at all, ", n)})
				}
			},
		} {
			i := sampleCostIncident(tenant)
			edit(i)
			wantKind(t, name, e.AddCostIncident(ctx, i), kms.KindInvalidArgument)
		}
	})
}
