package client

import (
	"container/heap"
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// SecretsOptions are the settings of Secrets. The service says for how long a
// value is fresh and may be used; these can only shorten it.
type SecretsOptions struct {
	// Freshness is the longest time after which a value is asked for again; it
	// happens at half of it. 0 is DefaultFreshness.
	Freshness time.Duration
	// HardExpiry is the longest time for which a value is used while the
	// service does not answer. 0 is DefaultHardExpiry.
	HardExpiry time.Duration
	// PollFreshness takes the place of Freshness while the service's watch is
	// silent. 0 is DefaultPollFreshness.
	PollFreshness time.Duration
	// NegativeFreshness is for how long a secret that is missing, disabled or
	// denied is not asked for again, 1 s to 5 s. 0 is DefaultNegativeFreshness.
	NegativeFreshness time.Duration
	// MaxSecrets bounds the secrets that are held; beyond it the least used ones
	// make room. 0 is DefaultMaxSecrets.
	MaxSecrets int
	// MaxFetches bounds the fetches under way, of 100 secrets each. 0 is
	// DefaultMaxFetches.
	MaxFetches int
	// MaxReports bounds the versions whose outcomes wait to be reported; those
	// of more are lost and counted. 0 is DefaultMaxReports.
	MaxReports int
}

// Defaults of SecretsOptions.
const (
	DefaultFreshness         = 5 * time.Minute
	DefaultHardExpiry        = time.Hour
	DefaultPollFreshness     = 10 * time.Second
	DefaultNegativeFreshness = 2 * time.Second
	DefaultMaxSecrets        = 10_000
	DefaultMaxFetches        = 4
	DefaultMaxReports        = 1000
)

// Times of the cache.
const (
	// fetchTimeout bounds one fetch: beyond it another attempt is the better one.
	fetchTimeout = 10 * time.Second
	// gather is how much earlier than due a secret is fetched when a fetch is
	// made anyway.
	gather = time.Second
	// minRefresh keeps values that are fresh for no time from being fetched
	// without a pause.
	minRefresh = time.Second
	// negativeKeep is for how long a secret that is missing is remembered when
	// nobody asks for it.
	negativeKeep = time.Minute
)

// Secrets holds provider secrets in memory and keeps them fresh: see the
// package comment. It is safe for concurrent use; one is enough for a program.
type Secrets struct {
	c       *Client
	o       SecretsOptions
	ctx     context.Context
	stop    context.CancelFunc
	running sync.WaitGroup
	wake    chan struct{} // of the keeper, capacity 1
	known   chan struct{} // closed with the first answer, when the watch can begin
	reports reports

	fetches, failedFetches atomic.Uint64

	mu       sync.RWMutex
	entries  map[string]*entry
	due      dueQueue  // of all entries, by their next time
	waiting  []*entry  // due, for a fetch to have room
	fetching int       // fetches under way
	failures int       // fetches that failed, without one that did not between
	pause    time.Time // until when no fetch starts
	behind   time.Time // since when the service knows less than it once did
	started  bool      // known is closed
	// cursor is the revision up to which the watch has told of all changes. base
	// is where it began without a gap: what was fetched as of an earlier
	// revision has to be fetched again.
	cursor, base uint64
	// floor is the highest revision that an evicted entry knew of, so that what
	// was revoked before does not come back by an older answer.
	floor   uint64
	polling bool // the watch is silent
	closed  bool
}

// entry is a secret that is held, or known to be missing.
type entry struct {
	path  string
	state atomic.Pointer[secretState]
	used  atomic.Bool // since it was last considered for eviction

	// The rest is guarded by Secrets.mu.
	asOf  uint64 // revision of the answer that made the state
	floor uint64 // answers as of an earlier revision are outdated
	// limbo are versions that are not given out any more but may be again when
	// the service confirms them.
	limbo     []heldVersion
	flight    *flight // the newest fetch for it; nil: none
	queued    bool
	alone     bool // a fetch with it among others was refused
	failures  int
	refresh   time.Time     // when to fetch next; zero: when asked for
	hard      time.Time     // when the values end; zero: there are none
	forget    time.Time     // when to drop it unless used; zero: never
	holdOff   time.Time     // until when asking does not fetch
	checked   time.Time     // when it was last fetched because a provider refused it
	changed   chan struct{} // closed at the next news; nil: nobody waits
	at        time.Time     // its place in the queue
	heapIndex int
}

// flight is a fetch under way.
type flight struct {
	min  uint64 // it asked for no earlier revision
	sent time.Time
}

// Secrets starts a cache of provider secrets. Close ends it. An error is about
// the options and matches ErrInvalidArgument.
func (c *Client) Secrets(o SecretsOptions) (*Secrets, error) {
	if c.dryRun {
		return nil, invalid("a dry run has no secrets")
	}
	if err := o.complete(); err != nil {
		return nil, err
	}
	once := *c
	// The cache repeats by itself, and goes on with what it has meanwhile.
	once.maxAttempts = 1
	s := &Secrets{c: &once, o: o, wake: make(chan struct{}, 1), known: make(chan struct{}), entries: map[string]*entry{}}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.reports.start(o.MaxReports)
	s.running.Go(s.keep)
	s.running.Go(s.follow)
	s.running.Go(s.sendReports)
	return s, nil
}

// complete fills in the defaults.
func (o *SecretsOptions) complete() error {
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&o.Freshness, DefaultFreshness}, {&o.HardExpiry, DefaultHardExpiry},
		{&o.PollFreshness, DefaultPollFreshness}, {&o.NegativeFreshness, DefaultNegativeFreshness},
	} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	for _, d := range []struct {
		field *int
		value int
	}{{&o.MaxSecrets, DefaultMaxSecrets}, {&o.MaxFetches, DefaultMaxFetches}, {&o.MaxReports, DefaultMaxReports}} {
		if *d.field == 0 {
			*d.field = d.value
		}
		if *d.field < 0 {
			return invalid("bounds of secrets must not be negative")
		}
	}
	switch {
	case o.Freshness < minRefresh, o.PollFreshness < minRefresh:
		return invalid("the freshness of secrets must be at least %v", minRefresh)
	case o.HardExpiry < o.Freshness:
		return invalid("the hard expiry of secrets must not be before their freshness ends")
	case o.NegativeFreshness < time.Second || o.NegativeFreshness > 5*time.Second:
		return invalid("the negative freshness of secrets must be 1 s to 5 s")
	}
	return nil
}

