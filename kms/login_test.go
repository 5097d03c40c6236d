package kms_test

import (
	"bytes"
	"context"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/sluice-kms/sluice/kms"
)

// parts are the two parts of a credential.
func parts(token string) (id, secret string) {
	_, rest, _ := strings.Cut(token, "_")
	id, secret, _ = strings.Cut(rest, "_")
	return id, secret
}

// login logs in with the gate's credential.
func (g *gate) login(t *testing.T) (*kms.Login, string) {
	t.Helper()
	id, secret := parts(g.token)
	l, token, err := g.auth.Login(context.Background(), id, secret, here)
	if err != nil {
		t.Fatal(err)
	}
	return l, token
}

func (g *gate) knows(token string) bool {
	_, err := g.auth.AuthenticateLogin(context.Background(), token, here)
	return err == nil
}

func TestLoginTokenStandsForItsCredentialUntilItsEnd(t *testing.T) {
	g := newGate(t)
	_, secret := parts(g.token)
	l, token := g.login(t)
	if l.By.Credential != g.cred.ID || !l.Expires.Equal(someday.Add(kms.LoginLifetime)) {
		t.Fatalf("login: %+v", l)
	}
	if strings.Contains(token, secret) {
		t.Error("the token shows the secret")
	}
	shown, err := g.auth.AuthenticateLogin(context.Background(), token, here)
	if err != nil || shown.By != l.By || shown.Credential || !shown.Expires.Equal(l.Expires) {
		t.Errorf("the token gives %+v, %v", shown, err)
	}
	if _, err := g.auth.Authenticate(context.Background(), token, here); kms.KindOf(err) != kms.KindUnauthenticated {
		t.Errorf("where only credentials are taken: %v", err)
	}
	g.now = l.Expires.Add(-time.Second)
	if !g.knows(token) {
		t.Error("it ended before its end")
	}
	g.now = l.Expires
	if g.knows(token) {
		t.Error("it outlives its end")
	}
	if l, err := g.auth.AuthenticateLogin(context.Background(), g.token, here); err != nil || !l.Credential || !l.Expires.IsZero() {
		t.Errorf("the credential itself gives %+v, %v", l, err)
	}
}

func TestLoginTokenDiesWithWhatItWasMadeOf(t *testing.T) {
	for name, end := range map[string]func(*gate){
		"the credential is revoked": func(g *gate) { g.cred.Revoked = g.now },
		"the credential expires":    func(g *gate) { g.cred.Expires = g.now },
		"the secret expires":        func(g *gate) { g.cred.Secrets[0].Expires = g.now },
		"the secret is replaced":    func(g *gate) { g.cred.Secrets[0].Hash[0] ^= 1 },
		"the address is forbidden":  func(g *gate) { g.cred.Networks = []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")} },
		"the tenant is suspended":   func(g *gate) { g.tenant.State = kms.TenantSuspended },
		"the tenant is deleted":     func(g *gate) { g.tenant.State = kms.TenantDeleted },
		"the credential is gone":    func(g *gate) { delete(g.held, g.cred.ID) },
		"it is another credential's": func(g *gate) {
			other := *g.cred
			other.Secrets = nil
			g.held[g.cred.ID] = &other
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGate(t)
			if _, token := g.login(t); !g.knows(token) {
				t.Fatal("it is not known at first")
			} else if end(g); g.knows(token) {
				t.Error("it still stands for the credential")
			}
		})
	}
}

// TestLoginTokenIsKnownToEveryProcess has a second Authenticator with the same
// pepper, as every API node has.
func TestLoginTokenIsKnownToEveryProcess(t *testing.T) {
	g := newGate(t)
	l, token := g.login(t)
	other := kms.NewAuthenticator(g.keyring, g.keyring, g.pepper, func() time.Time { return g.now })
	if _, err := other.AuthenticateLogin(context.Background(), token, here); err != nil {
		t.Errorf("another process: %v", err)
	}
	if err := g.auth.EndLogin(l); err != nil || g.knows(token) {
		t.Errorf("ended: %v, known %v", err, g.knows(token))
	}
	stranger, err := kms.NewPepper(map[uint32][]byte{2: bytes.Repeat([]byte{3}, 32)})
	if err != nil {
		t.Fatal(err)
	}
	other = kms.NewAuthenticator(g.keyring, g.keyring, stranger, func() time.Time { return g.now })
	if _, err := other.AuthenticateLogin(context.Background(), token, here); err != kms.ErrUnauthenticated {
		t.Errorf("under another pepper: %v", err)
	}
}

func TestLoginEndsNoLaterThanItsSecret(t *testing.T) {
	g := newGate(t)
	soon := someday.Add(10 * time.Minute)
	g.cred.Secrets[0].Expires = soon
	if l, _ := g.login(t); !l.Expires.Equal(soon) {
		t.Errorf("it ends %v, its secret %v", l.Expires, soon)
	}
}

// TestForgedLoginTokenIsUnknown changes each character of a token in turn.
func TestForgedLoginTokenIsUnknown(t *testing.T) {
	g := newGate(t)
	_, token := g.login(t)
	for i := range token {
		forged := []byte(token)
		if forged[i] == 'b' {
			forged[i] = 'c'
		} else {
			forged[i] = 'b'
		}
		if g.knows(string(forged)) {
			t.Errorf("with another character at %d it is known", i)
		}
	}
	for _, wrong := range []string{"", "slt_", token[:len(token)-1], token + "a", strings.ToUpper(token), "slk_" + token[4:]} {
		if g.knows(wrong) {
			t.Errorf("%q is known", wrong)
		}
	}
}

func TestWrongLoginsLookTheSame(t *testing.T) {
	g := newGate(t)
	id, secret := parts(g.token)
	wrong := strings.Repeat("a", len(secret))
	for name, c := range map[string][2]string{
		"nothing":        {"", ""},
		"no secret":      {id, ""},
		"wrong secret":   {id, wrong},
		"plain id":       {g.cred.ID.String(), secret},
		"invented id":    {strings.Repeat("a", len(id)), secret},
		"whole token":    {id, g.token},
		"id as a secret": {secret, id},
	} {
		if _, token, err := g.auth.Login(context.Background(), c[0], c[1], here); err != kms.ErrUnauthenticated || token != "" {
			t.Errorf("%s: %q, %v", name, token, err)
		}
	}
}

func TestEndedLoginIsUnknownAndNoOther(t *testing.T) {
	g := newGate(t)
	_, other := g.login(t)
	_, token := g.login(t)
	l, err := g.auth.AuthenticateLogin(context.Background(), token, here)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.auth.EndLogin(l); err != nil {
		t.Fatal(err)
	}
	if g.knows(token) || !g.knows(other) || !g.knows(g.token) {
		t.Errorf("known are: the ended one %v, another %v, the credential %v", g.knows(token), g.knows(other), g.knows(g.token))
	}
	if l, _ = g.auth.AuthenticateLogin(context.Background(), g.token, here); kms.KindOf(g.auth.EndLogin(l)) != kms.KindInvalidArgument {
		t.Error("a credential ended itself")
	}
}
