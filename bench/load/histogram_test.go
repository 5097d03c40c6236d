package load

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestAHistogramKeepsLatenciesWithinAThousandth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rnd := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		h := NewHistogram()
		all := make([]time.Duration, rapid.IntRange(1, 500).Draw(t, "n"))
		for i := range all {
			all[i] = time.Duration(1+rnd.Int64N(int64(time.Minute/time.Microsecond))) * time.Microsecond
			h.Record(all[i])
		}
		slices.Sort(all)
		if h.Count() != int64(len(all)) {
			t.Fatalf("%d of %d", h.Count(), len(all))
		}
		for _, part := range []float64{0.01, 0.5, 0.9, 0.99, 1} {
			want := all[max(1, int(math.Round(part*float64(len(all)))))-1]
			if got := h.At(part); got < want || got > want+want/1000+time.Microsecond {
				t.Fatalf("%v: %v, want %v", part, got, want)
			}
		}
		if h.Max() < all[len(all)-1] {
			t.Fatalf("the longest is %v, want %v", h.Max(), all[len(all)-1])
		}
	})
}

func TestAHistogramTakesWhatIsOutOfRangeAsItsEnds(t *testing.T) {
	h := NewHistogram()
	if h.At(0.5) != 0 {
		t.Errorf("an empty one has the median %v", h.At(0.5))
	}
	h.Record(-time.Second)
	h.Record(24 * time.Hour)
	if h.Count() != 2 || h.At(0.5) != time.Microsecond || h.Max() < highestLatency {
		t.Errorf("%d, %v, %v", h.Count(), h.At(0.5), h.Max())
	}
}
