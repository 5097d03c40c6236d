package p11

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/required"
	"github.com/sluice-kms/sluice/softhsm"
)

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "p11")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		testDir = dir
		code := m.Run()
		if err := goleak.Find(); err != nil && code == 0 {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
		return code
	}())
}

// testDir holds the tokens that the tests share; they cost a second of RSA
// key generation each.
var testDir string

// testDomain is a domain with its tokens: two members and two backups.
type testDomain struct {
	domain           *hsm.Domain
	members, backups []*softhsm.Token
	confirmed        []string
}

var sharedDomain = sync.OnceValues(func() (*testDomain, error) {
	return newTestDomain(testDir)
})

func newTestDomain(dir string) (*testDomain, error) {
	d := &testDomain{}
	for i := range 2 {
		for role, tokens := range map[string]*[]*softhsm.Token{"member": &d.members, "backup": &d.backups} {
			name := fmt.Sprintf("%s-%d", role, i)
			token, err := softhsm.Provision(filepath.Join(dir, name), name)
			if err != nil {
				return nil, err
			}
			*tokens = append(*tokens, token)
		}
	}
	var err error
	d.domain, err = Ceremony(context.Background(), d.config("test"))
	return d, err
}

func (d *testDomain) config(name string) CeremonyConfig {
	return CeremonyConfig{
		Name: name, Members: ceremonyTokens(d.members...), Backups: ceremonyTokens(d.backups...),
		Confirm: func(token, fingerprint string) error {
			d.confirmed = append(d.confirmed, token+" "+fingerprint)
			return nil
		},
	}
}

func ceremonyTokens(tokens ...*softhsm.Token) []CeremonyToken {
	var list []CeremonyToken
	for _, t := range tokens {
		list = append(list, CeremonyToken{Module: t.Module, Env: t.Env, TokenLabel: t.Label, TokenSerial: t.Serial,
			UserPIN: t.UserPIN, SOPIN: t.SOPIN})
	}
	return list
}

func config(token *softhsm.Token, domain *hsm.Domain) Config {
	return Config{Module: token.Module, Env: token.Env, TokenLabel: token.Label, TokenSerial: token.Serial,
		PIN: token.UserPIN, Domain: *domain}
}

// requireSoftHSM skips without SoftHSM, or fails where SLUICE_REQUIRE demands
// it.
func requireSoftHSM(t testing.TB) {
	t.Helper()
	err := softhsm.Available()
	required.Part(t, "softhsm", err)
}

func shared(t testing.TB) *testDomain {
	t.Helper()
	requireSoftHSM(t)
	d, err := sharedDomain()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// openMember opens a member of the shared domain until the test ends.
func openMember(t testing.TB, i int) *Token {
	t.Helper()
	d := shared(t)
	return openConfig(t, config(d.members[i], d.domain))
}

// openConfig opens a token until the test ends.
func openConfig(t testing.TB, cfg Config) *Token {
	t.Helper()
	token, err := Open(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := token.Close(); err != nil {
			t.Error(err)
		}
	})
	return token
}

func newSession(t testing.TB, token *Token) *session {
	t.Helper()
	s, err := token.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s.(*session)
}
