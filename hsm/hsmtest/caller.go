package hsmtest

import (
	"bytes"
	"slices"
	"testing"

	"github.com/sluice-kms/sluice/hsm"
)

// caller makes calls on one session and holds each to the rules that are the
// same for all. Like a session it serves one goroutine at a time.
type caller struct {
	session hsm.Session
	kept    []keptOutput
	// canary, when set, makes a call that must succeed; it runs after every
	// call that failed.
	canary func(t testing.TB)
}

// keptOutput is an output of an earlier call and a copy of it.
type keptOutput struct{ output, copy []byte }

// maxKept bounds the outputs that are watched: a driver that hands out a
// session's buffer is found out by the next call.
const maxKept = 4

func newCaller(t *testing.T, token hsm.Token) *caller {
	t.Helper()
	session, err := token.NewSession()
	if err != nil {
		t.Fatalf("NewSession: %v", err)
	}
	t.Cleanup(func() {
		if err := session.Close(); err != nil {
			t.Errorf("session Close: %v", err)
		}
	})
	return &caller{session: session}
}

// do makes the call, checks the rules and returns the call with its outputs.
func (c *caller) do(t testing.TB, call hsm.Call) (hsm.Call, error) {
	t.Helper()
	before := inputs(&call)
	for i := range before {
		before[i] = slices.Clone(before[i])
	}
	err := c.session.Do(&call)
	same := func() bool { return slices.EqualFunc(inputs(&call), before, bytes.Equal) }
	if !same() {
		t.Errorf("verb %d: Do changed an input", call.Verb)
	}
	if n := len(call.Output) + len(call.Secret); err != nil && n != 0 {
		t.Errorf("verb %d: Do failed and left %d bytes of output", call.Verb, n)
	}
	if err != nil && call.Valid {
		t.Errorf("verb %d: Do failed and left Valid set", call.Verb)
	}
	invert(call.Output)
	invert(call.Secret)
	if !same() {
		t.Errorf("verb %d: the output shares memory with an input", call.Verb)
	}
	invert(call.Output)
	invert(call.Secret)
	c.watch(t, call.Output)
	return call, err
}

// watch checks that earlier outputs are as they were and adds one.
func (c *caller) watch(t testing.TB, output []byte) {
	t.Helper()
	for _, k := range c.kept {
		if !bytes.Equal(k.output, k.copy) {
			t.Errorf("a later call changed an earlier output")
		}
	}
	if len(output) == 0 {
		return
	}
	if len(c.kept) == maxKept {
		c.kept = slices.Delete(c.kept, 0, 1)
	}
	c.kept = append(c.kept, keptOutput{output, bytes.Clone(output)})
}

// must makes a call that has to succeed and returns its output.
func (c *caller) must(t testing.TB, call hsm.Call) []byte {
	t.Helper()
	done, err := c.do(t, call)
	if err != nil {
		t.Fatalf("verb %d %s: %v", call.Verb, call.Algorithm, err)
	}
	return done.Output
}

// refused makes a call that has to fail with one of the classes, after which
// the session must still work.
func (c *caller) refused(t testing.TB, what string, call hsm.Call, classes ...hsm.Class) {
	t.Helper()
	_, err := c.do(t, call)
	wantClass(t, what, err, classes...)
	if c.canary != nil {
		c.canary(t)
	}
}

// inputs lists the slices of a call that belong to the caller.
func inputs(call *hsm.Call) [][]byte {
	return [][]byte{call.PublicKey, call.Input, call.Signature, call.Nonce, call.AAD, call.UserID, call.Peer}
}

func invert(b []byte) {
	for i := range b {
		b[i] = ^b[i]
	}
}
