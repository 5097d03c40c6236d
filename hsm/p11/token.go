package p11

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"uuid"

	"github.com/sluice-kms/sluice/hsm"

	"github.com/miekg/pkcs11"
)

// Config says how to open a token.
type Config struct {
	// Module is the absolute path of the PKCS#11 library.
	Module string
	// Env is set in the process's environment before the module is
	// initialised, e.g. SOFTHSM2_CONF.
	Env map[string]string
	// InitArgs is the string that some modules take as the reserved argument
	// of C_Initialize (NSS); "" for none.
	InitArgs string
	// TokenSerial and TokenLabel choose the token; at least one is given, and
	// a label alone must be unique in the module.
	TokenLabel  string
	TokenSerial string
	// Profile returns the description of the vendor's mechanisms for SM2, SM4
	// and HMAC-SM3. It is called once; nil for a token that is to hold no such
	// keys.
	Profile func() (*Profile, error)
	// PIN returns the user's PIN. It is called once and its result wiped.
	PIN func() ([]byte, error)
	// Domain is the domain whose roots the token must hold.
	Domain hsm.Domain
}

// Token is an open token of a domain. It implements hsm.Token.
type Token struct {
	conn     *connection
	info     hsm.TokenInfo
	wrapping *mechanism
	domain   uuid.UUID
	roots    map[rootKind]pkcs11.ObjectHandle // the newest
	// checkBlobs are checkKey wrapped under each root: the canary's material.
	checkBlobs map[rootKind][]byte
	// earlier are the roots of earlier generations that the token holds.
	earlier map[rootID]earlierRoot
	// backup: the roots are a backup token's.
	backup bool
	// vendorTests are the domain's self-test keys of what the profile describes.
	vendorTests []hsm.SelfTestKey

	loadMu sync.Mutex
	loader objects

	generateMu sync.Mutex
	generator  *session

	canaryMu sync.Mutex
	canary   *session
}

var (
	_ hsm.Token         = (*Token)(nil)
	_ hsm.EarlierLoader = (*Token)(nil)
	_ hsm.Session       = (*session)(nil)
)

// earlierRoot is a root of an earlier generation.
type earlierRoot struct {
	object pkcs11.ObjectHandle
	blob   []byte // checkKey wrapped under it
}

// heldSessions are those that a Token opens for itself.
const heldSessions = 4

// Open initialises the module, logs in and verifies that the token holds the
// domain's roots: by their check values and by their attributes, since a root
// that could be extracted or used to decrypt would protect nothing. Of roots of
// earlier generations it verifies those that are there: while they are retired
// some tokens have lost theirs already. A wrong
// PIN is ClassPIN, a token that is not there ClassTokenDown, and roots that
// are missing, others or not frozen ClassRootGone.
//
// A module that several tokens are opened from is initialised once and
// finalised when the last is closed. One token cannot be opened twice. ctx
// ends Open between its calls into the module only.
func Open(ctx context.Context, cfg Config) (*Token, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	profile, err := loadProfile(cfg.Profile)
	if err != nil {
		return nil, err
	}
	conn, err := connect(place{module: cfg.Module, env: cfg.Env, initArgs: cfg.InitArgs,
		label: cfg.TokenLabel, serial: cfg.TokenSerial, userPIN: cfg.PIN, profile: profile}, 0)
	if err != nil {
		return nil, err
	}
	t := newToken(conn)
	if err := t.open(ctx, &cfg.Domain); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

func newToken(conn *connection) *Token {
	return &Token{
		conn:       conn,
		info:       tokenInfo(conn),
		roots:      make(map[rootKind]pkcs11.ObjectHandle),
		checkBlobs: make(map[rootKind][]byte),
		earlier:    make(map[rootID]earlierRoot),
	}
}

func tokenInfo(c *connection) hsm.TokenInfo {
	info := hsm.TokenInfo{
		Driver: "pkcs11",
		Model:  c.token.Model,
		Serial: c.token.SerialNumber,
		Label:  c.token.Label,
		Wraps:  c.families(),

		MaxLoads: maxLoads(c.token),
	}
	// Both mean that there is no bound or that none is known.
	if n := c.token.MaxSessionCount; n != pkcs11.CK_EFFECTIVELY_INFINITE && n != ^uint(0) {
		info.MaxSessions = max(int(n)-heldSessions, 1)
	}
	return info
}

func (t *Token) open(ctx context.Context, domain *hsm.Domain) (err error) {
	if t.generator, err = t.conn.newSession(); err != nil {
		return err
	}
	if t.canary, err = t.conn.newSession(); err != nil {
		return err
	}
	t.loader.mod = t.conn.mod
	if t.loader.session, err = t.conn.openSession(); err != nil {
		return err
	}
	if t.wrapping, err = t.generator.wrapMechanism(); err != nil {
		return err
	}
	t.domain = domain.ID
	checks := checksOf(domain)
	for _, id := range rootIDs(domain) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := t.adopt(id, checks[id], id.generation == domain.Generation); err != nil {
			return err
		}
	}
	for _, k := range domain.SelfTests {
		if t.conn.vendor.profile.describes(k.Spec) {
			t.vendorTests = append(t.vendorTests, k)
		}
	}
	return t.Probe()
}

// adopt finds a root and verifies that it is the domain's and frozen. One of an
// earlier generation may be missing.
func (t *Token) adopt(id rootID, check []byte, newest bool) error {
	if !newest {
		if held, err := t.conn.holds(id); err != nil || !held {
			return err
		}
	}
	root, err := t.conn.findRoot(id)
	if err != nil {
		return err
	}
	if err := t.conn.checkFrozen(root, t.backup); err != nil {
		return err
	}
	blob, err := t.generator.wrapCheckKey(t.wrapping, root)
	if err != nil {
		return err
	}
	if !bytes.Equal(checkValue(blob), check) {
		return driverError(hsm.ClassRootGone, "check root", "the token's "+id.String()+" is not the domain's")
	}
	if newest {
		t.roots[id.kind], t.checkBlobs[id.kind] = root, blob
	} else {
		t.earlier[id] = earlierRoot{root, blob}
	}
	return nil
}

// Info describes the token as it was when it was opened. MaxSessions leaves
// out the sessions that the Token itself holds.
func (t *Token) Info() hsm.TokenInfo { return t.info }

// NewSession opens a worker's session, or reuses one that a worker closed.
func (t *Token) NewSession() (hsm.Session, error) {
	s, err := t.conn.newSession()
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Crossings counts the calls from Go into C that the token's sessions have
// made: one for every operation that reaches the module, one more for every
// session that had to be replaced.
func (t *Token) Crossings() uint64 { return t.conn.crossings.Load() }

// Close ends all sessions of the token, which destroys the loaded keys and
// logs out, and finalises the module if no other token of it is open.
// Sessions that workers still hold must not be used, only closed.
func (t *Token) Close() error {
	for _, s := range []*session{t.generator, t.canary} {
		if s != nil {
			_ = s.Close() // cannot fail
		}
	}
	return t.conn.close()
}
