package scheduler

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"time"
)

// The table of the design, cell by cell, as it acts: what a request of each
// class does on arrival, below and above its tenant's fair share, with as many
// slots busy as the band says.
func TestGateActsAsItsTableSays(t *testing.T) {
	const slots = 20 // safe line 17, hard line 19
	type outcome string
	const (
		runs    outcome = "runs"
		waits   outcome = "waits"
		refused outcome = "refused"
	)
	tests := []struct {
		band  Band
		level float64
		class Class
		over  bool
		want  outcome
	}{
		{BelowSafe, 0.84, High, false, runs}, {BelowSafe, 0.84, High, true, runs},
		{BelowSafe, 0.84, Mid, false, runs}, {BelowSafe, 0.84, Mid, true, runs},
		{BelowSafe, 0.84, Low, false, runs}, {BelowSafe, 0.84, Low, true, runs},
		{BelowHard, 0.90, High, false, runs}, {BelowHard, 0.90, High, true, runs},
		{BelowHard, 0.90, Mid, false, runs}, {BelowHard, 0.90, Mid, true, waits},
		{BelowHard, 0.90, Low, false, runs}, {BelowHard, 0.90, Low, true, waits},
		{FromHard, 0.96, High, false, waits}, {FromHard, 0.96, High, true, waits},
		{FromHard, 0.96, Mid, false, waits}, {FromHard, 0.96, Mid, true, refused},
		{FromHard, 0.96, Low, false, waits}, {FromHard, 0.96, Low, true, refused},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%.0f %%, class %d, over %v", 100*tt.level, tt.class, tt.over), func(t *testing.T) {
			w := newWorld(t, 1, Options{CapMode: CapOff, BigShare: 1}, Node{ID: "a", Slots: slots})
			d := w.s.domains[0]
			// Others hold the slots that the band stands for.
			busy := map[Band]int{BelowSafe: 16, BelowHard: 17, FromHard: 19}[tt.band]
			for i := range busy {
				w.submit(&job{Flow: Flow{Tenant: tenantID(100 + i)}, size: time.Hour})
			}
			d.gate.fast, d.gate.slow = tt.level, tt.level
			j := &job{Flow: Flow{Tenant: tenantID(1), Class: tt.class}, size: time.Millisecond}
			d.tenantOf(&j.Flow).recent.add(d.now, map[bool]int64{true: int64(time.Hour)}[tt.over])
			w.submit(j)
			got := runs
			switch {
			case errors.Is(j.err, ErrOverloaded):
				got = refused
			case j.node == "":
				got = waits
			}
			if d.gate.band != tt.band || got != tt.want {
				t.Errorf("in band %d it %s, want it in band %d and %s", d.gate.band, got, tt.band, tt.want)
			}
			if got == refused && j.why.RetryAfter < time.Second {
				t.Errorf("refused with the advice to return in %v", j.why.RetryAfter)
			}
		})
	}
}

func TestGateFallsBackThreePointsBelowALine(t *testing.T) {
	g := gate{safe: DefaultSafeLine, hard: DefaultHardLine}
	steps := []struct {
		level float64
		want  Band
	}{
		{0.849, BelowSafe}, {0.85, BelowHard}, {0.821, BelowHard}, {0.819, BelowSafe},
		{0.849, BelowSafe}, {0.95, FromHard}, {0.921, FromHard}, {0.919, BelowHard},
		{0.949, BelowHard}, {0.96, FromHard}, {0.5, BelowSafe},
	}
	for i, step := range steps {
		g.fast, g.slow = step.level, 0
		if g.update(0, 0, 1); g.band != step.want {
			t.Errorf("step %d: at %.1f %% the band is %d, want %d", i, 100*step.level, g.band, step.want)
		}
	}
}

func TestGateTripsAreCounted(t *testing.T) {
	g := gate{safe: DefaultSafeLine, hard: DefaultHardLine}
	for i, step := range []struct {
		level float64
		want  uint64
	}{{0.9, 0}, {0.95, 1}, {0.99, 1}, {0.93, 1}, {0.96, 1}, {0.91, 1}, {0.96, 2}, {0, 2}, {1, 3}} {
		g.fast = step.level
		if g.update(0, 0, 1); g.trips != step.want {
			t.Errorf("step %d: at %.0f %% it has tripped %d times, want %d", i, 100*step.level, g.trips, step.want)
		}
	}
}

