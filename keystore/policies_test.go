package keystore

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// Pages of policies go from the newest to the oldest, and page tokens need
// positions that ascend.
func TestPositionsOfPoliciesAscendWhileVersionsDescend(t *testing.T) {
	if before := beforePosition(position{}); before != math.MaxInt64 {
		t.Errorf("the list begins below %d", before)
	}
	rapid.Check(t, func(t *rapid.T) {
		newer := rapid.Uint64Range(2, math.MaxInt64).Draw(t, "newer")
		older := rapid.Uint64Range(1, newer-1).Draw(t, "older")
		if policyPosition(newer).compare(policyPosition(older)) >= 0 {
			t.Errorf("version %d does not come before %d", newer, older)
		}
		if got := beforePosition(policyPosition(older)); got != older {
			t.Errorf("after version %d the list goes on below %d", older, got)
		}
	})
}
