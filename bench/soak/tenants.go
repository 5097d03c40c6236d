package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/sluice-kms/sluice/bench/limits"
	"github.com/sluice-kms/sluice/bench/load"
	"github.com/sluice-kms/sluice/client"
)

// operation is what one key is used for.
type operation struct {
	spec client.Spec
	path string // after the key
	body string
	part float64 // of the tenant's requests, against the others'
}

const (
	message   = `{"message":"c29hayBzb2FrIHNvYWs="}`
	plaintext = `{"plaintext":"c29hayBzb2FrIHNvYWs="}`
)

// operations are of every family: in tokens and in the process, classic,
// commercial and post-quantum. Costly ones come rarely.
var operations = []operation{
	{"AES_256", "encrypt", plaintext, 10},
	{"ECC_NIST_P256", "sign", message, 5},
	{"ECC_NIST_P384", "sign", message, 1},
	{"RSA_2048", "sign", message, 1},
	{"HMAC_256", "mac", message, 5},
	{"SM4", "encrypt", plaintext, 5},
	{"SM2", "sign", message, 2},
	{"HMAC_SM3", "mac", message, 2},
	{"ECC_NIST_EDWARDS25519", "sign", message, 2},
	{"ML_DSA_65", "sign", message, 1},
	{"ML_KEM_768", "encapsulate", "{}", 1},
}

// usages of keys whose default is another one.
var usages = map[string]client.Usage{"encrypt": "ENCRYPT_DECRYPT", "sign": "SIGN_VERIFY", "mac": "GENERATE_VERIFY_MAC", "encapsulate": "ENCAPSULATE_DECAPSULATE"}

// tenant is one of the soak's.
type tenant struct {
	name string
	tier client.Tier
	id   string
	// limited has less than it asks for, so that some of it is refused; the
	// others' limits are lifted.
	limited    bool
	credential client.Token
}

func cast() []*tenant {
	return []*tenant{{name: "soak-platinum", tier: "platinum"}, {name: "soak-gold", tier: "gold"}, {name: "soak-free", tier: "free", limited: true}}
}

// patience is after how long a caller gives up: longer than any tenant may wait.
const patience = 30 * time.Second

// What the limited tier has: a part of the 7 credits that a request costs on
// average, times the requests/s by default, and a bucket for its costliest one,
// making an RSA key.
const (
	limitedCredits = 150
	limitedBurst   = 3_000
)

// setLimits lifts the limits of two tiers and sets those of the third.
func setLimits(ctx context.Context, operator *client.Client) error {
	lifted := map[string]any{"credits_per_second": 100_000, "burst_credits": 400_000, "requests_per_second": 0, "burst_requests": 0,
		"day_credits": limits.Day, "concurrency": limits.Concurrency, "key_percent": 100, "ramp_from_percent": 100}
	limited := map[string]any{"credits_per_second": limitedCredits, "burst_credits": limitedBurst, "key_percent": 100, "ramp_from_percent": 100}
	return limits.Set(ctx, operator, "a soak", map[client.Tier]map[string]any{"platinum": lifted, "gold": lifted, "free": limited})
}

func keyName(op operation) string {
	return strings.ToLower(strings.ReplaceAll(string(op.spec), "_", "-"))
}

// enrol makes a tenant with a key for each operation.
func enrol(ctx context.Context, address string, operator *client.Client, t *tenant) error {
	made, err := operator.CreateTenant(ctx, client.CreateTenantInput{Name: t.name, Tier: t.tier, AllowSealed: true, Force: true})
	if err != nil {
		return err
	}
	t.id = made.ID
	minted, err := operator.CreateCredential(ctx, t.name, client.CreateCredentialInput{Name: "soak", Scopes: []string{"key:*"}})
	if err != nil {
		return err
	}
	t.credential = minted.Token
	own, err := limits.Connect(address, t.credential)
	if err != nil {
		return err
	}
	defer own.Close()
	for _, op := range operations {
		in := client.CreateKeyInput{Name: keyName(op), Spec: op.spec, Usage: usages[op.path]}
		if _, err := own.CreateKey(ctx, in); err != nil {
			return fmt.Errorf("making the key %s: %w", in.Name, err)
		}
	}
	return nil
}

// streams are the tenant's requests: rate of them each second, at random.
func (t *tenant) streams(address string, rate float64, seed uint64, observe func(*tenant, load.Sample)) (all []load.Stream) {
	parts := 0.0
	for _, op := range operations {
		parts += op.part
	}
	for i, op := range operations {
		all = append(all, load.Stream{
			Request: load.Request{Address: address, Path: "/v1/keys/" + keyName(op) + "/" + op.path, Body: op.body,
				Header: map[string]string{"Authorization": "Bearer " + t.credential.Reveal()}},
			Rate: rate * op.part / parts, Seed: seed + uint64(i), Patience: patience, Tolerant: true,
			Observe: func(s load.Sample) { observe(t, s) },
		})
	}
	return all
}
