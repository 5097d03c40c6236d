package p11

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"uuid"

	"github.com/miekg/pkcs11"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
	"github.com/sluice-kms/sluice/softhsm"
)

func TestOpenRefusesWhatIsNotTheDomainsToken(t *testing.T) {
	d := shared(t)
	empty, err := softhsm.Provision(t.TempDir(), "empty")
	if err != nil {
		t.Fatal(err)
	}
	wrongPIN := func() ([]byte, error) { return []byte("not the PIN"), nil }
	for name, c := range map[string]struct {
		change func(*Config)
		class  hsm.Class
	}{
		"wrong PIN":             {func(c *Config) { c.PIN = wrongPIN }, hsm.ClassPIN},
		"no PIN to be had":      {func(c *Config) { c.PIN = func() ([]byte, error) { return nil, os.ErrNotExist } }, hsm.ClassPIN},
		"another serial":        {func(c *Config) { c.TokenSerial = "0123456789abcdef" }, hsm.ClassTokenDown},
		"another label":         {func(c *Config) { c.TokenLabel = "another" }, hsm.ClassTokenDown},
		"neither":               {func(c *Config) { c.TokenLabel, c.TokenSerial = "", "" }, hsm.ClassRequest},
		"relative path":         {func(c *Config) { c.Module = "libsofthsm2.so" }, hsm.ClassRequest},
		"no module":             {func(c *Config) { c.Module = filepath.Join(testDir, "none.so") }, hsm.ClassTokenDown},
		"not a module":          {func(c *Config) { c.Module = c.Env["SOFTHSM2_CONF"] }, hsm.ClassTokenDown},
		"another domain":        {func(c *Config) { c.Domain.ID = uuid.New() }, hsm.ClassRootGone},
		"another generation":    {func(c *Config) { c.Domain.Generation++ }, hsm.ClassRootGone},
		"another key root":      {func(c *Config) { c.Domain.KeyRootCheck = make([]byte, 32) }, hsm.ClassRootGone},
		"another sealing root":  {func(c *Config) { c.Domain.SealingRootCheck = c.Domain.KeyRootCheck }, hsm.ClassRootGone},
		"no check value":        {func(c *Config) { c.Domain.KeyRootCheck = nil }, hsm.ClassRootGone},
		"a token without roots": {func(c *Config) { *c = config(empty, d.domain) }, hsm.ClassRootGone},
		"a backup token":        {func(c *Config) { *c = config(d.backups[0], d.domain) }, hsm.ClassRootGone},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config(d.members[0], d.domain)
			c.change(&cfg)
			_, err := Open(context.Background(), cfg)
			wantClass(t, "Open", err, c.class)
		})
	}
	// Nothing of that is left open.
	if len(registry.modules) != 0 {
		t.Errorf("%d modules stay initialised", len(registry.modules))
	}
	openMember(t, 0)
}

func TestOpenEndsWithItsContext(t *testing.T) {
	d := shared(t)
	ctx, cancel := context.WithCancel(context.Background())
	cfg := config(d.members[0], d.domain)
	cfg.PIN = func() ([]byte, error) { cancel(); return d.members[0].UserPIN() }
	if _, err := Open(ctx, cfg); !errors.Is(err, context.Canceled) {
		t.Errorf("Open: %v", err)
	}
	if _, err := Open(ctx, cfg); !errors.Is(err, context.Canceled) {
		t.Errorf("Open: %v", err)
	}
	if len(registry.modules) != 0 {
		t.Error("a module stays initialised")
	}
}

