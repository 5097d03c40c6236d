package kms

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base32"
	"encoding/binary"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
	"uuid"
)

// A credential token has two parts:
//
//	slk_<id>_<secret>
//
// <id> is the lower-case base32 (RFC 4648, unpadded) of the credential's UUID,
// the version of the pepper (u8) and the first 8 bytes of
// HMAC-SHA-256(pepper, "credential id" ‖ UUID ‖ version). That MAC is checked
// before anything is looked up, so that invented ids cost no database call.
// <secret> is the base32 of 32 random bytes, shown once and stored only as
// HMAC-SHA-256(pepper, "credential secret" ‖ UUID ‖ tenant ‖ secret).
const (
	tokenPrefix   = "slk_"
	tokenMACSize  = 8
	tokenIDSize   = 16 + 1 + tokenMACSize
	secretSize    = 32
	tokenIDText   = 40 // base32 of tokenIDSize bytes
	secretText    = 52 // base32 of secretSize bytes
	tokenTextSize = len(tokenPrefix) + tokenIDText + 1 + secretText
)

var tokenEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// Labels that keep the uses of the pepper apart.
const (
	labelCredentialID     = "sluice credential id\x00"
	labelCredentialSecret = "sluice credential secret\x00"
	labelSeed             = "sluice seed\x00"
)

// Pepper is the key under which credentials are hashed. It is immutable and
// safe for concurrent use.
type Pepper struct{ keyedMAC }

// NewPepper makes a Pepper of its versions, each MACKeySize bytes; the highest
// is current. It keeps no reference to the values.
func NewPepper(versions map[uint32][]byte) (*Pepper, error) {
	m, err := newKeyedMAC(versions)
	if err != nil {
		return nil, err
	}
	return &Pepper{m}, nil
}

// Current returns the version under which new hashes are made.
func (p *Pepper) Current() uint32 { return p.current }

// Seed returns a number that depends on the label and on nothing that readers of
// the database know. It is the same on every API node and stays when the pepper
// gets a new version.
func (p *Pepper) Seed(label string) uint64 {
	first := p.current
	for v := range p.versions {
		first = min(first, v)
	}
	sum, _ := p.mac(first, labelSeed, []byte(label))
	return binary.BigEndian.Uint64(sum[:])
}

// CredentialHash is what is stored of a secret. The tenant is under the hash
// so that a row moved to another tenant authenticates nobody.
func (p *Pepper) CredentialHash(version uint32, id, tenant uuid.UUID, secret []byte) (sum [32]byte, ok bool) {
	return p.mac(version, labelCredentialSecret, id[:], tenant[:], secret)
}

// newToken makes a secret for a credential and the token that shows it.
func (p *Pepper) newToken(id, tenant uuid.UUID) (token string, hash [32]byte) {
	var secret [secretSize]byte
	rand.Read(secret[:])
	hash, _ = p.CredentialHash(p.current, id, tenant, secret[:])
	token = tokenPrefix + p.idText(id, p.current) + "_" + tokenEncoding.EncodeToString(secret[:])
	clear(secret[:])
	return token, hash
}

// decodeBase32 decodes the text of tokenEncoding that fills dst, without the
// allocations of the encoding's own decoder. It accepts one spelling only:
// lower case, no white space, and zero bits in what the last character has
// beyond dst.
func decodeBase32(dst []byte, text string) bool {
	var bits uint
	var buffer uint32
	n := 0
	for i := range len(text) {
		var v byte
		switch c := text[i]; {
		case 'a' <= c && c <= 'z':
			v = c - 'a'
		case '2' <= c && c <= '7':
			v = c - '2' + 26
		default:
			return false
		}
		buffer = buffer<<5 | uint32(v)
		bits += 5
		if bits >= 8 {
			bits -= 8
			if n == len(dst) {
				return false
			}
			dst[n] = byte(buffer >> bits)
			n++
		}
	}
	return n == len(dst) && buffer&(1<<bits-1) == 0
}

// parseToken checks a token's form and the MAC of its id.
func (p *Pepper) parseToken(token string) (id uuid.UUID, secret [secretSize]byte, ok bool) {
	if len(token) != tokenTextSize || token[:len(tokenPrefix)] != tokenPrefix ||
		token[len(tokenPrefix)+tokenIDText] != '_' {
		return id, secret, false
	}
	if !decodeBase32(secret[:], token[tokenTextSize-secretText:]) {
		return id, secret, false
	}
	id, _, ok = p.parseID(token[len(tokenPrefix) : len(tokenPrefix)+tokenIDText])
	return id, secret, ok
}

// Authenticator turns credential tokens into principals. It is safe for
// concurrent use.
type Authenticator struct {
	credentials Credentials
	tenants     Tenants
	pepper      *Pepper
	clock       func() time.Time
	cache       sync.Map // :: credential id → *authenticated
	cached      atomic.Int64
	ended       endedLogins
}

