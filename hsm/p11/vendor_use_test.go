package p11

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"
	"uuid"

	"github.com/emmansun/gmsm/sm2"
	"github.com/emmansun/gmsm/smx509"
	"github.com/miekg/pkcs11"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/hsm/hsmtest"
	"github.com/sluice-kms/sluice/hsm/soft"
	"github.com/sluice-kms/sluice/kms"
	"github.com/sluice-kms/sluice/required"
)

// profileWith gives the fault module's profile, changed.
func profileWith(t testing.TB, change func(*Profile)) func() (*Profile, error) {
	t.Helper()
	p := mustProfile(t, "fault-module")
	change(p)
	if err := p.validate(); err != nil {
		t.Fatal(err)
	}
	return func() (*Profile, error) { return p, nil }
}

// otherForms is the fault module described by its other mechanisms, and by
// fewer.
func otherForms(p *Profile) {
	p.SM2.Sign.Mechanism, p.SM2.Sign.Encoding = 0x80008104, signatureDER
	p.SM2.Decrypt.Mechanism, p.SM2.Decrypt.Order = 0x80008201, string(kms.SM2OrderASN1)
	p.SM2.ECParams, p.SM2.ImportPoint, p.SM2.Agree = false, true, 0
	p.SM4.GCM, p.SM4.GCMIVBits, p.SM4.ValueLen = 0, false, false
	p.HMACSM3 = nil
}

