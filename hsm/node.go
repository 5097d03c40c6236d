package hsm

import (
	"hash/fnv"
	"log/slog"
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

// Health checks of a node that is down.
const (
	probeFirst = 200 * time.Millisecond
	probeMax   = 5 * time.Second
	// canaryTTL is for how long one good canary answers for all calls that
	// failed meanwhile, so that a flood of bad ciphertexts does not turn into
	// a flood of canaries.
	canaryTTL = 100 * time.Millisecond
)

// node is one token with its workers.
type node struct {
	id       kms.NodeID
	domain   *Domain // nil for the in-process engine
	token    Token
	info     TokenInfo
	enforced bool
	families []kms.Family // that passed the self-test; immutable
	slots    int
	hash     uint64 // of the id, for rank
	log      *slog.Logger
	clock    func() time.Time

	crew *crew // one worker per slot
	// loaders open and unwrap, makers generate: apart from the slots and from
	// each other, so that a key generation of seconds delays no cold key.
	loaders *crew
	makers  *crew
	slow    *crew // of the engine: for signatures that take seconds
	cache   *handleCache

	epoch      atomic.Uint64
	down       atomic.Bool
	operations atomic.Uint64
	errors     atomic.Uint64

	canaryMu sync.Mutex
	canaryAt time.Time // of the last good canary
	lastErr  atomic.Pointer[string]
}

// newNode opens the workers of a token.
func newNode(c NodeConfig, slots int, log *slog.Logger, clock func() time.Time) (n *node, err error) {
	n = &node{id: c.ID, domain: c.Domain, token: c.Token, info: c.Token.Info(), slots: slots, log: log, clock: clock}
	h := fnv.New64a()
	h.Write([]byte(c.ID))
	n.hash = h.Sum64()
	n.epoch.Store(1)
	n.cache = newHandleCache(maxHandles, n.token.Unload, clock)
	for crew, size := range map[**crew]int{&n.crew: slots, &n.loaders: 1, &n.makers: 1} {
		if *crew, err = newCrew(n.token, size, clock); err != nil {
			n.close()
			return nil, err
		}
	}
	return n, nil
}

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
	for _, have := range n.families {
		if have == f {
			return true
		}
	}
	return false
}

// call runs one operation on a slot: on one of the slow lane when it takes
// seconds and the node has one.
func (n *node) call(c *Call) (time.Duration, error) {
	n.operations.Add(1)
	crew, limit := n.crew, callLimit
	if n.slow != nil && c.Verb == kms.VerbSign && c.Algorithm == kms.AlgSLHDSA {
		crew, limit = n.slow, slowLimit
	}
	a := crew.do(request{call: c, limit: limit})
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
	n.errors.Add(1)
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
	if err := n.load(nil, n.token.Probe); err != nil {
		n.markDown(err)
		return false
	}
	n.canaryAt = n.clock()
	return true
}

// markDown takes the node out of service until its canary succeeds.
func (n *node) markDown(cause error) {
	n.noteError(cause)
	if !n.down.Swap(true) {
		n.log.Error("node is down", slog.String("node", string(n.id)), slog.Any("error", cause))
	}
}

// revive puts the node back into service in a new epoch: whatever took it
// down may have invalidated or renumbered its handles.
func (n *node) revive() {
	n.epoch.Add(1)
	n.down.Store(false)
	n.log.Info("node is up", slog.String("node", string(n.id)), slog.Uint64("epoch", n.epoch.Load()))
}

// watch looks after the node until stop is closed: it gives up calls that
// hang and probes the node while it is down.
func (n *node) watch(stop <-chan struct{}) {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	var nextProbe time.Time
	backoff := probeFirst
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		hanging := 0
		for _, c := range n.crews() {
			hanging += c.watch(n.token, n.clock)
		}
		if hanging > n.slots/2 {
			n.markDown(errHung)
			continue // a module with that many calls inside needs a new process
		}
		if !n.down.Load() {
			backoff, nextProbe = probeFirst, time.Time{}
			continue
		}
		now := n.clock()
		if now.Before(nextProbe) {
			continue
		}
		if err := n.load(nil, n.token.Probe); err == nil {
			n.revive()
			continue
		}
		nextProbe = n.clock().Add(backoff)
		backoff = min(2*backoff, probeMax)
	}
}

func (n *node) status() kms.NodeStatus {
	s := kms.NodeStatus{
		ID: n.id, Driver: n.info.Driver, Model: n.info.Model, Serial: n.info.Serial, Label: n.info.Label,
		State: "up", Enforced: n.enforced, Slots: n.slots, Busy: n.crew.busy(), Epoch: n.epoch.Load(),
		Families: n.families, Operations: n.operations.Load(), Errors: n.errors.Load(),
	}
	if n.domain != nil {
		s.Domain, s.DomainName = n.domain.ID, n.domain.Name
	}
	if n.down.Load() {
		s.State = "down"
	}
	if e := n.lastErr.Load(); e != nil {
		s.LastError = *e
	}
	s.Handles, s.Hits, s.Misses = n.cache.stats()
	return s
}
