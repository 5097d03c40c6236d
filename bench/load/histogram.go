package load

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Resolution of a histogram: a latency is kept within a thousandth of itself,
// from a microsecond to what no caller's patience reaches.
const (
	lowestLatency  = time.Microsecond
	highestLatency = 10 * time.Minute
	digits         = 3
)

// Histogram counts latencies in a bounded space, as Gil Tene's HDR histogram
// does. It is not safe for concurrent use.
type Histogram struct{ counts *hdrhistogram.Histogram }

// NewHistogram makes an empty one.
func NewHistogram() *Histogram {
	return &Histogram{hdrhistogram.New(int64(lowestLatency/time.Microsecond), int64(highestLatency/time.Microsecond), digits)}
}

// Record adds a latency; what is out of range counts as the end of it.
func (h *Histogram) Record(d time.Duration) {
	// It fails for what is out of range only, and that is excluded.
	_ = h.counts.RecordValue(int64(min(max(d, lowestLatency), highestLatency) / time.Microsecond))
}

// Count is how many latencies it has.
func (h *Histogram) Count() int64 { return h.counts.TotalCount() }

// At is the latency that a part of all, 0 to 1, does not exceed, to the nearest
// whole number of them. 0 when it is empty.
func (h *Histogram) At(part float64) time.Duration {
	if h.Count() == 0 {
		return 0
	}
	return time.Duration(h.counts.ValueAtPercentile(100*part)) * time.Microsecond
}

// Max is the longest.
func (h *Histogram) Max() time.Duration { return time.Duration(h.counts.Max()) * time.Microsecond }
