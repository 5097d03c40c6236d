package p11

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/miekg/pkcs11"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
	"github.com/sluice-kms/sluice/softhsm"
)

func TestTheCeremonyDescribesTheDomain(t *testing.T) {
	d := shared(t)
	if d.domain.Name != "test" || d.domain.Generation != 1 || len(d.domain.KeyRootCheck) != 32 ||
		len(d.domain.SealingRootCheck) != 32 || bytes.Equal(d.domain.KeyRootCheck, d.domain.SealingRootCheck) {
		t.Errorf("%+v", d.domain)
	}
	// All but the token that made the roots received them, after its key's
	// fingerprint was confirmed.
	if len(d.confirmed) != 3 {
		t.Errorf("%d fingerprints were confirmed: %q", len(d.confirmed), d.confirmed)
	}
	have := make(map[keyKind]bool)
	for _, k := range d.domain.SelfTests {
		have[keyKind{k.Spec, k.Usage}] = true
		if (k.PublicKey == nil) != k.Spec.Info().Symmetric() {
			t.Errorf("%s: public key of %d bytes", k.Spec, len(k.PublicKey))
		}
	}
	for _, kind := range selfTestKeys {
		if !have[kind] {
			t.Errorf("no self-test for %v", kind)
		}
	}
	// Every member can load every one of them.
	for i := range d.members {
		token := openMember(t, i)
		for _, k := range d.domain.SelfTests {
			h, err := token.Load(k.Material, k.Spec, k.Usage)
			if err != nil {
				t.Errorf("member %d: %s: %v", i, k.Spec, err)
				continue
			}
			if err := token.Unload(h); err != nil {
				t.Error(err)
			}
		}
	}
}

// After the ceremony a token holds its two roots and nothing else.
func TestTheCeremonyLeavesTheRootsOnly(t *testing.T) {
	d := shared(t)
	for _, token := range append(ceremonyTokens(d.members...), ceremonyTokens(d.backups...)...) {
		conn, err := connect(token.place(), 0)
		if err != nil {
			t.Fatal(err)
		}
		objects, err := conn.find(nil)
		if err != nil || len(objects) != 2 {
			t.Errorf("%s holds %d objects (%v)", token.TokenLabel, len(objects), err)
		}
		if err := conn.close(); err != nil {
			t.Error(err)
		}
	}
}

func TestARepeatedCeremonyFindsTheSameRoots(t *testing.T) {
	d := shared(t)
	confirmed := len(d.confirmed)
	again, err := Ceremony(context.Background(), d.config("test"))
	if err != nil {
		t.Fatal(err)
	}
	if again.ID != d.domain.ID || !bytes.Equal(again.KeyRootCheck, d.domain.KeyRootCheck) || !bytes.Equal(again.SealingRootCheck, d.domain.SealingRootCheck) {
		t.Errorf("%+v", again)
	}
	if len(d.confirmed) != confirmed {
		t.Error("a root was moved to a token that had it")
	}
}

// provision makes tokens for a ceremony of the test's own.
func provision(t *testing.T, labels ...string) []*softhsm.Token {
	t.Helper()
	requireSoftHSM(t)
	dir := t.TempDir()
	var tokens []*softhsm.Token
	for _, label := range labels {
		token, err := softhsm.Provision(filepath.Join(dir, label), label)
		if err != nil {
			t.Fatal(err)
		}
		tokens = append(tokens, token)
	}
	return tokens
}

// Wherever a ceremony is interrupted, repeating it ends in one domain whose
// tokens agree.
func TestAnInterruptedCeremonyCanBeRepeated(t *testing.T) {
	tokens := provision(t, "backup-a", "backup-b", "member")
	d := &testDomain{backups: tokens[:2], members: tokens[2:]}
	interrupted := errors.New("interrupted")
	for _, stop := range []string{
		"generated the sluice key root",
		"generated the sluice sealing root",
		"moved the sluice key root, generation 1, from backup-a",
		"moved the sluice sealing root, generation 1, from backup-a",
		"token backup-b",
	} {
		ctx, cancel := context.WithCancelCause(context.Background())
		cfg := d.config("test")
		cfg.Progress = func(step string) {
			if strings.HasPrefix(step, stop) {
				// As a crash would: nothing after this step runs.
				cancel(interrupted)
				panic(interrupted)
			}
		}
		func() {
			defer func() {
				if r := recover(); r != nil && r != interrupted {
					panic(r)
				}
			}()
			if _, err := Ceremony(ctx, cfg); err == nil {
				t.Errorf("%q did not come", stop)
			}
		}()
	}
	domain, err := Ceremony(context.Background(), d.config("test"))
	if err != nil {
		t.Fatal(err)
	}
	token, err := Open(context.Background(), config(d.members[0], domain))
	if err != nil {
		t.Fatal(err)
	}
	if err := token.Close(); err != nil {
		t.Error(err)
	}
}

