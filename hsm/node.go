package hsm

import (
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-kms/sluice/kms"
)

// Time limits of calls into a module.
const (
	// callLimit bounds an ordinary call. RSA-4096, the slowest of them, takes
	// tens of milliseconds on a slow token; a call of seconds hangs.
	callLimit = 5 * time.Second
	// slowLimit bounds a signature by SLH-DSA, which takes seconds
	// legitimately: up to 3.5 s on one busy core for the largest of its sets.
	slowLimit = 60 * time.Second
	// generateLimit bounds key generation: RSA-4096 takes seconds
	// legitimately (median 4.3 s on SoftHSM), with a long tail.
	generateLimit = 60 * time.Second
	// watchInterval is how often overdue calls are looked for.
	watchInterval = 100 * time.Millisecond
)

const (
	// canaryTTL is for how long one good canary answers for all calls that
	// failed meanwhile, so that a flood of bad ciphertexts does not turn into
	// a flood of canaries.
	canaryTTL = 100 * time.Millisecond
	// A node goes out although its canary sings when too many calls fail by
	// the token's own fault, since a token can be well in what the canary does
	// and broken in another function: each failure counts strikeWeight, each
	// success takes one off again, and maxStrikes is too many. So five in a row
	// are, and more than a ninth of all calls in the long run; one in fifty is
	// borne.
	strikeWeight = 8
	maxStrikes   = 5 * strikeWeight
)

// node is one opening of a token with its workers and handles. It is never
// mended: what took it down may have invalidated or renumbered all that it
// holds, so its seat closes it and opens the token anew.
type node struct {
	id       kms.NodeID
	domain   *Domain // nil for the in-process engine
	token    Token
	info     TokenInfo
	enforced bool
	families []kms.Family // that passed the self-test; immutable
	slots    int          // that the token granted; immutable
	// replaceable tells that the seat opens the token anew when it is down.
	replaceable bool
	log         *slog.Logger
	clock       func() time.Time

	crew *crew // one worker per slot
	// loaders open and unwrap, makers generate: apart from the slots and from
	// each other, so that a key generation of seconds delays no cold key.
	loaders *crew
	makers  *crew
	slow    *crew // of the engine: for signatures that take seconds
	cache   *handleCache

	epoch    uint64 // of the seat; immutable
	down     atomic.Bool
	warming  atomic.Bool   // it waits for its keys before it serves
	strikes  atomic.Int32  // of the token's own failures
	loads    atomic.Uint64 // keys loaded in this epoch
	tally    *tally        // of the seat
	capacity *capacity

	users   atomic.Int64  // between enter and leave
	retired atomic.Bool   // nobody may enter any more
	left    chan struct{} // capacity 1: the last user of a retired node left

	canaryMu sync.Mutex
	canaryAt time.Time // of the last good canary
	lastErr  atomic.Pointer[string]
}

// newNode opens the workers of a token.
// It has fewer slots than configured when the token grants no more sessions.
func newNode(s *seat, token Token) (n *node, err error) {
	n = &node{id: s.config.ID, domain: s.config.Domain, token: token, info: token.Info(), epoch: s.epoch,
		replaceable: s.config.Reopen != nil, tally: &s.tally, log: s.log, clock: s.clock, left: make(chan struct{}, 1)}
	n.cache = newHandleCache(maxHandles, n.token.Unload, s.clock)
	for _, beside := range []**crew{&n.loaders, &n.makers} {
		if *beside, err = newCrew(n.token, 1, 1, s.clock); err != nil {
			n.close()
			return nil, err
		}
	}
	if n.crew, err = newCrew(n.token, 1, s.config.Slots, s.clock); err != nil {
		n.close()
		return nil, err
	}
	n.slots = n.crew.size()
	n.capacity = newCapacity(n.slots, s.tell)
	return n, nil
}

// enter begins a use of the node, which keeps it open until leave; it is
// false when the node is about to be closed.
func (n *node) enter() bool {
	n.users.Add(1)
	if n.retired.Load() {
		n.leave()
		return false
	}
	return true
}

func (n *node) leave() {
	if n.users.Add(-1) == 0 && n.retired.Load() {
		select {
		case n.left <- struct{}{}:
		default:
		}
	}
}

// retire keeps new users out and tells whether nobody and nothing is in the
// module any more: neither users nor calls that were given up. It waits for
// users as long as the longest ordinary call takes, or until stop is closed.
func (n *node) retire(stop <-chan struct{}) bool {
	n.retired.Store(true)
	limit := time.NewTimer(callLimit + watchInterval)
	defer limit.Stop()
	for n.users.Load() > 0 {
		select {
		case <-n.left:
		case <-limit.C:
			return false
		case <-stop:
			return false
		}
	}
	return !n.hanging()
}

