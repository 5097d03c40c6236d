package p11

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"uuid"

	"github.com/miekg/pkcs11"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

// minBackups is the number of backup tokens a domain begins with: the roots
// on its members can never be moved again, so the loss of a single backup
// must not be the end of every later join.
const minBackups = 2

// CeremonyToken is a token that takes part in a ceremony.
type CeremonyToken struct {
	Module                  string
	Env                     map[string]string
	InitArgs                string
	TokenLabel, TokenSerial string
	UserPIN                 func() ([]byte, error)
	// Profile is Config.Profile.
	Profile func() (*Profile, error)
	// SOPIN is the security officer's PIN, needed on backup tokens: he alone
	// can declare another token's public key as trusted.
	SOPIN func() ([]byte, error)
}

// CeremonyConfig says which tokens a domain consists of.
type CeremonyConfig struct {
	// Name is the domain's name.
	Name string
	// Members will serve; Backups stay offline after the ceremony and hold
	// the roots in a form that can be moved to further tokens.
	Members []CeremonyToken
	Backups []CeremonyToken
	// Domain is nil for a new domain and for the resumption of an interrupted
	// ceremony, or the description of a domain that tokens are to join.
	Domain *hsm.Domain
	// Confirm is asked before a root goes to a token: two people compare the
	// fingerprint with what that token shows. An error stops the ceremony.
	Confirm func(token, fingerprint string) error
	// Progress is told of each step; nil for nobody.
	Progress func(step string)
}

func (cfg *CeremonyConfig) validate() error {
	var text string
	switch {
	case cfg.Name == "" && cfg.Domain == nil:
		text = "the domain has no name"
	case len(cfg.Members) == 0:
		text = "there is no member token"
	case len(cfg.Backups) < minBackups:
		text = fmt.Sprintf("%d backup tokens are needed", minBackups)
	case cfg.Confirm == nil:
		text = "nobody confirms fingerprints"
	case slices.ContainsFunc(cfg.Backups, func(t CeremonyToken) bool { return t.SOPIN == nil }):
		text = "a backup token has no security officer's PIN"
	default:
		return nil
	}
	return driverError(hsm.ClassRequest, "ceremony", text)
}

// Ceremony makes a domain's roots, or finds them, and brings them to every
// token that lacks them:
//
//  1. All tokens are opened. A token with a root of another domain, or with
//     one that is not frozen, ends the ceremony.
//  2. A root that no token holds is generated on a backup token: extractable,
//     to be wrapped under trusted keys only, otherwise frozen.
//  3. Each token that lacks a root makes an RSA key pair as session objects.
//     On the token that gives, its security officer creates the public key as
//     trusted, after Confirm; the root is wrapped under it (RSA-OAEP) and
//     unwrapped at once into its final, frozen form. The pair is destroyed.
//     What travels is never stored, and the private key never outlives it: a
//     copy of both would unwrap a second root without the unwrap template.
//  4. The check values of all tokens are compared.
//  5. The members generate the keys of the domain's self-test, as far as the
//     domain has none for what they can hold.
//
// An interrupted ceremony can be repeated with the same tokens: what is there
// is checked and kept. None of the tokens may be open otherwise. ctx ends the
// ceremony between two calls into a module.
func Ceremony(ctx context.Context, cfg CeremonyConfig) (*hsm.Domain, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	c := &ceremony{cfg: cfg}
	domain, err := c.run(ctx)
	if err != nil {
		return nil, fmt.Errorf("ceremony: %w", err)
	}
	if cfg.Domain != nil {
		joined := *cfg.Domain
		domain = &joined
	}
	if domain.SelfTests, err = c.selfTests(ctx, domain); err != nil {
		return nil, fmt.Errorf("ceremony: %w", err)
	}
	if cfg.Domain != nil && len(domain.SelfTests) == len(cfg.Domain.SelfTests) {
		return cfg.Domain, nil // as it was
	}
	return domain, nil
}

// ceremony is a ceremony under way.
type ceremony struct {
	cfg     CeremonyConfig
	parties []*party // the backups first
}

// party is a token that takes part.
type party struct {
	cfg      CeremonyToken
	backup   bool
	conn     *connection
	session  *session
	wrapping *mechanism
	ids      map[rootKind]rootID
	roots    map[rootKind]pkcs11.ObjectHandle
}

func (p *party) String() string {
	return fmt.Sprintf("%s (%s)", p.conn.token.Label, p.conn.token.SerialNumber)
}

func (c *ceremony) progress(format string, args ...any) {
	if c.cfg.Progress != nil {
		c.cfg.Progress(fmt.Sprintf(format, args...))
	}
}

// run is the ceremony up to the comparison of the check values. It closes the
// tokens, as the members are opened differently for the self-test keys.
func (c *ceremony) run(ctx context.Context) (domain *hsm.Domain, err error) {
	defer func() { err = errors.Join(err, c.close()) }()
	for i, t := range slices.Concat(c.cfg.Backups, c.cfg.Members) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := c.admit(t, i < len(c.cfg.Backups)); err != nil {
			return nil, err
		}
	}
	domain, err = c.identify()
	if err != nil {
		return nil, err
	}
	for _, kind := range rootKinds {
		if err := c.ensure(rootID{domain.ID, domain.Generation, kind}); err != nil {
			return nil, err
		}
	}
	for _, p := range c.parties {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := c.supply(p); err != nil {
			return nil, fmt.Errorf("token %s: %w", p, err)
		}
	}
	return domain, c.compare(domain)
}