// maxCachedPrincipals bounds Authenticator's cache: at some 500 bytes each,
// 32 MiB. When it is full the cache starts anew, which costs each credential
// one parse of its scopes.
const maxCachedPrincipals = 1 << 16

// authenticated is a principal made from one state of its rows; new states
// are new pointers, so comparing pointers tells whether it is still right.
type authenticated struct {
	credential *Credential
	tenant     *Tenant
	principal  *Principal
}

// NewAuthenticator makes an Authenticator.
func NewAuthenticator(c Credentials, t Tenants, p *Pepper, clock func() time.Time) *Authenticator {
	return &Authenticator{credentials: c, tenants: t, pepper: p, clock: clock}
}

// Authenticate returns the principal of a token presented from an address.
// Unknown, wrong, expired and revoked credentials and addresses that the
// credential does not allow give ErrUnauthenticated, as does everything of a
// deleted tenant; a suspended tenant gives KindPermissionDenied. A warm credential costs no database call.
func (a *Authenticator) Authenticate(ctx context.Context, token string, from netip.Addr) (*Principal, error) {
	p, _, err := a.authenticate(ctx, token, from)
	return p, err
}

func (a *Authenticator) authenticate(ctx context.Context, token string, from netip.Addr) (*Principal, *Credential, error) {
	id, secret, ok := a.pepper.parseToken(token)
	if !ok {
		return nil, nil, ErrUnauthenticated
	}
	defer clear(secret[:])
	return a.identify(ctx, id, from, &proof{secret: secret[:]})
}

// proof is what a caller shows of a credential: its secret, or the token of a
// login with it.
type proof struct {
	secret []byte
	login  *loginProof // nil: it is the secret
}

func (p *proof) proves(a *Authenticator, c *Credential, now time.Time) bool {
	if p.login != nil {
		return p.login.proves(a, c, now)
	}
	return a.matches(c, p.secret, now)
}

// identify returns the principal of a credential of which a caller shows the
// proof.
func (a *Authenticator) identify(ctx context.Context, id uuid.UUID, from netip.Addr, shown *proof) (*Principal, *Credential, error) {
	c, err := a.credentials.CredentialForAuthentication(ctx, id)
	if err != nil {
		return nil, nil, unknown(err)
	}
	now := a.clock()
	if !shown.proves(a, c, now) || !c.live(now) || !c.allowsAddress(from) {
		return nil, nil, ErrUnauthenticated
	}
	tenant, err := a.tenants.Tenant(ctx, c.Tenant)
	if err != nil {
		return nil, nil, unknown(err)
	}
	if tenant.Deleted() {
		return nil, nil, ErrUnauthenticated
	}
	p, err := a.principal(c, tenant)
	if err != nil {
		return nil, nil, err
	}
	if tenant.State != TenantActive {
		return p, c, Errorf(KindPermissionDenied, "the tenant is suspended")
	}
	return p, c, nil
}

// unknown is the error of a look-up on the way to a principal: what is missing
// authenticates nobody.
func unknown(err error) error {
	if KindOf(err) == KindNotFound {
		return ErrUnauthenticated
	}
	return err
}

// matches compares the secret with every live one, in time that does not
// depend on which matches.
func (a *Authenticator) matches(c *Credential, secret []byte, now time.Time) bool {
	match := 0
	for i := range c.Secrets {
		s := &c.Secrets[i]
		h, ok := a.pepper.CredentialHash(s.PepperVersion, c.ID, c.Tenant, secret)
		if ok && (s.Expires.IsZero() || now.Before(s.Expires)) {
			match |= subtle.ConstantTimeCompare(h[:], s.Hash[:])
		}
	}
	return match == 1
}

func (c *Credential) live(now time.Time) bool {
	return c.Revoked.IsZero() && (c.Expires.IsZero() || now.Before(c.Expires))
}

func (c *Credential) allowsAddress(from netip.Addr) bool {
	if len(c.Networks) == 0 {
		return true
	}
	from = from.Unmap()
	for _, n := range c.Networks {
		if n.Contains(from) {
			return true
		}
	}
	return false
}

func (a *Authenticator) principal(c *Credential, t *Tenant) (*Principal, error) {
	if v, ok := a.cache.Load(c.ID); ok {
		if hit := v.(*authenticated); hit.credential == c && hit.tenant == t {
			return hit.principal, nil
		}
	}
	scopes, err := ParseScopes(c.Scopes)
	if err != nil {
		// A stored scope that no longer parses takes its credential down,
		// never wider.
		return nil, Wrap(KindInternal, err, "the credential's record is not usable")
	}
	p := &Principal{Tenant: t, Project: c.Project, Credential: c.ID, Component: c.Component, Scopes: scopes, Guard: c.Guard}
	if _, existed := a.cache.Swap(c.ID, &authenticated{c, t, p}); !existed {
		if a.cached.Add(1) > maxCachedPrincipals {
			a.cache.Clear()
			a.cached.Store(0)
		}
	}
	return p, nil
}
