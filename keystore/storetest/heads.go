package storetest

import (
	"bytes"
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/sluice-kms/sluice/keystore"
	"github.com/sluice-kms/sluice/kms"
)

func sampleHead(node string, sequence uint64, signed time.Time) *kms.JournalHead {
	return &kms.JournalHead{Node: node, Sequence: sequence, Hash: [32]byte{byte(sequence)}, Signed: signed.Truncate(time.Microsecond),
		Algorithm: kms.AlgECDSASHA256, KeyVersion: 1, Signature: []byte{byte(sequence), 2}}
}

func testJournalHeads(t *testing.T, open func(*testing.T) keystore.Driver) {
	e := newEnv(t, open(t))
	ctx := t.Context()
	heads := func(node string, limit int) []kms.JournalHead {
		t.Helper()
		list, err := newEnv(t, e.driver).JournalHeads(ctx, node, limit)
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	put := func(h *kms.JournalHead) {
		t.Helper()
		if err := e.PutJournalHead(ctx, h); err != nil {
			t.Fatal(err)
		}
	}
	begin := start.Truncate(time.Hour)
	if got := heads("a", 10); len(got) != 0 {
		t.Errorf("at the beginning: %v", got)
	}

	t.Run("TheNewestOfAnHourIsKept", func(t *testing.T) {
		for i := range uint64(3) {
			put(sampleHead("a", 1+i, begin.Add(time.Duration(i)*time.Second)))
		}
		put(sampleHead("a", 3, begin.Add(time.Minute))) // signed once more
		put(sampleHead("a", 9, begin.Add(time.Hour)))
		put(sampleHead("b", 4, begin))
		want := []kms.JournalHead{*sampleHead("a", 9, begin.Add(time.Hour)), *sampleHead("a", 3, begin.Add(time.Minute))}
		if got := heads("a", 10); !reflect.DeepEqual(got, want) {
			t.Errorf("the heads are %+v, want %+v", got, want)
		}
		if got := heads("a", 1); len(got) != 1 || got[0].Sequence != 9 {
			t.Errorf("the last is %+v", got)
		}
		if got := heads("b", 10); len(got) != 1 || got[0].Sequence != 4 {
			t.Errorf("of another node: %+v", got)
		}
	})
	t.Run("NoneGoesBack", func(t *testing.T) {
		wantKind(t, "an earlier head", e.PutJournalHead(ctx, sampleHead("a", 2, begin.Add(time.Minute))), kms.KindPreconditionFailed)
		other := sampleHead("a", 3, begin.Add(time.Minute))
		other.Hash[0]++
		wantKind(t, "another head of the record", e.PutJournalHead(ctx, other), kms.KindPreconditionFailed)
		if got := heads("a", 10); len(got) != 2 || got[1].Sequence != 3 {
			t.Errorf("the heads are now %+v", got)
		}
	})
	t.Run("UnusableHeadsAreRefused", func(t *testing.T) {
		for name, spoil := range map[string]func(*kms.JournalHead){
			"no node":          func(h *kms.JournalHead) { h.Node = "" },
			"no record":        func(h *kms.JournalHead) { h.Sequence = 0 },
			"a huge sequence":  func(h *kms.JournalHead) { h.Sequence = math.MaxInt64 + 1 },
			"no whole time":    func(h *kms.JournalHead) { h.Signed = h.Signed.Add(time.Nanosecond) },
			"no algorithm":     func(h *kms.JournalHead) { h.Algorithm = "" },
			"no version":       func(h *kms.JournalHead) { h.KeyVersion = 0 },
			"no signature":     func(h *kms.JournalHead) { h.Signature = nil },
			"a long signature": func(h *kms.JournalHead) { h.Signature = bytes.Repeat([]byte{1}, kms.MaxHeadSignature+1) },
		} {
			h := sampleHead("c", 1, begin)
			spoil(h)
			wantKind(t, name, e.PutJournalHead(ctx, h), kms.KindInvalidArgument)
		}
		for _, limit := range []int{0, -1, kms.MaxPageSize + 1} {
			_, err := e.JournalHeads(ctx, "a", limit)
			wantKind(t, "a limit that is none", err, kms.KindInvalidArgument)
		}
	})
	t.Run("ADamagedHeadIsLeftOut", func(t *testing.T) {
		fresh := newEnv(t, open(t))
		for i := range uint64(2) {
			if err := fresh.PutJournalHead(ctx, sampleHead("a", 1+i, begin.Add(time.Duration(i)*time.Hour))); err != nil {
				t.Fatal(err)
			}
		}
		fresh.driver.(Damager).Damage(t, Damage{Table: "journal_heads", Column: "hash", Value: []byte("3"), Key: "sequence", KeyValue: int64(2)})
		if got, err := fresh.JournalHeads(ctx, "a", 10); err != nil || len(got) != 1 || got[0].Sequence != 1 {
			t.Errorf("the heads are %+v, %v", got, err)
		}
	})
}
