package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/sluice-kms/sluice/bench/limits"
	"github.com/sluice-kms/sluice/client"
)

// tiers are those of the bench with what their tenants bought, in parts. The
// classes and waits are the product's own.
var tiers = map[client.Tier]int{"platinum": 4, "gold": 2, "silver": 1}

// partCredits is one part in credits/s: more than any load of the bench, so
// that no quota limits a tenant and the scheduler is alone in keeping others
// from it.
const partCredits = 100_000

// benchBurst is the policy's largest.
const benchBurst = 4_000_000

// keysEach is the number of a tenant's keys: enough for every node to be home
// of some.
const keysEach = 8

// tenant is one of the service's, with a credential and keys.
type tenant struct {
	name       string
	tier       client.Tier
	large      bool // its operations are the large ones
	credential client.Token
}

func (t *tenant) weight() int { return tiers[t.tier] }

// request is the tenant's operation with one of its keys.
func (t *tenant) request(key int) (path, body string) {
	if t.large {
		return fmt.Sprintf("/v1/keys/key-%d/sign", key), signBody
	}
	return fmt.Sprintf("/v1/keys/key-%d/encrypt", key), encryptBody
}

// The bodies are 63 bytes in base64, the same for both servers.
var (
	message     = strings.Repeat("bWVz", 21)
	encryptBody = `{"plaintext":"` + message + `"}`
	signBody    = `{"message":"` + message + `"}`
)

// victims and the abuser. A victim's load is its part of half the slots.
func cast() (victims []*tenant, abuser *tenant) {
	for _, tier := range []client.Tier{"platinum", "platinum", "gold", "gold", "gold", "silver", "silver", "silver"} {
		victims = append(victims, &tenant{name: fmt.Sprintf("victim-%d", len(victims)+1), tier: tier})
	}
	return victims, &tenant{name: "abuser", tier: "gold", large: true}
}

// sharers always have more to do; one of each two does large operations.
func sharers() (all []*tenant) {
	for _, tier := range []client.Tier{"platinum", "gold", "silver"} {
		all = append(all, &tenant{name: string(tier) + "-small", tier: tier}, &tenant{name: string(tier) + "-large", tier: tier, large: true})
	}
	return all
}

// setPolicy gives the tiers their weights and lifts the limits.
func setPolicy(ctx context.Context, operator *client.Client) error {
	changes := make(map[client.Tier]map[string]any, len(tiers))
	for tier, part := range tiers {
		changes[tier] = map[string]any{
			"credits_per_second": part * partCredits, "burst_credits": benchBurst, "requests_per_second": 0, "burst_requests": 0,
			"day_credits": limits.Day, "concurrency": limits.Concurrency, "key_percent": 100, "ramp_from_percent": 100,
		}
	}
	return limits.Set(ctx, operator, "the isolation bench", changes)
}

// enrol makes a tenant with its credential and keys, and uses each key once.
func enrol(ctx context.Context, address string, operator *client.Client, t *tenant) error {
	if _, err := operator.CreateTenant(ctx, client.CreateTenantInput{Name: t.name, Tier: t.tier, Force: true}); err != nil {
		return err
	}
	minted, err := operator.CreateCredential(ctx, t.name, client.CreateCredentialInput{Name: "bench", Scopes: []string{"key:*"}})
	if err != nil {
		return err
	}
	t.credential = minted.Token
	own, err := limits.Connect(address, t.credential)
	if err != nil {
		return err
	}
	for i := range keysEach {
		in := client.CreateKeyInput{Name: fmt.Sprintf("key-%d", i), Spec: "AES_256"}
		if t.large {
			in.Spec = "ECC_NIST_P256"
		}
		if _, err := own.CreateKey(ctx, in); err != nil {
			return err
		}
		if t.large {
			_, err = own.Sign(ctx, in.Name, client.SignInput{Message: []byte("first use")})
		} else {
			_, err = own.Encrypt(ctx, in.Name, client.EncryptInput{Plaintext: []byte("first use")})
		}
		if err != nil {
			return err
		}
	}
	return nil
}
