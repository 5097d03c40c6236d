package hsm

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// slowToken is a token whose calls take as long as they are told to, so that
// hanging can be seen; what it computes does not matter here.
type slowToken struct {
	Token
	sessions atomic.Int32
	closed   atomic.Int32
	block    chan struct{} // calls with Length 1 wait for it
	fail     error
}

type slowSession struct{ t *slowToken }

func (t *slowToken) NewSession() (Session, error) {
	t.sessions.Add(1)
	return &slowSession{t}, nil
}

func (s *slowSession) Do(c *Call) error {
	if c.Length == 1 {
		<-s.t.block
	}
	c.Output = []byte("result")
	return s.t.fail
}

func (s *slowSession) Close() error {
	s.t.closed.Add(1)
	return nil
}

func TestHungCallIsAnsweredInTimeAndItsResultGoesToNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		token := &slowToken{block: make(chan struct{})}
		c, err := newCrew(token, 2, 2, time.Now)
		if err != nil {
			t.Fatal(err)
		}
		hung := &Call{Length: 1}
		result := make(chan error)
		go func() { result <- c.do(request{call: hung, limit: time.Second}).err }()
		synctest.Wait()
		if n := c.watch(true); n != 0 {
			t.Errorf("%d calls given up before their limit", n)
		}
		time.Sleep(time.Second)
		if n := c.watch(true); n != 1 {
			t.Errorf("%d calls given up, want 1", n)
		}
		if err := <-result; !errors.Is(err, errHung) || ClassOf(err) != ClassTokenDown {
			t.Errorf("error = %v", err)
		}
		synctest.Wait()
		// The crew is whole again: both slots work while the call still hangs.
		for range 4 {
			if a := c.do(request{call: &Call{}, limit: time.Second}); a.err != nil {
				t.Errorf("error = %v", a.err)
			}
		}
		if token.sessions.Load() != 3 {
			t.Errorf("%d sessions, want 3", token.sessions.Load())
		}
		close(token.block) // the late return
		synctest.Wait()
		if token.closed.Load() != 1 {
			t.Errorf("the session of the late call was closed %d times", token.closed.Load())
		}
		if n := c.watch(true); n != 0 || c.hanging() {
			t.Errorf("%d calls hang after the last has returned", n)
		}
		c.close()
	})
}

func TestModuleThatSwallowsEveryCallEndsTheCrewInsteadOfEverMoreThreads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slots = 2
		token := &slowToken{block: make(chan struct{})}
		c, err := newCrew(token, slots, slots, time.Now)
		if err != nil {
			t.Fatal(err)
		}
		failed := 0
		for range 10 {
			result := make(chan error, 1)
			go func() { result <- c.do(request{call: &Call{Length: 1}, limit: time.Second}).err }()
			synctest.Wait()
			time.Sleep(2 * time.Second)
			c.watch(true)
			synctest.Wait() // for the replacement
			c.watch(true)
			if err := <-result; ClassOf(err) == ClassTokenDown {
				failed++
			}
		}
		if failed != 10 {
			t.Errorf("%d of 10 calls were answered as a token that is down", failed)
		}
		if n := token.sessions.Load(); n > 2*slots {
			t.Errorf("%d sessions were opened into a module that hangs", n)
		}
		close(token.block)
		synctest.Wait()
		c.close()
	})
}

func TestBadSessionIsReplaced(t *testing.T) {
	token := &slowToken{fail: &Error{Class: ClassSession, Call: "C_Sign"}}
	c, err := newCrew(token, 1, 1, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	if a := c.do(request{call: &Call{}, limit: time.Second}); ClassOf(a.err) != ClassSession {
		t.Errorf("error = %v", a.err)
	}
	token.fail = nil
	if a := c.do(request{call: &Call{}, limit: time.Second}); a.err != nil {
		t.Errorf("error = %v on the new session", a.err)
	}
	c.close()
	if token.sessions.Load() != 2 || token.closed.Load() != 2 {
		t.Errorf("%d sessions opened, %d closed; want 2 and 2", token.sessions.Load(), token.closed.Load())
	}
}

func TestPanicInADriverIsAnError(t *testing.T) {
	c, err := newCrew(&slowToken{}, 1, 1, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	if a := c.do(request{task: func() error { panic("secret") }, limit: time.Second}); a.err == nil {
		t.Error("no error")
	}
	if a := c.do(request{call: &Call{}, limit: time.Second}); a.err != nil {
		t.Errorf("error = %v: the worker died", a.err)
	}
	c.close()
}

func BenchmarkHandOver(b *testing.B) {
	c, err := newCrew(&slowToken{}, 4, 4, time.Now)
	if err != nil {
		b.Fatal(err)
	}
	defer c.close()
	call := &Call{}
	b.ReportAllocs()
	for b.Loop() {
		c.do(request{call: call, limit: time.Second})
	}
}
