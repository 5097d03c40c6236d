package quota

import (
	"math"
	"math/bits"
)

// Amounts are whole micro-units in an int64: of a credit, of a request. Whole
// numbers, because sums of fractions in floating point depend on their order:
// a bucket that is refilled often would then differ from one that is refilled
// seldom, and what was granted would not be what was used and what is left.
// Micro, because the smallest price is a tenth of a credit and the smallest
// refill, a free tenant's in a microsecond, a five-thousandth of one.
const micro = 1_000_000

// second is in nanoseconds, the unit of the engine's clock.
const second = 1_000_000_000

// permille is the whole of a share.
const permille = 1000

// mulDiv returns a·b÷c and the remainder; the largest int64 when the result is
// larger. a and b are not negative, c is positive.
func mulDiv(a, b, c int64) (quotient, remainder int64) {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi >= uint64(c) {
		return math.MaxInt64, 0
	}
	q, r := bits.Div64(hi, lo, uint64(c))
	if q > math.MaxInt64 {
		return math.MaxInt64, 0
	}
	return int64(q), int64(r)
}

// mulDivUp is mulDiv rounded up.
func mulDivUp(a, b, c int64) int64 {
	q, r := mulDiv(a, b, c)
	if r > 0 {
		q++
	}
	return q
}

// addCapped returns a+b, the largest int64 when that overflows. Neither is
// negative.
func addCapped(a, b int64) int64 {
	if sum := a + b; sum >= 0 {
		return sum
	}
	return math.MaxInt64
}
