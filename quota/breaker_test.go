package quota

import (
	"testing"
	"uuid"

	"pgregory.net/rapid"
)

var testBreaker = breakerRules{calls: 100, bad: 1, share: 500, window: 10 * second, open: second, maxOpen: 60 * second, probe: second}

// opened returns a breaker that has just opened at now.
func opened(now int64) *breaker {
	b := new(breaker)
	for range 100 {
		b.count(true, now, &testBreaker)
	}
	return b
}

func TestBreakerOpensAboveHalfOfAHundredCalls(t *testing.T) {
	tests := []struct {
		name      string
		good, bad int
		spread    int64 // ns between two calls
		open      bool
	}{
		{"99 bad", 0, 99, 0, false},
		{"100 bad", 0, 100, 0, true},
		{"half", 50, 50, 0, false},
		{"more than half", 49, 51, 0, true},
		{"more than half, but over a minute", 49, 51, second, false},
		{"many good before", 1000, 100, 0, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var b breaker
			var now int64
			for i := range tt.good + tt.bad {
				now += tt.spread
				b.count(i >= tt.good, now, &testBreaker)
			}
			if wait, _ := b.wait(now, &testBreaker); (wait > 0) != tt.open {
				t.Errorf("wait %d", wait)
			}
		})
	}
}

func TestBreakerForgetsWhatLeftTheWindow(t *testing.T) {
	var b breaker
	for range 99 {
		b.count(true, 0, &testBreaker)
	}
	b.count(true, 10*second, &testBreaker)
	if wait, _ := b.wait(10*second, &testBreaker); wait > 0 {
		t.Error("calls of ten seconds ago count")
	}
}

func TestBreakerStaysOpenTwiceAsLongEachTime(t *testing.T) {
	b, now := opened(0), int64(0)
	for i, want := range []int64{1, 2, 4, 8, 16, 32, 60, 60} {
		wait, _ := b.wait(now, &testBreaker)
		if wait != want*second {
			t.Fatalf("the %dth time it is open for %d s, want %d", i, wait/second, want)
		}
		now += wait
		probe := uuid.New()
		if wait, due := b.wait(now, &testBreaker); wait != 0 || !due {
			t.Fatalf("no probe is due: %d, %v", wait, due)
		}
		b.begin(probe, now, &testBreaker)
		b.end(probe, false, now, &testBreaker)
	}
	// A probe that goes well closes it; a window without trouble later it
	// begins with a second again.
	now += 60 * second
	probe := uuid.New()
	b.begin(probe, now, &testBreaker)
	b.end(probe, true, now, &testBreaker)
	now += 10 * second
	for range 100 {
		b.count(true, now, &testBreaker)
	}
	if wait, _ := b.wait(now, &testBreaker); wait != second {
		t.Errorf("after a calm window it opens for %d ns", wait)
	}
}

// future-agi#2693: unlimited half-open traffic.
func TestOneProbeIsInFlightAtMost(t *testing.T) {
	b := opened(0)
	b.begin(uuid.New(), second, &testBreaker)
	if wait, due := b.wait(second, &testBreaker); wait == 0 || due {
		t.Errorf("another one may go on: %d, %v", wait, due)
	}
	b.end(uuid.New(), true, second, &testBreaker)
	if b.state != breakerProbing {
		t.Error("a request that is not the probe ended it")
	}
}

// nora#607, OmniRoute#13836: a probe that never ended left the breaker open
// for days.
func TestProbeThatIsNeverHeardOfAgainDoesNotBlock(t *testing.T) {
	b := opened(0)
	b.begin(uuid.New(), second, &testBreaker)
	now := 2 * int64(second)
	wait, due := b.wait(now, &testBreaker)
	if wait != 2*second || due {
		t.Fatalf("after the probe's deadline: %d, %v; want open for two seconds", wait, due)
	}
	if wait, due := b.wait(now+wait, &testBreaker); wait != 0 || !due {
		t.Errorf("then: %d, %v; want another probe", wait, due)
	}
}

func TestProbeThatToldNothingIsRepeatedAtOnce(t *testing.T) {
	b, probe := opened(0), uuid.New()
	b.begin(probe, second, &testBreaker)
	b.release(probe, second+1)
	if wait, due := b.wait(second+1, &testBreaker); wait != 0 || !due {
		t.Errorf("%d, %v", wait, due)
	}
}

// Whatever happens to it, a breaker that is asked again and again lets
// somebody through within its longest open time and a probe's.
func TestBreakerAlwaysLetsSomebodyThroughAgain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b breaker
		var now int64
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			now += rapid.Int64Range(0, 3*second).Draw(t, "pass")
			switch rapid.IntRange(0, 3).Draw(t, "do") {
			case 0, 1:
				for range rapid.IntRange(1, 120).Draw(t, "calls") {
					b.count(true, now, &testBreaker)
				}
			case 2:
				if _, due := b.wait(now, &testBreaker); due {
					b.begin(uuid.New(), now, &testBreaker) // and is lost
				}
			case 3:
				b.end(b.probe, rapid.Bool().Draw(t, "good"), now, &testBreaker)
			}
		}
		last := now + testBreaker.probe + testBreaker.maxOpen
		for ; now <= last; now += second / 2 {
			if wait, _ := b.wait(now, &testBreaker); wait == 0 {
				return
			}
		}
		t.Fatalf("closed to all: %+v", b)
	})
}
