package hsm

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/sluice-kms/sluice/kms"
)

// Opening a token anew.
const (
	// reopenFirst and reopenMax bound the pause between two tries, which
	// doubles: a token that was away for a moment is back in that moment, and
	// one that stays away is asked every few seconds.
	reopenFirst = 200 * time.Millisecond
	reopenMax   = 5 * time.Second
	// maxPoorer is how many openings may be refused for offering less than
	// before: with the pauses between them, some six seconds.
	maxPoorer = 5
	// reopenLimit bounds what opening may wait for between calls into the
	// module.
	reopenLimit = 30 * time.Second
	// closeLimit is how long Close waits for an opening under way: a module
	// that hangs must not keep the process.
	closeLimit = 5 * time.Second
)

// seat is the place of a token in the pool. The node on it changes: one that
// is down is closed with everything that it holds, and the token is opened,
// tested and put back as a new node, in a new epoch.
type seat struct {
	config          NodeConfig
	device          *Device
	domain          *domainNodes // nil of the in-process engine
	hash            uint64       // of the id, for rank
	judge           *node
	allowUnenforced bool
	log             *slog.Logger
	clock           func() time.Time

	mode    atomic.Pointer[kms.NodeMode] // what operators want
	current atomic.Pointer[node]         // nil: none is open
	offered atomic.Pointer[[]kms.Family] // by the last node that served
	// out means that opening again would be wrong: a PIN must not be tried
	// twice, and a token that cannot be trusted does not become trustworthy.
	// It ends when an operator enables the node.
	out     atomic.Bool
	proving atomic.Bool            // the token is being opened and tested
	lastErr atomic.Pointer[string] // why no node is open
	tally   tally
	balance balance
	meter   meter

	// Of the goroutine that opens.
	epoch  uint64
	poorer int // nodes in a row that offered less than the one before
}

// errUntrusted is behind the failure of a token that must not be used at all.
var errUntrusted = errors.New("the token does not enforce unwrap templates: whoever has the user PIN could extract keys")

// hashID hashes a node's id, for rank.
func hashID(id kms.NodeID) uint64 {
	h := fnv.New64a()
	h.Write([]byte(id))
	return h.Sum64()
}

// sit makes the token's node and, once it has proved itself, puts it on the
// seat. On failure the token is closed.
func (s *seat) sit(token Token, stop <-chan struct{}) error {
	s.epoch++
	n, err := newNode(s, token)
	if err == nil {
		if err = n.prove(s.judge, s.allowUnenforced); err == nil {
			err = s.compare(n)
		}
		if err != nil {
			n.close()
		}
	}
	if err != nil {
		return errors.Join(err, token.Close())
	}
	if !n.enforced {
		s.log.Warn("node does not enforce unwrap templates", slog.String("node", string(s.config.ID)))
	}
	s.offered.Store(&n.families)
	n.warming.Store(true)
	s.current.Store(n)
	s.tell(n.slots)
	if s.epoch > 1 {
		s.device.warm(s, n, stop)
	}
	n.warming.Store(false)
	return nil
}

// tell tells the scheduler how many slots the node has now.
func (s *seat) tell(slots int) { s.device.tell(s.config.ID, slots) }

// compare refuses a node that offers less than the one before, a few times: a
// self-test that met the fault which took that node down says little of what
// the token can do. Then it is believed.
func (s *seat) compare(n *node) error {
	if before := s.offered.Load(); before != nil {
		for _, f := range *before {
			if !n.offers(f) && s.poorer < maxPoorer {
				s.poorer++
				return fmt.Errorf("the family %s, which the token offered before, failed its self-test", f)
			}
		}
	}
	s.poorer = 0
	return nil
}

// serving returns the node if it takes new work, nil otherwise.
func (s *seat) serving() *node {
	n := s.current.Load()
	if n == nil || n.down.Load() || n.warming.Load() || !s.open() {
		return nil
	}
	return n
}

// usable tells whether the node takes new work and offers the family ("":
// any).
func (s *seat) usable(f kms.Family) bool {
	n := s.serving()
	return n != nil && (f == "" || n.offers(f))
}

// canOffer tells whether the token offers the family when it is up.
func (s *seat) canOffer(f kms.Family) bool {
	families := s.offered.Load()
	return families != nil && slices.Contains(*families, f)
}

