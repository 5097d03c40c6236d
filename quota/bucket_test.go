package quota

import (
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

// drawRate draws rates from one micro-unit a second to the largest of a policy.
func drawRate(t *rapid.T) rate {
	perSecond := rapid.Int64Range(1, 1_000_000*micro).Draw(t, "rate")
	burst := rapid.Int64Range(1, 4_000_000*micro).Draw(t, "burst")
	return rate{perSecond, burst, rapid.Int64Range(0, burst).Draw(t, "overdraft")}
}

func drawRepay(t *rapid.T) repayShare {
	return repayShare(rapid.SampledFrom([]int64{10, 300, 333, 1000}).Draw(t, "repay"))
}

// A float or a clock advanced by what was asked for loses a part of every
// refill: redis-ratelimiting-js#3, seastar#1723, polaris#3433.
func TestSplittingTimeIntoManyRefillsChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, repay := drawRate(t), drawRepay(t)
		level := rapid.Int64Range(0, r.burst).Draw(t, "level")
		debt := rapid.Int64Range(0, r.overdraft).Draw(t, "debt")
		once := bucket{level: level, debt: debt}
		often := once
		var granted, overflow, now int64
		for _, step := range rapid.SliceOfN(rapid.Int64Range(0, 5*second), 1, 40).Draw(t, "steps") {
			now += step
			g, o := often.refill(now, r, repay)
			granted, overflow = granted+g, overflow+o
		}
		g, o := once.refill(now, r, repay)
		if once.level != often.level || once.debt != often.debt {
			t.Fatalf("at once %+v, in steps %+v", once, often)
		}
		if g-o != granted-overflow {
			t.Fatalf("kept at once %d, in steps %d", g-o, granted-overflow)
		}
	})
}

// The exact answer is computed in big integers.
func TestRefillIsExactAndNeverMoreThanRateTimesTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRate(t)
		ns := rapid.Int64Range(0, math.MaxInt64/2).Draw(t, "ns")
		var b bucket
		granted, overflow := b.refill(ns, r, 0)
		exact := new(big.Int).Mul(big.NewInt(ns), big.NewInt(r.perSecond))
		exact.Div(exact, big.NewInt(second))
		want := int64(math.MaxInt64)
		if exact.IsInt64() {
			want = exact.Int64()
		}
		if granted != want || b.level != min(want, r.burst) || b.level+overflow != granted {
			t.Fatalf("granted %d, level %d, overflow %d, exact %v", granted, b.level, overflow, exact)
		}
	})
}

// pd#10744: a time read before the lock was waited for minted tokens.
func TestTimeBeforeTheLastChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, repay := drawRate(t), drawRepay(t)
		b := newBucket(0, 10*second)
		b.refill(20*second, r, repay)
		was := b
		if granted, _ := b.refill(rapid.Int64Range(-second, 20*second).Draw(t, "stale"), r, repay); granted != 0 || b != was {
			t.Fatalf("granted %d: %+v, was %+v", granted, b, was)
		}
	})
}

// The bound that every limiter promises, over any schedule of takes, refunds
// and borrowing: what was taken, less what was given back, is at most what was
// there, what time brought, and what may be owed.
func TestNoBucketAdmitsMoreThanRateTimesTimeAndCapacity(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, repay := drawRate(t), drawRepay(t)
		b := newBucket(r.burst, 0)
		type taken struct{ n, borrowed int64 }
		var now, used, debtEver, kept, lost int64
		var open []taken
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 2).Draw(t, "do") {
			case 0:
				now += rapid.Int64Range(0, 3*second).Draw(t, "pass")
			case 1:
				n := rapid.Int64Range(1, r.burst).Draw(t, "cost")
				if borrow := rapid.Bool().Draw(t, "borrow"); b.lack(n, r, borrow) == 0 {
					open = append(open, taken{n, b.take(n)})
					used += n
				}
			case 2:
				if len(open) > 0 {
					last := open[len(open)-1]
					open = open[:len(open)-1]
					back := rapid.Int64Range(0, last.n).Draw(t, "back")
					lost += b.giveBack(back, last.borrowed, r.burst)
					used -= back
				}
			}
			g, o := b.refill(now, r, repay)
			kept += g - o
			debtEver = max(debtEver, b.debt)
			if b.level < 0 || b.level > r.burst || b.debt < 0 || b.debt > r.overdraft {
				t.Fatalf("out of bounds: %+v of %+v", b, r)
			}
			if b.level-b.debt != r.burst+kept-lost-used {
				t.Fatalf("books: level %d, debt %d; began with %d, kept %d, lost %d, used %d", b.level, b.debt, r.burst, kept, lost, used)
			}
			bound, _ := mulDiv(now, r.perSecond, second)
			if used > bound+r.burst+r.overdraft {
				t.Fatalf("used %d, rate·t + capacity + overdraft is %d", used, bound+r.burst+r.overdraft)
			}
		}
	})
}

