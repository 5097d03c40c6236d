package kms_test

import (
	"bytes"
	"context"
	"net/netip"
	"strings"
	"testing"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// keyring is a store of one tenant's credentials.
type keyring struct {
	kms.Credentials
	kms.Tenants
	tenant  *kms.Tenant
	held    map[uuid.UUID]*kms.Credential
	lookups int
}

func (k *keyring) CredentialForAuthentication(_ context.Context, id uuid.UUID) (*kms.Credential, error) {
	k.lookups++
	if c := k.held[id]; c != nil {
		return c, nil
	}
	return nil, kms.ErrNotFound
}

func (k *keyring) CreateCredential(_ context.Context, c *kms.Credential) error {
	k.held[c.ID] = c
	return nil
}

func (k *keyring) Tenant(_ context.Context, id uuid.UUID) (*kms.Tenant, error) {
	if id == k.tenant.ID {
		return k.tenant, nil
	}
	return nil, kms.ErrNotFound
}

var someday = time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC)

type gate struct {
	*keyring
	auth   *kms.Authenticator
	pepper *kms.Pepper
	now    time.Time
	token  string
	cred   *kms.Credential
}

func newGate(t testing.TB) *gate {
	t.Helper()
	pepper, err := kms.NewPepper(map[uint32][]byte{1: bytes.Repeat([]byte{1}, 32), 2: bytes.Repeat([]byte{2}, 32)})
	if err != nil {
		t.Fatal(err)
	}
	ring := &keyring{tenant: &kms.Tenant{ID: uuid.NewV7(), Name: "acme", State: kms.TenantActive}, held: map[uuid.UUID]*kms.Credential{}}
	g := &gate{keyring: ring, pepper: pepper, now: someday}
	g.auth = kms.NewAuthenticator(ring, ring, pepper, func() time.Time { return g.now })
	g.token, err = kms.FirstCredential(context.Background(), ring, pepper, func() time.Time { return g.now },
		kms.FirstCredentialInput{Tenant: ring.tenant, Name: "app", Scopes: []string{"key:*"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range ring.held {
		g.cred = c
	}
	return g
}

var here = netip.MustParseAddr("192.0.2.7")

func TestTokenAuthenticatesItsCredential(t *testing.T) {
	g := newGate(t)
	p, err := g.auth.Authenticate(context.Background(), g.token, here)
	if err != nil {
		t.Fatal(err)
	}
	if p.Tenant != g.tenant || p.Credential != g.cred.ID || p.Project != "default" {
		t.Errorf("principal = %+v", p)
	}
}

func TestUnknownWrongExpiredAndRevokedLookTheSame(t *testing.T) {
	last := func(token string) string { // another valid last character
		if strings.HasSuffix(token, "a") {
			return token[:len(token)-1] + "q"
		}
		return token[:len(token)-1] + "a"
	}
	cases := []struct {
		name  string
		spoil func(g *gate)
		token func(token string) string
	}{
		{"empty", nil, func(string) string { return "" }},
		{"no prefix", nil, func(s string) string { return "xxx_" + s[4:] }},
		{"cut short", nil, func(s string) string { return s[:len(s)-1] }},
		{"too long", nil, func(s string) string { return s + "a" }},
		{"upper case", nil, strings.ToUpper},
		{"wrong secret", nil, last},
		{"secret in another spelling", nil, func(s string) string { return s[:len(s)-1] + "b" }},
		{"secret of another id", nil, func(s string) string {
			if s[4] == 'a' {
				return s[:4] + "b" + s[5:]
			}
			return s[:4] + "a" + s[5:]
		}},
		{"deleted", func(g *gate) { clear(g.held) }, nil},
		{"expired", func(g *gate) { g.cred.Expires = someday.Add(-time.Second) }, nil},
		{"expires now", func(g *gate) { g.cred.Expires = someday }, nil},
		{"revoked", func(g *gate) { g.cred.Revoked = someday }, nil},
		{"secret expired", func(g *gate) { g.cred.Secrets[0].Expires = someday }, nil},
		{"no secret", func(g *gate) { g.cred.Secrets = nil }, nil},
		{"pepper version gone", func(g *gate) { g.cred.Secrets[0].PepperVersion = 9 }, nil},
		{"hash of another tenant", func(g *gate) { g.cred.Tenant = uuid.NewV7() }, nil},
		{"other network", func(g *gate) { g.cred.Networks = []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")} }, nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			g := newGate(t)
			token := g.token
			if c.token != nil {
				token = c.token(token)
			}
			if c.spoil != nil {
				c.spoil(g)
			}
			p, err := g.auth.Authenticate(context.Background(), token, here)
			if err != kms.ErrUnauthenticated || p != nil {
				t.Errorf("principal %v, error %v; want ErrUnauthenticated itself", p, err)
			}
		})
	}
}

func TestInventedIDsCostNoLookup(t *testing.T) {
	g := newGate(t)
	for i := range 40 {
		token := []byte(g.token)
		if token[4+i] == 'a' {
			token[4+i] = 'b'
		} else {
			token[4+i] = 'a'
		}
		if _, err := g.auth.Authenticate(context.Background(), string(token), here); err != kms.ErrUnauthenticated {
			t.Errorf("character %d changed: error = %v", i, err)
		}
	}
	if g.lookups != 0 {
		t.Errorf("%d look-ups for ids that were never given out", g.lookups)
	}
}

func TestMappedAddressIsTheAddress(t *testing.T) {
	g := newGate(t)
	g.cred.Networks = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	if _, err := g.auth.Authenticate(context.Background(), g.token, netip.MustParseAddr("::ffff:192.0.2.7")); err != nil {
		t.Errorf("error = %v", err)
	}
}

func TestSuspendedTenantIsDenied(t *testing.T) {
	g := newGate(t)
	if _, err := g.auth.Authenticate(context.Background(), g.token, here); err != nil {
		t.Fatal(err)
	}
	suspended := *g.tenant
	suspended.State = kms.TenantSuspended
	g.keyring.tenant = &suspended
	if _, err := g.auth.Authenticate(context.Background(), g.token, here); kms.KindOf(err) != kms.KindPermissionDenied {
		t.Errorf("error = %v, want permission denied", err)
	}
}

func TestNewStateOfARowIsSeenAtOnce(t *testing.T) {
	g := newGate(t)
	if _, err := g.auth.Authenticate(context.Background(), g.token, here); err != nil {
		t.Fatal(err)
	}
	changed := *g.cred
	changed.Scopes = []string{"key:sign"}
	g.held[g.cred.ID] = &changed
	p, err := g.auth.Authenticate(context.Background(), g.token, here)
	if err != nil {
		t.Fatal(err)
	}
	if p.Allowed(kms.OpEncrypt, &kms.Key{Name: "k"}) {
		t.Error("the old scopes are still in force")
	}
}

func FuzzTokenHasOneSpelling(f *testing.F) {
	g := newGate(f)
	f.Add(g.token)
	f.Add(g.token[:len(g.token)-1] + "\n")
	f.Add("slk_")
	f.Fuzz(func(t *testing.T, token string) {
		p, err := g.auth.Authenticate(context.Background(), token, here)
		if (err == nil) != (token == g.token) || (p != nil) != (err == nil) {
			t.Errorf("token %q: principal %v, error %v", token, p, err)
		}
	})
}

// Budget: 3 µs and no database call (P3).
func BenchmarkAuthenticateWarm(b *testing.B) {
	g := newGate(b)
	ctx := context.Background()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := g.auth.Authenticate(ctx, g.token, here); err != nil {
				b.Error(err)
				return
			}
		}
	})
}
