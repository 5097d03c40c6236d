package hsmtest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

// Options says what the token under test must be able to do. A token that
// lacks something listed fails.
type Options struct {
	// Specs are made, loaded and used in all of their usages with all of
	// their algorithms. RSA keys are generated once or twice per usage, which
	// takes seconds for the longer ones.
	Specs []kms.Spec
	// Unsupported is one usage of a spec that the token does not offer, and must
	// refuse to make, load and import keys for.
	Unsupported map[kms.Spec]kms.Usage
	// PublicVerbs: the token runs VerbVerify and VerbEncrypt with a public
	// key for the asymmetric specs, and VerbDigest for every hash function.
	PublicVerbs bool
	// SealingKeys: the token makes and loads tenants' sealing keys.
	SealingKeys bool
	// Enforces is the answer that Token.Enforces must give.
	Enforces bool
	// BoundMaterial: material names its spec and usage, so that Load refuses
	// any other. Without it only material of another structure must be
	// refused or be of no use (an EC key as an RSA key, or as a secret of
	// another length); for the rest the seal around the material answers.
	BoundMaterial bool
	// Sessions is the number of sessions used at the same time, DefaultSessions
	// when 0.
	Sessions int
	// Peer opens a second token of the same domain, which the suite closes;
	// nil when there is none.
	Peer func(t *testing.T) hsm.Token
	// Clear returns the clear key inside the material of a symmetric key; nil
	// when the driver cannot tell.
	Clear func(t *testing.T, material []byte, spec kms.Spec) []byte
	// Imports are the specs whose keys the token takes from outside, for which
	// it must implement hsm.Importer; what it computes with those is judged
	// byte by byte.
	Imports []kms.Spec
}

// DefaultSessions is enough to overlap calls on a machine of a few cores
// without asking much of a token that grants few sessions.
const DefaultSessions = 4