// Busy slots are integrated exactly: the averages are those of the closed form
// of a first-order filter, however often they are looked at.
func TestUtilisationIsIntegratedExactly(t *testing.T) {
	var often, once gate
	for i := range 1000 {
		often.update(int64(i)*int64(time.Millisecond), 3, 4)
	}
	often.update(int64(time.Second), 3, 4)
	once.update(int64(time.Second), 3, 4)
	want := 0.75 * (1 - math.Exp(-5)) // 1 s of 75 % at a time constant of 0.2 s
	if math.Abs(often.fast-want) > 1e-9 || math.Abs(once.fast-want) > 1e-9 {
		t.Errorf("after a second at 75 %% the fast average is %v and %v, want %v", often.fast, once.fast, want)
	}
	if slow := 0.75 * (1 - math.Exp(-0.5)); math.Abs(often.slow-slow) > 1e-9 || often.level() != often.fast {
		t.Errorf("the slow average is %v, want %v", often.slow, slow)
	}
}

func TestLinesOfSmallPoolsAreInSlots(t *testing.T) {
	for slots, want := range map[int][2]int{1: {1, 1}, 2: {1, 2}, 3: {2, 3}, 4: {3, 4}, 6: {5, 6}, 7: {5, 6}, 16: {13, 15}, 20: {17, 19}, 100: {85, 95}} {
		w := newWorld(t, 1, Options{}, Node{ID: "a", Slots: slots})
		d := w.s.domains[0]
		d.gate.band = FromHard
		d.drawLines()
		if got := [2]int{d.lines[rankOver], d.lines[rankHigh]}; got != want {
			t.Errorf("%d slots: lines at %v, want %v", slots, got, want)
		}
	}
}

// Under overload the gate keeps slots free without stopping anybody for long.
func TestGateHoldsUtilisationAtItsLineWithoutStops(t *testing.T) {
	w := newWorld(t, 1, Options{CapMode: CapOff, MaxQueue: 1 << 16}, Node{ID: "a", Slots: 20})
	var busy, worst, last time.Duration
	w.ended = func(j *job) {
		busy += j.ended - j.started
		worst, last = max(worst, j.started-last), max(last, j.started)
	}
	op := mix(w, false)
	for i := range 4 {
		w.backlogged(30, func() *job {
			j := op(1)
			j.Tenant = tenantID(i)
			return j
		})
	}
	w.run(10 * time.Second)
	used := busy.Seconds() / 200
	t.Logf("%.1f %% of the slots used, no start for %v at most", 100*used, worst)
	if used < 0.94 || used > 0.96 {
		t.Errorf("%.1f %% of the slots used; the line is 95 %%", 100*used)
	}
	if worst > 20*time.Millisecond {
		t.Errorf("nothing started for %v", worst)
	}
}

func TestOneSlotIsKeptForHigh(t *testing.T) {
	for slots, kept := range map[int]int{1: 0, 3: 0, 4: 1, 8: 1} {
		w := newWorld(t, 1, Options{CapMode: CapOff}, Node{ID: "a", Slots: slots})
		var low, high []*job
		for i := range slots + 2 {
			low = append(low, &job{Flow: Flow{Tenant: tenantID(i), Class: Mid}, size: time.Second})
			w.submit(low[i])
		}
		for i := range 2 {
			high = append(high, &job{Flow: Flow{Tenant: tenantID(50 + i), Class: High}, size: time.Second})
			w.submit(high[i])
		}
		count := func(jobs []*job) (n int) {
			for _, j := range jobs {
				if j.node != "" {
					n++
				}
			}
			return n
		}
		if count(low) != slots-kept || count(high) != kept {
			t.Errorf("of %d slots %d run Mid and %d High, want %d kept", slots, count(low), count(high), kept)
		}
	}
}
