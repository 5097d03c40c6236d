package api

import (
	"testing"
	"uuid"

	"pgregory.net/rapid"

	"github.com/sluice-kms/sluice/kms"
)

// rollout is the set of two versions when the new one has a weight.
func rollout(weight uint32) []*kms.SecretVersion {
	if weight == 0 {
		return []*kms.SecretVersion{{Number: 7, Weight: 100}}
	}
	if weight == 100 {
		return []*kms.SecretVersion{{Number: 8, Weight: 100}}
	}
	return []*kms.SecretVersion{{Number: 7, Weight: 100 - weight}, {Number: 8, Weight: weight}}
}

func TestGatewayThatWasGivenTheNewVersionKeepsItWhileItsShareGrows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		credential := uuid.UUID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "credential"))
		secret := uuid.UUID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "secret"))
		moved := false
		for weight := range uint32(101) {
			chosen := chooseVersion(rollout(weight), credential, secret).Number
			if again := chooseVersion(rollout(weight), credential, secret).Number; again != chosen {
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
			if chooseVersion(rollout(weight), uuid.NewV4(), secret).Number == 8 {
				n++
			}
		}
		if want := gateways * int(weight) / 100; n < want-bound || n > want+bound {
			t.Errorf("at %d %% the new version went to %d of %d gateways", weight, n, gateways)
		}
	}
}
