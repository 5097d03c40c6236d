package storetest

import (
	"slices"
	"testing"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/keystore"
	"github.com/sluice-kms/sluice/kms"
)

func (e *env) usage(t *testing.T, q kms.UsageQuery) []kms.UsageRow {
	t.Helper()
	rows, err := e.Usage(t.Context(), &q)
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

func testUsage(t *testing.T, open func(*testing.T) keystore.Driver) {
	e := newEnv(t, open(t))
	mine, other := uuid.NewV7(), uuid.NewV7()
	entries := make([]*kms.Entry, 5)
	for i := range entries {
		entries[i] = trailEntry(mine, i*60)
	}
	entries[1].Project, entries[2].Component, entries[2].Key = "else", "else", uuid.UUID{9}
	entries[3].Op, entries[3].Algorithm, entries[3].PolicyVersion = kms.OpVerify, kms.AlgSM2DSA, 4
	entries[4].Outcome, entries[4].Charged, entries[4].Reasons = "quota_exceeded", 0, []kms.Reason{{Code: "TENANT_RATE"}}
	theirs := trailEntry(other, 0)
	e.ship(t, batchOf("a", kms.TrailHead{}, append(entries, theirs)...))

	day := kms.UsageQuery{Tenant: mine, Granularity: kms.ByDay, From: kms.ByDay.Start(start), To: start.AddDate(0, 0, 1)}
	by := func(q kms.UsageQuery, dimensions ...kms.Dimension) kms.UsageQuery {
		q.By = dimensions
		return q
	}
	only := func(q kms.UsageQuery, d kms.Dimension, value string) kms.UsageQuery {
		q.Where = map[kms.Dimension]string{d: value}
		return q
	}
	all := day
	all.Tenant = uuid.Nil()
	for what, c := range map[string]struct {
		q        kms.UsageQuery
		requests []int64 // by row
	}{
		"a total":          {day, []int64{5}},
		"by project":       {by(day, kms.DimensionProject), []int64{1, 4}},
		"by component":     {by(day, kms.DimensionComponent), []int64{1, 4}},
		"by key":           {by(day, kms.DimensionKey), []int64{4, 1}},
		"by algorithm":     {by(day, kms.DimensionAlgorithm), []int64{4, 1}}, // "SM2" is before "SM2DSA"
		"by operation":     {by(day, kms.DimensionOperation), []int64{4, 1}},
		"by reason":        {by(day, kms.DimensionReason), []int64{4, 1}},
		"by policy":        {by(day, kms.DimensionPolicy), []int64{4, 1}},
		"by everything":    {by(day, kms.Dimensions()...), []int64{1, 1, 1, 1, 1}},
		"one project":      {only(day, kms.DimensionProject, "else"), []int64{1}},
		"one component":    {only(day, kms.DimensionComponent, "else"), []int64{1}},
		"one key":          {only(day, kms.DimensionKey, uuid.UUID{9}.String()), []int64{1}},
		"one algorithm":    {only(day, kms.DimensionAlgorithm, "SM2DSA"), []int64{1}},
		"one operation":    {only(day, kms.DimensionOperation, "verify"), []int64{1}},
		"what was served":  {only(day, kms.DimensionReason, ""), []int64{4}},
		"what was refused": {only(day, kms.DimensionReason, "TENANT_RATE"), []int64{1}},
		"everybody's":      {all, []int64{6}},
	} {
		t.Run(what, func(t *testing.T) {
			var got []int64
			for _, u := range e.usage(t, c.q) {
				got = append(got, u.Requests)
			}
			if !slices.Equal(got, c.requests) {
				t.Errorf("rows of %v requests, want %v", got, c.requests)
			}
		})
	}
	t.Run("TenantsAreToldApart", func(t *testing.T) {
		got := map[uuid.UUID]int64{}
		for _, u := range e.usage(t, by(all, kms.DimensionTenant)) {
			got[u.Tenant] = u.Requests
		}
		if len(got) != 2 || got[mine] != 5 || got[other] != 1 {
			t.Errorf("%v", got)
		}
	})
	t.Run("SumsAreRight", func(t *testing.T) {
		want := kms.UsageSum{Requests: 5, Charged: 48 * kms.Credit, Bytes: 160, SlotTime: 5 * time.Millisecond, Wait: 5 * time.Microsecond}
		if rows := e.usage(t, day); rows[0].UsageSum != want || !rows[0].Start.Equal(kms.ByDay.Start(start)) {
			t.Errorf("%+v, want %+v", rows[0], want)
		}
	})
	t.Run("PeriodsAreCutAsAsked", func(t *testing.T) {
		minutes := day
		minutes.Granularity, minutes.From, minutes.To = kms.ByMinute, kms.ByMinute.Start(start).Add(time.Minute), kms.ByMinute.Start(start).Add(3*time.Minute)
		rows := e.usage(t, minutes)
		if len(rows) != 2 || !rows[0].Start.Equal(minutes.From) || !rows[1].Start.Equal(minutes.From.Add(time.Minute)) {
			t.Errorf("%+v", rows)
		}
		hours := day
		hours.Granularity = kms.ByHour
		if rows := e.usage(t, hours); len(rows) != 1 || rows[0].Requests != 5 {
			t.Errorf("%+v", rows)
		}
	})
	t.Run("UnknownValuesAreRefused", func(t *testing.T) {
		for _, q := range []kms.UsageQuery{only(day, kms.DimensionKey, "orders"), only(day, kms.DimensionPolicy, "1"), only(day, kms.DimensionProject, "\x00")} {
			_, err := e.Usage(t.Context(), &q)
			wantKind(t, "usage", err, kms.KindInvalidArgument)
		}
	})
}