// watch looks after the seat until stop is closed: it gives up calls that
// hang, has a node that is down or worn replaced, and one that is not wanted
// closed.
func (s *seat) watch(stop <-chan struct{}) {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	var attempt chan struct{} // closed when it has ended; nil: none
	var next time.Time
	pause := reopenFirst
	for {
		select {
		case <-stop:
			s.waitFor(attempt)
			return
		case <-tick.C:
		}
		n := s.current.Load()
		if n != nil {
			n.watch()
			s.meter.read(s.clock(), s.tally.busy.Load(), n.slots)
		}
		if attempt != nil {
			select {
			case <-attempt:
				attempt, next, pause = nil, s.clock().Add(pause), min(2*pause, reopenMax)
			default:
				continue
			}
		}
		var step func(stop <-chan struct{}, done chan<- struct{})
		switch {
		case n == nil && !s.open():
			continue
		case n != nil && !n.down.Load() && (!s.open() || s.recycles(n)):
			step = s.leave
		case n != nil && !n.down.Load():
			next, pause = time.Time{}, reopenFirst
			continue
		case s.open() && s.out.Load() || s.clock().Before(next):
			continue
		default:
			step = s.recover
		}
		attempt = make(chan struct{})
		go step(stop, attempt)
	}
}

func (s *seat) waitFor(attempt chan struct{}) {
	if attempt == nil {
		return
	}
	limit := time.NewTimer(closeLimit)
	defer limit.Stop()
	select {
	case <-attempt:
	case <-limit.C:
	}
}

// recover replaces the node, which is down or gone. It has a goroutine of its
// own, since each of its calls into the module can hang; then it goes on when
// they return.
func (s *seat) recover(stop <-chan struct{}, done chan<- struct{}) {
	defer close(done)
	n := s.current.Load()
	if s.config.Reopen == nil {
		// Nothing can take its place, as for the in-process engine: it goes on
		// when its canary sings and nothing hangs in it.
		if n != nil && !n.hanging() && n.load(nil, n.token.Probe) == nil {
			n.strikes.Store(0)
			n.down.Store(false)
		}
		return
	}
	if n != nil && !s.vacate(n, stop) {
		return // a module must not be closed under its calls
	}
	if stopped(stop) || !s.open() {
		return
	}
	s.proving.Store(true)
	err := s.reopen(stop)
	s.proving.Store(false)
	if err != nil {
		s.leaveOut(err)
		return
	}
	s.log.Info("node is up", slog.String("node", string(s.config.ID)), slog.Uint64("epoch", s.epoch))
}

// vacate closes the node once nobody and nothing is in it, and tells whether
// it did.
func (s *seat) vacate(n *node, stop <-chan struct{}) bool {
	if !n.retire(stop) {
		return false
	}
	s.lastErr.Store(n.lastErr.Load())
	s.current.Store(nil)
	n.close()
	if err := n.token.Close(); err != nil {
		s.log.Info("closing a token", slog.String("node", string(s.config.ID)), slog.Any("error", err))
	}
	return true
}

// errNotOpened stands for an error that whoever opened the token has seen.
var errNotOpened = errors.New("the token could not be opened")

// leaveOut notes why the seat stays empty, and whether for good.
func (s *seat) leaveOut(err error) {
	text := err.Error()
	s.lastErr.Store(&text)
	s.tally.fault(ClassOf(err))
	if ClassOf(err) == ClassPIN || errors.Is(err, errUntrusted) {
		s.out.Store(true)
	}
	message := "node left out for now"
	if s.out.Load() || s.config.Reopen == nil {
		message = "node left out until an operator has seen to it"
	}
	s.log.Error(message, slog.String("node", string(s.config.ID)), slog.Any("error", err))
}

func (s *seat) reopen(stop <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(context.Background(), reopenLimit)
	defer cancel()
	token, err := s.config.Reopen(ctx)
	if err != nil {
		return fmt.Errorf("opening the token: %w", err)
	}
	return s.sit(token, stop)
}

// close ends the node and closes its token.
func (s *seat) close() error {
	n := s.current.Load()
	if n == nil {
		return nil
	}
	n.close()
	return n.token.Close()
}