// hanging tells whether a call that was given up is in the module.
func (n *node) hanging() bool {
	return slices.ContainsFunc(n.crews(), (*crew).hanging)
}

// close ends the workers. Calls that were given up are left to the module.
func (n *node) close() {
	for _, c := range n.crews() {
		c.close()
	}
}

// crews returns the node's crews.
func (n *node) crews() []*crew {
	var all []*crew
	for _, c := range []*crew{n.crew, n.loaders, n.makers, n.slow} {
		if c != nil {
			all = append(all, c)
		}
	}
	return all
}

// offers tells whether keys of the family can live on the node.
func (n *node) offers(f kms.Family) bool {
	return slices.Contains(n.families, f)
}

// call runs one operation on a slot: on one of the slow lane when it takes
// seconds and the node has one.
func (n *node) call(c *Call) (time.Duration, error) {
	n.tally.operations.Add(1)
	crew, limit := n.crew, callLimit
	if n.slow != nil && c.Verb == kms.VerbSign && c.Algorithm == kms.AlgSLHDSA {
		crew, limit = n.slow, slowLimit
	}
	a := crew.do(request{call: c, limit: limit})
	n.tally.busy.Add(int64(a.elapsed))
	if a.err == nil && n.strikes.Load() > 0 {
		n.strikes.Add(-1)
	}
	return a.elapsed, a.err
}

// load runs a step of loading a key, beside the slots.
func (n *node) load(call *Call, task func() error) error {
	a := n.loaders.do(request{call: call, task: task, limit: callLimit})
	return a.err
}

// generate runs a key generation, beside slots and loads.
func (n *node) generate(task func() error) error {
	a := n.makers.do(request{task: task, limit: generateLimit})
	return a.err
}

// noteError remembers an error that was the module's own for operators; what
// an input caused counts for nobody.
func (n *node) noteError(err error) {
	n.tally.fault(ClassOf(err))
	text := err.Error()
	n.lastErr.Store(&text)
}

// healthy runs the canary unless one has just succeeded, and tells whether
// the node is well. Concurrent callers share one.
func (n *node) healthy() bool {
	asked := n.clock()
	n.canaryMu.Lock()
	defer n.canaryMu.Unlock()
	if n.canaryAt.After(asked.Add(-canaryTTL)) {
		return true
	}
	err := n.load(nil, n.token.Probe)
	if err != nil && !errors.Is(err, errHung) {
		// What fails now and then fails the canary now and then.
		err = n.load(nil, n.token.Probe)
	}
	if err != nil {
		n.markDown(err)
		return false
	}
	n.canaryAt = n.clock()
	return true
}

// blame counts a failure that was the token's own, and takes the node out of
// service when the canary fails too or they are too many.
func (n *node) blame(cause error) {
	n.noteError(cause)
	if n.strikes.Add(strikeWeight) >= maxStrikes {
		n.markDown(cause)
		return
	}
	n.healthy()
}

// markDown takes the node out of service; its seat opens the token anew.
func (n *node) markDown(cause error) {
	n.noteError(cause)
	if !n.down.Swap(true) {
		n.log.Error("node is down", slog.String("node", string(n.id)), slog.Uint64("epoch", n.epoch), slog.Any("error", cause))
	}
}

// watch gives up calls that hang. A node goes out of service when more than
// half of its slots hang, or anything beside them: who loads keys holds locks
// that all need.
func (n *node) watch() {
	out := false
	for _, c := range n.crews() {
		// A session that is being opened keeps the token from being closed.
		hanging := c.watch(!n.replaceable || !n.down.Load())
		out = out || hanging > 0 && (c != n.crew || hanging > n.slots/2)
	}
	if out && !n.down.Load() {
		n.markDown(errHung)
	}
	n.capacity.grow(n.clock())
}

// status fills in what an open node adds to its seat's status.
func (n *node) status(s *kms.NodeStatus) {
	s.Driver, s.Model, s.Serial, s.Label = n.info.Driver, n.info.Model, n.info.Serial, n.info.Label
	s.Enforced, s.Slots, s.SlotsNow, s.Busy = n.enforced, n.slots, n.capacity.slots(), n.crew.busy()
	s.Epoch, s.Families, s.MaxHandles, s.EpochLoads = n.epoch, n.families, maxHandles, n.loads.Load()
	if e := n.lastErr.Load(); e != nil {
		s.LastError = *e
	}
	s.Handles, s.Hits, s.Misses = n.cache.stats()
}
