package remote

import (
	"bytes"
	"errors"
	"sync/atomic"
	"time"

	"github.com/sluice-kms/sluice/hsm"
)

// errSize: the input is longer than any token takes.
var errSize = errors.New("the input is longer than a session takes")

// caller is the token's end of a line.
type caller struct {
	*line
	token *Token
	due   atomic.Int64 // when the call that runs is over its limit, on the token's clock; 0: none runs
}

// ask makes a request whose body of at most size bytes is appended by body,
// and returns the body of its answer, valid until wipe.
func (c *caller) ask(k kind, size int, limit time.Duration, body func([]byte) []byte) ([]byte, error) {
	frame, ok := c.begin(k, size)
	if !ok {
		return nil, &hsm.Error{Class: hsm.ClassRequest, Call: "worker process", Err: errSize}
	}
	return c.exchange(body(frame), limit)
}

// exchange sends a request and returns the body of its answer. It fails with
// the error that came as answer, or as ClassTokenDown when none came.
func (c *caller) exchange(frame []byte, limit time.Duration) ([]byte, error) {
	c.due.Store(int64(c.token.now() + limit))
	err := c.send(frame)
	var k kind
	var body []byte
	if err == nil {
		k, body, err = c.receive()
	}
	c.due.Store(0)
	switch {
	case errors.Is(err, errFrame):
		return nil, c.misbehaved()
	case err != nil:
		c.token.process.kill(errEnded) // or what is left of it
		c.wipe()
		return nil, c.token.process.failure()
	case k == kindDone:
		return body, nil
	case k == kindFailed:
		if failed, err := parseError(body); err == nil {
			c.wipe()
			return nil, failed
		}
	}
	return nil, c.misbehaved()
}

// misbehaved ends a process that does not keep to the protocol: whatever made
// it do so, nothing that it says can be used.
func (c *caller) misbehaved() error {
	c.token.process.kill(errFrame)
	c.wipe()
	return c.token.process.failure()
}

// session is a session of the token, on a line of its own. It implements
// hsm.Session.
type session struct {
	caller *caller
	closed bool
}

// NewSession opens a session.
func (t *Token) NewSession() (hsm.Session, error) {
	c, err := t.take()
	if err != nil {
		return nil, err
	}
	if err := c.plain(kindNewSession); err != nil {
		t.put(c)
		return nil, err
	}
	return &session{caller: c}, nil
}

// plain makes a request without arguments or results.
func (c *caller) plain(k kind) error {
	_, err := c.ask(k, 0, c.token.callLimit, func(b []byte) []byte { return b })
	if err == nil {
		c.wipe()
	}
	return err
}

// Do implements hsm.Session.
func (s *session) Do(c *hsm.Call) error {
	if s.closed {
		return &hsm.Error{Class: hsm.ClassSession, Call: "Session.Do", Err: errors.New("the session is closed")}
	}
	frame, ok := s.caller.begin(kindDo, callSize(c))
	if !ok {
		return &hsm.Error{Class: hsm.ClassRequest, Call: "Session.Do", Err: errSize}
	}
	body, err := s.caller.exchange(appendCall(frame, c), s.caller.token.callLimit)
	if err != nil {
		return err
	}
	var o outcome
	if o.parse(body) != nil {
		return s.caller.misbehaved()
	}
	c.Output, c.Secret, c.Valid = bytes.Clone(o.output), bytes.Clone(o.secret), o.valid
	if o.nonce != nil {
		c.Nonce = bytes.Clone(o.nonce)
	}
	s.caller.wipe()
	return nil
}

// Close ends the session; its line serves others.
func (s *session) Close() error {
	if s.closed {
		return nil
	}
	s.closed = true
	err := s.caller.plain(kindCloseSession)
	if hsm.ClassOf(err) == hsm.ClassTokenDown {
		err = nil // it ended with the process
	}
	s.caller.token.put(s.caller)
	return err
}
