package wycheproof

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"unsafe"

	"github.com/miekg/pkcs11"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/hsm/p11"
	"github.com/sluice-kms/sluice/hsm/soft"
	"github.com/sluice-kms/sluice/kms"
	"github.com/sluice-kms/sluice/required"
	"github.com/sluice-kms/sluice/softhsm"
)

// provider is a token that takes keys from outside, with one session.
type provider struct {
	name    string
	token   hsm.Token
	session hsm.Session
	// lacks are families that the token does not offer.
	lacks []kms.Family
}

// loaded is a key of a vector in a provider.
type loaded struct {
	*provider
	spec   kms.Spec
	handle hsm.Handle
	public []byte
}

// load imports and loads a key.
func (p *provider) load(spec kms.Spec, usage kms.Usage, key []byte) (*loaded, error) {
	g, err := p.token.(hsm.Importer).Import(spec, usage, key)
	if err != nil {
		return nil, err
	}
	h, err := p.token.Load(g.Material, spec, usage)
	if err != nil {
		return nil, err
	}
	return &loaded{p, spec, h, g.PublicKey}, nil
}

func (k *loaded) unload(t *testing.T) {
	t.Helper()
	if err := k.token.Unload(k.handle); err != nil {
		t.Error(err)
	}
}

// do runs a call with the key and returns its output.
func (k *loaded) do(c hsm.Call) ([]byte, error) {
	c.Spec, c.Handle, c.PublicKey = k.spec, k.handle, k.public
	err := k.session.Do(&c)
	return c.Output, err
}

// refused tells whether an error is one that a client's input may cause.
func refused(err error) bool {
	e, ok := errors.AsType[*hsm.Error](err)
	return ok && (e.Class == hsm.ClassRequest || e.Class == hsm.ClassAmbiguous)
}

// each runs a test with every provider that offers the family.
func each(t *testing.T, family kms.Family, test func(t *testing.T, p *provider)) {
	for _, open := range []struct {
		name string
		open func(t *testing.T) *provider
	}{{"soft", engine}, {"softhsm", softHSM}, {"nss", nss}} {
		t.Run(open.name, func(t *testing.T) {
			p := open.open(t)
			if slices.Contains(p.lacks, family) {
				return
			}
			test(t, p)
		})
	}
}

func newProvider(name string, token hsm.Token, err error) (*provider, error) {
	if err != nil {
		return nil, err
	}
	session, err := token.NewSession()
	if err != nil {
		return nil, err
	}
	p := &provider{name: name, token: token, session: session}
	for _, info := range kms.Specs() {
		if !slices.Contains(token.Info().Wraps, info.Family) {
			p.lacks = append(p.lacks, info.Family)
		}
	}
	return p, nil
}

// The providers are opened once and end with the process.

var theEngine = sync.OnceValues(func() (*provider, error) {
	token, err := soft.Open()
	return newProvider("soft", token, err)
})

