package hsm

import (
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// canaryToken is a token whose canary can be told to fail.
type canaryToken struct {
	slowToken
	sick atomic.Bool
}

func (*canaryToken) Info() TokenInfo { return TokenInfo{} }

func (t *canaryToken) Probe() error {
	if t.sick.Load() {
		return &Error{Class: ClassTokenDown, Call: "Probe"}
	}
	return nil
}

func TestNodeThatNothingCanReplaceGoesOnWhenItsCanarySings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		token := &canaryToken{}
		c := NodeConfig{ID: EngineID, Token: token, Slots: 1}
		s := &seat{config: c, device: &Device{}, log: slog.New(slog.DiscardHandler), clock: time.Now}
		n, err := newNode(s, token)
		if err != nil {
			t.Fatal(err)
		}
		s.current.Store(n)
		stop, ended := make(chan struct{}), make(chan struct{})
		go func() { defer close(ended); s.watch(stop) }()

		token.sick.Store(true)
		n.markDown(errors.New("it fails"))
		time.Sleep(10 * reopenMax) // virtual
		if s.usable("") {
			t.Error("a node whose canary fails is in service")
		}
		token.sick.Store(false)
		time.Sleep(2 * reopenMax)
		if !s.usable("") {
			t.Error("a node whose canary sings is out of service")
		}
		close(stop)
		<-ended
		n.close()
	})
}
