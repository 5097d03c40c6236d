package kms_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// batchOf makes items that encrypt with the stage's key, each after before.
func (s *stage) batchOf(n int, before func(i int)) []kms.BatchItem {
	items := make([]kms.BatchItem, n)
	for i := range items {
		item := &items[i]
		item.Ticket, item.Op = &kms.Ticket{}, kms.OpEncrypt
		item.Do = func(ctx context.Context) error {
			before(i)
			_, err := s.svc.Encrypt(ctx, item.Ticket, "orders", kms.EncryptInput{Plaintext: []byte("x")})
			return err
		}
	}
	return items
}

// outcomes counts the entries by operation and outcome.
func (s *stage) outcomes() map[kms.Op]map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[kms.Op]map[string]int{}
	for _, e := range s.entries {
		if all[e.Op] == nil {
			all[e.Op] = map[string]int{}
		}
		all[e.Op][e.Outcome]++
	}
	return all
}

// TestItemsHoldNothingWhileTheyWaitForTheJournal: every item leaves the count of
// concurrent requests before the first is recorded, and is settled after the
// last, once.
func TestItemsHoldNothingWhileTheyWaitForTheJournal(t *testing.T) {
	s := newStage(t)
	ticket := s.ticket(t, "key:encrypt")
	items := s.batchOf(20, func(int) {})
	if err := s.svc.Batch(t.Context(), ticket, items); err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for _, step := range s.steps {
		count[step]++
		if step == "journal" && count["leave"] != 20 {
			t.Fatalf("recorded when %d had left", count["leave"])
		}
		if step == "settle" && count["journal"] != 21 {
			t.Fatalf("settled when %d were recorded", count["journal"])
		}
	}
	if count["leave"] != 20 || count["settle"] != 20 || count["observe"] != 21 {
		t.Errorf("the steps are %v", count)
	}
	for i := range items {
		if items[i].Err != nil || items[i].Ticket.Settled.State != kms.Settled || items[i].Ticket.RequestID != kms.ItemID(ticket.RequestID, i) {
			t.Errorf("item %d is %+v", i, items[i])
		}
	}
	if ticket.Settled.Charged != 20*12*kms.Credit {
		t.Errorf("the batch cost %d", ticket.Settled.Charged)
	}
}

func TestItemsNotRecordedAreNeitherToldNorCharged(t *testing.T) {
	s := newStage(t)
	s.fail["journal"] = errors.New("disk full")
	items := s.batchOf(5, func(int) {})
	if err := s.svc.Batch(t.Context(), s.ticket(t, "key:encrypt"), items); kms.KindOf(err) != kms.KindAuditUnavailable {
		t.Errorf("the batch ends with %v", err)
	}
	for _, settled := range s.settled {
		if settled.Charged != 0 || settled.State != kms.Cancelled {
			t.Errorf("charged %+v", settled)
		}
	}
	for i := range items {
		if kms.KindOf(items[i].Err) != kms.KindAuditUnavailable {
			t.Errorf("item %d ends with %v", i, items[i].Err)
		}
	}
	if len(s.settled) != 5 {
		t.Errorf("%d are settled", len(s.settled))
	}
}

// TestItemsNotBegunWhenTheClientLeavesAreRefused: those under way are carried
// out, as single calls would be, and each has its entry.
func TestItemsNotBegunWhenTheClientLeavesAreRefused(t *testing.T) {
	s := newStage(t)
	ctx, leave := context.WithCancel(t.Context())
	var begun atomic.Int64
	items := s.batchOf(100, func(i int) {
		begun.Add(1)
		if i == 30 {
			leave()
		} else if i > 30 {
			<-ctx.Done() // however long it takes to leave
		}
	})
	if err := s.svc.Batch(ctx, s.ticket(t, "key:encrypt"), items); err != nil {
		t.Fatal(err)
	}
	n := int(begun.Load())
	if n < 31 || n > 31+8 {
		t.Errorf("%d items began", n)
	}
	outcomes := s.outcomes()
	if got := outcomes[kms.OpEncrypt]; got["ok"] != n || got["wait_exceeded"] != 100-n || outcomes[kms.OpBatch]["ok"] != 1 {
		t.Errorf("%d began; the entries are %v", n, outcomes)
	}
	if calls := count(s.steps, "device a"); calls != n {
		t.Errorf("%d calls of the HSM for %d items", calls, n)
	}
	for i := range items {
		if (items[i].Err == nil) != (items[i].Ticket.Node != "") {
			t.Errorf("item %d ends with %v on %q", i, items[i].Err, items[i].Ticket.Node)
		}
	}
}

