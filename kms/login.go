package kms

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/binary"
	"net/netip"
	"sync"
	"time"
	"uuid"
)

// A login exchanges a credential for a token that stands for it for a while:
//
//	slt_<id>_<claim>
//
// <id> is that of the credential's token. <claim> is the base32 of
//
//	nonce 8 ‖ end u32be, seconds since 1970 ‖ HMAC-SHA-256(pepper, "login" ‖ UUID ‖ hash ‖ nonce ‖ end)
//
// where hash is what is stored of the secret that was shown at the login. A
// token is therefore kept nowhere, any API node knows it, no copy of the
// database has one, and it dies with its secret, whether that is revoked,
// rotated away or expires. It cannot outlive its end: who wants more logs in
// again. What ends it before is remembered by the process that was told.
const (
	loginPrefix    = "slt_"
	loginNonceSize = 8
	loginClaimSize = loginNonceSize + 4 + 32
	loginClaimText = 71 // base32 of loginClaimSize bytes
	loginTextSize  = len(loginPrefix) + tokenIDText + 1 + loginClaimText

	labelLogin = "sluice login\x00"
)

// LoginLifetime is how long a login lasts at most: clients that cache a token
// log in a few dozen times a day, and one that leaks is soon worth nothing.
const LoginLifetime = time.Hour

// maxEndedLogins bounds the logins that a process remembers as ended, which it
// does until they would have ended anyway: 3 MiB.
const maxEndedLogins = 1 << 16

// Login is how a principal was authenticated.
type Login struct {
	By *Principal
	// Credential tells that the credential itself was shown, and no token.
	Credential bool
	Expires    time.Time // zero: never

	nonce loginNonce
}

type loginNonce [loginNonceSize]byte

// endedLogins are the logins that were ended before their time. It is safe for
// concurrent use.
type endedLogins struct {
	mu   sync.Mutex
	ends map[loginNonce]time.Time // :: nonce → when it would have ended
}

func (e *endedLogins) has(n loginNonce) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, ended := e.ends[n]
	return ended
}

// add notes an end; false when there is no room.
func (e *endedLogins) add(n loginNonce, until, now time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ends == nil {
		e.ends = make(map[loginNonce]time.Time)
	}
	if len(e.ends) >= maxEndedLogins {
		for nonce, end := range e.ends {
			if !now.Before(end) {
				delete(e.ends, nonce)
			}
		}
	}
	if len(e.ends) >= maxEndedLogins {
		return false
	}
	e.ends[n] = until
	return true
}

// idText is the first part of a credential's tokens.
func (p *Pepper) idText(id uuid.UUID, version uint32) string {
	var raw [tokenIDSize]byte
	copy(raw[:], id[:])
	raw[16] = byte(version)
	mac, _ := p.mac(version, labelCredentialID, raw[:17])
	copy(raw[17:], mac[:tokenMACSize])
	return tokenEncoding.EncodeToString(raw[:])
}

// parseID checks the MAC of the first part of a token.
func (p *Pepper) parseID(text string) (id uuid.UUID, version uint32, ok bool) {
	var raw [tokenIDSize]byte
	if len(text) != tokenIDText || !decodeBase32(raw[:], text) {
		return id, 0, false
	}
	version = uint32(raw[16])
	mac, known := p.mac(version, labelCredentialID, raw[:17])
	if !known || subtle.ConstantTimeCompare(mac[:tokenMACSize], raw[17:]) != 1 {
		return id, 0, false
	}
	return uuid.UUID(raw[:16]), version, true
}

// Login verifies a credential that is given in the two parts of its text, from an
// address, and returns the token of a login. The credential's plain id will not
// do: as it has no MAC, an invented one would cost a look-up. Its errors are
// those of Authenticate.
func (a *Authenticator) Login(ctx context.Context, id, secret string, from netip.Addr) (l *Login, token string, err error) {
	var shown [secretSize]byte
	defer clear(shown[:])
	credential, _, ok := a.pepper.parseID(id)
	if !ok || len(secret) != secretText || !decodeBase32(shown[:], secret) {
		return nil, "", ErrUnauthenticated
	}
	by, c, err := a.identify(ctx, credential, from, &proof{secret: shown[:]})
	if err != nil {
		return &Login{By: by}, "", err
	}
	l = &Login{By: by}
	return l, a.claim(c, shown[:], l), nil
}

