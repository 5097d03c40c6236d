package watch

import (
	"math/bits"
	"time"
)

// A latency is a histogram of times whose classes grow by a quarter of an
// octave: what it tells of a time is less than a quarter too much. It reaches
// from 16 µs, below which a call of an HSM does not come, to 68 s, which is
// longer than the longest wait.
type latency [latencyClasses]uint32

const (
	firstBit       = 14 // 2¹⁴ ns are 16 µs
	lastBit        = 36 // 2³⁶ ns are 68 s
	parts          = 4  // of an octave
	latencyClasses = 1 + (lastBit-firstBit)*parts
)

func latencyClass(d time.Duration) int {
	if d < 1<<firstBit {
		return 0
	}
	top := bits.Len64(uint64(d)) - 1
	part := int(uint64(d)>>(top-2)) % parts
	return min(1+(top-firstBit)*parts+part, latencyClasses-1)
}

// classEnd is the time at which a class ends.
func classEnd(class int) time.Duration {
	if class == 0 {
		return 1 << firstBit
	}
	top, part := firstBit+(class-1)/parts, (class-1)%parts
	return time.Duration(parts+part+1) << (top - 2)
}

// percentile returns the end of the class in which the n-th hundredth of the
// times of both lies, 0 when there are none.
func percentile(a, b *latency, n uint64) time.Duration {
	var all uint64
	for i := range a {
		all += uint64(a[i]) + uint64(b[i])
	}
	if all == 0 {
		return 0
	}
	rank := (all*n + 99) / 100
	for i := range a {
		if c := uint64(a[i]) + uint64(b[i]); c < rank {
			rank -= c
			continue
		}
		return classEnd(i)
	}
	return classEnd(latencyClasses - 1)
}