func TestNobodyReceivesARootWithoutConfirmation(t *testing.T) {
	tokens := provision(t, "backup-a", "backup-b", "member")
	cfg := (&testDomain{backups: tokens[:2], members: tokens[2:]}).config("test")
	refused := errors.New("another fingerprint")
	cfg.Confirm = func(token, fingerprint string) error {
		if !strings.HasPrefix(token, "backup-b (") || len(strings.ReplaceAll(fingerprint, " ", "")) != 64 {
			t.Errorf("asked about %q, %q", token, fingerprint)
		}
		return refused
	}
	if _, err := Ceremony(context.Background(), cfg); !errors.Is(err, refused) {
		t.Errorf("Ceremony: %v", err)
	}
	conn, err := connect(cfg.Backups[1].place(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.close()
	if objects, err := conn.find(nil); err != nil || len(objects) != 0 {
		t.Errorf("the token holds %d objects (%v)", len(objects), err)
	}
}

// A member can join later, from the backup tokens, and use old keys.
func TestAMemberJoinsLater(t *testing.T) {
	d := shared(t)
	late := provision(t, "late")
	g := generate(t, openMember(t, 0), kms.SpecAES256, kms.UsageEncryptDecrypt)
	cfg := d.config("")
	cfg.Members, cfg.Domain = ceremonyTokens(late...), d.domain
	domain, err := Ceremony(context.Background(), cfg)
	if err != nil || domain != d.domain {
		t.Fatalf("%p, %v", domain, err)
	}
	token, err := Open(context.Background(), config(late[0], domain))
	if err != nil {
		t.Fatal(err)
	}
	defer token.Close()
	h, err := token.Load(g.Material, kms.SpecAES256, kms.UsageEncryptDecrypt)
	if err != nil {
		t.Fatal(err)
	}
	mustWork(t, newSession(t, token), h)
}

func TestATokenOfAnotherDomainIsRefused(t *testing.T) {
	d := shared(t)
	tokens := provision(t, "backup-a", "backup-b")
	for name, change := range map[string]func(*CeremonyConfig){
		"among members": func(c *CeremonyConfig) { c.Backups = ceremonyTokens(tokens...) },
		"against the description": func(c *CeremonyConfig) {
			other := *d.domain
			other.ID[0] ^= 1
			c.Domain = &other
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := d.config("other")
			change(&cfg)
			if _, err := Ceremony(context.Background(), cfg); err == nil {
				t.Error("succeeded")
			}
		})
	}
	// New tokens with a backup of no domain: only members hold the roots.
	conn, err := connect(ceremonyTokens(tokens[0])[0].place(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.close()
	if objects, err := conn.find(nil); err != nil || len(objects) != 0 {
		t.Errorf("a refused ceremony made %d objects (%v)", len(objects), err)
	}
}

// A root that is not frozen protects nothing, wherever it came from.
func TestARootThatIsNotFrozenIsRefused(t *testing.T) {
	tokens := provision(t, "backup-a", "backup-b", "member")
	cfg := (&testDomain{backups: tokens[:2], members: tokens[2:]}).config("test")
	conn, err := connect(cfg.Members[0].place(), pkcs11.CKF_RW_SESSION)
	if err != nil {
		t.Fatal(err)
	}
	id := rootID{kind: keyRoot, generation: 1}
	id.domain[0] = 1
	template, free := id.template(false, pkcs11.NewAttribute(pkcs11.CKA_VALUE_LEN, rootKeySize))
	defer free()
	thawed := template[:len(template)-1] // without CKA_MODIFIABLE=false
	if _, err := conn.mod.ctx.GenerateKey(conn.session, []*pkcs11.Mechanism{pkcs11.NewMechanism(pkcs11.CKM_AES_KEY_GEN, nil)}, thawed); err != nil {
		t.Fatal(err)
	}
	if err := conn.close(); err != nil {
		t.Fatal(err)
	}
	_, err = Ceremony(context.Background(), cfg)
	wantClass(t, "Ceremony", err, hsm.ClassRootGone)
}

func TestACeremonyNeedsItsTokensAndPeople(t *testing.T) {
	token := CeremonyToken{SOPIN: func() ([]byte, error) { return nil, nil }}
	good := CeremonyConfig{Name: "test", Members: []CeremonyToken{token}, Backups: []CeremonyToken{token, token},
		Confirm: func(string, string) error { return nil }}
	if err := good.validate(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*CeremonyConfig){
		"no name":         func(c *CeremonyConfig) { c.Name = "" },
		"no member":       func(c *CeremonyConfig) { c.Members = nil },
		"one backup":      func(c *CeremonyConfig) { c.Backups = c.Backups[:1] },
		"nobody confirms": func(c *CeremonyConfig) { c.Confirm = nil },
		"no officer":      func(c *CeremonyConfig) { c.Backups = []CeremonyToken{token, {}} },
	} {
		cfg := good
		change(&cfg)
		_, err := Ceremony(context.Background(), cfg)
		wantClass(t, name, err, hsm.ClassRequest)
	}
}