// redis-cell#56: a wait that is rounded down sends the client back too early.
func TestWaitIsEnoughAndNotAMicrosecondMoreThanNeeded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, repay := drawRate(t), drawRepay(t)
		b := bucket{level: rapid.Int64Range(0, r.burst-1).Draw(t, "level"), debt: rapid.Int64Range(0, r.overdraft).Draw(t, "debt")}
		n := rapid.Int64Range(b.level+1, r.burst).Draw(t, "cost")
		wait := b.untilLevel(n-b.level, r, repay)
		if wait == math.MaxInt64 {
			return
		}
		early, late := b, b
		if late.refill(wait, r, repay); late.level < n {
			t.Fatalf("after %d ns the level is %d of %d", wait, late.level, n)
		}
		// Rounding: a nanosecond, and what a micro-unit and a thousandth of one take.
		slack := 2 + 2*mulDivUp(2, second, r.perSecond)*permille/(permille-min(int64(repay), 999))
		if wait > slack {
			if early.refill(wait-slack, r, repay); early.level >= n {
				t.Fatalf("after %d of %d ns the level is %d already, %d are needed", wait-slack, wait, early.level, n)
			}
		}
	})
}

func TestDebtIsRepaidFromAPartOfTheRefill(t *testing.T) {
	r := rate{perSecond: 100, burst: 1000, overdraft: 60}
	b := bucket{debt: 60}
	b.refill(second, r, 300)
	if b.level != 70 || b.debt != 30 {
		t.Errorf("after a second: level %d, debt %d, want 70 and 30", b.level, b.debt)
	}
	b.refill(2*second, r, 300)
	b.refill(3*second, r, 300)
	if b.level != 240 || b.debt != 0 {
		t.Errorf("after three seconds: level %d, debt %d, want 240 and 0", b.level, b.debt)
	}
}

func TestRefundRepaysWhatItselfBorrowedOnly(t *testing.T) {
	b := bucket{level: 0, debt: 50}
	if lost := b.giveBack(30, 20, 100); b.debt != 30 || b.level != 10 || lost != 0 {
		t.Errorf("debt %d, level %d, lost %d", b.debt, b.level, lost)
	}
	if lost := b.giveBack(120, 0, 100); b.debt != 30 || b.level != 100 || lost != 30 {
		t.Errorf("debt %d, level %d, lost %d", b.debt, b.level, lost)
	}
}

// A thousand that are refused at once are told a thousand different times, in
// the order of their coming (hermes-agent#109234: 19 of 20 got the same).
func TestPromisesAreSpreadOverTheRefill(t *testing.T) {
	r := rate{perSecond: 10, burst: 30}
	b := newBucket(0, 0)
	for i := range int64(100) {
		if wait := b.promise(1, 0, r, 0, 100*second); wait != (i+1)*second/10 {
			t.Fatalf("the %dth waits %d ns", i, wait)
		}
	}
	if wait := b.promise(1, 0, r, 0, 10*second); wait != 10*second {
		t.Errorf("beyond the horizon the wait is %d", wait)
	}
}

func TestLargeProductsDoNotOverflow(t *testing.T) {
	// firecracker#3370: large sizes.
	if q, r := mulDiv(math.MaxInt64, math.MaxInt64, math.MaxInt64); q != math.MaxInt64 || r != 0 {
		t.Errorf("%d, %d", q, r)
	}
	if q, _ := mulDiv(math.MaxInt64, math.MaxInt64, 1); q != math.MaxInt64 {
		t.Errorf("an overflow gives %d", q)
	}
	if q := mulDivUp(7, 3, 2); q != 11 {
		t.Errorf("7·3÷2 rounded up is %d", q)
	}
}
