package p11

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/pkcs11"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

// ownDomain makes a domain of the test's own: one member, two backups.
func ownDomain(t *testing.T) *testDomain {
	t.Helper()
	tokens := provision(t, "backup-a", "backup-b", "member")
	d := &testDomain{backups: tokens[:2], members: tokens[2:]}
	var err error
	if d.domain, err = Ceremony(context.Background(), d.config("test")); err != nil {
		t.Fatal(err)
	}
	return d
}

// replacing is the configuration of a replacement of the domain's roots.
func (d *testDomain) replacing() CeremonyConfig {
	cfg := d.config("test")
	cfg.Domain = d.domain
	return cfg
}

// rootsHeld counts the objects on each token by the generation that their ids
// name.
func (d *testDomain) rootsHeld(t *testing.T) map[uint32]int {
	t.Helper()
	held := make(map[uint32]int)
	for _, token := range append(ceremonyTokens(d.members...), ceremonyTokens(d.backups...)...) {
		conn, err := connect(token.place(), 0)
		if err != nil {
			t.Fatal(err)
		}
		objects, err := conn.find(nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, object := range objects {
			values, err := conn.attributes(object, pkcs11.CKA_ID)
			if err != nil {
				t.Fatal(err)
			}
			id, err := parseRootID(values[0])
			if err != nil {
				t.Errorf("%s holds an object that is no root", token.TokenLabel)
			}
			held[id.generation]++
		}
		if err := conn.close(); err != nil {
			t.Error(err)
		}
	}
	return held
}

func wantHeld(t *testing.T, d *testDomain, want map[uint32]int) {
	t.Helper()
	if held := d.rootsHeld(t); fmt.Sprint(held) != fmt.Sprint(want) {
		t.Errorf("the tokens hold %v roots by generation, want %v", held, want)
	}
}

// openToken opens a member of the domain until the test ends.
func (d *testDomain) openToken(t *testing.T, domain *hsm.Domain) *Token {
	t.Helper()
	token, err := Open(context.Background(), config(d.members[0], domain))
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func closeToken(t *testing.T, token interface{ Close() error }) {
	t.Helper()
	if err := token.Close(); err != nil {
		t.Error(err)
	}
}

// makeMaterial makes one key of each way in which material is encoded, and a
// sealing key.
func (d *testDomain) makeMaterial(t *testing.T, domain *hsm.Domain) (material map[keyKind]hsm.Generated, sealing []byte) {
	t.Helper()
	token := d.openToken(t, domain)
	defer closeToken(t, token)
	material = make(map[keyKind]hsm.Generated)
	for _, kind := range []keyKind{
		{kms.SpecAES128, kms.UsageEncryptDecrypt}, {kms.SpecAES256, kms.UsageEncryptDecrypt}, {kms.SpecRSA2048, kms.UsageSignVerify},
		{kms.SpecP521, kms.UsageSignVerify}, {kms.SpecSecp256k1, kms.UsageSignVerify}, {kms.SpecHMAC224, kms.UsageGenerateVerifyMAC},
	} {
		material[kind] = generate(t, token, kind.spec, kind.usage)
	}
	sealing, err := token.GenerateSealingKey()
	if err != nil {
		t.Fatal(err)
	}
	return material, sealing
}

// rewrapAll rewraps material on the first backup token, from generation 1.
func (d *testDomain) rewrapAll(t *testing.T, domain *hsm.Domain, material map[keyKind]hsm.Generated, sealing []byte) (map[keyKind]hsm.Generated, []byte) {
	t.Helper()
	backup, err := OpenBackup(context.Background(), ceremonyTokens(d.backups...)[0], *domain)
	if err != nil {
		t.Fatal(err)
	}
	defer closeToken(t, backup)
	moved := make(map[keyKind]hsm.Generated)
	for kind, g := range material {
		m, err := backup.Rewrap(1, g.Material)
		if err != nil {
			t.Fatalf("%v: %v", kind, err)
		}
		moved[kind] = hsm.Generated{Material: m, PublicKey: g.PublicKey}
	}
	movedSealing, err := backup.RewrapSealingKey(1, sealing)
	if err != nil {
		t.Fatal(err)
	}
	return moved, movedSealing
}

// wantLoads checks whether a member loads material with the description of the
// domain, as newest material or as that of generation 1.
func (d *testDomain) wantLoads(t *testing.T, domain *hsm.Domain, material map[keyKind]hsm.Generated, sealing []byte, newest, earlier bool) {
	t.Helper()
	token := d.openToken(t, domain)
	defer closeToken(t, token)
	check := func(what string, h hsm.Handle, err error, want bool) {
		t.Helper()
		if (err == nil) != want {
			t.Errorf("%s: loads %t, want %t (%v)", what, err == nil, want, err)
		}
		if err == nil {
			err = token.Unload(h)
		} else if want {
			return
		}
		if err != nil && want {
			t.Error(err)
		}
	}
	for kind, g := range material {
		h, err := token.Load(g.Material, kind.spec, kind.usage)
		check(fmt.Sprint(kind, " as newest"), h, err, newest)
		h, err = token.LoadEarlier(1, g.Material, kind.spec, kind.usage)
		check(fmt.Sprint(kind, " as earlier"), h, err, earlier)
	}
	h, err := token.LoadSealingKey(sealing)
	check("the sealing key as newest", h, err, newest)
	h, err = token.LoadEarlierSealingKey(1, sealing)
	check("the sealing key as earlier", h, err, earlier)
	if enforced, err := token.Enforces(); err != nil || !enforced {
		t.Errorf("Enforces: %t, %v", enforced, err)
	}
}

// The whole life of a generation: new roots beside the old ones, material taken
// over, old roots destroyed.
func TestRootsAreReplacedAndRetired(t *testing.T) {
	d := ownDomain(t)
	material, sealing := d.makeMaterial(t, d.domain)
	domain, err := Replace(context.Background(), d.replacing())
	if err != nil {
		t.Fatal(err)
	}
	if err := domain.CheckGenerations(); err != nil || domain.ID != d.domain.ID || domain.Generation != 2 ||
		len(domain.Earlier) != 1 || domain.Oldest() != 1 || len(domain.SelfTests) != len(d.domain.SelfTests) ||
		!bytes.Equal(domain.Earlier[0].KeyRootCheck, d.domain.KeyRootCheck) || bytes.Equal(domain.KeyRootCheck, d.domain.KeyRootCheck) {
		t.Fatalf("%+v (%v)", domain, err)
	}
	wantHeld(t, d, map[uint32]int{1: 6, 2: 6})
	d.wantLoads(t, domain, material, sealing, false, true)
	if _, err := Replace(context.Background(), func() CeremonyConfig { c := d.replacing(); c.Domain = domain; return c }()); hsm.ClassOf(err) != hsm.ClassRequest {
		t.Errorf("replacing again before the old roots are retired: %v", err)
	}

	moved, movedSealing := d.rewrapAll(t, domain, material, sealing)
	d.wantLoads(t, domain, moved, movedSealing, true, false)

	cfg := d.replacing()
	cfg.Domain = domain
	for range 2 { // it can be repeated
		retired, err := Retire(context.Background(), cfg, 1)
		if err != nil {
			t.Fatal(err)
		}
		if len(retired.Earlier) != 0 || retired.Generation != 2 || !bytes.Equal(retired.KeyRootCheck, domain.KeyRootCheck) {
			t.Errorf("%+v", retired)
		}
		wantHeld(t, d, map[uint32]int{2: 6})
		cfg.Domain = retired
	}
	d.wantLoads(t, cfg.Domain, moved, movedSealing, true, false)
	d.wantLoads(t, cfg.Domain, material, sealing, false, false)
	// A node that has not heard of the retirement keeps serving what is newer.
	d.wantLoads(t, domain, moved, movedSealing, true, false)
	if _, err := Retire(context.Background(), cfg, 2); hsm.ClassOf(err) != hsm.ClassRequest {
		t.Errorf("retiring the newest roots: %v", err)
	}
	wantHeld(t, d, map[uint32]int{2: 6})
}

// Material is taken over whole or not at all.
func TestRewrappingRefusesWhatIsNotWholeMaterial(t *testing.T) {
	d := ownDomain(t)
	material, sealing := d.makeMaterial(t, d.domain)
	domain, err := Replace(context.Background(), d.replacing())
	if err != nil {
		t.Fatal(err)
	}
	backup, err := OpenBackup(context.Background(), ceremonyTokens(d.backups...)[1], *domain)
	if err != nil {
		t.Fatal(err)
	}
	defer closeToken(t, backup)
	whole := material[keyKind{kms.SpecP521, kms.UsageSignVerify}].Material
	spoilt := bytes.Clone(whole)
	spoilt[len(spoilt)-1] ^= 1
	for name, try := range map[string]func() ([]byte, error){
		"spoilt":                  func() ([]byte, error) { return backup.Rewrap(1, spoilt) },
		"cut":                     func() ([]byte, error) { return backup.Rewrap(1, whole[:len(whole)-8]) },
		"empty":                   func() ([]byte, error) { return backup.Rewrap(1, nil) },
		"a sealing key as key":    func() ([]byte, error) { return backup.Rewrap(1, sealing) },
		"a key as sealing key":    func() ([]byte, error) { return backup.RewrapSealingKey(1, whole) },
		"of the newest":           func() ([]byte, error) { return backup.Rewrap(2, whole) },
		"of an unknown":           func() ([]byte, error) { return backup.Rewrap(7, whole) },
		"sealing key, of unknown": func() ([]byte, error) { return backup.RewrapSealingKey(7, sealing) },
	} {
		if out, err := try(); err == nil || out != nil {
			t.Errorf("%s: rewrapped to %d bytes", name, len(out))
		}
	}
	if err := backup.Probe(); err != nil {
		t.Error(err)
	}
}

// The copies with which a backup token rewraps give nothing away: they wrap
// nothing, cannot be read, and end with the session.
func TestTheCopiesOfRootsOnlyUnwrap(t *testing.T) {
	d := ownDomain(t)
	backup, err := OpenBackup(context.Background(), ceremonyTokens(d.backups...)[0], *d.domain)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		closeToken(t, backup)
		wantHeld(t, d, map[uint32]int{1: 6})
	}()
	if len(backup.copies) != 2 {
		t.Fatalf("%d copies", len(backup.copies))
	}
	f := newThief(t, backup.conn, backup.wrapping, nil)
	for id, object := range backup.copies {
		if values, err := backup.conn.attributes(object, pkcs11.CKA_VALUE); err == nil {
			t.Errorf("%s: read %d bytes", id, len(values[0]))
		}
		for what, kek := range map[string]pkcs11.ObjectHandle{"itself": object, "the root": backup.roots[id.kind],
			"a key of the user": f.ownSecret(flag(pkcs11.CKA_WRAP, true))} {
			if _, err := f.ctx.WrapKey(f.s, f.kwp, kek, object); err == nil {
				t.Errorf("%s was wrapped under %s", id, what)
			}
		}
		for _, attribute := range []uint{pkcs11.CKA_WRAP, pkcs11.CKA_ENCRYPT, pkcs11.CKA_DECRYPT, pkcs11.CKA_EXTRACTABLE, pkcs11.CKA_MODIFIABLE} {
			if on, err := backup.conn.flag(object, attribute); err != nil || on {
				t.Errorf("%s: attribute 0x%x is %t (%v)", id, attribute, on, err)
			}
		}
	}
}

// Wherever a replacement is interrupted, repeating it ends in one generation
// that all tokens agree on; the roots in use are never touched.
func TestAnInterruptedReplacementIsContinued(t *testing.T) {
	d := ownDomain(t)
	material, sealing := d.makeMaterial(t, d.domain)
	interrupted := errors.New("interrupted")
	for _, stop := range []string{
		"generated the sluice key root, generation 2",
		"generated the sluice sealing root, generation 2",
		"moved the sluice key root, generation 2, from backup-a",
		"moved the sluice sealing root, generation 2, from backup-a",
		"token backup-b",
		"token member",
	} {
		cfg := d.replacing()
		ctx, cancel := context.WithCancelCause(context.Background())
		came := false
		cfg.Progress = func(step string) {
			if strings.HasPrefix(step, stop) {
				came = true
				cancel(interrupted)
				panic(interrupted) // as a crash would: nothing after this step runs
			}
		}
		func() {
			defer func() {
				if r := recover(); r != nil && r != interrupted {
					panic(r)
				}
			}()
			_, _ = Replace(ctx, cfg)
		}()
		if !came {
			t.Errorf("%q did not come", stop)
		}
		if held := d.rootsHeld(t); held[1] != 6 {
			t.Errorf("after %q the tokens hold %v", stop, held)
		}
	}
	// Who does not go on serves as before.
	d.wantLoads(t, d.domain, material, sealing, true, false)
	confirmed := len(d.confirmed)
	domain, err := Replace(context.Background(), d.replacing())
	if err != nil {
		t.Fatal(err)
	}
	if len(d.confirmed) != confirmed {
		t.Error("a root was moved to a token that had it")
	}
	wantHeld(t, d, map[uint32]int{1: 6, 2: 6})
	d.wantLoads(t, domain, material, sealing, false, true)
}

func TestNobodyReceivesANewRootWithoutConfirmation(t *testing.T) {
	d := ownDomain(t)
	cfg := d.replacing()
	refused := errors.New("another fingerprint")
	cfg.Confirm = func(string, string) error { return refused }
	if _, err := Replace(context.Background(), cfg); !errors.Is(err, refused) {
		t.Errorf("Replace: %v", err)
	}
	wantHeld(t, d, map[uint32]int{1: 6, 2: 2}) // those of the backup that made them
}

// A retirement that was interrupted leaves the domain working, and is gone on
// with.
func TestAnInterruptedRetirementIsContinued(t *testing.T) {
	d := ownDomain(t)
	material, sealing := d.makeMaterial(t, d.domain)
	domain, err := Replace(context.Background(), d.replacing())
	if err != nil {
		t.Fatal(err)
	}
	moved, movedSealing := d.rewrapAll(t, domain, material, sealing)
	cfg := d.replacing()
	cfg.Domain = domain
	ctx, cancel := context.WithCancel(context.Background())
	cfg.Progress = func(step string) {
		if strings.HasPrefix(step, "destroyed the sluice sealing root, generation 1, on member") {
			cancel()
		}
	}
	if _, err := Retire(ctx, cfg, 1); !errors.Is(err, context.Canceled) {
		t.Fatalf("Retire: %v", err)
	}
	wantHeld(t, d, map[uint32]int{1: 4, 2: 6})
	d.wantLoads(t, domain, moved, movedSealing, true, false)
	cfg.Progress = nil
	if _, err := Retire(context.Background(), cfg, 1); err != nil {
		t.Fatal(err)
	}
	wantHeld(t, d, map[uint32]int{2: 6})
}

// Roots are destroyed only where the newest are proven to be.
func TestNothingIsRetiredWhereTheNewestRootsAreMissing(t *testing.T) {
	d := ownDomain(t)
	domain := *d.domain // a description of what no token holds
	domain.Earlier = domain.Generations()
	domain.Generation = 2
	cfg := d.replacing()
	cfg.Domain = &domain
	if _, err := Retire(context.Background(), cfg, 1); hsm.ClassOf(err) != hsm.ClassRootGone {
		t.Errorf("Retire: %v", err)
	}
	wantHeld(t, d, map[uint32]int{1: 6})
}

// Without its description a domain whose roots were replaced is not taken for a
// new one.
func TestACeremonyWithoutTheDescriptionRefusesReplacedRoots(t *testing.T) {
	d := ownDomain(t)
	domain, err := Replace(context.Background(), d.replacing())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Ceremony(context.Background(), d.config("test")); hsm.ClassOf(err) != hsm.ClassRequest {
		t.Errorf("Ceremony: %v", err)
	}
	// With it, a token that joins gets the roots of both generations.
	late := provision(t, "late")
	cfg := d.replacing()
	cfg.Domain, cfg.Members = domain, ceremonyTokens(late...)
	if joined, err := Ceremony(context.Background(), cfg); err != nil || joined != domain {
		t.Fatalf("%p, %v", joined, err)
	}
	wantHeld(t, &testDomain{members: late}, map[uint32]int{1: 2, 2: 2})
}

func TestBackupsAreVerifiedForEveryGeneration(t *testing.T) {
	d := ownDomain(t)
	backups := ceremonyTokens(d.backups...)
	domain, err := Replace(context.Background(), d.replacing())
	if err != nil {
		t.Fatal(err)
	}
	r, err := VerifyBackup(backups[0], domain)
	if err != nil || !slices.Equal(r.Generations, []uint32{1, 2}) || r.Label != "backup-a" || r.Serial == "" {
		t.Errorf("%+v, %v", r, err)
	}
	wrong := *domain
	wrong.Earlier = slices.Clone(wrong.Earlier)
	wrong.Earlier[0].SealingRootCheck = bytes.Repeat([]byte{1}, 32)
	ahead := *domain
	ahead.Earlier, ahead.Generation = ahead.Generations(), 3
	other := *domain
	other.ID[0] ^= 1
	frozen := ceremonyTokens(d.members...)[0]
	gone := backups[0]
	gone.TokenSerial, gone.TokenLabel = "none", "none"
	for name, c := range map[string]struct {
		token  CeremonyToken
		domain *hsm.Domain
	}{
		"another root":                        {backups[0], &wrong},
		"a generation is missing":             {backups[0], &ahead},
		"another domain":                      {backups[0], &other},
		"a generation that is not the file's": {backups[0], d.domain},
		"a member, which cannot give":         {frozen, domain},
		"no such token":                       {gone, domain},
	} {
		if _, err := VerifyBackup(c.token, c.domain); err == nil {
			t.Errorf("%s: found in order", name)
		}
	}
	wantHeld(t, d, map[uint32]int{1: 6, 2: 6})
}
