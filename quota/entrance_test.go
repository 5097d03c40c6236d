package quota

import (
	"testing"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// What a tenant weighs and which class its requests are is the policy's: its
// tier's, or its own.
func TestShareAndClassAreThePolicys(t *testing.T) {
	p := DefaultPolicy()
	own := int64(150)
	p.Tenants = map[uuid.UUID]*TenantPolicy{testTenant: {Limits: TierOverride{CreditsPerSecond: &own}}}
	policies, err := NewPolicies(time.Now, 1, p)
	if err != nil {
		t.Fatal(err)
	}
	other := uuid.New()
	for tier, want := range map[kms.Tier]int64{kms.TierPlatinum: 20_000, kms.TierGold: 5_000, kms.TierSilver: 1_000, kms.TierFree: 200} {
		if got := policies.CreditsPerSecond(other, tier); got != want {
			t.Errorf("%s: %d credits/s, want %d", tier, got, want)
		}
	}
	if got := policies.CreditsPerSecond(testTenant, kms.TierGold); got != own {
		t.Errorf("a tenant with a rate of its own: %d", got)
	}
	// The table of the numbers: tier × interactive, normal, bulk.
	for tier, want := range map[kms.Tier][3]string{
		kms.TierPlatinum: {"HIGH", "HIGH", "MID"}, kms.TierGold: {"HIGH", "MID", "LOW"},
		kms.TierSilver: {"MID", "MID", "LOW"}, kms.TierFree: {"MID", "LOW", "LOW"},
	} {
		got := [3]string{policies.Class(tier, kms.UrgencyInteractive), policies.Class(tier, kms.UrgencyNormal), policies.Class(tier, kms.UrgencyBulk)}
		if got != want {
			t.Errorf("%s: %v, want %v", tier, got, want)
		}
	}
}