func engine(t *testing.T) *provider {
	t.Helper()
	p, err := theEngine()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// require skips, or fails where SLUICE_REQUIRE demands the part.
func require(t *testing.T, part string, err error) {
	t.Helper()
	required.Part(t, part, err)
}

func softHSM(t *testing.T) *provider {
	t.Helper()
	require(t, "softhsm", softhsm.Available())
	d, err := theDomain()
	if err != nil {
		t.Fatal(err)
	}
	return d.softhsm
}

func nss(t *testing.T) *provider {
	t.Helper()
	require(t, "softhsm", softhsm.Available()) // of which the domain's backups are
	_, err := nssModule()
	require(t, "nss", err)
	d, err := theDomain()
	if err != nil {
		t.Fatal(err)
	}
	return d.nss
}

// domain is one domain with a SoftHSM member and, if NSS is there, one of its.
type domain struct{ softhsm, nss *provider }

var theDomain = sync.OnceValues(func() (*domain, error) {
	cfg := p11.CeremonyConfig{Name: "wycheproof", Confirm: func(string, string) error { return nil }}
	for _, name := range []string{"backup-a", "backup-b", "member"} {
		token, err := softhsm.Provision(filepath.Join(testDir, name), name)
		if err != nil {
			return nil, err
		}
		member := p11.CeremonyToken{Module: token.Module, Env: token.Env, TokenLabel: token.Label, TokenSerial: token.Serial,
			UserPIN: token.UserPIN, SOPIN: token.SOPIN}
		if name == "member" {
			cfg.Members = append(cfg.Members, member)
		} else {
			cfg.Backups = append(cfg.Backups, member)
		}
	}
	if module, err := nssModule(); err == nil {
		member, err := newNSS(module)
		if err != nil {
			return nil, err
		}
		cfg.Members = append(cfg.Members, member)
	}
	made, err := p11.Ceremony(context.Background(), cfg)
	if err != nil {
		return nil, err
	}
	d := &domain{}
	for i, m := range cfg.Members {
		token, err := p11.Open(context.Background(), p11.Config{Module: m.Module, Env: m.Env, InitArgs: m.InitArgs,
			TokenLabel: m.TokenLabel, TokenSerial: m.TokenSerial, PIN: m.UserPIN, Domain: *made})
		if i == 0 {
			d.softhsm, err = newProvider("softhsm", token, err)
		} else {
			d.nss, err = newProvider("nss", token, err)
		}
		if err != nil {
			return nil, err
		}
	}
	for _, p := range []*provider{d.softhsm, d.nss} {
		for _, family := range []kms.Family{kms.FamilyAES, kms.FamilyRSA, kms.FamilyHMAC} {
			if p != nil && slices.Contains(p.lacks, family) {
				return nil, fmt.Errorf("%s lacks %s, and its vectors would fall silent", p.name, family)
			}
		}
	}
	if slices.Contains(d.softhsm.lacks, kms.FamilyEC) {
		return nil, errors.New("SoftHSM lacks EC, and its vectors would fall silent")
	}
	if d.nss != nil {
		// Its unwrapping of EC keys demands an attribute of its own.
		d.nss.lacks = append(d.nss.lacks, kms.FamilyEC, kms.FamilySecp256k1)
	}
	return d, nil
})

// testDir holds the tokens.
var testDir string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "wycheproof")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		testDir = dir
		code := m.Run()
		if err := stopREST(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return code
	}())
}

// nssModule finds NSS softokn where distributions install it.
func nssModule() (string, error) {
	for _, path := range []string{
		"/usr/lib/x86_64-linux-gnu/libsoftokn3.so",
		"/usr/lib/aarch64-linux-gnu/libsoftokn3.so",
		"/usr/lib64/libsoftokn3.so",
	} {
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", errors.New("NSS softokn is not installed")
}

// newNSS makes an NSS token in a folder of its own. Slot 2 is the one with a
// login.
func newNSS(module string) (p11.CeremonyToken, error) {
	const slot, pin = 2, "a test's PIN"
	folder := filepath.Join(testDir, "nss")
	if err := os.Mkdir(folder, 0o700); err != nil {
		return p11.CeremonyToken{}, err
	}
	token := p11.CeremonyToken{
		Module:     module,
		InitArgs:   "configdir='sql:" + folder + "' certPrefix='' keyPrefix='' secmod='secmod.db' flags= ",
		TokenLabel: "NSS Certificate DB",
		UserPIN:    func() ([]byte, error) { return []byte(pin), nil },
	}
	ctx := pkcs11.New(module)
	if ctx == nil {
		return token, errors.New("NSS softokn cannot be loaded")
	}
	args := []byte(token.InitArgs + "\x00")
	var pinner runtime.Pinner
	defer pinner.Unpin()
	pinner.Pin(&args[0])
	if err := ctx.Initialize(pkcs11.InitializeWithReserved(unsafe.Pointer(&args[0]))); err != nil {
		return token, err
	}
	s, err := ctx.OpenSession(slot, pkcs11.CKF_SERIAL_SESSION|pkcs11.CKF_RW_SESSION)
	if err == nil {
		err = ctx.Login(s, pkcs11.CKU_SO, "")
	}
	if err == nil {
		err = ctx.InitPIN(s, pin)
	}
	return token, errors.Join(err, ctx.Finalize())
}
