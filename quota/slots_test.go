package quota_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-kms/sluice/quota"
	"github.com/sluice-kms/sluice/quota/inmem"
)

const tokenSlots = 16

// sharer is a process that shares a token. It uses what it is given as long as
// it has work for it.
type sharer struct {
	stop     context.CancelFunc
	failures []error // told by Failed

	mu           sync.Mutex // guards the rest
	part, wanted int
	weight       int64
	stuck        int // slots that work holds, whatever the part is
}

func (s *sharer) busy() int { return max(min(s.part, s.wanted), s.stuck) }

// pool are processes that share a token, in a bubble.
type pool struct {
	store   *inmem.Store
	sharers []*sharer
	running sync.WaitGroup
}

func newPool(t testing.TB, n int) *pool {
	p := &pool{store: inmem.New(time.Now)}
	for i := range n {
		p.add(t, i)
	}
	return p
}

func (p *pool) add(t testing.TB, i int) {
	policies, err := quota.NewPolicies(time.Now, 1, quota.DefaultPolicy())
	if err != nil {
		t.Fatal(err)
	}
	s := &sharer{weight: 1000}
	ctx, cancel := context.WithCancel(context.Background())
	s.stop = cancel
	p.sharers = append(p.sharers, s)
	sharing := &quota.SlotSharing{
		Backing: p.store, Policies: policies, Clock: time.Now, Node: fmt.Sprint("api-", i), Epoch: uint64(i) + 1,
		Demands: func() []quota.NodeDemand {
			s.mu.Lock()
			defer s.mu.Unlock()
			return []quota.NodeDemand{{Token: "hsm-1", Slots: tokenSlots, Busy: s.busy(), Wanted: max(s.wanted, s.stuck), Weight: s.weight}}
		},
		Apply: func(_ string, slots int) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.part = slots
		},
		Failed: func(err error) { s.failures = append(s.failures, err) },
	}
	p.running.Go(func() { sharing.Run(ctx) })
}

func (p *pool) want(i, wanted int, weight int64) {
	s := p.sharers[i]
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wanted, s.weight = wanted, weight
}

// parts are what the processes have when all have done what is due now.
func (p *pool) parts() (parts []int, together int) {
	synctest.Wait()
	for _, s := range p.sharers {
		s.mu.Lock()
		parts = append(parts, s.part)
		together += max(s.part, s.busy())
		s.mu.Unlock()
	}
	return parts, together
}

// leave ends a process; what it had is nobody's.
func (p *pool) leave(i int) {
	s := p.sharers[i]
	s.stop()
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.part = 0
}

func (p *pool) close() {
	for _, s := range p.sharers {
		s.stop()
	}
	p.running.Wait()
}

// Two API nodes with as much work as they like have a token's slots by the
// weights of those who sent it; what one does not want the other has.
func TestSlotsOfATokenGoByTheWeightOfTheWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, 2)
		defer p.close()
		expect := func(when string, want ...int) {
			t.Helper()
			time.Sleep(2 * time.Second)
			parts, together := p.parts()
			for i := range want {
				if parts[i] != want[i] {
					t.Errorf("%s: %v, want %v", when, parts, want)
					break
				}
			}
			if together > tokenSlots {
				t.Errorf("%s: %d slots together", when, together)
			}
		}
		expect("without work", 8, 8)
		p.want(0, 100, 3000)
		expect("one has work", 15, 1)
		p.want(1, 100, 1000)
		expect("both have work", 12, 4)
		p.want(0, 100, 1000)
		expect("by equal weights", 8, 8)
		p.want(0, 2, 9000)
		expect("one wants little", 3, 13)
		p.want(0, 100, 1_000_000)
		p.want(1, 0, 1)
		expect("the other has no work, and no weight", 15, 1)
		p.want(0, 0, 1)
		p.want(1, 100, 1_000_000)
		expect("the first has none", 1, 15)
		p.leave(0)
		expect("one has left", 0, 16)
	})
}

