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
	domain, err := c.make(ctx)
	if err != nil {
		return nil, fmt.Errorf("ceremony: %w", err)
	}
	if cfg.Domain != nil && len(domain.SelfTests) == len(cfg.Domain.SelfTests) {
		return cfg.Domain, nil // as it was
	}
	return domain, nil
}

// make is the ceremony with the keys of the self-test.
func (c *ceremony) make(ctx context.Context) (*hsm.Domain, error) {
	domain, err := c.run(ctx)
	if err != nil {
		return nil, err
	}
	domain.SelfTests, err = c.selfTests(ctx, domain)
	return domain, err
}

// ceremony is a ceremony under way.
type ceremony struct {
	cfg     CeremonyConfig
	replace bool     // the roots get another generation: see Replace
	parties []*party // the backups first
}

// party is a token that takes part.
type party struct {
	cfg      CeremonyToken
	backup   bool
	conn     *connection
	session  *session
	wrapping *mechanism
	ids      []rootID // of the domain's roots
	roots    map[rootID]pkcs11.ObjectHandle
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
	for _, id := range rootIDs(domain) {
		if err := c.ensure(id, domain); err != nil {
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
	domain := c.describe()
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
				if err := c.belongs(id, domain); err != nil {
					return nil, fmt.Errorf("token %s: %w", p, err)
				}
			}
		}
	}
	if domain.ID == uuid.Nil() {
		domain.ID = uuid.NewV4()
	}
	for _, p := range c.parties {
		p.ids = rootIDs(domain)
		if err := p.locate(); err != nil {
			return nil, fmt.Errorf("token %s: %w", p, err)
		}
	}
	return domain, nil
}

// describe returns what is known of the domain before the tokens are asked:
// the check values of new roots are filled in when all tokens hold them.
func (c *ceremony) describe() *hsm.Domain {
	if c.cfg.Domain == nil {
		return &hsm.Domain{Name: c.cfg.Name, Generation: 1}
	}
	domain := *c.cfg.Domain
	if c.replace {
		domain.Earlier = domain.Generations()
		domain.Generation++
		domain.KeyRootCheck, domain.SealingRootCheck, domain.SelfTests = nil, nil, nil
	}
	return &domain
}

// belongs refuses a root of another domain, and one that tells of a description
// which the ceremony was not given.
func (c *ceremony) belongs(id rootID, domain *hsm.Domain) error {
	switch {
	case id.domain != domain.ID:
		return driverError(hsm.ClassRequest, "ceremony", "it holds a root of another domain")
	case c.cfg.Domain == nil && id.generation != domain.Generation:
		return driverError(hsm.ClassRequest, "ceremony", "the domain's roots were replaced before; its description is needed")
	}
	return nil
}

// rootIDs lists the domain's roots, the oldest first.
func rootIDs(domain *hsm.Domain) []rootID {
	var ids []rootID
	for _, g := range domain.Generations() {
		for _, kind := range rootKinds {
			ids = append(ids, rootID{domain.ID, g.Generation, kind})
		}
	}
	return ids
}

// locate finds the roots that the token holds, and again after a log-out,
// which makes handles of private objects invalid.
func (p *party) locate() error {
	p.roots = make(map[rootID]pkcs11.ObjectHandle)
	for _, id := range p.ids {
		roots, err := p.conn.findRoots(id.kind)
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
		p.roots[id] = root
	}
	return nil
}

// ensure generates the root on the first backup token if no token holds it and
// it is new.
func (c *ceremony) ensure(id rootID, domain *hsm.Domain) error {
	for _, p := range c.parties {
		if _, ok := p.roots[id]; ok {
			return c.requireBackup(id)
		}
	}
	if isNew := id.generation == domain.Generation && domain.KeyRootCheck == nil; !isNew {
		return driverError(hsm.ClassRequest, "ceremony", "no token holds the domain's "+id.String())
	}
	p := c.parties[0]
	template, free := id.template(true, pkcs11.NewAttribute(pkcs11.CKA_VALUE_LEN, rootKeySize))
	defer free()
	mech := []*pkcs11.Mechanism{pkcs11.NewMechanism(pkcs11.CKM_AES_KEY_GEN, nil)}
	root, err := p.conn.mod.ctx.GenerateKey(p.conn.session, mech, template)
	if err != nil {
		return moduleError("C_GenerateKey", err)
	}
	p.roots[id] = root
	c.progress("generated the %s on backup token %s", id, p)
	return p.conn.checkFrozen(root, true)
}

// giver returns the backup token that the root is taken from.
func (c *ceremony) giver(id rootID) *party {
	for _, p := range c.parties {
		if _, ok := p.roots[id]; ok && p.backup {
			return p
		}
	}
	return nil
}

func (c *ceremony) requireBackup(id rootID) error {
	if c.giver(id) == nil {
		return driverError(hsm.ClassRequest, "ceremony", "only members hold the "+id.String()+", from which it cannot be taken")
	}
	return nil
}

// compare verifies that all tokens hold the same roots and fills in the check
// values of those that are new.
func (c *ceremony) compare(domain *hsm.Domain) error {
	checks := checksOf(domain)
	for _, p := range c.parties {
		for _, id := range rootIDs(domain) {
			value, err := p.checkValue(id)
			if err != nil {
				return fmt.Errorf("token %s: %w", p, err)
			}
			if checks[id] == nil {
				checks[id] = value
			}
			if !bytes.Equal(checks[id], value) {
				return driverError(hsm.ClassRootGone, "ceremony",
					fmt.Sprintf("token %s holds another %s", p, id))
			}
		}
		c.progress("token %s holds the domain's roots", p)
	}
	domain.KeyRootCheck = checks[rootID{domain.ID, domain.Generation, keyRoot}]
	domain.SealingRootCheck = checks[rootID{domain.ID, domain.Generation, sealingRoot}]
	return nil
}

// checksOf returns the check values that the description has, nil for others.
func checksOf(domain *hsm.Domain) map[rootID][]byte {
	checks := make(map[rootID][]byte)
	for _, g := range domain.Generations() {
		checks[rootID{domain.ID, g.Generation, keyRoot}] = g.KeyRootCheck
		checks[rootID{domain.ID, g.Generation, sealingRoot}] = g.SealingRootCheck
	}
	return checks
}

// checkValue computes the check value of a root that the token holds.
func (p *party) checkValue(id rootID) ([]byte, error) {
	blob, err := p.session.wrapCheckKey(p.wrapping, p.roots[id])
	if err != nil {
		return nil, err
	}
	return checkValue(blob), nil
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
