package p11

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"math/big"
	"testing"

	"github.com/miekg/pkcs11"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

// thief has what someone has who knows a token's user PIN and module: a
// session with the user logged in, everything that the domain stores outside
// its tokens, and whatever objects he makes himself.
type thief struct {
	t   *testing.T
	ctx *pkcs11.Ctx
	s   pkcs11.SessionHandle
	kwp []*pkcs11.Mechanism
	// roots of the token he is at.
	roots map[rootKind]pkcs11.ObjectHandle
}

func newThief(t *testing.T, c *connection, wrapping *mechanism, roots map[rootKind]pkcs11.ObjectHandle) *thief {
	t.Helper()
	s, err := c.mod.ctx.OpenSession(c.slot, pkcs11.CKF_SERIAL_SESSION|pkcs11.CKF_RW_SESSION)
	if err != nil {
		t.Fatal(err)
	}
	return &thief{t: t, ctx: c.mod.ctx, s: s, kwp: []*pkcs11.Mechanism{pkcs11.NewMechanism(wrapping.id, nil)}, roots: roots}
}

type attributes = []*pkcs11.Attribute

func flag(typ uint, value bool) *pkcs11.Attribute { return pkcs11.NewAttribute(typ, value) }

func secretTemplate(keyType uint, more ...*pkcs11.Attribute) attributes {
	return append(attributes{
		pkcs11.NewAttribute(pkcs11.CKA_CLASS, pkcs11.CKO_SECRET_KEY),
		pkcs11.NewAttribute(pkcs11.CKA_KEY_TYPE, keyType),
		flag(pkcs11.CKA_TOKEN, false),
	}, more...)
}

// protected are the attributes that keep a key in, in their places.
func protected(more ...*pkcs11.Attribute) attributes {
	return append(attributes{flag(pkcs11.CKA_SENSITIVE, true), flag(pkcs11.CKA_EXTRACTABLE, false)}, more...)
}

// read tries to get an object's value, directly and under a key that he
// knows.
func (f *thief) read(object pkcs11.ObjectHandle) []byte {
	for _, attribute := range []uint{pkcs11.CKA_VALUE, pkcs11.CKA_PRIVATE_EXPONENT, pkcs11.CKA_PRIME_1, pkcs11.CKA_EXPONENT_1} {
		got, err := f.ctx.GetAttributeValue(f.s, object, attributes{{Type: attribute}})
		if err == nil && len(got) == 1 && len(got[0].Value) > 0 {
			return got[0].Value
		}
	}
	for _, kek := range []pkcs11.ObjectHandle{f.ownSecret(), f.ownRSA()} {
		for _, mech := range [][]*pkcs11.Mechanism{f.kwp,
			{pkcs11.NewMechanism(pkcs11.CKM_AES_KEY_WRAP, nil)},
			{pkcs11.NewMechanism(pkcs11.CKM_AES_CBC_PAD, make([]byte, 16))},
			{pkcs11.NewMechanism(pkcs11.CKM_RSA_PKCS, nil)},
			{pkcs11.NewMechanism(pkcs11.CKM_RSA_PKCS_OAEP, pkcs11.NewOAEPParams(pkcs11.CKM_SHA_1, pkcs11.CKG_MGF1_SHA1, pkcs11.CKZ_DATA_SPECIFIED, nil))}} {
			if wrapped, err := f.ctx.WrapKey(f.s, mech, kek, object); err == nil {
				return wrapped
			}
		}
	}
	return nil
}

// ownSecret is an AES key whose value he chose.
func (f *thief) ownSecret(more ...*pkcs11.Attribute) pkcs11.ObjectHandle {
	f.t.Helper()
	template := append(secretTemplate(pkcs11.CKK_AES, pkcs11.NewAttribute(pkcs11.CKA_VALUE, message(32)),
		flag(pkcs11.CKA_SENSITIVE, false), flag(pkcs11.CKA_EXTRACTABLE, true), flag(pkcs11.CKA_WRAP, true)), more...)
	object, err := f.ctx.CreateObject(f.s, template)
	if err != nil {
		f.t.Fatal(err)
	}
	return object
}

