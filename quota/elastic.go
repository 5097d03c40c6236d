package quota

// dayRules are the parameters of a day's total, in micro-credits.
type dayRules struct {
	total int64 // what a day may use without drawing on the pool; 0: no limit
	pool  int64 // capacity of the elastic pool; 0: none
	repay int64 // part of a day's unused quota that refills the pool, in thousandths
	notch int64 // part of the baseline that is left while the pool is not full, in thousandths
}

// elastic is a tenant's day: what it used, and the pool that days share.
//
// Use beyond the day's total draws on the pool. When the day ends, a part of
// what the day left unused refills it; a pool that is then not full makes the
// next day run one notch lower, total, rate and burst, and the day after that,
// until it is full again.
type elastic struct {
	day     int32 // yyyymmdd of the tenant's calendar
	used    int64 // of the total and of the pool, reservations included
	drawn   int64 // from the pool, of used
	pool    int64 // what is left in it
	lowered bool  // this day runs one notch lower
}

// base returns what the day may use without drawing on the pool.
func (e *elastic) base(r dayRules) int64 {
	if !e.lowered {
		return r.total
	}
	n, _ := mulDiv(r.total, r.notch, permille)
	return n
}

// room returns what the day may still use: of the total, and with the pool.
func (e *elastic) room(r dayRules) (base, withPool int64) {
	base = max(e.base(r)-(e.used-e.drawn), 0)
	return base, addCapped(base, e.pool)
}

// take uses n, which fits in room, and returns how much of it the pool gave.
func (e *elastic) take(n int64, r dayRules) (drawn int64) {
	base, _ := e.room(r)
	drawn = max(n-base, 0)
	e.used += n
	e.drawn += drawn
	e.pool -= drawn
	return drawn
}

// giveBack undoes a part of a take of the same day, first what came from the
// pool, whoever drew it: so what is drawn follows from what is used alone, in
// whatever order requests ended.
func (e *elastic) giveBack(n int64, r dayRules) {
	n = min(n, e.used)
	back := min(n, e.drawn)
	e.used -= n
	e.drawn -= back
	e.pool = min(e.pool+back, max(r.pool, e.pool))
}

// giveBackLater undoes a part of a take of a day that is over: the pool has its
// part back, the new day's figures stay.
func (e *elastic) giveBackLater(n, drawn int64, r dayRules) {
	e.pool = min(e.pool+min(n, drawn), max(r.pool, e.pool))
}

// turn ends the day and begins another one. Days on which nothing happened
// count as unused: missed is how many lie between.
func (e *elastic) turn(day int32, missed int, r dayRules) {
	for ; missed >= 0; missed-- {
		if r.total > 0 {
			unused := max(e.base(r)-(e.used-e.drawn), 0)
			back, _ := mulDiv(unused, r.repay, permille)
			e.pool = min(e.pool+back, r.pool)
		}
		e.lowered = e.pool < r.pool
		e.used, e.drawn = 0, 0
		if !e.lowered {
			break // a full pool stays full
		}
	}
	e.day = day
}

// adopt fits the pool to new rules: a pool that grows or shrinks keeps what is
// missing in it.
func (e *elastic) adopt(old, r dayRules) {
	missing := max(old.pool-e.pool, 0)
	e.pool = max(r.pool-missing, 0)
}

// fresh tells whether a new one would be the same.
func (e *elastic) fresh(r dayRules) bool { return e.used == 0 && e.pool >= r.pool && !e.lowered }
