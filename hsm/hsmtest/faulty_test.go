package hsmtest_test

import (
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/hsm/soft"
	"github.com/sluice-kms/sluice/kms"
)

// sealingPrefix marks the material of sealing keys, which the engine lacks
// and this token makes of AES keys.
const sealingPrefix = "sealing:"

// token is the engine with sealing keys and a fault.
type token struct {
	hsm.Token
	fault fault

	mu      sync.Mutex
	handles []hsm.Handle // the engine's handles by the token's, when they are reused
	shared  []byte       // the last answer of any session
}

func openFaulty(t *testing.T, f fault) hsm.Token {
	t.Helper()
	engine, err := soft.Open()
	if err != nil {
		t.Fatal(err)
	}
	return &token{Token: engine, fault: f}
}

func (t *token) GenerateSealingKey() ([]byte, error) {
	g, err := t.Token.Generate(kms.SpecAES256, kms.UsageEncryptDecrypt)
	if err != nil {
		return nil, err
	}
	return append([]byte(sealingPrefix), g.Material...), nil
}

func (t *token) LoadSealingKey(material []byte) (hsm.Handle, error) {
	inner, ok := strings.CutPrefix(string(material), sealingPrefix)
	if !ok {
		return 0, &hsm.Error{Class: hsm.ClassRequest, Call: "C_UnwrapKey"}
	}
	return t.keep(t.Token.Load([]byte(inner), kms.SpecAES256, kms.UsageEncryptDecrypt))
}

func (t *token) Load(material []byte, spec kms.Spec, usage kms.Usage) (hsm.Handle, error) {
	if t.fault.load != nil {
		material = t.fault.load(t, material)
	}
	return t.keep(t.Token.Load(material, spec, usage))
}

// keep gives the engine's handle the lowest free number if handles are
// reused.
func (t *token) keep(h hsm.Handle, err error) (hsm.Handle, error) {
	if err != nil || !t.fault.reuse {
		return h, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.Index(t.handles, 0)
	if i < 0 {
		i = len(t.handles)
		t.handles = append(t.handles, 0)
	}
	t.handles[i] = h
	return hsm.Handle(i + 1), nil
}

// translate returns the engine's handle and ends the number if asked.
func (t *token) translate(h hsm.Handle, end bool) hsm.Handle {
	if !t.fault.reuse {
		return h
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if h < 1 || int(h) > len(t.handles) {
		return 0
	}
	inner := t.handles[h-1]
	if end {
		t.handles[h-1] = 0
	}
	return inner
}

func (t *token) Unload(h hsm.Handle) error { return t.Token.Unload(t.translate(h, true)) }

func (t *token) NewSession() (hsm.Session, error) {
	inner, err := t.Token.NewSession()
	if err != nil {
		return nil, err
	}
	return &session{Session: inner, token: t}, nil
}

// session is the engine's session with the token's fault.
type session struct {
	hsm.Session
	token  *token
	failed bool // the last call failed
	stuck  bool
	buffer [64]byte
}

func (s *session) Do(c *hsm.Call) error {
	given := *c
	f := s.token.fault
	if f.before != nil {
		f.before(s, c)
	}
	c.Handle = s.token.translate(c.Handle, false)
	err := s.Session.Do(c)
	if f.after != nil {
		err = f.after(s, c, err)
	}
	// A fault lies in what was computed; the caller's call stays.
	given.Output, given.Secret, given.Valid = c.Output, c.Secret, c.Valid
	*c = given
	return err
}

func (s *session) Close() error {
	if s.token.fault.immortal {
		return nil
	}
	return s.Session.Close()
}

// mixUp answers with what the token last computed for anyone, as a driver
// does whose sessions share a buffer.
func (s *session) mixUp(c *hsm.Call, err error) error {
	if err != nil || len(c.Output) == 0 {
		return err
	}
	s.token.mu.Lock()
	s.token.shared = c.Output
	s.token.mu.Unlock()
	runtime.Gosched()
	s.token.mu.Lock()
	c.Output = slices.Clone(s.token.shared)
	s.token.mu.Unlock()
	return nil
}
