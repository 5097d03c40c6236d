package kms_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// keep lets a keeper look once at a stage, made inside the bubble as its
// channels must be, on which the key is due; while it runs, act is called.
func keep(t *testing.T, prepare func(*stage), act func(*testing.T, *stage)) *stage {
	t.Helper()
	var s *stage
	synctest.Test(t, func(t *testing.T) {
		s = newStage(t)
		s.due = 1
		prepare(s)
		k := s.svc.StartKeeper()
		synctest.Wait()
		if act != nil {
			act(t, s)
			synctest.Wait()
		}
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func did(s *stage, step string) bool { return slices.Contains(s.steps, step) }

// stageNow is the stage's present.
var stageNow = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func TestKeyIsDestroyedAtItsDateAndNotBefore(t *testing.T) {
	for _, c := range []struct {
		name string
		date time.Time
		want bool
	}{
		{"at its date", stageNow, true},
		{"after it", stageNow.Add(-time.Hour), true},
		{"before it", stageNow.Add(time.Second), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := keep(t, func(s *stage) { s.key.State, s.key.DeletionDate = kms.KeyPendingDeletion, c.date }, nil)
			if got := did(s, "destroy key"); got != c.want {
				t.Errorf("destroyed: %v, want %v (%v)", got, c.want, s.steps)
			}
			if c.want && (len(s.entries) != 2 || s.entries[0].Phase != kms.PhaseIntent || s.entries[1].Component != "keeper") {
				t.Errorf("entries %+v", s.entries)
			}
		})
	}
}

func TestCancelledDeletionWins(t *testing.T) {
	s := keep(t, func(s *stage) { s.key.State = kms.KeyDisabled }, nil)
	if did(s, "destroy key") {
		t.Error("a key whose deletion was cancelled was destroyed")
	}
}

func TestDestructionWithoutItsIntentDoesNotHappen(t *testing.T) {
	s := keep(t, func(s *stage) {
		s.key.State, s.key.DeletionDate = kms.KeyPendingDeletion, stageNow
		s.fail["intent"] = kms.Errorf(kms.KindAuditUnavailable, "disk full")
	}, nil)
	if did(s, "destroy key") {
		t.Error("a key was destroyed without a trace")
	}
}

func TestVersionsAreDestroyedAtTheirDates(t *testing.T) {
	s := keep(t, func(s *stage) {
		s.key.Primary = 3
		s.key.Versions = []*kms.Version{
			{ID: uuid.New(), Number: 1, State: kms.VersionPendingDestruction, DestroyAt: stageNow},
			{ID: uuid.New(), Number: 2, State: kms.VersionPendingDestruction, DestroyAt: stageNow.Add(time.Hour)},
			{ID: uuid.New(), Number: 3, State: kms.VersionEnabled},
		}
	}, nil)
	if !did(s, "destroy version 1") || did(s, "destroy version 2") || did(s, "destroy version 3") {
		t.Errorf("steps %v", s.steps)
	}
}

func TestRotationIsDoneAtItsDateAndSetsTheNext(t *testing.T) {
	s := keep(t, func(s *stage) { s.key.RotationPeriod, s.key.NextRotation = 48*time.Hour, stageNow }, nil)
	if !did(s, "store") || !s.next.Equal(stageNow.Add(48*time.Hour)) {
		t.Errorf("steps %v, next %v", s.steps, s.next)
	}
	s = keep(t, func(s *stage) {
		s.key.State, s.key.RotationPeriod, s.key.NextRotation = kms.KeyDisabled, 48*time.Hour, stageNow
	}, nil)
	if did(s, "store") {
		t.Error("a disabled key was rotated")
	}
}

func TestHalfOfTheNonceBudgetRotatesTheKey(t *testing.T) {
	s := keep(t, func(s *stage) { s.due, s.leased = 0, 1<<31 }, func(t *testing.T, s *stage) {
		if err := s.encrypt(t, s.ticket(t, "key:encrypt")); err != nil {
			t.Error(err)
		}
	})
	if !did(s, "store") {
		t.Errorf("the key was not rotated: %v", s.steps)
	}
}

func TestLastUseOfAKeyIsStored(t *testing.T) {
	s := keep(t, func(s *stage) { s.due = 0 }, func(t *testing.T, s *stage) {
		if err := s.encrypt(t, s.ticket(t, "key:encrypt")); err != nil {
			t.Error(err)
		}
		if _, err := s.svc.DescribeKey(context.Background(), s.ticket(t, "key:describe"), "orders"); err != nil {
			t.Error(err)
		}
	})
	if len(s.touched) != 1 || s.touched[0].Op != kms.OpEncrypt || !s.touched[0].Time.Equal(stageNow) {
		t.Errorf("uses %+v", s.touched)
	}
}

// dueAmongFailing is the list of due keys when those that cannot be acted on are
// due before the stage's own.
func (s *stage) dueAmongFailing(after kms.DueKey, limit int) (due []kms.DueKey) {
	first := stageNow.Add(-time.Hour)
	for i := range s.failing + 1 {
		d := kms.DueKey{Due: first.Add(time.Duration(i) * time.Microsecond), Tenant: s.key.Tenant.ID}
		if i == s.failing {
			d.Key = s.key.ID
		}
		if d.Due.After(after.Due) && len(due) < limit {
			due = append(due, d)
		}
	}
	return due
}

func TestFailingKeysDoNotBlockOthers(t *testing.T) {
	for name, failing := range map[string]int{"a page of them": 100, "all but one": 99, "many pages": 1234} {
		t.Run(name, func(t *testing.T) {
			looks := 0
			prepare := func(s *stage) {
				s.failing = failing
				s.key.State, s.key.DeletionDate = kms.KeyPendingDeletion, stageNow
				s.reached = func(step string) {
					if step == "lookup" {
						looks++
					}
				}
			}
			s := keep(t, prepare, func(t *testing.T, s *stage) {
				if !did(s, "destroy key") {
					t.Error("the key behind them was not destroyed")
				}
			})
			// One look at each key a minute, however long it fails.
			if looks < failing+1 || looks > failing+10 {
				t.Errorf("%d looks at %d keys (%v)", looks, failing+1, s.steps[len(s.steps)-5:])
			}
		})
	}
}

// TestALookThatRanOutOfTimeGoesOn has a list that is longer than what the keeper
// gets done in a minute, in which all keys but the last stay due.
func TestALookThatRanOutOfTimeGoesOn(t *testing.T) {
	s := keep(t, func(s *stage) {
		s.failing = 20
		s.key.State, s.key.DeletionDate = kms.KeyPendingDeletion, stageNow
		s.reached = func(step string) {
			if step == "lookup" {
				time.Sleep(20 * time.Second) // virtual
			}
		}
	}, func(*testing.T, *stage) { time.Sleep(10 * time.Minute) }) // virtual
	if !did(s, "destroy key") {
		t.Error("the last key was not reached")
	}
}

func TestFailingStoreDoesNotStopTheKeeper(t *testing.T) {
	s := keep(t, func(s *stage) {
		s.dueFails = 1
		s.key.State, s.key.DeletionDate = kms.KeyPendingDeletion, stageNow
	}, func(*testing.T, *stage) { time.Sleep(2 * time.Minute) }) // virtual
	if !did(s, "destroy key") {
		t.Error("the keeper did not come back")
	}
}