// ownRSA is a public key whose private half he holds.
func (f *thief) ownRSA() pkcs11.ObjectHandle {
	f.t.Helper()
	object, err := f.ctx.CreateObject(f.s, f.rsaTemplate())
	if err != nil {
		f.t.Fatal(err)
	}
	return object
}

var thiefKey = func() *rsa.PrivateKey {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return key
}()

func (f *thief) rsaTemplate(more ...*pkcs11.Attribute) attributes {
	return append(attributes{
		pkcs11.NewAttribute(pkcs11.CKA_CLASS, pkcs11.CKO_PUBLIC_KEY),
		pkcs11.NewAttribute(pkcs11.CKA_KEY_TYPE, pkcs11.CKK_RSA),
		flag(pkcs11.CKA_TOKEN, false), flag(pkcs11.CKA_WRAP, true),
		pkcs11.NewAttribute(pkcs11.CKA_MODULUS, thiefKey.N.Bytes()),
		pkcs11.NewAttribute(pkcs11.CKA_PUBLIC_EXPONENT, big.NewInt(int64(thiefKey.E)).Bytes()),
	}, more...)
}

// mustNotUnwrap tries to unwrap blob so that it can be read.
func (f *thief) mustNotUnwrap(what string, mech []*pkcs11.Mechanism, root pkcs11.ObjectHandle, blob []byte, template attributes) {
	f.t.Helper()
	object, err := f.ctx.UnwrapKey(f.s, mech, root, blob, template)
	if err == nil {
		f.t.Errorf("%s: unwrapped", what)
		f.mustNotRead(what, object)
	}
}

func (f *thief) mustNotRead(what string, object pkcs11.ObjectHandle) {
	f.t.Helper()
	if got := f.read(object); got != nil {
		f.t.Errorf("%s: got %d bytes", what, len(got))
	}
}

// theft is a try with a member token, its stored blobs and loaded keys.
type theft struct {
	*thief
	token *Token
	// blobs are stored material under each root whose content is known to the
	// test, so that success would show.
	blobs  map[rootKind][]byte
	loaded map[string]pkcs11.ObjectHandle
}

// newTheft has keys of the specs loaded, for all usages that the token offers.
func newTheft(t *testing.T, token *Token, specs ...kms.Spec) *theft {
	t.Helper()
	specs = append(specs, kms.SpecAES256, kms.SpecRSA2048, kms.SpecP256, kms.SpecHMAC256)
	f := &theft{
		thief: newThief(t, token.conn, token.wrapping, token.roots),
		token: token,
		blobs: token.checkBlobs,
		loaded: map[string]pkcs11.ObjectHandle{
			"key root": token.roots[keyRoot], "sealing root": token.roots[sealingRoot],
		},
	}
	for _, spec := range specs {
		for _, u := range spec.Info().Usages {
			if _, err := token.conn.keyTypeFor(spec, u.Usage); err != nil {
				continue
			}
			h := load(t, token, generate(t, token, spec, u.Usage), spec, u.Usage)
			f.loaded[loadedName(spec, u.Usage)] = objectOf(t, h)
		}
	}
	material, err := token.GenerateSealingKey()
	if err != nil {
		t.Fatal(err)
	}
	h, err := token.LoadSealingKey(material)
	if err != nil {
		t.Fatal(err)
	}
	f.loaded["sealing key"] = objectOf(t, h)
	return f
}

func loadedName(spec kms.Spec, usage kms.Usage) string { return string(spec) + " for " + string(usage) }

func objectOf(t *testing.T, h hsm.Handle) pkcs11.ObjectHandle {
	t.Helper()
	key, ok := parseHandle(h)
	if !ok {
		t.Fatal("not a handle")
	}
	return pkcs11.ObjectHandle(key.object)
}

// Whoever knows the user PIN and has every stored blob can use the keys but
// not get at their bytes: each way that is known fails.
func TestTheUserCannotExtractKeys(t *testing.T) {
	newTheft(t, openMember(t, 0)).tryAll(t)
}

