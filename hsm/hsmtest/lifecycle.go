package hsmtest

import (
	"bytes"
	"fmt"
	"sync"
	"testing"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

// testHandles: a handle names its key until Unload and nothing after.
func (s *suite) testHandles(t *testing.T) {
	c := s.caller(t)
	for _, spec := range s.opts.Specs {
		k := s.key(t, spec, spec.Info().Usages[0].Usage)
		t.Run("UnloadedHandleIsStale/"+string(spec), func(t *testing.T) {
			old := load(t, s.token, k)
			unload(t, s.token, old)
			// A driver that numbers handles anew would give the next key the
			// old one's number.
			next := load(t, s.token, k)
			defer unload(t, s.token, next)
			c.canary = func(t testing.TB) {
				t.Helper()
				if k.spec.Info().Symmetric() {
					c.must(t, firstUse(k, next))
				}
			}
			c.refused(t, "an unloaded handle", firstUse(k, old), hsm.ClassStaleObject)
			wantClass(t, "a second Unload", s.token.Unload(old), hsm.ClassStaleObject)
			c.refused(t, "the handle 0", firstUse(k, 0), hsm.ClassStaleObject)
		})
	}
	wantClass(t, "Unload of the handle 0", s.token.Unload(0), hsm.ClassStaleObject)
}

func (s *suite) testSessions(t *testing.T) {
	t.Run("HandleServesEverySession", func(t *testing.T) {
		k := s.secretKey(t)
		call := firstUse(k, k.handle)
		want := s.caller(t).must(t, call)
		for range s.opts.Sessions {
			if got := s.caller(t).must(t, call); !bytes.Equal(got, want) {
				t.Error("another session gives another result")
			}
		}
	})
	t.Run("ClosedSessionRefuses", func(t *testing.T) {
		k := s.secretKey(t)
		session, err := s.token.NewSession()
		if err != nil {
			t.Fatal(err)
		}
		if err := session.Close(); err != nil {
			t.Fatalf("Close: %v", err)
		}
		call := firstUse(k, k.handle)
		err = session.Do(&call)
		wantClass(t, "Do on a closed session", err, hsm.ClassSession)
		if len(call.Output) != 0 {
			t.Error("a closed session gave output")
		}
		// The key outlives the session.
		s.caller(t).must(t, firstUse(k, k.handle))
	})
}

// secretKey returns a key whose results can be compared byte by byte, that of
// the first symmetric spec; every token must have one.
func (s *suite) secretKey(t *testing.T) *key {
	t.Helper()
	for _, spec := range s.opts.Specs {
		if info := spec.Info(); info.Symmetric() {
			return s.key(t, spec, info.Usages[0].Usage)
		}
	}
	t.Fatal("options: list a symmetric spec at least")
	return nil
}

// Extent of the concurrency test: enough rounds for calls to overlap on one
// core, short enough for the race detector.
const (
	concurrentRounds = 1000
	keysPerSession   = 3
)

// testConcurrency runs every session in a goroutine of its own with keys of
// its own, while one more goroutine loads and unloads keys, and judges each
// answer: each must be that of the asked key.
func (s *suite) testConcurrency(t *testing.T) {
	k := s.secretKey(t)
	var symmetric []kms.Spec
	for _, spec := range s.opts.Specs {
		if spec.Info().Symmetric() {
			symmetric = append(symmetric, spec)
		}
	}
	var sessions, churn sync.WaitGroup
	stop := make(chan struct{})
	for i := range s.opts.Sessions {
		c := s.caller(t)
		var calls []hsm.Call
		var answers [][]byte
		for j := range keysPerSession {
			spec := symmetric[(i+j)%len(symmetric)]
			k := s.freshKey(t, spec, spec.Info().Usages[0].Usage)
			call := firstUse(k, k.handle)
			call.Input = fmt.Appendf(nil, "session %d, key %d", i, j)
			calls = append(calls, call)
			answers = append(answers, c.must(t, call))
		}
		sessions.Go(func() {
			for round := range concurrentRounds {
				n := round % keysPerSession
				done, err := c.do(t, calls[n])
				if err != nil {
					t.Errorf("session %d, round %d: %v", i, round, err)
					return
				}
				if !bytes.Equal(done.Output, answers[n]) {
					t.Errorf("session %d, round %d: the answer is another call's", i, round)
					return
				}
			}
		})
	}
	churn.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			h, err := s.token.Load(k.material, k.spec, k.usage)
			if err != nil {
				t.Errorf("Load under traffic: %v", err)
				return
			}
			if err := s.token.Unload(h); err != nil {
				t.Errorf("Unload under traffic: %v", err)
				return
			}
		}
	})
	sessions.Wait()
	close(stop)
	churn.Wait()
}
