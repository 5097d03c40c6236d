package p11

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

// selfTestKeys are the keys of a domain's self-test: one for every mechanism
// whose presence does not follow from another's.
var selfTestKeys = []keyKind{
	{kms.SpecAES256, kms.UsageEncryptDecrypt},
	{kms.SpecRSA2048, kms.UsageSignVerify},
	{kms.SpecRSA2048, kms.UsageEncryptDecrypt},
	{kms.SpecP256, kms.UsageSignVerify},
	{kms.SpecP384, kms.UsageSignVerify},
	{kms.SpecP521, kms.UsageSignVerify},
	{kms.SpecSecp256k1, kms.UsageSignVerify},
	{kms.SpecHMAC224, kms.UsageGenerateVerifyMAC},
	{kms.SpecHMAC256, kms.UsageGenerateVerifyMAC},
	{kms.SpecHMAC384, kms.UsageGenerateVerifyMAC},
	{kms.SpecHMAC512, kms.UsageGenerateVerifyMAC},
}

// vendorSelfTestKeys are the same for what profiles describe.
var vendorSelfTestKeys = []keyKind{
	{kms.SpecSM4, kms.UsageEncryptDecrypt},
	{kms.SpecSM2, kms.UsageSignVerify},
	{kms.SpecSM2, kms.UsageEncryptDecrypt},
	{kms.SpecHMACSM3, kms.UsageGenerateVerifyMAC},
}

// selfTestsWanted are those of PKCS#11's own keys, and those that the profile
// of some member describes.
func (c *ceremony) selfTestsWanted() ([]keyKind, error) {
	wanted := slices.Clone(selfTestKeys)
	for _, m := range c.cfg.Members {
		profile, err := loadProfile(m.Profile)
		if err != nil {
			return nil, err
		}
		for _, kind := range vendorSelfTestKeys {
			if profile.describes(kind.spec) && !slices.Contains(wanted, kind) {
				wanted = append(wanted, kind)
			}
		}
	}
	return wanted, nil
}

// selfTests returns the domain's and generates those that it lacks, each on
// the first member that can.
func (c *ceremony) selfTests(ctx context.Context, domain *hsm.Domain) ([]hsm.SelfTestKey, error) {
	wanted, err := c.selfTestsWanted()
	if err != nil {
		return nil, err
	}
	made := make(map[keyKind]hsm.SelfTestKey)
	for _, k := range domain.SelfTests {
		made[keyKind{k.Spec, k.Usage}] = k
	}
	had := len(domain.SelfTests)
	for _, m := range c.cfg.Members {
		missing := slices.DeleteFunc(slices.Clone(wanted), func(kind keyKind) bool { _, ok := made[kind]; return ok })
		if len(missing) == 0 {
			break
		}
		if err := c.selfTestsOf(ctx, m, domain, missing, made); err != nil {
			return nil, err
		}
	}
	tests := slices.Clone(domain.SelfTests)
	for _, kind := range wanted {
		key, ok := made[kind]
		if ok && !slices.ContainsFunc(tests[:had], func(k hsm.SelfTestKey) bool { return keyKind{k.Spec, k.Usage} == kind }) {
			tests = append(tests, key)
		}
	}
	return tests, nil
}

func (c *ceremony) selfTestsOf(ctx context.Context, m CeremonyToken, domain *hsm.Domain, missing []keyKind, made map[keyKind]hsm.SelfTestKey) (err error) {
	t, err := Open(ctx, Config{Module: m.Module, Env: m.Env, InitArgs: m.InitArgs,
		TokenLabel: m.TokenLabel, TokenSerial: m.TokenSerial, Profile: m.Profile, PIN: m.UserPIN, Domain: *domain})
	if err != nil {
		return fmt.Errorf("open member %s: %w", m.TokenLabel, err)
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	for _, kind := range missing {
		if err := ctx.Err(); err != nil {
			return err
		}
		g, err := t.Generate(kind.spec, kind.usage)
		if err != nil {
			// What this member cannot make, another may; only a member that
			// fails its canary stops the ceremony.
			if probe := t.Probe(); probe != nil {
				return errors.Join(err, probe)
			}
			c.progress("member %s cannot hold %s", m.TokenLabel, kind.spec)
			continue
		}
		made[kind] = hsm.SelfTestKey{Spec: kind.spec, Usage: kind.usage, Material: g.Material, PublicKey: g.PublicKey}
		c.progress("made the self-test key for %s, %s", kind.spec, kind.usage)
	}
	return nil
}