// claim makes the token of a login by the credential's secret.
func (a *Authenticator) claim(c *Credential, secret []byte, l *Login) string {
	now := a.clock()
	l.Expires = now.Add(LoginLifetime)
	var hash [32]byte
	for i := range c.Secrets {
		s := &c.Secrets[i]
		h, ok := a.pepper.CredentialHash(s.PepperVersion, c.ID, c.Tenant, secret)
		if !ok || h != s.Hash { // it is verified already
			continue
		}
		hash = h
		l.Expires = earlier(earlier(l.Expires, s.Expires), c.Expires)
	}
	l.Expires = l.Expires.Truncate(time.Second)
	rand.Read(l.nonce[:])
	raw := binary.BigEndian.AppendUint32(l.nonce[:loginNonceSize:loginNonceSize], uint32(l.Expires.Unix()))
	mac, _ := a.pepper.mac(a.pepper.current, labelLogin, c.ID[:], hash[:], raw)
	raw = append(raw, mac[:]...)
	return loginPrefix + a.pepper.idText(c.ID, a.pepper.current) + "_" + tokenEncoding.EncodeToString(raw)
}

// earlier is the earlier one of two times, of which the second may be zero for
// never.
func earlier(a, b time.Time) time.Time {
	if !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// loginProof is what a token shows of its credential.
type loginProof struct {
	version uint32
	claim   [loginClaimSize]byte
}

// proves tells whether the token was made for a live secret of the credential.
func (p *loginProof) proves(a *Authenticator, c *Credential, now time.Time) bool {
	match := 0
	for i := range c.Secrets {
		s := &c.Secrets[i]
		mac, ok := a.pepper.mac(p.version, labelLogin, c.ID[:], s.Hash[:], p.claim[:loginNonceSize+4])
		if ok && (s.Expires.IsZero() || now.Before(s.Expires)) {
			match |= subtle.ConstantTimeCompare(mac[:], p.claim[loginNonceSize+4:])
		}
	}
	return match == 1
}

// AuthenticateLogin is Authenticate for callers that may show a login's token
// instead of the credential.
func (a *Authenticator) AuthenticateLogin(ctx context.Context, token string, from netip.Addr) (*Login, error) {
	if len(token) != loginTextSize || token[:len(loginPrefix)] != loginPrefix {
		by, c, err := a.authenticate(ctx, token, from)
		l := &Login{By: by, Credential: true}
		if err == nil {
			l.Expires = c.Expires
		}
		return l, err
	}
	l := new(Login)
	var p loginProof
	id, version, ok := a.pepper.parseID(token[len(loginPrefix) : len(loginPrefix)+tokenIDText])
	if !ok || token[len(loginPrefix)+tokenIDText] != '_' || !decodeBase32(p.claim[:], token[loginTextSize-loginClaimText:]) {
		return l, ErrUnauthenticated
	}
	p.version = version
	l.nonce = loginNonce(p.claim[:loginNonceSize])
	l.Expires = time.Unix(int64(binary.BigEndian.Uint32(p.claim[loginNonceSize:])), 0)
	if !a.clock().Before(l.Expires) || a.ended.has(l.nonce) {
		return l, ErrUnauthenticated
	}
	var err error
	l.By, _, err = a.identify(ctx, id, from, &proof{login: &p})
	return l, err
}

// EndLogin ends a login before its time, in this process: the others know its
// token until its end. KindInvalidArgument for a credential, which is revoked by
// other means, KindReducedCapacity when too many were ended of late.
func (a *Authenticator) EndLogin(l *Login) error {
	if l.Credential {
		return Errorf(KindInvalidArgument, "a credential cannot end itself; it is revoked by the tenant's administrator")
	}
	if now := a.clock(); !a.ended.add(l.nonce, l.Expires, now) {
		return Errorf(KindReducedCapacity, "too many logins were ended before their time; this one ends by itself")
	}
	return nil
}

// anyone lets everybody do what is about nothing but himself.
func anyone(*Ticket) bool { return true }

// Login records a login, which the Authenticator has verified.
func (s *Service) Login(ctx context.Context, t *Ticket) error {
	return s.run(ctx, t, &task{op: OpLogin, allowed: anyone})
}

// ReadSelf records that a caller asks what is known of himself.
func (s *Service) ReadSelf(ctx context.Context, t *Ticket) error {
	return s.run(ctx, t, &task{op: OpReadSelf, allowed: anyone})
}

// Logout ends the caller's login by end.
func (s *Service) Logout(ctx context.Context, t *Ticket, end func() error) error {
	return s.run(ctx, t, &task{op: OpLogout, allowed: anyone, store: func(context.Context, *Ticket) error { return end() }})
}
