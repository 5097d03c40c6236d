package p11

import (
	"context"
	"path/filepath"
	"sync"
	"testing"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/hsm/hsmtest"
	"github.com/sluice-kms/sluice/kms"
	"github.com/sluice-kms/sluice/softhsm"
	"github.com/sluice-kms/sluice/softhsm/fault"
)

// vendorDomain is a domain whose tokens stand behind fault modules that offer
// SM keys.
type vendorDomain struct {
	domain           *hsm.Domain
	members, backups []CeremonyToken
	modules          []*fault.Module // of the members, then of the backups
}

var sharedVendorDomain = sync.OnceValues(func() (*vendorDomain, error) {
	return newVendorDomain(filepath.Join(testDir, "vendor"), func() (*Profile, error) { return FindProfile("fault-module") })
})

var faultLibrary = sync.OnceValues(func() (*fault.Library, error) { return fault.Build(testDir) })

func newVendorDomain(dir string, profile func() (*Profile, error)) (*vendorDomain, error) {
	library, err := faultLibrary()
	if err != nil {
		return nil, err
	}
	d := &vendorDomain{}
	var tokens []CeremonyToken
	for _, name := range []string{"vendor-member-0", "vendor-member-1", "vendor-backup-0", "vendor-backup-1"} {
		token, err := softhsm.Provision(filepath.Join(dir, name), name)
		if err != nil {
			return nil, err
		}
		module, err := library.Front(filepath.Join(dir, name), token.Module)
		if err != nil {
			return nil, err
		}
		module.OfferSM()
		token.Module = module.Path()
		d.modules = append(d.modules, module)
		tokens = append(tokens, ceremonyTokens(token)...)
	}
	d.members, d.backups = tokens[:2], tokens[2:]
	for i := range d.members {
		d.members[i].Profile = profile
	}
	d.domain, err = Ceremony(context.Background(), CeremonyConfig{Name: "vendor", Members: d.members, Backups: d.backups,
		Confirm: func(string, string) error { return nil }})
	return d, err
}

func (d *vendorDomain) config(i int) Config {
	m := d.members[i]
	return Config{Module: m.Module, Env: m.Env, TokenLabel: m.TokenLabel, TokenSerial: m.TokenSerial, Profile: m.Profile,
		PIN: m.UserPIN, Domain: *d.domain}
}

func vendorTokens(t testing.TB) *vendorDomain {
	t.Helper()
	requireSoftHSM(t)
	d, err := sharedVendorDomain()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// vendorSpecs are the specs that a vendor's profile adds.
var vendorSpecs = []kms.Spec{kms.SpecSM4, kms.SpecSM2, kms.SpecHMACSM3}

func TestTokensWithAProfileConform(t *testing.T) {
	d := vendorTokens(t)
	open := func(i int) func(t *testing.T) hsm.Token {
		return func(t *testing.T) hsm.Token {
			t.Helper()
			token, err := Open(context.Background(), d.config(i))
			if err != nil {
				t.Fatal(err)
			}
			return token
		}
	}
	specs := append([]kms.Spec{kms.SpecAES256, kms.SpecP256}, vendorSpecs...)
	hsmtest.RunToken(t, open(0), hsmtest.Options{Specs: specs, SealingKeys: true, Enforces: true, Peer: open(1), Imports: specs,
		Unsupported: map[kms.Spec]kms.Usage{kms.SpecHMACSM3: kms.UsageDerive}})
}
