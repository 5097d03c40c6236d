package kms_test

import (
	"testing"
	"time"

	"github.com/sluice-kms/sluice/kms"
)

func TestEntriesCountForWhatTheyStandFor(t *testing.T) {
	base := kms.Entry{Phase: kms.PhaseOutcome, Op: kms.OpSign, Outcome: "ok", Spec: kms.SpecSM2, Charged: 12 * kms.Credit, Bytes: 32,
		SlotTime: time.Millisecond, Wait: time.Second}
	for name, c := range map[string]struct {
		change    func(*kms.Entry)
		reason    string
		algorithm string
		sum       kms.UsageSum
	}{
		"a request that was served": {func(*kms.Entry) {}, "", "SM2", kms.UsageSum{Requests: 1, Charged: 12 * kms.Credit, Bytes: 32, SlotTime: time.Millisecond, Wait: time.Second}},
		"one that waited":           {func(e *kms.Entry) { e.Reasons = []kms.Reason{{Code: "SHARE", Waited: 1}} }, "", "SM2", kms.UsageSum{Requests: 1, Charged: 12 * kms.Credit, Bytes: 32, SlotTime: time.Millisecond, Wait: time.Second}},
		"one with an algorithm":     {func(e *kms.Entry) { e.Algorithm = kms.AlgSM2DSA }, "", "SM2DSA", kms.UsageSum{Requests: 1, Charged: 12 * kms.Credit, Bytes: 32, SlotTime: time.Millisecond, Wait: time.Second}},
		"a flood of refusals": {func(e *kms.Entry) { *e = kms.Entry{Phase: kms.PhaseOutcome, Outcome: "not_found", Count: 250} }, "not_found", "",
			kms.UsageSum{Requests: 250}},
		"a refusal with its reason": {func(e *kms.Entry) {
			e.Outcome, e.Charged, e.SlotTime = "quota_exceeded", 0, 0
			e.Reasons = []kms.Reason{{Code: "TENANT_RATE"}, {Code: "SHARE", Waited: 1}}
		}, "TENANT_RATE", "SM2", kms.UsageSum{Requests: 1, Bytes: 32, Wait: time.Second}},
		"a refusal after a wait": {func(e *kms.Entry) {
			e.Outcome, e.Charged, e.SlotTime = "wait_exceeded", 0, 0
			e.Reasons = []kms.Reason{{Code: "SHARE", Waited: 1}}
		}, "wait_exceeded", "SM2", kms.UsageSum{Requests: 1, Bytes: 32, Wait: time.Second}},
		"a failure that is charged in part": {func(e *kms.Entry) { e.Outcome, e.Charged = "decryption_failed", kms.Credit }, "decryption_failed", "SM2",
			kms.UsageSum{Requests: 1, Charged: kms.Credit, Bytes: 32, SlotTime: time.Millisecond, Wait: time.Second}},
		"a dry run": {func(e *kms.Entry) { e.DryRun, e.Charged, e.SlotTime, e.Wait = true, 0, 0, 0 }, kms.UsageDryRun, "SM2", kms.UsageSum{Requests: 1}},
		"a dry run that is refused": {func(e *kms.Entry) {
			e.DryRun, e.Outcome, e.Charged, e.SlotTime, e.Wait = true, "permission_denied", 0, 0, 0
		},
			"permission_denied", "SM2", kms.UsageSum{Requests: 1}},
		"a repetition": {func(e *kms.Entry) { e.Replayed, e.Charged, e.SlotTime, e.Wait, e.Bytes = true, kms.Credit, 0, 0, 0 }, kms.UsageReplayed, "SM2",
			kms.UsageSum{Requests: 1, Charged: kms.Credit}},
		"versions that were rewrapped": {func(e *kms.Entry) {
			*e = kms.Entry{Phase: kms.PhaseOutcome, Op: kms.OpRewrapKeys, Outcome: "ok", Count: 900}
		}, "", "",
			kms.UsageSum{Requests: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			e := base
			c.change(&e)
			key, sum, ok := e.Usage()
			if !ok || key.Reason != c.reason || key.Algorithm != c.algorithm || sum != c.sum {
				t.Errorf("%+v, %+v, %v", key, sum, ok)
			}
		})
	}
	base.Phase = kms.PhaseIntent
	if _, _, ok := base.Usage(); ok {
		t.Error("an intent counts, and its outcome again")
	}
}

func TestPeriodsBeginInUTC(t *testing.T) {
	at := time.Date(2026, 3, 1, 0, 30, 59, 1, time.FixedZone("UTC+1", 3600))
	for g, want := range map[kms.Granularity]time.Time{
		kms.ByMinute: time.Date(2026, 2, 28, 23, 30, 0, 0, time.UTC),
		kms.ByHour:   time.Date(2026, 2, 28, 23, 0, 0, 0, time.UTC),
		kms.ByDay:    time.Date(2026, 2, 28, 0, 0, 0, 0, time.UTC),
	} {
		if got := g.Start(at); !got.Equal(want) {
			t.Errorf("%s: %v, want %v", g, got, want)
		}
	}
}

// A node that has ended holds up nobody; one that is silent does.
func TestCompleteUntilIsTheLatestThatAllRunningNodesTold(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	for name, c := range map[string]struct {
		nodes []kms.ShippedNode
		want  time.Time
	}{
		"none":             {nil, time.Time{}},
		"the slowest":      {[]kms.ShippedNode{{Until: at(9)}, {Until: at(5)}, {Until: at(7)}}, at(5)},
		"one that ended":   {[]kms.ShippedNode{{Until: at(1), Ended: true}, {Until: at(5)}}, at(5)},
		"all of them have": {[]kms.ShippedNode{{Until: at(1), Ended: true}}, time.Time{}},
	} {
		if got := kms.CompleteUntil(c.nodes); !got.Equal(c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