// What a process had for work that has ended is the others' within half a
// second, although it was much and its tenants still count as active.
func TestSlotsOfAProcessWithoutWorkGoToTheOthersSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, 2)
		defer p.close()
		p.want(0, 100, 1000)
		p.want(1, 100, 1000)
		time.Sleep(2 * time.Second)
		p.want(0, 0, 1000)
		time.Sleep(500 * time.Millisecond)
		if parts, _ := p.parts(); parts[0] != 1 || parts[1] != 15 {
			t.Errorf("half a second after its work ended they have %v, want 1 and 15", parts)
		}
	})
}

// While the store is away, processes go on with what they have, then with the
// whole divided by their number; none is without, and none has all.
func TestSlotsAreDividedWhileTheStoreIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, 4)
		defer p.close()
		p.want(0, 100, 1000)
		time.Sleep(2 * time.Second)
		before, _ := p.parts()
		if before[0] != 13 {
			t.Errorf("before: %v", before)
		}
		p.store.Fail(errors.New("away"))
		time.Sleep(time.Second)
		if parts, _ := p.parts(); parts[0] != before[0] {
			t.Errorf("after a second: %v", parts)
		}
		time.Sleep(4 * time.Second)
		if parts, _ := p.parts(); fmt.Sprint(parts) != "[4 4 4 4]" {
			t.Errorf("while it is away: %v", parts)
		}
		p.store.Fail(nil)
		time.Sleep(2 * time.Second)
		if parts, together := p.parts(); parts[0] != 13 || together > tokenSlots {
			t.Errorf("afterwards: %v", parts)
		}
		if told := p.sharers[0].failures; len(told) != 2 || told[0] == nil || told[1] != nil {
			t.Errorf("told of failures: %v", told)
		}
	})
}

// Whatever the processes want, and however long their work goes on, together
// they have no more than the token's slots and one for each that has none yet;
// when demands rest, exactly what max-min fairness gives.
func TestSlotsOfATokenAreNotSoldTwice(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(rt, "processes")
		steps := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) [4]int {
			return [4]int{
				rapid.IntRange(0, n-1).Draw(rt, "process"), rapid.IntRange(0, 40).Draw(rt, "wanted"),
				rapid.SampledFrom([]int{200, 1000, 5000, 20_000}).Draw(rt, "weight"), rapid.IntRange(0, 16).Draw(rt, "stuck"),
			}
		}), 1, 12).Draw(rt, "steps")
		synctest.Test(t, func(t *testing.T) {
			p := newPool(t, n)
			defer p.close()
			time.Sleep(time.Second)
			for _, step := range steps {
				s := p.sharers[step[0]]
				s.mu.Lock()
				s.wanted, s.weight = step[1], int64(step[2])
				s.stuck = min(step[3], s.part) // work that holds slots after they were lent away
				s.mu.Unlock()
				for range 20 {
					time.Sleep(50 * time.Millisecond)
					if parts, together := p.parts(); together > tokenSlots+n {
						rt.Fatalf("%v: %d slots are used together", parts, together)
					}
				}
				s.mu.Lock()
				s.stuck = 0
				s.mu.Unlock()
			}
			time.Sleep(3 * time.Second)
			parts, together := p.parts()
			wanted := 0
			for _, s := range p.sharers {
				wanted += min(s.wanted+1, tokenSlots)
			}
			for i, s := range p.sharers {
				ask := min(s.wanted+1, tokenSlots)
				if parts[i] < 1 || wanted <= tokenSlots && parts[i] < ask || wanted > tokenSlots && parts[i] > ask {
					rt.Errorf("process %d wants %d of the %d wanted and has %d", i, ask, wanted, parts[i])
				}
			}
			if together < tokenSlots || together > tokenSlots+n {
				rt.Errorf("%v: %d slots are lent", parts, together)
			}
		})
	})
}
