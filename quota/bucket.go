package quota

import "math"

// rate says how a bucket fills, in micro-units.
type rate struct {
	perSecond int64 // 0: the bucket is not used, there is no limit
	burst     int64 // capacity
	overdraft int64 // how far debt may go; 0: no debt
}

// repayShare is the part of its refill that a bucket in debt pays back, in
// thousandths; policy's overdraft.repay_percent.
type repayShare int64

// bucket is a token bucket that can borrow from its own future.
//
// The level is refilled by time, exactly: what a refill leaves over of a
// micro-unit is carried, so that a bucket which is looked at a million times
// has what one has that is looked at once. Debt is kept apart from the level,
// because a tenant in debt goes on with what is left of its refill.
//
// Its methods are pure: they know the time from their arguments, in
// nanoseconds of a clock that does not go back; a time before the last one
// changes nothing.
type bucket struct {
	level    int64 // 0 … burst
	debt     int64 // 0 … overdraft
	last     int64 // time of the last refill
	rest     int32 // of the last refill, in 1e-9 micro-units
	restDebt int32 // of the last repayment, in thousandths of a micro-unit
	// promised is until when future refill is spoken for by the Retry-After
	// of requests that were refused; see promise.
	promised int64
}

// newBucket returns a bucket with the given level.
func newBucket(level, now int64) bucket { return bucket{level: level, last: now} }

// refill brings the bucket to now. It returns what was granted and how much of
// that found no room.
func (b *bucket) refill(now int64, r rate, repay repayShare) (granted, overflow int64) {
	if now <= b.last {
		return 0, 0
	}
	granted, rest := b.earned(now, r.perSecond)
	b.last, b.rest = now, int32(rest)
	return granted, b.add(granted, r.burst, repay)
}

// earned returns what the time since the last refill is worth, and the rest.
func (b *bucket) earned(now, perSecond int64) (amount, rest int64) {
	amount, rest = mulDiv(now-b.last, perSecond, second)
	if rest += int64(b.rest); rest >= second {
		amount, rest = addCapped(amount, 1), rest-second
	}
	return amount, rest
}

// add shares an amount out between debt and level and returns what found no
// room. A full bucket pays its debt with all of it.
func (b *bucket) add(amount, burst int64, repay repayShare) (overflow int64) {
	if b.debt > 0 {
		back, rest := mulDiv(amount, int64(repay), permille)
		if rest += int64(b.restDebt); rest >= permille {
			back, rest = back+1, rest-permille
		}
		b.restDebt = int32(rest)
		back = min(back, b.debt)
		b.debt -= back
		amount -= back
	}
	room := max(burst-b.level, 0)
	toLevel := min(amount, room)
	b.level += toLevel
	back := min(amount-toLevel, b.debt)
	b.debt -= back
	if b.debt == 0 {
		b.restDebt = 0
	}
	overflow = amount - toLevel - back
	if b.level >= burst && b.debt == 0 {
		b.rest = 0 // a full bucket earns nothing, no part of a unit either
	}
	return overflow
}

// resize fits the level to a new capacity and returns what no longer finds
// room. The caller has refilled the bucket at the old rate.
func (b *bucket) resize(burst int64) (overflow int64) {
	overflow = max(b.level-burst, 0)
	b.level -= overflow
	return overflow
}

// lack returns by how much the bucket falls short of n, 0 when it can pay. The
// bucket has been refilled.
func (b *bucket) lack(n int64, r rate, mayBorrow bool) int64 {
	have := b.level
	if mayBorrow {
		have += max(r.overdraft-b.debt, 0)
	}
	return max(n-have, 0)
}

// take spends n, of which lack is 0, and returns what it borrowed.
func (b *bucket) take(n int64) (borrowed int64) {
	borrowed = max(n-b.level, 0)
	b.level -= n - borrowed
	b.debt += borrowed
	return borrowed
}

// giveBack undoes a part of a take: first what was borrowed. It returns what
// found no room, because the bucket filled up or shrank meanwhile.
func (b *bucket) giveBack(n, borrowed, burst int64) (overflow int64) {
	back := min(n, borrowed, b.debt)
	b.debt -= back
	n -= back
	toLevel := min(n, max(burst-b.level, 0))
	b.level += toLevel
	return n - toLevel
}

// untilLevel returns the nanoseconds after which the level has grown by n,
// rounded up; the largest int64 when it never does.
func (b *bucket) untilLevel(n int64, r rate, repay repayShare) int64 {
	if r.perSecond <= 0 {
		return math.MaxInt64
	}
	if b.debt > 0 && repay < permille {
		// Until the debt is paid only a part of the refill is the level's.
		inDebt := addCapped(mulDivUp(n, permille, permille-int64(repay)), 1) // the carried rest
		n = min(inDebt, addCapped(n, b.debt))
	} else {
		n = addCapped(n, b.debt)
	}
	return mulDivUp(n, second, r.perSecond)
}

// promise returns after how many nanoseconds a request for n that was refused
// now can be repeated: when the refill has paid for it and for all that were
// promised theirs before, so that clients which obey do not all come back for
// the same refill. horizon bounds it, and with it what clients that never come
// back can spoil for others.
func (b *bucket) promise(n, now int64, r rate, repay repayShare, horizon int64) int64 {
	lacking := max(n-b.level, 0)
	free := b.untilLevel(lacking, r, repay)
	if free > horizon {
		return horizon
	}
	need := mulDivUp(n, second, max(r.perSecond, 1))
	at := max(now+free, b.promised+need)
	if at-now > horizon {
		return horizon
	}
	b.promised = at
	return at - now
}

// full tells whether a new bucket would be the same.
func (b *bucket) full(r rate) bool { return b.level >= r.burst && b.debt == 0 }
