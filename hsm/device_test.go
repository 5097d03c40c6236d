package hsm_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/hsm/p11"
	"github.com/sluice-kms/sluice/hsm/soft"
	"github.com/sluice-kms/sluice/kms"
	"github.com/sluice-kms/sluice/required"
	"github.com/sluice-kms/sluice/softhsm"
)

// tokensDir holds the tokens of all tests: making a domain takes seconds.
var tokensDir string

func TestMain(m *testing.M) {
	var err error
	if tokensDir, err = os.MkdirTemp("", "sluice-hsm-test-"); err != nil {
		panic(err)
	}
	code := m.Run()
	if shared != nil {
		if err := shared.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.RemoveAll(tokensDir)
	os.Exit(code)
}

// pool is a device on two SoftHSM tokens of one domain and the engine.
type pool struct {
	*hsm.Device
	domain *hsm.Domain
	tenant *kms.Tenant
}

func require(t testing.TB) {
	t.Helper()
	err := softhsm.Available()
	required.Part(t, "softhsm", err)
}

// newDomain makes two member tokens with their roots.
func newDomain(t testing.TB, members int) (*hsm.Domain, []*softhsm.Token) {
	t.Helper()
	require(t)
	dir, err := os.MkdirTemp(tokensDir, "domain-")
	if err != nil {
		t.Fatal(err)
	}
	provision := func(name string) *softhsm.Token {
		token, err := softhsm.Provision(filepath.Join(dir, name), name)
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	party := func(s *softhsm.Token) p11.CeremonyToken {
		return p11.CeremonyToken{Module: s.Module, Env: s.Env, TokenLabel: s.Label, TokenSerial: s.Serial, UserPIN: s.UserPIN, SOPIN: s.SOPIN}
	}
	var tokens []*softhsm.Token
	config := p11.CeremonyConfig{Name: "test", Confirm: func(string, string) error { return nil }}
	for i := range members {
		tokens = append(tokens, provision(fmt.Sprintf("node-%d", i+1)))
		config.Members = append(config.Members, party(tokens[i]))
	}
	for i := range 2 {
		config.Backups = append(config.Backups, party(provision(fmt.Sprintf("backup-%d", i+1))))
	}
	domain, err := p11.Ceremony(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	return domain, tokens
}

func openToken(t testing.TB, domain *hsm.Domain, s *softhsm.Token) hsm.Token {
	t.Helper()
	token, err := p11.Open(context.Background(), p11.Config{Module: s.Module, Env: s.Env, TokenLabel: s.Label, TokenSerial: s.Serial, PIN: s.UserPIN, Domain: *domain})
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// shared is the pool of the tests that leave it as they found it.
var shared *pool

func openPool(t testing.TB) *pool {
	t.Helper()
	if shared == nil {
		shared = makePool(t)
	}
	return shared
}

func makePool(t testing.TB) *pool {
	t.Helper()
	domain, tokens := newDomain(t, 2)
	engine, err := soft.Open()
	if err != nil {
		t.Fatal(err)
	}
	config := hsm.Config{Engine: engine, EngineSlots: 2, Log: slog.New(slog.DiscardHandler), Clock: time.Now}
	for i, s := range tokens {
		config.Nodes = append(config.Nodes, hsm.NodeConfig{ID: kms.NodeID(fmt.Sprintf("node-%d", i+1)), Domain: domain,
			Token: openToken(t, domain, s), Slots: 2})
	}
	d, err := hsm.Open(config)
	if err != nil {
		t.Fatal(err)
	}
	tenant := &kms.Tenant{ID: uuid.NewV7(), Name: "acme"}
	if tenant.Sealing, err = d.NewSealingKey(context.Background(), tenant.ID, uuid.UUID{}); err != nil {
		t.Fatal(err)
	}
	return &pool{d, domain, tenant}
}

// key makes a key of a spec on a node.
func (p *pool) key(t testing.TB, node kms.NodeID, spec kms.Spec, usage kms.Usage) *kms.Key {
	t.Helper()
	protection, err := p.ProtectionFor(p.domain.ID, spec)
	if err != nil {
		t.Fatal(err)
	}
	v := &kms.Version{ID: uuid.NewV7(), Number: 1, State: kms.VersionEnabled}
	k := &kms.Key{ID: uuid.NewV7(), Tenant: p.tenant, Name: "k", Spec: spec, Usage: usage, Protection: protection,
		State: kms.KeyEnabled, Primary: 1, Versions: []*kms.Version{v}}
	if protection == kms.ProtectionSealed {
		node = hsm.EngineID
	}
	if err := p.Generate(context.Background(), node, k, v); err != nil {
		t.Fatalf("%s: %v", spec, err)
	}
	return k
}

func (p *pool) do(t testing.TB, node kms.NodeID, w *kms.Work) error {
	t.Helper()
	return p.Do(context.Background(), node, w)
}

func TestSpecsHaveTheProtectionThatTheTokensGive(t *testing.T) {
	p := openPool(t)
	want := map[kms.Protection][]kms.Spec{
		kms.ProtectionHSM: {kms.SpecAES128, kms.SpecAES192, kms.SpecAES256, kms.SpecRSA2048, kms.SpecRSA3072, kms.SpecRSA4096,
			kms.SpecP256, kms.SpecP384, kms.SpecP521, kms.SpecSecp256k1, kms.SpecHMAC224, kms.SpecHMAC256, kms.SpecHMAC384, kms.SpecHMAC512},
		kms.ProtectionSealed: {kms.SpecSM2, kms.SpecSM4, kms.SpecHMACSM3, kms.SpecEd25519,
			kms.SpecMLKEM768, kms.SpecMLDSA65, kms.SpecSLHDSASHAKE256S},
	}
	for protection, specs := range want {
		for _, s := range specs {
			if got, err := p.ProtectionFor(p.domain.ID, s); got != protection || err != nil {
				t.Errorf("%s: %s, %v; want %s", s, got, err, protection)
			}
		}
	}
	for _, n := range p.Status() {
		if n.ID != hsm.EngineID && !n.Enforced {
			t.Errorf("node %s does not enforce unwrap templates", n.ID)
		}
	}
}

// A key of every spec, made on one node, works on the other.
func TestKeyMadeOnOneNodeIsUsedOnTheOther(t *testing.T) {
	p := openPool(t)
	for _, info := range kms.Specs() {
		if info.Bits > 2048 && info.Family == kms.FamilyRSA {
			continue // seconds of generation each, and no other code
		}
		if info.Family == kms.FamilySLHDSA && info.Spec != kms.SpecSLHDSASHA2128F {
			continue // as above, to sign
		}
		for _, ua := range info.Usages {
			t.Run(fmt.Sprintf("%s/%s", info.Spec, ua.Usage), func(t *testing.T) {
				k := p.key(t, "node-1", info.Spec, ua.Usage)
				v := k.Versions[0]
				node := kms.NodeID("node-2")
				if k.Protection == kms.ProtectionSealed {
					node = hsm.EngineID
				}
				useKey(t, p, node, k, v, ua.Algorithms[0])
			})
		}
	}
}

func useKey(t *testing.T, p *pool, node kms.NodeID, k *kms.Key, v *kms.Version, alg kms.Algorithm) {
	t.Helper()
	message := []byte("the message")
	base := kms.Work{Algorithm: alg, Key: k, Version: v, Input: message}
	switch {
	case k.Usage == kms.UsageSignVerify:
		base.Verb, base.UserID = kms.VerbSign, nil
		if alg == kms.AlgSM2DSA {
			base.UserID = []byte(kms.DefaultUserID)
		}
		if err := p.do(t, node, &base); err != nil {
			t.Fatal(err)
		}
		verify := base
		verify.Verb, verify.Signature = kms.VerbVerify, base.Output
		if err := p.do(t, hsm.EngineID, &verify); err != nil || !verify.Valid {
			t.Errorf("the signature is not valid: %v", err)
		}
	case k.Usage == kms.UsageGenerateVerifyMAC:
		base.Verb = kms.VerbMAC
		if err := p.do(t, node, &base); err != nil || len(base.Output) == 0 {
			t.Fatalf("MAC %x, %v", base.Output, err)
		}
	case k.Usage == kms.UsageKeyAgreement:
		base.Verb, base.Input, base.Peer = kms.VerbAgree, nil, v.PublicKey
		if err := p.do(t, node, &base); err != nil || len(base.Output) < 32 {
			t.Fatalf("secret of %d bytes, %v", len(base.Output), err)
		}
	case k.Usage == kms.UsageDerive:
		base.Verb, base.Length = kms.VerbDerive, 48
		if err := p.do(t, node, &base); err != nil || len(base.Output) != 48 {
			t.Fatalf("derived %d bytes, %v", len(base.Output), err)
		}
	case k.Usage == kms.UsageWrapUnwrap:
		base.Verb = kms.VerbWrap
		if err := p.do(t, node, &base); err != nil {
			t.Fatal(err)
		}
		unwrap := base
		unwrap.Verb, unwrap.Input = kms.VerbUnwrap, base.Output
		if err := p.do(t, node, &unwrap); err != nil || !bytes.Equal(unwrap.Output, message) {
			t.Errorf("unwrapped %q, %v", unwrap.Output, err)
		}
	case k.Usage == kms.UsageEncapsulateDecapsulate:
		base.Verb, base.Input = kms.VerbEncapsulate, nil
		if err := p.do(t, hsm.EngineID, &base); err != nil {
			t.Fatal(err)
		}
		open := base
		open.Verb, open.Input = kms.VerbDecapsulate, base.Output
		if err := p.do(t, node, &open); err != nil || !bytes.Equal(open.Output, base.Secret) {
			t.Errorf("recovered %d bytes, %v", len(open.Output), err)
		}
	case k.Usage == kms.UsageEncryptDecrypt:
		base.Verb = kms.VerbEncrypt
		encryptOn := node
		if k.Spec.Info().Symmetric() {
			base.Nonce, base.AAD = make([]byte, 12), []byte("aad")
		} else {
			encryptOn = hsm.EngineID
			if alg == kms.AlgSM2PKE {
				base.Order = kms.SM2OrderC1C3C2
			}
		}
		if err := p.do(t, encryptOn, &base); err != nil {
			t.Fatal(err)
		}
		open := base
		open.Verb, open.Input = kms.VerbDecrypt, base.Output
		if err := p.do(t, node, &open); err != nil || !bytes.Equal(open.Output, message) {
			t.Errorf("decrypted %q, %v", open.Output, err)
		}
	}
}

func TestSignatureVerifiesOutside(t *testing.T) {
	p := openPool(t)
	k := p.key(t, "node-1", kms.SpecP256, kms.UsageSignVerify)
	w := kms.Work{Verb: kms.VerbSign, Algorithm: kms.AlgECDSASHA256, Key: k, Version: k.Versions[0], Input: []byte("m")}
	if err := p.do(t, "node-2", &w); err != nil {
		t.Fatal(err)
	}
	public, err := x509.ParsePKIXPublicKey(k.Versions[0].PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	digest := sha256.Sum256([]byte("m"))
	if !ecdsa.VerifyASN1(public.(*ecdsa.PublicKey), digest[:], w.Output) {
		t.Error("the signature does not verify with Go's crypto")
	}
}

// A blob opens only in its own row: every field of the row that is bound is
// changed, and the same blob is tried under another tenant.
func TestBlobMovedToAnotherRowIsRefused(t *testing.T) {
	p := openPool(t)
	k := p.key(t, "node-1", kms.SpecAES256, kms.UsageEncryptDecrypt)
	other := &kms.Tenant{ID: uuid.NewV7(), Name: "other"}
	var err error
	if other.Sealing, err = p.NewSealingKey(context.Background(), other.ID, uuid.UUID{}); err != nil {
		t.Fatal(err)
	}
	encrypt := func(key kms.Key, v kms.Version) error {
		key.Versions = []*kms.Version{&v}
		return p.do(t, "node-1", &kms.Work{Verb: kms.VerbEncrypt, Algorithm: kms.AlgAESGCM, Key: &key, Version: &v,
			Input: []byte("x"), Nonce: make([]byte, 12), AAD: []byte("a")})
	}
	cases := map[string]func(*kms.Key, *kms.Version){
		"another tenant with its own sealing key": func(k *kms.Key, v *kms.Version) { k.Tenant = other },
		"another tenant with this one's sealing key": func(k *kms.Key, v *kms.Version) {
			k.Tenant = &kms.Tenant{ID: other.ID, Sealing: p.tenant.Sealing}
		},
		"another key":      func(k *kms.Key, v *kms.Version) { k.ID = uuid.New() },
		"another version":  func(k *kms.Key, v *kms.Version) { v.ID = uuid.New() },
		"another number":   func(k *kms.Key, v *kms.Version) { v.Number = 2 },
		"another spec":     func(k *kms.Key, v *kms.Version) { k.Spec = kms.SpecAES128 },
		"flipped bit":      func(k *kms.Key, v *kms.Version) { v.Blob = bytes.Clone(v.Blob); v.Blob[len(v.Blob)-1] ^= 1 },
		"flipped domain":   func(k *kms.Key, v *kms.Version) { v.Blob = bytes.Clone(v.Blob); v.Blob[6] ^= 1 },
		"flipped magic":    func(k *kms.Key, v *kms.Version) { v.Blob = bytes.Clone(v.Blob); v.Blob[0] ^= 1 },
		"cut short":        func(k *kms.Key, v *kms.Version) { v.Blob = v.Blob[:len(v.Blob)-1] },
		"empty":            func(k *kms.Key, v *kms.Version) { v.Blob = nil },
		"sealing key lost": func(k *kms.Key, v *kms.Version) { k.Tenant = &kms.Tenant{ID: p.tenant.ID, Sealing: other.Sealing} },
	}
	for name, change := range cases {
		key, v := *k, *k.Versions[0]
		change(&key, &v)
		if err := encrypt(key, v); kms.KindOf(err) != kms.KindInternal || err == nil {
			t.Errorf("%s: error = %v, want internal", name, err)
		}
	}
	if err := encrypt(*k, *k.Versions[0]); err != nil {
		t.Errorf("the right row: %v", err)
	}
	for _, n := range p.Status() {
		if n.State != "up" {
			t.Errorf("node %s is %s: a bad row took it down", n.ID, n.State)
		}
	}
}

func TestSecretOpensOnlyUnderItsNameAndVersion(t *testing.T) {
	p := openPool(t)
	ctx := context.Background()
	blob, err := p.Seal(ctx, p.tenant.Sealing, "pepper", 1, []byte("secret"))
	if err != nil {
		t.Fatal(err)
	}
	if s, err := p.Unseal(ctx, p.tenant.Sealing, "pepper", 1, blob); err != nil || string(s) != "secret" {
		t.Errorf("unsealed %q, %v", s, err)
	}
	if _, err := p.Unseal(ctx, p.tenant.Sealing, "peppe", 1, blob); err == nil {
		t.Error("it opens under another name")
	}
	if _, err := p.Unseal(ctx, p.tenant.Sealing, "pepper", 2, blob); err == nil {
		t.Error("it opens under another version")
	}
}

// A tenant's bad ciphertexts are his own affair: the node stays up, others
// are served, and every one gives the same answer.
func TestBadCiphertextsDoNotTripANode(t *testing.T) {
	p := openPool(t)
	k := p.key(t, "node-1", kms.SpecAES256, kms.UsageEncryptDecrypt)
	bad := kms.Work{Verb: kms.VerbDecrypt, Algorithm: kms.AlgAESGCM, Key: k, Version: k.Versions[0],
		Input: make([]byte, 100), Nonce: make([]byte, 12), AAD: []byte("a")}
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for range 200 {
				w := bad
				if err := p.Do(context.Background(), "node-1", &w); !errors.Is(err, kms.ErrDecryptionFailed) || w.Output != nil {
					t.Errorf("output %x, error %v; want ErrDecryptionFailed", w.Output, err)
				}
			}
		})
	}
	wg.Wait()
	useKey(t, p, "node-1", k, k.Versions[0], kms.AlgAESGCM)
	for _, n := range p.Status() {
		if n.State != "up" || n.Epoch != 1 || n.Errors != 0 || n.LastError != "" {
			t.Errorf("node %s is %s in epoch %d with %d errors (%s): bad ciphertexts are their sender's", n.ID, n.State, n.Epoch, n.Errors, n.LastError)
		}
	}
}

// Budget P5: a warm operation is one crossing into the module.
func TestWarmOperationIsOneCrossing(t *testing.T) {
	domain, tokens := newDomain(t, 1)
	token := openToken(t, domain, tokens[0]).(*p11.Token)
	engine, err := soft.Open()
	if err != nil {
		t.Fatal(err)
	}
	d, err := hsm.Open(hsm.Config{Engine: engine, EngineSlots: 1, Log: slog.New(slog.DiscardHandler), Clock: time.Now,
		Nodes: []hsm.NodeConfig{{ID: "node-1", Domain: domain, Token: token, Slots: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	p := &pool{d, domain, &kms.Tenant{ID: uuid.NewV7()}}
	if p.tenant.Sealing, err = d.NewSealingKey(context.Background(), p.tenant.ID, uuid.UUID{}); err != nil {
		t.Fatal(err)
	}
	for _, spec := range []kms.Spec{kms.SpecAES256, kms.SpecP256, kms.SpecRSA2048, kms.SpecHMAC256} {
		info := spec.Info()
		k := p.key(t, "node-1", spec, info.Usages[0].Usage)
		w := kms.Work{Algorithm: info.Usages[0].Algorithms[0], Key: k, Version: k.Versions[0], Input: []byte("m")}
		switch info.Usages[0].Usage {
		case kms.UsageSignVerify:
			w.Verb = kms.VerbSign
		case kms.UsageGenerateVerifyMAC:
			w.Verb = kms.VerbMAC
		default:
			w.Verb, w.Nonce, w.AAD = kms.VerbEncrypt, make([]byte, 12), []byte("a")
		}
		if err := p.do(t, "node-1", &w); err != nil {
			t.Fatal(err)
		}
		before := token.Crossings()
		const n = 50
		for range n {
			if err := p.do(t, "node-1", &w); err != nil {
				t.Fatal(err)
			}
		}
		if got := token.Crossings() - before; got != n {
			t.Errorf("%s: %d crossings for %d warm operations", spec, got, n)
		}
	}
}

func TestHomeIsStableAndSharedOut(t *testing.T) {
	p := openPool(t)
	home := map[kms.NodeID]int{}
	for range 2000 {
		k := &kms.Key{ID: uuid.NewV7(), Tenant: p.tenant, Spec: kms.SpecAES256, Protection: kms.ProtectionHSM}
		w := &kms.Work{Verb: kms.VerbEncrypt, Key: k}
		first, err := p.Nodes(w)
		if err != nil || len(first) != 2 {
			t.Fatalf("nodes %v, %v", first, err)
		}
		again, _ := p.Nodes(w)
		if !slices.Equal(first, again) {
			t.Fatalf("home moved from %v to %v", first, again)
		}
		home[first[0]]++
	}
	for node, n := range home {
		if n < 850 || n > 1150 {
			t.Errorf("node %s is home to %d of 2000 keys", node, n)
		}
	}
}

// Key generation and SLH-DSA take seconds; no slot of ordinary calls is given
// to them.
func TestWhatTakesSecondsHasSlotsOfItsOwn(t *testing.T) {
	p := openPool(t)
	slots := p.Slots()
	ordinary := map[kms.NodeID]bool{}
	for _, n := range p.Status() {
		ordinary[n.ID] = true
	}
	check := func(what string, ids []kms.NodeID, err error) {
		t.Helper()
		if err != nil || len(ids) == 0 {
			t.Fatalf("%s: %v, %v", what, ids, err)
		}
		for _, id := range ids {
			if ordinary[id] || slots[id] == 0 {
				t.Errorf("%s runs on %s, which has %d slots and is ordinary: %v", what, id, slots[id], ordinary[id])
			}
		}
	}
	ids, err := p.CreatorNodes(p.domain.ID, kms.SpecRSA4096, kms.ProtectionHSM)
	check("generation in an HSM", ids, err)
	ids, err = p.CreatorNodes(p.domain.ID, kms.SpecSLHDSASHA2128S, kms.ProtectionSealed)
	check("generation in the engine", ids, err)
	ids, err = p.ImportNodes()
	check("import", ids, err)
	k := &kms.Key{ID: uuid.NewV7(), Tenant: p.tenant, Spec: kms.SpecSLHDSASHA2128F, Protection: kms.ProtectionSealed}
	ids, err = p.Nodes(&kms.Work{Verb: kms.VerbSign, Key: k})
	check("an SLH-DSA signature", ids, err)

	slow := p.key(t, ids[0], kms.SpecSLHDSASHA2128F, kms.UsageSignVerify)
	w := kms.Work{Verb: kms.VerbSign, Algorithm: kms.AlgSLHDSA, Key: slow, Version: slow.Versions[0], Input: []byte("m")}
	if err := p.do(t, ids[0], &w); err != nil {
		t.Fatal(err)
	}
	v := w
	v.Verb, v.Signature = kms.VerbVerify, w.Output
	if err := p.do(t, hsm.EngineID, &v); err != nil || !v.Valid {
		t.Errorf("the signature is not valid: %v", err)
	}
}

// lenient is a token that unwraps clear material, as far as its answer goes.
type lenient struct{ hsm.Token }

func (lenient) Enforces() (bool, error) { return false, nil }

// broken is a token that loads keys and then cannot use them.
type broken struct{ hsm.Token }

func (b broken) Load(material []byte, spec kms.Spec, usage kms.Usage) (hsm.Handle, error) {
	return 0, &hsm.Error{Class: hsm.ClassAmbiguous, Call: "Load"}
}

func TestTokenThatCannotBeTrustedIsLeftOut(t *testing.T) {
	domain, tokens := newDomain(t, 1)
	cases := []struct {
		name    string
		spoil   func(hsm.Token) hsm.Token
		allow   bool
		serves  bool
		enforce bool
	}{
		{"a good token", func(t hsm.Token) hsm.Token { return t }, false, true, true},
		{"a token that enforces no template", func(t hsm.Token) hsm.Token { return lenient{t} }, false, false, false},
		{"the same, allowed", func(t hsm.Token) hsm.Token { return lenient{t} }, true, true, false},
		{"a token that fails its self-test", func(t hsm.Token) hsm.Token { return broken{t} }, true, false, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			engine, err := soft.Open()
			if err != nil {
				t.Fatal(err)
			}
			d, err := hsm.Open(hsm.Config{Engine: engine, EngineSlots: 1, AllowUnenforced: c.allow, Log: slog.New(slog.DiscardHandler), Clock: time.Now,
				Nodes: []hsm.NodeConfig{{ID: "node-1", Domain: domain, Token: c.spoil(openToken(t, domain, tokens[0])), Slots: 1}}})
			if (err == nil) != c.serves {
				t.Fatalf("error = %v", err)
			}
			if err != nil {
				return
			}
			defer d.Close()
			if n := d.Status()[0]; n.Enforced != c.enforce {
				t.Errorf("enforced = %v", n.Enforced)
			}
		})
	}
}