func TestEveryFormOfAProfileConforms(t *testing.T) {
	d := vendorTokens(t)
	open := func(cfg Config) func(t *testing.T) hsm.Token {
		return func(t *testing.T) hsm.Token {
			t.Helper()
			token, err := Open(context.Background(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			return token
		}
	}
	for name, form := range map[string]struct {
		change func(*Profile)
		specs  []kms.Spec
		lacks  map[kms.Spec]kms.Usage
	}{
		"other mechanisms":         {otherForms, []kms.Spec{kms.SpecSM4, kms.SpecSM2}, map[kms.Spec]kms.Usage{kms.SpecSM2: kms.UsageKeyAgreement}},
		"the text's GCM parameter": {func(p *Profile) { p.SM4.GCMIVBits = false }, []kms.Spec{kms.SpecSM4}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := d.config(0)
			cfg.Profile = profileWith(t, form.change)
			hsmtest.RunToken(t, open(cfg), hsmtest.Options{Specs: form.specs, SealingKeys: true, Enforces: true, Peer: open(d.config(1)),
				Imports: form.specs, Unsupported: form.lacks})
		})
	}
}

// Without a profile the same token holds none of these keys.
func TestWithoutAProfileATokenHasNoVendorKeys(t *testing.T) {
	cfg := vendorTokens(t).config(0)
	cfg.Profile = nil
	token := openConfig(t, cfg)
	for _, spec := range vendorSpecs {
		if slices.Contains(token.Info().Wraps, spec.Info().Family) {
			t.Errorf("the token claims %s", spec)
		}
		for _, u := range spec.Info().Usages {
			_, err := token.Generate(spec, u.Usage)
			wantClass(t, string(spec), err, hsm.ClassUnsupported)
		}
	}
}

// A mechanism that hashes messages with the default user id serves these and
// says of all else that it does not.
func TestAMechanismForMessagesServesItsUserIDOnly(t *testing.T) {
	for encoding, mechanism := range map[string]Number{signatureRS: 0x80008102, signatureDER: 0x80008103} {
		cfg := vendorTokens(t).config(0)
		cfg.Profile = profileWith(t, func(p *Profile) {
			p.SM2.Sign = SM2Sign{Mechanism: mechanism, Input: signMessage, UserID: userIDDefault, Encoding: encoding}
		})
		t.Run(encoding, func(t *testing.T) {
			token := openConfig(t, cfg)
			s := newSession(t, token)
			g := generate(t, token, kms.SpecSM2, kms.UsageSignVerify)
			call := hsm.Call{Verb: kms.VerbSign, Algorithm: kms.AlgSM2DSA, Spec: kms.SpecSM2, UserID: []byte(kms.DefaultUserID),
				Handle: load(t, token, g, kms.SpecSM2, kms.UsageSignVerify)}
			for _, size := range messageSizes {
				call.Input = message(size)
				wantSM2Signature(t, g.PublicKey, call.UserID, call.Input, do(t, s, call))
			}
			for name, bad := range map[string]hsm.Call{
				"another user id": with(call, func(c *hsm.Call) { c.UserID = []byte("alice") }),
				"a digest":        with(call, func(c *hsm.Call) { c.UserID, c.Prehashed, c.Input = nil, true, message(32) }),
			} {
				wantClass(t, name, s.Do(&bad), hsm.ClassUnsupported)
			}
			short := with(call, func(c *hsm.Call) { c.UserID, c.Prehashed, c.Input = nil, true, message(31) })
			wantClass(t, "a short digest", s.Do(&short), hsm.ClassRequest)
		})
	}
}

// A mechanism that takes the user id as its parameter serves every one, and no
// digests.
func TestAMechanismForMessagesTakesAnyUserID(t *testing.T) {
	cfg := vendorTokens(t).config(0)
	cfg.Profile = profileWith(t, func(p *Profile) {
		p.SM2.Sign = SM2Sign{Mechanism: 0x80008102, Input: signMessage, UserID: userIDParameter, Encoding: signatureRS}
	})
	token := openConfig(t, cfg)
	s := newSession(t, token)
	g := generate(t, token, kms.SpecSM2, kms.UsageSignVerify)
	call := hsm.Call{Verb: kms.VerbSign, Algorithm: kms.AlgSM2DSA, Spec: kms.SpecSM2, Handle: load(t, token, g, kms.SpecSM2, kms.UsageSignVerify)}
	for _, size := range []int{1, 16, kms.MaxUserID} {
		for _, length := range messageSizes {
			call.UserID, call.Input = message(size), message(length)
			wantSM2Signature(t, g.PublicKey, call.UserID, call.Input, do(t, s, call))
		}
	}
	digest := with(call, func(c *hsm.Call) { c.UserID, c.Prehashed, c.Input = nil, true, message(32) })
	wantClass(t, "a digest", s.Do(&digest), hsm.ClassUnsupported)
}

func wantSM2Signature(t *testing.T, public, userID, message, signature []byte) {
	t.Helper()
	point, ok := curves[kms.SpecSM2].parsePublicKeyInfo(public)
	if !ok {
		t.Fatal("not a public key of SM2")
	}
	key, err := sm2.NewPublicKey(point)
	if err != nil {
		t.Fatal(err)
	}
	digest, err := sm2.CalculateSM2Hash(key, message, userID)
	if err != nil || !sm2.VerifyASN1(key, digest, signature) {
		t.Errorf("the signature over %d bytes does not hold (%v)", len(message), err)
	}
}

// What tokens of a vendor's compute OpenSSL computes too.
func TestOpenSSLAgreesWithVendorKeys(t *testing.T) {
	requireOpenSSL(t)
	token := openConfig(t, vendorTokens(t).config(0))
	s := newSession(t, token)

	g := generate(t, token, kms.SpecSM2, kms.UsageSignVerify)
	sign := hsm.Call{Verb: kms.VerbSign, Algorithm: kms.AlgSM2DSA, Spec: kms.SpecSM2, UserID: []byte("alice@example.com"), PublicKey: g.PublicKey,
		Handle: load(t, token, g, kms.SpecSM2, kms.UsageSignVerify), Input: []byte("a message")}
	openSSL(t, map[string][]byte{"key": g.PublicKey, "message": sign.Input, "signature": do(t, s, sign)},
		"pkeyutl", "-verify", "-pubin", "-keyform", "DER", "-inkey", "key", "-rawin", "-digest", "sm3",
		"-pkeyopt", "distid:alice@example.com", "-in", "message", "-sigfile", "signature")

	g = generate(t, token, kms.SpecSM2, kms.UsageEncryptDecrypt)
	plaintext := []byte("encrypted by OpenSSL")
	decrypt := hsm.Call{Verb: kms.VerbDecrypt, Algorithm: kms.AlgSM2PKE, Spec: kms.SpecSM2, Order: kms.SM2OrderASN1,
		Handle: load(t, token, g, kms.SpecSM2, kms.UsageEncryptDecrypt),
		Input: openSSL(t, map[string][]byte{"key": g.PublicKey, "plaintext": plaintext},
			"pkeyutl", "-encrypt", "-pubin", "-keyform", "DER", "-inkey", "key", "-in", "plaintext")}
	if got := do(t, s, decrypt); !bytes.Equal(got, plaintext) {
		t.Errorf("OpenSSL's ciphertext decrypts to %q", got)
	}

	secret, iv := make([]byte, 16), make([]byte, ivSize)
	rand.Read(secret)
	rand.Read(iv)
	imported, err := token.Import(kms.SpecSM4, kms.UsageEncryptDecrypt, secret)
	if err != nil {
		t.Fatal(err)
	}
	encrypt := hsm.Call{Verb: kms.VerbEncrypt, Algorithm: kms.AlgSM4CBC, Spec: kms.SpecSM4, Nonce: iv, Input: message(1000),
		Handle: load(t, token, imported, kms.SpecSM4, kms.UsageEncryptDecrypt)}
	want := openSSL(t, map[string][]byte{"plaintext": encrypt.Input}, "enc", "-sm4-cbc", "-K", fmt.Sprintf("%x", secret), "-iv", fmt.Sprintf("%x", iv), "-in", "plaintext")
	if got := do(t, s, encrypt); !bytes.Equal(got, want) {
		t.Error("OpenSSL's SM4 ciphertext is another")
	}
}

func requireOpenSSL(t *testing.T) {
	t.Helper()
	_, err := exec.LookPath("openssl")
	required.Part(t, "openssl", err)
}

// openSSL runs the command in a folder with the files and returns its output.
func openSSL(t *testing.T, files map[string][]byte, args ...string) []byte {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	command := exec.Command("openssl", args...)
	command.Dir = dir
	var said bytes.Buffer
	command.Stderr = &said
	out, err := command.Output()
	if err != nil {
		t.Fatalf("openssl %s: %v: %s", args[0], err, said.String())
	}
	return out
}

// The tries of extraction_test.go, with a vendor's keys loaded, and those that
// only a vendor's keys have.
func TestTheUserCannotExtractVendorKeys(t *testing.T) {
	token := openConfig(t, vendorTokens(t).config(0))
	f := newTheft(t, token, vendorSpecs...)
	if _, ok := f.loaded[loadedName(kms.SpecSM2, kms.UsageKeyAgreement)]; !ok {
		t.Fatal("no vendor keys are loaded")
	}
	f.tryAll(t)
	clear := attributes{flag(pkcs11.CKA_SENSITIVE, false), flag(pkcs11.CKA_EXTRACTABLE, true)}
	for _, spec := range vendorSpecs {
		k := token.conn.keyType(spec)
		blob := generate(t, token, spec, spec.Info().Usages[0].Usage).Material
		for name, more := range map[string]attributes{
			"not sensitive, extractable": clear,
			"not sensitive":              {flag(pkcs11.CKA_SENSITIVE, false), flag(pkcs11.CKA_EXTRACTABLE, false)},
			"extractable":                {flag(pkcs11.CKA_SENSITIVE, true), flag(pkcs11.CKA_EXTRACTABLE, true)},
			"saying nothing":             nil,
			"twice, clear first":         append(clear, protected()...),
			"twice, clear last":          append(protected(), clear...),
		} {
			for kind, root := range f.roots {
				for _, typ := range []uint{k.id, pkcs11.CKK_AES, pkcs11.CKK_GENERIC_SECRET, pkcs11.CKK_EC} {
					template := append(attributes{pkcs11.NewAttribute(pkcs11.CKA_CLASS, k.class), pkcs11.NewAttribute(pkcs11.CKA_KEY_TYPE, typ),
						flag(pkcs11.CKA_TOKEN, false)}, more...)
					if object, err := f.ctx.UnwrapKey(f.s, f.kwp, root, blob, template); err == nil {
						f.mustNotRead(fmt.Sprintf("%s as type 0x%x, %s, under the %s", spec, typ, name, kind.label()), object)
					}
				}
			}
		}
	}
	// A key that could leave shows that reading and wrapping work at all.
	template := append(secretTemplate(uint(token.conn.vendor.profile.SM4.KeyType)), clear...)
	own, err := f.ctx.GenerateKey(f.s, []*pkcs11.Mechanism{pkcs11.NewMechanism(uint(token.conn.vendor.profile.SM4.Generate), nil)}, template)
	if err != nil {
		t.Fatal(err)
	}
	if got := f.read(own); len(got) != 16 {
		t.Errorf("read %d bytes of an open key", len(got))
	}
	if _, err := f.ctx.WrapKey(f.s, f.kwp, f.ownSecret(), own); err != nil {
		t.Errorf("wrapping an open key: %v", err)
	}
}

// A token that gives a vendor's keys away does not enforce, however well it
// keeps the others.
func TestEnforcesTriesVendorKeys(t *testing.T) {
	token := openConfig(t, vendorTokens(t).config(0))
	if len(token.vendorTests) != len(vendorSelfTestKeys) {
		t.Fatalf("%d self-test keys to try with, want %d", len(token.vendorTests), len(vendorSelfTestKeys))
	}
	f := newThief(t, token.conn, token.wrapping, token.roots)
	open := f.ownSecret(flag(pkcs11.CKA_UNWRAP, true)) // wraps and unwraps, without a template
	for _, test := range token.vendorTests {
		k := token.conn.keyType(test.Spec)
		object := pkcs11.ObjectHandle(objectOf(t, load(t, token, hsm.Generated{Material: test.Material}, test.Spec, test.Usage)))
		if _, err := f.ctx.WrapKey(f.s, f.kwp, open, object); err == nil {
			t.Errorf("%s: a loaded key was wrapped", test.Spec)
		}
		if refused, err := token.refusesAll(attempt{keyRoot, token.roots[keyRoot], test.Material, k.class, k.id}); err != nil || !refused {
			t.Errorf("%s under the key root: %t, %v", test.Spec, refused, err)
		}
	}
	g := openKey(t, f, token)
	root := token.roots[keyRoot]
	defer func() { token.roots[keyRoot] = root }()
	token.roots[keyRoot] = open
	wrapped, err := f.ctx.WrapKey(f.s, f.kwp, open, g)
	if err != nil {
		t.Fatal(err)
	}
	k := token.conn.keyType(kms.SpecSM4)
	if refused, err := token.refusesAll(attempt{keyRoot, token.roots[keyRoot], wrapped, k.class, k.id}); err != nil || refused {
		t.Errorf("under a root without a template: %t, %v", refused, err)
	}
}

// openKey is an SM4 key that may leave.
func openKey(t *testing.T, f *thief, token *Token) pkcs11.ObjectHandle {
	t.Helper()
	sm4 := token.conn.vendor.profile.SM4
	g, err := f.ctx.GenerateKey(f.s, []*pkcs11.Mechanism{pkcs11.NewMechanism(uint(sm4.Generate), nil)},
		secretTemplate(uint(sm4.KeyType), flag(pkcs11.CKA_EXTRACTABLE, true)))
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestAWarmVendorOperationIsOneCrossing(t *testing.T) {
	d := vendorTokens(t)
	for name, profile := range map[string]func() (*Profile, error){"as it is": profileWith(t, func(*Profile) {}), "other forms": profileWith(t, otherForms)} {
		t.Run(name, func(t *testing.T) {
			cfg := d.config(0)
			cfg.Profile = profile
			token := openConfig(t, cfg)
			s := newSession(t, token)
			for name, c := range vendorCalls(t, token) {
				const rounds = 20
				cgo, counted := runtime.NumCgoCall(), token.Crossings()
				for range rounds {
					do(t, s, c)
				}
				cgo, counted = runtime.NumCgoCall()-cgo, token.Crossings()-counted
				if cgo != rounds || counted != rounds {
					t.Errorf("%s: %d operations took %d calls into C, counted as %d", name, rounds, cgo, counted)
				}
			}
		})
	}
}

// vendorCalls are calls that a token with a profile serves, one for each way
// through the driver.
func vendorCalls(t testing.TB, token *Token) map[string]hsm.Call {
	t.Helper()
	key := func(spec kms.Spec, usage kms.Usage) (hsm.Generated, hsm.Handle) {
		g, err := token.Generate(spec, usage)
		if err != nil {
			t.Fatal(err)
		}
		h, err := token.Load(g.Material, spec, usage)
		if err != nil {
			t.Fatal(err)
		}
		return g, h
	}
	calls := make(map[string]hsm.Call)
	g, h := key(kms.SpecSM2, kms.UsageSignVerify)
	sign := hsm.Call{Verb: kms.VerbSign, Algorithm: kms.AlgSM2DSA, Spec: kms.SpecSM2, Handle: h, PublicKey: g.PublicKey,
		UserID: []byte(kms.DefaultUserID), Input: message(64)}
	calls["SM2 sign"] = sign
	sign.UserID, sign.Prehashed, sign.Input = nil, true, message(32)
	calls["SM2 sign a digest"] = sign

	g, h = key(kms.SpecSM2, kms.UsageEncryptDecrypt)
	point, _ := curves[kms.SpecSM2].parsePublicKeyInfo(g.PublicKey)
	public, err := sm2.NewPublicKey(point)
	if err != nil {
		t.Fatal(err)
	}
	ciphertext, err := sm2.Encrypt(rand.Reader, public, message(64), nil)
	if err != nil {
		t.Fatal(err)
	}
	calls["SM2 decrypt"] = hsm.Call{Verb: kms.VerbDecrypt, Algorithm: kms.AlgSM2PKE, Spec: kms.SpecSM2, Handle: h, Input: ciphertext}

	_, h = key(kms.SpecSM4, kms.UsageEncryptDecrypt)
	gcm := hsm.Call{Verb: kms.VerbEncrypt, Algorithm: kms.AlgSM4GCM, Spec: kms.SpecSM4, Handle: h, Nonce: make([]byte, nonceSize), Input: message(64)}
	calls["SM4-GCM"] = gcm
	gcm.Input = message(1 << 20)
	calls["SM4-GCM 1 MiB"] = gcm
	gcm.Algorithm, gcm.Nonce = kms.AlgSM4CBC, make([]byte, ivSize)
	calls["SM4-CBC 1 MiB"] = gcm
	if token.conn.vendor.sm2Agree != nil {
		g, h = key(kms.SpecSM2, kms.UsageKeyAgreement)
		calls["SM2 agree"] = hsm.Call{Verb: kms.VerbAgree, Algorithm: kms.AlgECDH, Spec: kms.SpecSM2, Handle: h, Peer: g.PublicKey}
	}
	if token.conn.vendor.hmacSM3 != nil {
		_, h = key(kms.SpecHMACSM3, kms.UsageGenerateVerifyMAC)
		calls["HMAC-SM3"] = hsm.Call{Verb: kms.VerbMAC, Algorithm: kms.AlgHMACSM3, Spec: kms.SpecHMACSM3, Handle: h, Input: message(64)}
	}
	return calls
}

// What cannot be signed or decrypted is refused before the token sees it.
func TestWhatDoesNotFitAVendorKeyNeverReachesTheToken(t *testing.T) {
	token := openConfig(t, vendorTokens(t).config(0))
	s := newSession(t, token)
	calls := vendorCalls(t, token)
	sign, digest, decrypt, gcm := calls["SM2 sign"], calls["SM2 sign a digest"], calls["SM2 decrypt"], calls["SM4-GCM"]
	before := token.Crossings()
	for name, bad := range map[string]hsm.Call{
		"no user id":     with(sign, func(c *hsm.Call) { c.UserID = nil }),
		"a long user id": with(sign, func(c *hsm.Call) { c.UserID = message(kms.MaxUserID + 1) }),
		"no public key":  with(sign, func(c *hsm.Call) { c.PublicKey = nil }),
		"a public key off the curve": with(sign, func(c *hsm.Call) {
			c.PublicKey = bytes.Clone(c.PublicKey)
			c.PublicKey[len(c.PublicKey)-1] ^= 1
		}),
		"a digest of 31 bytes":      with(digest, func(c *hsm.Call) { c.Input = message(31) }),
		"a digest with a user id":   with(digest, func(c *hsm.Call) { c.UserID = []byte("alice") }),
		"an unknown order":          with(decrypt, func(c *hsm.Call) { c.Order = "C3C2C1" }),
		"another order":             with(decrypt, func(c *hsm.Call) { c.Order = kms.SM2OrderASN1 }),
		"a point off the curve":     with(decrypt, func(c *hsm.Call) { c.Input = bytes.Clone(c.Input); c.Input[40] ^= 1 }),
		"a ciphertext without C3":   with(decrypt, func(c *hsm.Call) { c.Input = c.Input[:65+31] }),
		"a nonce of 16 bytes":       with(gcm, func(c *hsm.Call) { c.Nonce = make([]byte, 16) }),
		"a ciphertext without tag":  with(gcm, func(c *hsm.Call) { c.Verb, c.Input = kms.VerbDecrypt, message(15) }),
		"an input beyond all limit": with(decrypt, func(c *hsm.Call) { c.Input = message(maxData) }),
	} {
		wantClass(t, name, s.Do(&bad), hsm.ClassRequest)
	}
	if n := token.Crossings() - before; n != 0 {
		t.Errorf("%d crossings", n)
	}
}

// Whatever order a caller has a ciphertext in, the vendor gets it in his own.
func TestCiphertextsAreHandedOverInTheVendorsOrder(t *testing.T) {
	ephemeral, err := sm2.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c1, c2, c3 := sm2Point(&ephemeral.PublicKey), message(40), message(32)
	asn1 := (&SM2Decrypt{Order: string(kms.SM2OrderASN1)}).encode(hsm.SM2Ciphertext{C1: c1, C2: c2, C3: c3})
	callers := map[kms.SM2Order][]byte{
		"": slices.Concat(c1, c3, c2), kms.SM2OrderC1C3C2: slices.Concat(c1, c3, c2), kms.SM2OrderC1C2C3: slices.Concat(c1, c2, c3), kms.SM2OrderASN1: asn1,
	}
	vendors := map[SM2Decrypt][]byte{
		{Order: "C1C3C2", Prefix: true}: slices.Concat(c1, c3, c2), {Order: "C1C3C2"}: slices.Concat(c1[1:], c3, c2),
		{Order: "C1C2C3", Prefix: true}: slices.Concat(c1, c2, c3), {Order: "C1C2C3"}: slices.Concat(c1[1:], c2, c3),
		{Order: "ASN1"}: asn1,
	}
	for order, in := range callers {
		parts, ok := hsm.ParseSM2Ciphertext(order, in)
		if !ok {
			t.Fatalf("%q is not read", order)
		}
		for vendor, want := range vendors {
			if got := vendor.encode(parts); !bytes.Equal(got, want) {
				t.Errorf("%q as %+v: %x, want %x", order, vendor, got, want)
			}
		}
	}
}

func TestPointsOfVendorsAreInTheProfilesForm(t *testing.T) {
	private, err := sm2.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	want, err := smx509.MarshalPKIXPublicKey(&private.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	point := sm2Point(&private.PublicKey)
	forms := map[string][]byte{
		pointOctetString: append([]byte{4, 65}, point...), pointUncompressed: point, pointCoordinates: point[1:],
	}
	for form, have := range forms {
		k := &keyType{curve: curves[kms.SpecSM2], pointForm: form}
		if !bytes.Equal(k.encodePoint(point), have) {
			t.Errorf("%s: written otherwise", form)
		}
		for other, bytesOf := range forms {
			got, err := k.vendorPoint(bytesOf)
			if err == nil {
				got, err = k.curve.publicKeyInfo(got)
			}
			if (err == nil) != (form == other) || err == nil && !bytes.Equal(got, want) {
				t.Errorf("%s read as %s: %v", other, form, err)
			}
		}
	}
}

// A join with a profile gives a domain the self-test keys that it lacks.
func TestAJoinWithAProfileAddsSelfTests(t *testing.T) {
	requireSoftHSM(t)
	d, err := newVendorDomain(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if slices.ContainsFunc(d.domain.SelfTests, func(k hsm.SelfTestKey) bool { return slices.Contains(vendorSpecs, k.Spec) }) {
		t.Fatal("without a profile a vendor's keys were made")
	}
	members := slices.Clone(d.members)
	members[1].Profile = profileWith(t, func(*Profile) {})
	joined, err := Ceremony(context.Background(), CeremonyConfig{Members: members, Backups: d.backups, Domain: d.domain,
		Confirm: func(string, string) error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	if before := len(d.domain.SelfTests); len(joined.SelfTests) != before+len(vendorSelfTestKeys) {
		t.Errorf("%d self-test keys after %d", len(joined.SelfTests), before)
	}
	again, err := Ceremony(context.Background(), CeremonyConfig{Members: members, Backups: d.backups, Domain: joined,
		Confirm: func(string, string) error { return nil }})
	if err != nil || again != joined {
		t.Errorf("a second join made another description: %v", err)
	}
}

// A node whose profile is wrong in one family goes on with the others.
func TestAWrongProfileCostsItsFamilyOnly(t *testing.T) {
	d := vendorTokens(t)
	cfg := d.config(0)
	cfg.Profile = profileWith(t, func(p *Profile) { p.SM2.Sign.Encoding = signatureDER })
	token, err := Open(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	engine, err := soft.Open()
	if err != nil {
		t.Fatal(err)
	}
	device, err := hsm.Open(hsm.Config{Nodes: []hsm.NodeConfig{{ID: "hsm-1", Domain: d.domain, Token: token, Slots: 1}},
		Engine: engine, EngineSlots: 1, Log: slog.New(slog.DiscardHandler), Clock: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	defer device.Close()
	for spec, want := range map[kms.Spec]kms.Protection{kms.SpecSM2: kms.ProtectionSealed, kms.SpecSM4: kms.ProtectionHSM,
		kms.SpecHMACSM3: kms.ProtectionHSM, kms.SpecAES256: kms.ProtectionHSM} {
		if got, err := device.ProtectionFor(uuid.UUID(d.domain.ID), spec); err != nil || got != want {
			t.Errorf("%s: %s (%v), want %s", spec, got, err, want)
		}
	}
}