func count(steps []string, step string) (n int) {
	for _, s := range steps {
		if s == step {
			n++
		}
	}
	return n
}

// TestDeadlineHoldsForTheWholeBatch, and there is one where the client sets none.
func TestDeadlineHoldsForTheWholeBatch(t *testing.T) {
	for _, c := range []struct {
		name     string
		deadline time.Duration
		want     int // items that begin
	}{{"the client's", 10 * time.Second, 10 * 8}, {"none", 0, 60 * 8}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t)
				began := time.Now()
				s.now = func() time.Time { return s.clock.Add(time.Since(began)) }
				ticket := s.ticket(t, "key:encrypt")
				ticket.Received = s.now()
				if c.deadline > 0 {
					ticket.Deadline = ticket.Received.Add(c.deadline)
				}
				items := s.batchOf(500, func(int) { time.Sleep(time.Second) })
				if err := s.svc.Batch(t.Context(), ticket, items); err != nil {
					t.Fatal(err)
				}
				got := s.outcomes()[kms.OpEncrypt]
				if got["ok"] != c.want || got["wait_exceeded"] != 500-c.want {
					t.Errorf("%v", got)
				}
			})
		})
	}
}

// TestSlowBatchIsRecordedAsItGoes: what is over is not kept from the journal for
// as long as the slowest item takes.
func TestSlowBatchIsRecordedAsItGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		began := time.Now()
		s.now = func() time.Time { return s.clock.Add(time.Since(began)) }
		ticket := s.ticket(t, "key:encrypt")
		ticket.Received = s.now()
		recorded := -1
		items := s.batchOf(40, func(i int) {
			time.Sleep(50 * time.Millisecond)
			if i == 39 {
				s.mu.Lock()
				recorded = len(s.entries)
				s.mu.Unlock()
			}
		})
		if err := s.svc.Batch(t.Context(), ticket, items); err != nil {
			t.Fatal(err)
		}
		if recorded < 16 || len(s.entries) != 41 {
			t.Errorf("%d of %d entries were recorded before the last item", recorded, len(s.entries))
		}
	})
}

// TestBatchTakesUpFewItemsAtOnce, so that it leaves room for the tenant's other
// calls.
func TestBatchTakesUpFewItemsAtOnce(t *testing.T) {
	s := newStage(t)
	var mu sync.Mutex
	now, most := 0, 0
	items := s.batchOf(200, func(int) {
		mu.Lock()
		now++
		most = max(most, now)
		mu.Unlock()
	})
	for i := range items {
		do := items[i].Do
		items[i].Do = func(ctx context.Context) error {
			err := do(ctx)
			mu.Lock()
			now--
			mu.Unlock()
			return err
		}
	}
	if err := s.svc.Batch(t.Context(), s.ticket(t, "key:encrypt"), items); err != nil {
		t.Fatal(err)
	}
	if most > 8 {
		t.Errorf("%d items at once", most)
	}
}

func TestPanicInAnItemIsItsOwn(t *testing.T) {
	s := newStage(t)
	items := s.batchOf(3, func(i int) {
		if i == 1 {
			panic("a value with a secret in it")
		}
	})
	if err := s.svc.Batch(t.Context(), s.ticket(t, "key:encrypt"), items); err != nil {
		t.Fatal(err)
	}
	if items[0].Err != nil || items[2].Err != nil || kms.KindOf(items[1].Err) != kms.KindInternal {
		t.Errorf("%v, %v, %v", items[0].Err, items[1].Err, items[2].Err)
	}
}

func TestIDsOfItemsAreOfTheirBatchAndPlace(t *testing.T) {
	batch := uuid.MustParse("019f0000-0000-7000-8000-fffffffffffe")
	var ids []string
	for i := range 3 {
		ids = append(ids, kms.ItemID(batch, i).String())
	}
	if want := []string{"019f0000-0000-7000-8000-ffffffffffff", "019f0000-0000-7000-8000-000000000000", "019f0000-0000-7000-8000-000000000001"}; !slices.Equal(ids, want) {
		t.Errorf("%v", ids)
	}
}