func (f *theft) tryAll(t *testing.T) {
	t.Helper()
	for name, try := range map[string]func(*theft){
		"unwrapping under a clear template":                (*theft).clearTemplate,
		"unwrapping by another mechanism":                  (*theft).otherMechanism,
		"opening a blob of one root under the other":       (*theft).otherRoot,
		"unwrapping a sealing key as a wrapping key":       (*theft).sealingKeyThatWraps,
		"switching uses on at the roots":                   (*theft).changeRoots,
		"decrypting blobs with the roots":                  (*theft).decryptWithRoots,
		"weakening loaded keys":                            (*theft).changeLoaded,
		"copying roots and loaded keys":                    (*theft).copyWeaker,
		"wrapping roots and loaded keys under the roots":   (*theft).wrapUnderRoots,
		"reading roots and loaded keys":                    (*theft).readAll,
		"making a key of his own trusted":                  (*theft).becomeTrusted,
		"deriving from loaded keys and roots":              (*theft).derive,
		"agreeing with points of other curves":             (*theft).agreeOffCurve,
		"wrapping and unwrapping under a loaded key":       (*theft).wrapUnderLoaded,
		"using loaded keys for what they are not for":      (*theft).otherUses,
		"unwrapping a key for decryption and for wrapping": (*theft).wrapAndDecrypt,
	} {
		t.Run(name, func(t *testing.T) {
			mine := *f
			thief := *f.thief
			thief.t, mine.thief = t, &thief
			try(&mine)
		})
	}
	// The keys were not harmed, and the tests above used the right objects.
	if err := f.token.Probe(); err != nil {
		t.Error(err)
	}
}

func (f *theft) clearTemplate() {
	clear := attributes{flag(pkcs11.CKA_SENSITIVE, false), flag(pkcs11.CKA_EXTRACTABLE, true)}
	for name, more := range map[string]attributes{
		"not sensitive, extractable": clear,
		"not sensitive":              {flag(pkcs11.CKA_SENSITIVE, false), flag(pkcs11.CKA_EXTRACTABLE, false)},
		"extractable":                {flag(pkcs11.CKA_SENSITIVE, true), flag(pkcs11.CKA_EXTRACTABLE, true)},
		"saying nothing":             nil,
		"twice, clear first":         append(clear, protected()...),
		"twice, clear last":          append(protected(), clear...),
		"its own unwrap template":    append(clear, pkcs11.NewAttribute(pkcs11.CKA_UNWRAP_TEMPLATE, []byte{})),
	} {
		for kind, root := range f.roots {
			for _, typ := range []uint{pkcs11.CKK_AES, pkcs11.CKK_GENERIC_SECRET, pkcs11.CKK_DES3, pkcs11.CKK_DES2} {
				what := name + " under the " + kind.label()
				object, err := f.ctx.UnwrapKey(f.s, f.kwp, root, f.blobs[kind], secretTemplate(typ, more...))
				if err == nil {
					// The module may have taken the protected half of a
					// template that says both.
					f.mustNotRead(what, object)
				}
			}
		}
	}
}

func (f *theft) otherMechanism() {
	clear := attributes{flag(pkcs11.CKA_SENSITIVE, false), flag(pkcs11.CKA_EXTRACTABLE, true)}
	for kind, root := range f.roots {
		for name, mech := range map[string]*pkcs11.Mechanism{
			"RFC 3394": pkcs11.NewMechanism(pkcs11.CKM_AES_KEY_WRAP, nil),
			"CBC":      pkcs11.NewMechanism(pkcs11.CKM_AES_CBC, make([]byte, 16)),
			"CBC_PAD":  pkcs11.NewMechanism(pkcs11.CKM_AES_CBC_PAD, make([]byte, 16)),
			"ECB":      pkcs11.NewMechanism(pkcs11.CKM_AES_ECB, nil),
		} {
			f.mustNotUnwrap(name, []*pkcs11.Mechanism{mech}, root, f.blobs[kind][:32], secretTemplate(pkcs11.CKK_GENERIC_SECRET, clear...))
			f.mustNotUnwrap(name, []*pkcs11.Mechanism{mech}, root, f.blobs[kind], secretTemplate(pkcs11.CKK_GENERIC_SECRET, clear...))
		}
	}
}

