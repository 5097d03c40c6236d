package quota

import (
	"math"
	"reflect"
	"testing"
	"time"
	"uuid"

	"pgregory.net/rapid"

	"github.com/sluice-kms/sluice/kms"
)

func TestCapacityIsWhatTheSlotsCanDo(t *testing.T) {
	rules := DefaultPolicy().Baselines()
	measured := func(perCredit time.Duration) *Measurement {
		return &Measurement{SlotNsPerCredit: int64(perCredit), Op: kms.OpSign, Spec: kms.SpecP256, Operations: 5000, At: time.Unix(7, 0)}
	}
	sold := kms.Sold{Tenants: map[kms.Tier]int64{kms.TierPlatinum: 1, kms.TierGold: 2}, Committed: 30_000}
	for _, c := range []struct {
		name      string
		m         *Measurement
		figure    int64 // of the policy
		slots     int
		source    kms.CapacitySource
		perSecond int64
		sellable  int64
		oversold  bool
		fits      [4]int64 // platinum, gold, silver, free
	}{
		{"measured", measured(100 * time.Microsecond), 1e6, 8, kms.CapacityMeasured, 80_000, 64_000, false, [4]int64{1, 6, 34, 170}},
		{"twice as slow", measured(200 * time.Microsecond), 1e6, 8, kms.CapacityMeasured, 40_000, 32_000, false, [4]int64{0, 0, 2, 10}},
		{"half of the slots", measured(100 * time.Microsecond), 1e6, 4, kms.CapacityMeasured, 40_000, 32_000, false, [4]int64{0, 0, 2, 10}},
		{"too slow for what was sold", measured(300 * time.Microsecond), 1e6, 8, kms.CapacityMeasured, 26_666, 21_332, true, [4]int64{}},
		{"no slots", measured(100 * time.Microsecond), 1e6, 0, kms.CapacityMeasured, 0, 0, true, [4]int64{}},
		{"configured", nil, 50_000, 8, kms.CapacityConfigured, 50_000, 40_000, false, [4]int64{0, 2, 10, 50}},
		{"configured and less than was sold", nil, 10_000, 8, kms.CapacityConfigured, 10_000, 8_000, true, [4]int64{}},
		{"unknown", nil, 0, 8, kms.CapacityUnknown, 0, 0, false, [4]int64{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := *rules
			b.Unmeasured = c.figure
			got := PlanCapacity(c.m, &b, c.slots, sold)
			if got.Source != c.source || got.Slots != c.slots || got.PerSecond != c.perSecond || got.Sellable != c.sellable ||
				got.Committed != 30_000 || got.Available() != c.sellable-30_000 || got.Oversold() != c.oversold {
				t.Errorf("%+v", got)
			}
			for i, tier := range kms.Tiers() {
				want := kms.CapacityTier{Tier: tier, PerSecond: rules.Tiers[tier], Tenants: sold.Tenants[tier], Fits: c.fits[i]}
				if got.Tiers[i] != want {
					t.Errorf("%+v, want %+v", got.Tiers[i], want)
				}
			}
			if c.m != nil && (got.Op != kms.OpSign || got.Spec != kms.SpecP256 || got.SlotTimePerCredit != time.Duration(c.m.SlotNsPerCredit)) {
				t.Errorf("%+v", got)
			}
		})
	}
}

// As many tenants of a tier as are said to fit do, and not one more.
func TestAsManyTenantsFitAsAreSaid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := DefaultPolicy().Baselines()
		b.SafetyPercent = rapid.Int64Range(1, 100).Draw(t, "safety")
		m := &Measurement{SlotNsPerCredit: rapid.Int64Range(1, math.MaxInt64).Draw(t, "slot time of a credit")}
		slots := rapid.IntRange(0, 100_000).Draw(t, "slots")
		sold := kms.Sold{Committed: rapid.Int64Range(0, 1e12).Draw(t, "committed")}
		c := PlanCapacity(m, b, slots, sold)
		if c.Sellable > c.PerSecond || c.PerSecond < 0 {
			t.Fatalf("%+v", c)
		}
		for _, tier := range c.Tiers {
			sold.Committed = c.Committed + tier.Fits*tier.PerSecond
			if tier.Fits > 0 && PlanCapacity(m, b, slots, sold).Oversold() {
				t.Errorf("%d %s tenants do not fit", tier.Fits, tier.Tier)
			}
			sold.Committed += tier.PerSecond
			if !PlanCapacity(m, b, slots, sold).Oversold() {
				t.Errorf("one more than %d %s tenants fits", tier.Fits, tier.Tier)
			}
		}
	})
}

func TestBaselinesAreThoseOfThePolicy(t *testing.T) {
	apart, other := uuid.NewV7(), uuid.NewV7()
	p := overriding(apart, TenantPolicy{Limits: TierOverride{CreditsPerSecond: ptr[int64](7)}})
	p.Tenants[other] = &TenantPolicy{Limits: TierOverride{Keys: ptr[int64](7)}}
	want := &kms.Baselines{
		Tiers:   map[kms.Tier]int64{kms.TierPlatinum: 20_000, kms.TierGold: 5000, kms.TierSilver: 1000, kms.TierFree: 200},
		Tenants: map[uuid.UUID]int64{apart: 7}, Unmeasured: 1_000_000, SafetyPercent: 80,
	}
	b := p.Baselines()
	if !reflect.DeepEqual(b, want) {
		t.Errorf("%+v, want %+v", b, want)
	}
	if b.Of(apart, kms.TierGold) != 7 || b.Of(other, kms.TierGold) != 5000 {
		t.Error("a tenant has another's rate")
	}
}