func TestThePINIsWiped(t *testing.T) {
	d := shared(t)
	cfg := config(d.members[0], d.domain)
	var given []byte
	cfg.PIN = func() ([]byte, error) {
		var err error
		given, err = d.members[0].UserPIN()
		return given, err
	}
	token, err := Open(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer token.Close()
	for _, b := range given {
		if b != 0 {
			t.Fatal("the PIN is still in memory")
		}
	}
}

// One module serves several tokens and is finalised with the last; a token is
// opened once.
func TestAModuleIsSharedUntilItsLastUserCloses(t *testing.T) {
	d := shared(t)
	cfg := config(d.members[0], d.domain)
	token, err := Open(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Open(context.Background(), cfg)
	wantClass(t, "a second Open of the token", err, hsm.ClassRequest)

	link := filepath.Join(t.TempDir(), "module.so")
	if err := os.Symlink(cfg.Module, link); err != nil {
		t.Fatal(err)
	}
	again, err := openModule(link, cfg.Env, "")
	if err != nil {
		t.Fatal(err)
	}
	if again != token.conn.mod {
		t.Error("another path of the library made another module")
	}
	_, err = openModule(cfg.Module, map[string]string{"SOFTHSM2_CONF": "/dev/null"}, "")
	wantClass(t, "opening it with another environment", err, hsm.ClassRequest)

	if err := token.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := again.ctx.GetSlotList(true); err != nil {
		t.Errorf("the module was finalised under its other user: %v", err)
	}
	if err := again.release(); err != nil {
		t.Fatal(err)
	}
	if _, err := again.ctx.GetSlotList(true); err == nil {
		t.Error("the module stays initialised without a user")
	}
	openMember(t, 0)
}

// Opening and provisioning set one variable of the process's environment, each
// for a module of its own, under one lock: no module reads another's value.
func TestOpeningAndProvisioningKeepTheirEnvironmentsApart(t *testing.T) {
	d := shared(t)
	const tokens, opens = 6, 20
	root := t.TempDir()
	var wg sync.WaitGroup
	for i := range tokens {
		wg.Go(func() {
			dir := filepath.Join(root, strconv.Itoa(i))
			if _, err := softhsm.Provision(dir, "new"); err != nil {
				t.Error(err)
			}
			if made, err := os.ReadDir(filepath.Join(dir, "tokens")); err != nil || len(made) != 1 {
				t.Errorf("folder %d holds %d tokens (%v)", i, len(made), err)
			}
		})
	}
	for range opens {
		token, err := Open(context.Background(), config(d.members[0], d.domain))
		if err != nil {
			t.Error(err)
			break
		}
		if err := token.Close(); err != nil {
			t.Error(err)
		}
	}
	wg.Wait()
}

// Two tokens in one module may have one label; then the serial decides.
func TestALabelThatTwoTokensHaveNeedsTheSerial(t *testing.T) {
	requireSoftHSM(t)
	token, err := softhsm.Provision(t.TempDir(), "twin")
	if err != nil {
		t.Fatal(err)
	}
	mod, err := openModule(token.Module, token.Env, "")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := mod.release(); err != nil {
			t.Error(err)
		}
	}()
	slots, err := mod.ctx.GetSlotList(true)
	if err != nil {
		t.Fatal(err)
	}
	if err := mod.ctx.InitToken(slots[len(slots)-1], "12345678", "twin"); err != nil {
		t.Fatal(err)
	}
	_, _, err = mod.findSlot("twin", "")
	wantClass(t, "the label alone", err, hsm.ClassRequest)
	_, info, err := mod.findSlot("", token.Serial)
	if err != nil || info.SerialNumber != token.Serial {
		t.Errorf("the serial alone: %q, %v", info.SerialNumber, err)
	}
	if _, _, err := mod.findSlot("twin", token.Serial); err != nil {
		t.Errorf("both: %v", err)
	}
}

func TestInfoDescribesTheToken(t *testing.T) {
	d := shared(t)
	info := openMember(t, 0).Info()
	if info.Driver != "pkcs11" || info.Label != "member-0" || info.Serial != d.members[0].Serial || info.Model == "" {
		t.Errorf("%+v", info)
	}
	if info.MaxSessions != 0 { // SoftHSM has no bound
		t.Errorf("MaxSessions %d", info.MaxSessions)
	}
	want := map[kms.Family]bool{kms.FamilyAES: true, kms.FamilyRSA: true, kms.FamilyEC: true, kms.FamilySecp256k1: true, kms.FamilyHMAC: true}
	for _, f := range info.Wraps {
		if !want[f] {
			t.Errorf("family %s", f)
		}
		delete(want, f)
	}
	if len(want) != 0 {
		t.Errorf("families missing: %v", want)
	}
}

func TestSessionLimitsLeaveOutThoseOfTheDriver(t *testing.T) {
	for _, c := range []struct {
		token uint
		want  int
	}{{pkcs11.CK_EFFECTIVELY_INFINITE, 0}, {^uint(0), 0}, {16, 12}, {2, 1}} {
		conn := &connection{token: pkcs11.TokenInfo{MaxSessionCount: c.token}}
		if got := tokenInfo(conn).MaxSessions; got != c.want {
			t.Errorf("token with %d: %d sessions, want %d", c.token, got, c.want)
		}
	}
}

// Objects die with the session that made them: those of loaded keys are the
// loader's, and nobody else's end harms them.
func TestLoadedKeysOutliveWorkersAndEndWithTheToken(t *testing.T) {
	d := shared(t)
	token, err := Open(context.Background(), config(d.members[0], d.domain))
	if err != nil {
		t.Fatal(err)
	}
	worker, err := token.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	aes := aesKey(t, token)
	if err := token.conn.mod.ctx.CloseSession(worker.(*session).handle); err != nil {
		t.Fatal(err)
	}
	if err := token.conn.mod.ctx.CloseSession(token.generator.handle); err != nil {
		t.Fatal(err)
	}
	mustWork(t, newSession(t, token), aes)
	if _, err := token.Generate(kms.SpecAES256, kms.UsageEncryptDecrypt); hsm.ClassOf(err) != hsm.ClassSession {
		t.Errorf("generation in a session that is gone: %v", err)
	}
	if _, err := token.Generate(kms.SpecAES256, kms.UsageEncryptDecrypt); err != nil {
		t.Errorf("generation after it: %v", err)
	}
	// Without the loader the keys are gone: the token must be opened again.
	if err := token.conn.mod.ctx.CloseSession(token.loader.session); err != nil {
		t.Fatal(err)
	}
	call := encryptCall(aes, nil)
	wantClass(t, "a key of a loader that is gone", newSession(t, token).Do(&call), hsm.ClassStaleObject)
	wantClass(t, "Probe", token.Probe(), hsm.ClassTokenDown)
	wantClass(t, "Unload", token.Unload(aes), hsm.ClassTokenDown)
	if err := token.Close(); err != nil {
		t.Fatal(err)
	}
	token = openMember(t, 0)
	if err := token.Probe(); err != nil {
		t.Error(err)
	}
}

// Probe sees what other questions do not: SoftHSM answers them from memory
// when its storage is gone.
func TestProbeNoticesThatTheTokenIsGone(t *testing.T) {
	requireSoftHSM(t)
	d, err := newTestDomain(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	token, err := Open(context.Background(), config(d.members[0], d.domain))
	if err != nil {
		t.Fatal(err)
	}
	defer token.Close()
	storage := filepath.Join(filepath.Dir(d.members[0].Module), "tokens")
	if err := os.Rename(storage, storage+".away"); err != nil {
		t.Fatal(err)
	}
	if _, err := token.NewSession(); err != nil {
		t.Errorf("NewSession: %v", err)
	}
	wantClass(t, "Probe", token.Probe(), hsm.ClassRootGone)
	if err := os.Rename(storage+".away", storage); err != nil {
		t.Fatal(err)
	}
}

func TestMaterialOfAnotherTypeIsRefused(t *testing.T) {
	token := openMember(t, 0)
	made := make(map[kms.Spec][]byte)
	for _, spec := range []kms.Spec{kms.SpecAES128, kms.SpecAES256, kms.SpecRSA2048, kms.SpecP256, kms.SpecP384, kms.SpecSecp256k1, kms.SpecHMAC384} {
		made[spec] = generate(t, token, spec, spec.Info().Usages[0].Usage).Material
	}
	for from, material := range made {
		for to := range made {
			h, err := token.Load(material, to, to.Info().Usages[0].Usage)
			switch {
			case from == to && err != nil:
				t.Errorf("%s: %v", from, err)
			case from == to:
				if err := token.Unload(h); err != nil {
					t.Error(err)
				}
			case err == nil:
				t.Errorf("%s was loaded as %s", from, to)
			case hsm.ClassOf(err) != hsm.ClassRequest && hsm.ClassOf(err) != hsm.ClassAmbiguous:
				t.Errorf("%s as %s: %v", from, to, err)
			}
		}
	}
	for _, c := range []struct {
		spec  kms.Spec
		usage kms.Usage
		class hsm.Class
	}{
		{kms.SpecAES256, kms.UsageSignVerify, hsm.ClassRequest},
		{"AES_512", kms.UsageEncryptDecrypt, hsm.ClassRequest},
		{kms.SpecEd25519, kms.UsageSignVerify, hsm.ClassUnsupported},
		{kms.SpecSM4, kms.UsageEncryptDecrypt, hsm.ClassUnsupported},
	} {
		_, err := token.Generate(c.spec, c.usage)
		wantClass(t, "Generate "+string(c.spec), err, c.class)
		_, err = token.Load(made[kms.SpecAES256], c.spec, c.usage)
		wantClass(t, "Load "+string(c.spec), err, c.class)
	}
	if err := token.Probe(); err != nil {
		t.Error(err)
	}
}
