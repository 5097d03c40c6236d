package provider

import (
	"math"
	"time"
)

// budget is what is left of the calls that may be tried a second time. What it
// has granted never exceeds retryBurst, retryFloor for each second, and
// retryShare of the first attempts that were reported.
type budget struct {
	Tokens float64   `json:"tokens"`
	At     time.Time `json:"at,omitzero"` // zero: never used, and full
}

// earn adds what time and first attempts are worth.
func (b *budget) earn(now time.Time, first int64) {
	if b.At.IsZero() {
		b.Tokens = retryBurst
	} else if now.After(b.At) {
		b.Tokens += retryFloor * now.Sub(b.At).Seconds()
	}
	b.At = now
	share := retryShare * float64(first)
	// What was earned by many calls at once may be spent on as many.
	b.Tokens = min(b.Tokens+share, max(retryBurst, share))
}

// grant takes what a reporter of so many first attempts may try a second time:
// its share, so that one does not take what is there for all, and at least one.
func (b *budget) grant(first int64) int {
	n := min(math.Floor(b.Tokens), max(1, math.Ceil(retryShare*float64(first))))
	b.Tokens -= n
	return int(n)
}