// Close stops fetching, reports what is left, and wipes every value that is
// held, also for those who still hold a Value. It waits for what is under way,
// at most some seconds.
func (s *Secrets) Close() {
	s.stop()
	s.running.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, e := range s.entries {
		s.drop(e, stateClosed)
		s.tell(e)
	}
	clear(s.entries)
	s.due, s.waiting = nil, nil
}

// SecretsStats are counts of Secrets, for metrics.
type SecretsStats struct {
	Held          int // secrets with a value, and those known to be missing
	Waiting       int // for a fetch
	Fetches       uint64
	FailedFetches uint64
	LostReports   uint64 // outcomes that will never be reported
	Polling       bool   // the watch is silent, values are fresh for shorter
}

// Stats returns the counts.
func (s *Secrets) Stats() SecretsStats {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return SecretsStats{Held: len(s.entries), Waiting: len(s.waiting), Fetches: s.fetches.Load(), FailedFetches: s.failedFetches.Load(),
		LostReports: s.reports.lost(), Polling: s.polling}
}

// entry returns the entry of a path, a new one that will be fetched at once if
// there is none.
func (s *Secrets) entry(path string) *entry {
	s.mu.RLock()
	e := s.entries[path]
	s.mu.RUnlock()
	if e != nil {
		return e
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.entries[path]; e != nil {
		return e
	}
	e = &entry{path: path, heapIndex: -1}
	switch {
	case s.closed:
		e.state.Store(stateClosed)
		return e
	case !secretPath(path):
		e.state.Store(stateInvalid)
		return e
	}
	e.state.Store(statePending)
	e.used.Store(true)
	// What the watch told of before is known to nobody here.
	e.floor = max(s.floor, s.cursor)
	if len(s.entries) >= s.o.MaxSecrets {
		s.makeRoom()
	}
	s.entries[path] = e
	s.ask(e)
	return e
}

// maxSecretPath is the service's bound in bytes.
const maxSecretPath = 240

// secretPath tells whether s can be the path of a secret, by the rule of the
// service: visible ASCII characters, but some, in segments that are neither
// empty nor dots.
func secretPath(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' || strings.IndexByte(`*:\"%?#<>|`, s[i]) >= 0 {
			return false
		}
	}
	for segment := range strings.SplitSeq(s, "/") {
		if segment == "" || segment == "." || segment == ".." {
			return false
		}
	}
	return len(s) <= maxSecretPath
}