func (f *theft) otherRoot() {
	uses := protected(flag(pkcs11.CKA_ENCRYPT, true), flag(pkcs11.CKA_DECRYPT, true), flag(pkcs11.CKA_WRAP, true), flag(pkcs11.CKA_UNWRAP, true))
	f.mustNotUnwrap("sealing blob", f.kwp, f.roots[keyRoot], f.blobs[sealingRoot], secretTemplate(pkcs11.CKK_AES, uses...))
	f.mustNotUnwrap("key blob", f.kwp, f.roots[sealingRoot], f.blobs[keyRoot],
		secretTemplate(pkcs11.CKK_AES, protected(flag(pkcs11.CKA_DECRYPT, true), flag(pkcs11.CKA_WRAP, false), flag(pkcs11.CKA_UNWRAP, false))...))
}

func (f *theft) sealingKeyThatWraps() {
	for name, more := range map[string]attributes{
		"wraps":   {flag(pkcs11.CKA_WRAP, true), flag(pkcs11.CKA_UNWRAP, false)},
		"unwraps": {flag(pkcs11.CKA_WRAP, false), flag(pkcs11.CKA_UNWRAP, true)},
		"both":    {flag(pkcs11.CKA_WRAP, true), flag(pkcs11.CKA_UNWRAP, true)},
		"silent":  nil,
	} {
		f.mustNotUnwrap(name, f.kwp, f.roots[sealingRoot], f.blobs[sealingRoot], secretTemplate(pkcs11.CKK_AES, protected(more...)...))
	}
}

// weaker are changes of attributes that would help.
func weaker() map[string]attributes {
	return map[string]attributes{
		"DECRYPT":           {flag(pkcs11.CKA_DECRYPT, true)},
		"ENCRYPT":           {flag(pkcs11.CKA_ENCRYPT, true)},
		"WRAP":              {flag(pkcs11.CKA_WRAP, true)},
		"UNWRAP":            {flag(pkcs11.CKA_UNWRAP, true)},
		"DERIVE":            {flag(pkcs11.CKA_DERIVE, true)},
		"EXTRACTABLE":       {flag(pkcs11.CKA_EXTRACTABLE, true)},
		"not SENSITIVE":     {flag(pkcs11.CKA_SENSITIVE, false)},
		"not PRIVATE":       {flag(pkcs11.CKA_PRIVATE, false)},
		"MODIFIABLE":        {flag(pkcs11.CKA_MODIFIABLE, true)},
		"any wrapping key":  {flag(pkcs11.CKA_WRAP_WITH_TRUSTED, false)},
		"no template":       {pkcs11.NewAttribute(pkcs11.CKA_UNWRAP_TEMPLATE, []byte{})},
		"TRUSTED":           {flag(pkcs11.CKA_TRUSTED, true)},
		"token object":      {flag(pkcs11.CKA_TOKEN, true)},
		"session object":    {flag(pkcs11.CKA_TOKEN, false)},
		"another label":     {pkcs11.NewAttribute(pkcs11.CKA_LABEL, "x")},
		"several at a time": {flag(pkcs11.CKA_TOKEN, false), flag(pkcs11.CKA_MODIFIABLE, true), flag(pkcs11.CKA_DECRYPT, true), flag(pkcs11.CKA_EXTRACTABLE, true)},
	}
}

func (f *theft) changeRoots() {
	for _, root := range f.roots {
		for name, change := range weaker() {
			if err := f.ctx.SetAttributeValue(f.s, root, change); err == nil {
				f.t.Errorf("%s: set", name)
			}
		}
	}
}

func (f *theft) changeLoaded() {
	for what, object := range f.loaded {
		for name, change := range weaker() {
			if err := f.ctx.SetAttributeValue(f.s, object, change); err == nil {
				f.t.Errorf("%s of the %s: set", name, what)
			}
		}
	}
}

func (f *theft) copyWeaker() {
	for what, object := range f.loaded {
		for name, change := range weaker() {
			dup, err := f.ctx.CopyObject(f.s, object, change)
			if err == nil {
				f.t.Errorf("%s of the %s: copied", name, what)
				f.mustNotRead(what, dup)
			}
		}
	}
}

