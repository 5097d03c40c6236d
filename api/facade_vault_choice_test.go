package api

import (
	"testing"
	"uuid"

	"pgregory.net/rapid"

	"github.com/sluice-kms/sluice/kms"
)

// rollout is the set of two versions when the new one has a weight.
func rollout(weight uint32) []kms.FetchedValue {
	if weight == 0 {
		return []kms.FetchedValue{{Version: 7, Weight: 100}}
	}
	if weight == 100 {
		return []kms.FetchedValue{{Version: 8, Weight: 100}}
	}
	return []kms.FetchedValue{{Version: 7, Weight: 100 - weight}, {Version: 8, Weight: weight}}
}

func TestGatewayThatWasGivenTheNewVersionKeepsItWhileItsShareGrows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		credential := uuid.UUID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "credential"))
		secret := uuid.UUID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "secret"))
		moved := false
		for weight := range uint32(101) {
			chosen := chooseValue(rollout(weight), credential, secret).Version
			if again := chooseValue(rollout(weight), credential, secret).Version; again != chosen {
				t.Fatalf("at %d %% first %d, then %d", weight, chosen, again)
			}
			if moved && chosen != 8 {
				t.Fatalf("at %d %% it is back at the old version", weight)
			}
			moved = chosen == 8
		}
		if !moved {
			t.Fatal("at 100 % it has the old version")
		}
	})
}

// Of 10,000 gateways a share of p has a standard deviation of 100·√(p(1-p)):
// at most 50; the bound is six of them.
func TestVersionsAreGivenToGatewaysByTheirWeights(t *testing.T) {
	const gateways, bound = 10_000, 300
	secret := uuid.NewV4()
	for _, weight := range []uint32{10, 30, 50, 90} {
		n := 0
		for range gateways {
			if chooseValue(rollout(weight), uuid.NewV4(), secret).Version == 8 {
				n++
			}
		}
		if want := gateways * int(weight) / 100; n < want-bound || n > want+bound {
			t.Errorf("at %d %% the new version went to %d of %d gateways", weight, n, gateways)
		}
	}
}