// admit opens a token.
func (c *ceremony) admit(t CeremonyToken, backup bool) error {
	conn, err := connect(t.place(), pkcs11.CKF_RW_SESSION)
	if err != nil {
		return fmt.Errorf("open token %s: %w", t.TokenLabel, err)
	}
	p := &party{cfg: t, backup: backup, conn: conn}
	c.parties = append(c.parties, p)
	c.progress("opened token %s", p)
	if p.session, err = conn.newSession(); err != nil {
		return err
	}
	p.wrapping, err = p.session.wrapMechanism()
	return err
}

func (t *CeremonyToken) place() place {
	return place{module: t.Module, env: t.Env, initArgs: t.InitArgs,
		label: t.TokenLabel, serial: t.TokenSerial, userPIN: t.UserPIN}
}

// identify finds the domain whose roots the tokens hold, or names a new one.
func (c *ceremony) identify() (*hsm.Domain, error) {
	domain := &hsm.Domain{Name: c.cfg.Name, Generation: 1}
	if d := c.cfg.Domain; d != nil {
		domain.ID, domain.Generation = d.ID, d.Generation
	}
	for _, p := range c.parties {
		for _, kind := range rootKinds {
			roots, err := p.conn.findRoots(kind)
			if err != nil {
				return nil, err
			}
			for _, id := range roots {
				if domain.ID == uuid.Nil() {
					domain.ID = id.domain
				}
				if id.domain != domain.ID {
					return nil, driverError(hsm.ClassRequest, "ceremony",
						fmt.Sprintf("token %s holds a root of another domain", p))
				}
			}
		}
	}
	if domain.ID == uuid.Nil() {
		domain.ID = uuid.NewV4()
	}
	for _, p := range c.parties {
		p.ids = make(map[rootKind]rootID)
		for _, kind := range rootKinds {
			p.ids[kind] = rootID{domain.ID, domain.Generation, kind}
		}
		if err := p.locate(); err != nil {
			return nil, fmt.Errorf("token %s: %w", p, err)
		}
	}
	return domain, nil
}

// locate finds the roots that the token holds, and again after a log-out,
// which makes handles of private objects invalid.
func (p *party) locate() error {
	p.roots = make(map[rootKind]pkcs11.ObjectHandle)
	for kind, id := range p.ids {
		roots, err := p.conn.findRoots(kind)
		if err != nil {
			return err
		}
		if !slices.Contains(slices.Collect(maps.Values(roots)), id) {
			continue
		}
		root, err := p.conn.findRoot(id)
		if err != nil {
			return err
		}
		if err := p.conn.checkFrozen(root, p.backup); err != nil {
			return err
		}
		p.roots[kind] = root
	}
	return nil
}

// ensure generates the root on the first backup token if no token holds it.
func (c *ceremony) ensure(id rootID) error {
	for _, p := range c.parties {
		if _, ok := p.roots[id.kind]; ok {
			return c.requireBackup(id.kind)
		}
	}
	if c.cfg.Domain != nil {
		return driverError(hsm.ClassRequest, "ceremony", "no token holds the domain's "+id.kind.label())
	}
	p := c.parties[0]
	template, free := id.template(true, pkcs11.NewAttribute(pkcs11.CKA_VALUE_LEN, rootKeySize))
	defer free()
	mech := []*pkcs11.Mechanism{pkcs11.NewMechanism(pkcs11.CKM_AES_KEY_GEN, nil)}
	root, err := p.conn.mod.ctx.GenerateKey(p.conn.session, mech, template)
	if err != nil {
		return moduleError("C_GenerateKey", err)
	}
	p.roots[id.kind] = root
	c.progress("generated the %s on backup token %s", id.kind.label(), p)
	return p.conn.checkFrozen(root, true)
}

// giver returns the backup token that the root is taken from.
func (c *ceremony) giver(kind rootKind) *party {
	for _, p := range c.parties {
		if _, ok := p.roots[kind]; ok && p.backup {
			return p
		}
	}
	return nil
}

func (c *ceremony) requireBackup(kind rootKind) error {
	if c.giver(kind) == nil {
		return driverError(hsm.ClassRequest, "ceremony", "only members hold the "+kind.label()+", from which it cannot be taken")
	}
	return nil
}

// compare verifies that all tokens hold the same roots and fills in the
// domain's check values.
func (c *ceremony) compare(domain *hsm.Domain) error {
	checks := map[rootKind]*[]byte{keyRoot: &domain.KeyRootCheck, sealingRoot: &domain.SealingRootCheck}
	if d := c.cfg.Domain; d != nil {
		domain.KeyRootCheck, domain.SealingRootCheck = d.KeyRootCheck, d.SealingRootCheck
	}
	for _, p := range c.parties {
		for kind, check := range checks {
			blob, err := p.session.wrapCheckKey(p.wrapping, p.roots[kind])
			if err != nil {
				return fmt.Errorf("token %s: %w", p, err)
			}
			value := checkValue(blob)
			if *check == nil {
				*check = value
			}
			if !bytes.Equal(*check, value) {
				return driverError(hsm.ClassRootGone, "ceremony",
					fmt.Sprintf("token %s holds another %s", p, kind.label()))
			}
		}
		c.progress("token %s holds the domain's roots", p)
	}
	return nil
}

// close ends all connections.
func (c *ceremony) close() error {
	var errs []error
	for _, p := range c.parties {
		if p.session != nil {
			_ = p.session.Close() // cannot fail
		}
		errs = append(errs, p.conn.close())
	}
	return errors.Join(errs...)
}

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