// looks is how many entries are looked at to find one that was not used lately.
const looks = 64

// makeRoom evicts an entry that has not been used since it was looked at last,
// or any when all have been: the second-chance rule on a random sample.
func (s *Secrets) makeRoom() {
	var victim *entry
	left := looks
	for _, e := range s.entries {
		victim = e
		if !e.used.Swap(false) {
			break
		}
		if left--; left == 0 {
			break
		}
	}
	s.evict(victim)
}

func (s *Secrets) evict(e *entry) {
	s.floor = max(s.floor, e.floor, e.asOf)
	s.drop(e, stateEvicted)
	s.tell(e)
	if e.heapIndex >= 0 {
		heap.Remove(&s.due, e.heapIndex)
	}
	delete(s.entries, e.path)
}

// drop ends the values of an entry and wipes them.
func (s *Secrets) drop(e *entry, st *secretState) {
	wipeVersions(e.state.Load().versions, nil)
	wipeVersions(e.limbo, nil)
	e.limbo, e.hard = nil, time.Time{}
	e.state.Store(st)
}

// tell wakes those who wait for news of an entry.
func (s *Secrets) tell(e *entry) {
	if e.changed != nil {
		close(e.changed)
		e.changed = nil
	}
}

// ask has an entry fetched as soon as there is room.
func (s *Secrets) ask(e *entry) {
	e.refresh = time.Now()
	s.schedule(e)
	s.rouse()
}

// rouse wakes the keeper.
func (s *Secrets) rouse() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// jittered is d, a tenth less to a tenth more, so that what came together does
// not stay together.
func jittered(d time.Duration) time.Duration {
	return d - d/10 + rand.N(d/5+1)
}

// schedule puts an entry where the queue has it looked at next.
func (s *Secrets) schedule(e *entry) {
	e.at = time.Time{}
	for _, at := range []time.Time{e.refresh, e.hard, e.forget} {
		if !at.IsZero() && (e.at.IsZero() || at.Before(e.at)) {
			e.at = at
		}
	}
	switch {
	case e.heapIndex < 0 && !e.at.IsZero():
		heap.Push(&s.due, e)
	case e.heapIndex >= 0 && e.at.IsZero():
		heap.Remove(&s.due, e.heapIndex)
	case e.heapIndex >= 0:
		heap.Fix(&s.due, e.heapIndex)
	}
}

// dueQueue is a heap of entries, the next first.
type dueQueue []*entry

func (q dueQueue) Len() int           { return len(q) }
func (q dueQueue) Less(i, j int) bool { return q[i].at.Before(q[j].at) }
func (q dueQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].heapIndex, q[j].heapIndex = i, j
}

func (q *dueQueue) Push(x any) {
	e := x.(*entry)
	e.heapIndex = len(*q)
	*q = append(*q, e)
}

func (q *dueQueue) Pop() any {
	last := len(*q) - 1
	e := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	e.heapIndex = -1
	return e
}
