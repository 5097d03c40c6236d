package client

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// The bound decides which draws are looked at exactly, so it must hold.
func TestTheRoughLogarithmIsWithinItsBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := heldVersion{salt: rapid.Uint64().Draw(t, "salt")}
		for h := range uint64(64) {
			u := v.uniform(h)
			if off := roughLog(u) - math.Log2(u); math.Abs(off) > roughLogError {
				t.Fatalf("the logarithm of %v is off by %v", u, off)
			}
		}
	})
	for _, u := range []float64{0.5 / (1 << 53), 0.25, 0.5, 1 - 0.5/(1<<53), math.Nextafter(0.5, 0)} {
		if off := roughLog(u) - math.Log2(u); math.Abs(off) > roughLogError {
			t.Errorf("the logarithm of %v is off by %v", u, off)
		}
	}
}