func (f *theft) decryptWithRoots() {
	for kind, root := range f.roots {
		for name, mech := range map[string]*pkcs11.Mechanism{
			"ECB": pkcs11.NewMechanism(pkcs11.CKM_AES_ECB, nil),
			"CBC": pkcs11.NewMechanism(pkcs11.CKM_AES_CBC, make([]byte, 16)),
			"GCM": pkcs11.NewMechanism(pkcs11.CKM_AES_GCM, pkcs11.NewGCMParams(make([]byte, 12), nil, 128)),
		} {
			if f.ctx.DecryptInit(f.s, []*pkcs11.Mechanism{mech}, root) == nil {
				f.t.Errorf("the %s decrypts by %s", kind.label(), name)
			}
			if f.ctx.EncryptInit(f.s, []*pkcs11.Mechanism{mech}, root) == nil {
				f.t.Errorf("the %s encrypts by %s", kind.label(), name)
			}
		}
	}
}

func (f *theft) wrapUnderRoots() {
	for what, object := range f.loaded {
		for kind, root := range f.roots {
			if _, err := f.ctx.WrapKey(f.s, f.kwp, root, object); err == nil {
				f.t.Errorf("the %s was wrapped under the %s", what, kind.label())
			}
		}
	}
}

func (f *theft) readAll() {
	for what, object := range f.loaded {
		f.mustNotRead(what, object)
	}
}

func (f *theft) becomeTrusted() {
	if _, err := f.ctx.CreateObject(f.s, f.rsaTemplate(flag(pkcs11.CKA_TRUSTED, true))); err == nil {
		f.t.Error("created a trusted public key")
	}
	template := append(secretTemplate(pkcs11.CKK_AES, pkcs11.NewAttribute(pkcs11.CKA_VALUE, message(32))), flag(pkcs11.CKA_TRUSTED, true))
	if _, err := f.ctx.CreateObject(f.s, template); err == nil {
		f.t.Error("created a trusted secret key")
	}
	for name, own := range map[string]pkcs11.ObjectHandle{"public": f.ownRSA(), "secret": f.ownSecret()} {
		trusted := attributes{flag(pkcs11.CKA_TRUSTED, true)}
		if err := f.ctx.SetAttributeValue(f.s, own, trusted); err == nil {
			f.t.Errorf("made his %s key trusted", name)
		}
		if _, err := f.ctx.CopyObject(f.s, own, trusted); err == nil {
			f.t.Errorf("copied his %s key into a trusted one", name)
		}
	}
}

// wrapAndDecrypt: the key root lets the user unwrap a key for wrapping and
// decryption at once. All that it can wrap is what he could read anyway.
func (f *theft) wrapAndDecrypt() {
	object, err := f.ctx.UnwrapKey(f.s, f.kwp, f.roots[keyRoot], f.blobs[keyRoot],
		secretTemplate(pkcs11.CKK_AES, protected(flag(pkcs11.CKA_WRAP, true), flag(pkcs11.CKA_DECRYPT, true))...))
	if err != nil {
		return
	}
	f.mustNotRead("the key", object)
	for what, victim := range f.loaded {
		for _, mech := range []*pkcs11.Mechanism{f.kwp[0], pkcs11.NewMechanism(pkcs11.CKM_AES_CBC_PAD, make([]byte, 16))} {
			if _, err := f.ctx.WrapKey(f.s, []*pkcs11.Mechanism{mech}, object, victim); err == nil {
				f.t.Errorf("wrapped the %s", what)
			}
		}
	}
}