// RunToken runs the suite. open returns an opened token on which nothing
// else works meanwhile; it is called once, and the suite closes the token.
func RunToken(t *testing.T, open func(t *testing.T) hsm.Token, opts Options) {
	t.Helper()
	if opts.Sessions == 0 {
		opts.Sessions = DefaultSessions
	}
	token := open(t)
	s := &suite{token: token, opts: opts, made: make(map[string]*key)}
	s.run(t)
	s.unloadAll(t)
	if err := token.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// suite is one run of RunToken.
type suite struct {
	token hsm.Token
	opts  Options
	// made holds one loaded key per spec and usage, since making RSA keys
	// is slow.
	made map[string]*key
}

// key is a key of the token under test.
type key struct {
	spec     kms.Spec
	usage    kms.Usage
	material []byte
	public   []byte
	handle   hsm.Handle
	// raw is the clear key if it is symmetric and came from outside.
	raw []byte
}

func (s *suite) run(t *testing.T) {
	t.Run("TokenDescribesItself", s.testInfo)
	t.Run("ProbeSucceeds", func(t *testing.T) {
		if err := s.token.Probe(); err != nil {
			t.Fatalf("Probe: %v", err)
		}
	})
	for _, spec := range s.opts.Specs {
		info := spec.Info()
		if info == nil {
			t.Fatalf("options: unknown spec %q", spec)
		}
		for _, u := range s.usages(spec) {
			t.Run(fmt.Sprintf("%s/%s", spec, u.Usage), func(t *testing.T) {
				s.testKey(t, spec, u.Usage, u.Algorithms)
			})
		}
	}
	t.Run("Random", s.testRandom)
	t.Run("Material", s.testMaterial)
	t.Run("Handles", s.testHandles)
	t.Run("Sessions", s.testSessions)
	t.Run("ConcurrentCallsGetTheirOwnAnswers", s.testConcurrency)
	t.Run("SealingKeys", s.testSealingKeys)
	t.Run("EnforcesIsAsExpected", s.testEnforces)
	for spec, usage := range s.opts.Unsupported {
		t.Run(fmt.Sprintf("Unsupported/%s/%s", spec, usage), func(t *testing.T) { s.testUnsupported(t, spec, usage) })
	}
	for _, spec := range s.opts.Imports {
		for _, u := range s.usages(spec) {
			t.Run(fmt.Sprintf("Import/%s/%s", spec, u.Usage), func(t *testing.T) { s.testImport(t, spec, u) })
		}
	}
	if s.opts.PublicVerbs {
		t.Run("PublicKeys", s.testPublicKeys)
		t.Run("Digest", s.testDigest)
	}
	if s.opts.Peer != nil {
		t.Run("PeerUsesTheSameMaterial", s.testPeer)
	}
}

// usages are those of the spec that the token offers.
func (s *suite) usages(spec kms.Spec) []kms.UsageAlgorithms {
	return slices.DeleteFunc(slices.Clone(spec.Info().Usages), func(u kms.UsageAlgorithms) bool { return s.opts.Unsupported[spec] == u.Usage })
}

// testUnsupported: a key that could not be used is not made.
func (s *suite) testUnsupported(t *testing.T, spec kms.Spec, usage kms.Usage) {
	_, err := s.token.Generate(spec, usage)
	wantClass(t, "Generate", err, hsm.ClassUnsupported)
	k := s.key(t, spec, s.usages(spec)[0].Usage)
	_, err = s.token.Load(k.material, spec, usage)
	wantClass(t, "Load", err, hsm.ClassUnsupported)
	if importer, ok := s.token.(hsm.Importer); ok {
		_, err = importer.Import(spec, usage, randomBytes(spec.Info().Bits/8))
		wantClass(t, "Import", err, hsm.ClassUnsupported)
	}
}

// testKey runs what keys of a spec and usage must do.
func (s *suite) testKey(t *testing.T, spec kms.Spec, usage kms.Usage, algs []kms.Algorithm) {
	k := s.key(t, spec, usage)
	t.Run("PublicKey", func(t *testing.T) { testPublicHalf(t, k) })
	for _, alg := range algs {
		t.Run(string(alg), func(t *testing.T) {
			c := s.caller(t)
			switch usage {
			case kms.UsageSignVerify:
				s.testSign(t, c, k, alg)
			case kms.UsageGenerateVerifyMAC:
				s.testMAC(t, c, k, alg)
			case kms.UsageKeyAgreement:
				s.testAgree(t, c, k, alg)
			case kms.UsageDerive:
				s.testDerive(t, c, k, alg)
			case kms.UsageWrapUnwrap:
				s.testWrap(t, c, k, alg)
			case kms.UsageEncapsulateDecapsulate:
				s.testDecapsulate(t, c, k, alg)
			case kms.UsageEncryptDecrypt:
				switch {
				case isCBC(alg):
					s.testCBC(t, c, k, alg)
				case spec.Info().Symmetric():
					s.testAEAD(t, c, k, alg)
				default:
					s.testDecrypt(t, c, k, alg)
				}
			}
		})
	}
	t.Run("OtherUsesAreRefused", func(t *testing.T) { s.testOtherUses(t, k) })
}

// key returns the shared key of a spec and usage, loaded.
func (s *suite) key(t *testing.T, spec kms.Spec, usage kms.Usage) *key {
	t.Helper()
	name := string(spec) + "/" + string(usage)
	if k := s.made[name]; k != nil {
		return k
	}
	k := generate(t, s.token, spec, usage)
	k.handle = load(t, s.token, k)
	s.made[name] = k
	return k
}

// anotherKey makes and loads a second key like k, which ends with the test.
// It returns nil where that would take long.
func (s *suite) anotherKey(t *testing.T, k *key) *key {
	t.Helper()
	if Slow(k.spec) {
		return nil
	}
	return s.freshKey(t, k.spec, k.usage)
}

// Slow tells whether making a key of the spec or using it takes more than a
// tenth of a second: RSA keys above 2048 bits and the small SLH-DSA sets.
func Slow(spec kms.Spec) bool {
	info := spec.Info()
	switch info.Family {
	case kms.FamilyRSA:
		return info.Bits > 2048
	case kms.FamilySLHDSA:
		return strings.HasSuffix(string(spec), "S")
	}
	return false
}

// clear returns the clear key of a symmetric key, nil when nobody can tell.
func (s *suite) clear(t *testing.T, k *key) []byte {
	t.Helper()
	if k.raw != nil || s.opts.Clear == nil {
		return k.raw
	}
	return s.opts.Clear(t, k.material, k.spec)
}

func (s *suite) freshKey(t *testing.T, spec kms.Spec, usage kms.Usage) *key {
	t.Helper()
	k := generate(t, s.token, spec, usage)
	k.handle = load(t, s.token, k)
	t.Cleanup(func() { unload(t, s.token, k.handle) })
	return k
}

func (s *suite) unloadAll(t *testing.T) {
	for name, k := range s.made {
		if err := s.token.Unload(k.handle); err != nil {
			t.Errorf("unload %s: %v", name, err)
		}
	}
}

// caller opens a session that ends with the test.
func (s *suite) caller(t *testing.T) *caller {
	t.Helper()
	return newCaller(t, s.token)
}

func generate(t *testing.T, token hsm.Token, spec kms.Spec, usage kms.Usage) *key {
	t.Helper()
	g, err := token.Generate(spec, usage)
	if err != nil {
		t.Fatalf("Generate(%s, %s): %v", spec, usage, err)
	}
	if len(g.Material) == 0 {
		t.Fatalf("Generate(%s, %s): no material", spec, usage)
	}
	return &key{spec: spec, usage: usage, material: g.Material, public: g.PublicKey}
}

// load loads k and checks that the material was left alone.
func load(t *testing.T, token hsm.Token, k *key) hsm.Handle {
	t.Helper()
	before := slices.Clone(k.material)
	h, err := token.Load(k.material, k.spec, k.usage)
	if err != nil {
		t.Fatalf("Load(%s, %s): %v", k.spec, k.usage, err)
	}
	if !slices.Equal(before, k.material) {
		t.Fatalf("Load(%s, %s) changed the material", k.spec, k.usage)
	}
	return h
}

func unload(t *testing.T, token hsm.Token, h hsm.Handle) {
	t.Helper()
	if err := token.Unload(h); err != nil {
		t.Errorf("Unload: %v", err)
	}
}

// wantClass fails unless err is an *hsm.Error of one of the classes.
func wantClass(t testing.TB, what string, err error, classes ...hsm.Class) {
	t.Helper()
	if err == nil {
		t.Errorf("%s: no error, want class %v", what, classes)
		return
	}
	e, ok := errors.AsType[*hsm.Error](err)
	if !ok {
		t.Errorf("%s: error %v is of type %T, want *hsm.Error", what, err, err)
		return
	}
	if !slices.Contains(classes, e.Class) {
		t.Errorf("%s: error %v is of class %v, want %v", what, err, e.Class, classes)
	}
}

func (s *suite) testInfo(t *testing.T) {
	info := s.token.Info()
	if info.Driver == "" || info.Model == "" {
		t.Errorf("Info() = %+v: driver and model must be named", info)
	}
	for _, spec := range s.opts.Specs {
		if f := spec.Info().Family; !slices.Contains(info.Wraps, f) {
			t.Errorf("Info().Wraps = %v lacks %s of %s", info.Wraps, f, spec)
		}
	}
}

func (s *suite) testEnforces(t *testing.T) {
	got, err := s.token.Enforces()
	if err != nil {
		t.Fatalf("Enforces: %v", err)
	}
	if got != s.opts.Enforces {
		t.Errorf("Enforces() = %v, want %v", got, s.opts.Enforces)
	}
}
