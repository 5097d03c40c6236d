package quota

import (
	"testing"
	"time"
	"uuid"

	"pgregory.net/rapid"
)

func TestPoolIsDrawnAtPeaksAndRepaidAtTroughs(t *testing.T) {
	r := dayRules{total: 1000, pool: 500, repay: 300, notch: 800}
	e := elastic{day: 20300101, pool: r.pool}
	days := []struct {
		use                     int64
		pool                    int64 // in the evening
		base                    int64 // the next morning
		poolNextMorning, refuse int64 // refuse: the first cost that does not fit any more in the evening
	}{
		{use: 600, pool: 500, base: 1000, poolNextMorning: 500, refuse: 901},
		{use: 1300, pool: 200, base: 800, poolNextMorning: 200, refuse: 201},
		{use: 800, pool: 200, base: 800, poolNextMorning: 200, refuse: 201}, // nothing unused: still low
		{use: 300, pool: 200, base: 800, poolNextMorning: 350, refuse: 701}, // 30 % of 500
		{use: 0, pool: 350, base: 1000, poolNextMorning: 500, refuse: 1151}, // 30 % of 800, 150 fit
		{use: 1500, pool: 0, base: 800, poolNextMorning: 0, refuse: 1},      // all of it
	}
	for i, d := range days {
		if _, room := e.room(r); d.use > room {
			t.Fatalf("day %d: %d do not fit in %d", i, d.use, room)
		}
		e.take(d.use, r)
		if _, room := e.room(r); e.pool != d.pool || room != d.refuse-1 {
			t.Errorf("day %d: in the evening the pool has %d and the day room for %d, want %d and %d", i, e.pool, room, d.pool, d.refuse-1)
		}
		e.turn(e.day+1, 0, r)
		if e.pool != d.poolNextMorning || e.base(r) != d.base || e.lowered != (d.base < r.total) {
			t.Errorf("the morning after day %d: pool %d, base %d, want %d and %d", i, e.pool, e.base(r), d.poolNextMorning, d.base)
		}
	}
}

// A tenant that is not seen for days is what one is that is seen every day.
func TestDaysThatNobodyLookedAtCount(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		total := rapid.Int64Range(1, 1e15).Draw(t, "total")
		r := dayRules{total: total, pool: rapid.Int64Range(0, total).Draw(t, "pool"), repay: 300, notch: 800}
		seen := elastic{day: 20300101, pool: rapid.Int64Range(0, r.pool).Draw(t, "left"), lowered: rapid.Bool().Draw(t, "lowered")}
		_, room := seen.room(r)
		seen.take(rapid.Int64Range(0, room).Draw(t, "used"), r)
		unseen := seen
		missed := rapid.IntRange(0, 20).Draw(t, "missed")
		for range missed + 1 {
			seen.turn(seen.day+1, 0, r)
		}
		unseen.turn(seen.day, missed, r)
		if seen != unseen {
			t.Fatalf("seen %+v, unseen %+v", seen, unseen)
		}
	})
}

func TestPoolIsNeverOverdrawnNorOverfilled(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		total := rapid.Int64Range(1, 1e15).Draw(t, "total")
		r := dayRules{total: total, pool: rapid.Int64Range(0, total).Draw(t, "pool"), repay: 300, notch: 800}
		e := elastic{day: 20300101, pool: r.pool}
		type taken struct {
			n, drawn int64
			day      int32
		}
		var open []taken
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			switch rapid.IntRange(0, 2).Draw(t, "do") {
			case 0:
				if _, room := e.room(r); room > 0 {
					n := rapid.Int64Range(1, room).Draw(t, "cost")
					open = append(open, taken{n, e.take(n, r), e.day})
				}
			case 1:
				if len(open) > 0 {
					o := open[0]
					open = open[1:]
					if back := rapid.Int64Range(0, o.n).Draw(t, "back"); o.day == e.day {
						e.giveBack(back, r)
					} else {
						e.giveBackLater(back, o.drawn, r)
					}
				}
			case 2:
				e.turn(e.day+1, rapid.IntRange(0, 2).Draw(t, "missed"), r)
			}
			if e.pool < 0 || e.pool > r.pool || e.used < 0 || e.drawn < 0 || e.drawn > e.used || e.used-e.drawn > e.base(r) {
				t.Fatalf("%+v of %+v", e, r)
			}
		}
	})
}

func TestDayBeginsAtLocalMidnightAndNotForAllAtOnce(t *testing.T) {
	shanghai, err := time.LoadLocation("Asia/Shanghai")
	if err != nil {
		t.Fatal(err)
	}
	c := newCalendar(shanghai, uuid.MustParse("01890000-0000-7000-8000-000000000010"))
	ends := c.ends(20300131)
	if want := time.Date(2030, 1, 31, 16, 0, 16, 0, time.UTC); !ends.Equal(want) {
		t.Errorf("the day ends at %v, want %v", ends.UTC(), want)
	}
	if before, after := c.day(ends.Add(-time.Second)), c.day(ends); before != 20300131 || after != 20300201 {
		t.Errorf("a second before its end the day is %d, at its end %d", before, after)
	}
	if got := c.monthEnds(20300131); !got.Equal(ends) {
		t.Errorf("the month ends at %v", got)
	}
	jitters := make(map[time.Duration]bool)
	for range 1000 {
		j := newCalendar(time.UTC, uuid.New()).jitter
		if j < 0 || j > 300*time.Second {
			t.Fatalf("a jitter of %v", j)
		}
		jitters[j] = true
	}
	if len(jitters) < 200 {
		t.Errorf("1000 tenants have %d moments of reset", len(jitters))
	}
}

// Where clocks are put forward at midnight, that midnight does not exist.
func TestEveryDayEndsAfterItBeginsInEveryZone(t *testing.T) {
	for _, name := range []string{"UTC", "America/Santiago", "Asia/Beirut", "Africa/Cairo", "America/Havana", "Pacific/Apia", "Asia/Shanghai", "America/New_York"} {
		zone, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		c := calendar{zone: zone}
		at := time.Date(2011, 1, 1, 12, 0, 0, 0, zone)
		for range 366 * 15 {
			day := c.day(at)
			end := c.ends(day)
			if !end.After(at) || end.Sub(at) > 50*time.Hour || c.day(end) <= day {
				t.Fatalf("%s: day %d of %v ends at %v, on day %d", name, day, at, end, c.day(end))
			}
			at = end
		}
	}
	if daysBetween(20291231, 20300101) != 0 || daysBetween(20300101, 20300101) != 0 || daysBetween(20280227, 20280301) != 2 {
		t.Error("days between are miscounted")
	}
}