// A backup token's roots are extractable, under trusted keys only, and the
// user cannot make any.
func TestTheUserCannotExtractTheRootsOfABackup(t *testing.T) {
	d := shared(t)
	c := &ceremony{cfg: d.config("test")}
	defer func() {
		if err := c.close(); err != nil {
			t.Error(err)
		}
	}()
	if err := c.admit(c.cfg.Backups[0], true); err != nil {
		t.Fatal(err)
	}
	if _, err := c.identify(); err != nil {
		t.Fatal(err)
	}
	p := c.parties[0]
	roots := make(map[rootKind]pkcs11.ObjectHandle)
	for id, root := range p.roots {
		roots[id.kind] = root
	}
	f := &theft{thief: newThief(t, p.conn, p.wrapping, roots), blobs: make(map[rootKind][]byte), loaded: make(map[string]pkcs11.ObjectHandle)}
	for kind, root := range roots {
		f.loaded[kind.label()] = root
		blob, err := p.session.wrapCheckKey(p.wrapping, root)
		if err != nil {
			t.Fatal(err)
		}
		f.blobs[kind] = blob
	}
	if len(f.loaded) != 2 {
		t.Fatalf("found %d roots", len(f.loaded))
	}
	f.clearTemplate()
	f.otherMechanism()
	f.sealingKeyThatWraps()
	f.changeRoots()
	f.copyWeaker()
	f.decryptWithRoots()
	f.wrapUnderRoots()
	f.readAll()
	f.becomeTrusted()
	f.derive()
	// Nothing of the above failed because the session or the login was gone.
	if _, err := p.session.wrapCheckKey(p.wrapping, roots[keyRoot]); err != nil {
		t.Error(err)
	}
}

// Without the unwrap template and the frozen attributes the same tries
// succeed: a test of the tests.
func TestAnUnprotectedRootGivesKeysAway(t *testing.T) {
	token := openMember(t, 0)
	f := newThief(t, token.conn, token.wrapping, nil)
	root := f.ownSecret(flag(pkcs11.CKA_UNWRAP, true), flag(pkcs11.CKA_DECRYPT, true))
	blob, err := f.ctx.WrapKey(f.s, f.kwp, root, f.ownSecret())
	if err != nil {
		t.Fatal(err)
	}
	object, err := f.ctx.UnwrapKey(f.s, f.kwp, root, blob, secretTemplate(pkcs11.CKK_GENERIC_SECRET,
		flag(pkcs11.CKA_SENSITIVE, false), flag(pkcs11.CKA_EXTRACTABLE, true)))
	if err != nil {
		t.Fatal(err)
	}
	if got := f.read(object); !bytes.Equal(got, message(32)) {
		t.Errorf("read %x", got)
	}
	if _, err := f.ctx.CopyObject(f.s, object, attributes{flag(pkcs11.CKA_DECRYPT, true)}); err != nil {
		t.Error(err)
	}
	if err := f.ctx.SetAttributeValue(f.s, object, attributes{flag(pkcs11.CKA_LABEL, true)}); err != nil {
		t.Error(err)
	}
	if err := f.ctx.DecryptInit(f.s, []*pkcs11.Mechanism{pkcs11.NewMechanism(pkcs11.CKM_AES_ECB, nil)}, root); err != nil {
		t.Error(err)
	}
	derived, err := f.deriveFrom(f.ownSecret(flag(pkcs11.CKA_DERIVE, true)))
	if err != nil {
		t.Fatal(err)
	}
	if got := f.read(derived); len(got) != 16 {
		t.Errorf("read %d derived bytes", len(got))
	}
}

func TestEnforcesTellsWhetherTheRootsHaveTheirTemplate(t *testing.T) {
	token := openMember(t, 0)
	if ok, err := token.Enforces(); err != nil || !ok {
		t.Fatalf("with the domain's roots: %t, %v", ok, err)
	}
	f := newThief(t, token.conn, token.wrapping, nil)
	for _, kind := range rootKinds {
		t.Run("not the "+kind.label(), func(t *testing.T) {
			root, blob := token.roots[kind], token.checkBlobs[kind]
			defer func() { token.roots[kind], token.checkBlobs[kind] = root, blob }()
			token.roots[kind] = f.ownSecret(flag(pkcs11.CKA_UNWRAP, true))
			var err error
			if token.checkBlobs[kind], err = token.generator.wrapCheckKey(token.wrapping, token.roots[kind]); err != nil {
				t.Fatal(err)
			}
			if ok, err := token.Enforces(); err != nil || ok {
				t.Errorf("without a template: %t, %v", ok, err)
			}
		})
	}
}
