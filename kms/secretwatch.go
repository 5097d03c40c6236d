package kms

import (
	"context"
	"log/slog"
	"sync"
	"time"
	"uuid"
)

// Watches tell gateways of changes of secrets as they happen. A tenant that has
// watches has one feed: the last changes in a ring, which all its watches read
// each at its own place, so that a further watch costs a few words, and one that
// reads slowly costs no more: what it missed is not kept for it, it is told to
// read everything anew.

// SecretEventKind is what a watch tells.
type SecretEventKind string

// The kinds beside those of SecretChangeKind.
const (
	// SecretResync tells that changes may have been missed: all that is held has
	// to be asked for again.
	SecretResync SecretEventKind = "resync"
	// SecretHeartbeat tells that nothing was missed up to its revision.
	SecretHeartbeat SecretEventKind = "heartbeat"
)

// SecretEvent is one thing that a watch tells; Path is that of a change.
type SecretEvent struct {
	Kind     SecretEventKind
	Revision uint64
	Path     string
}

// Bounds of watches, of one process.
const (
	// MaxWatchesOfTenant and MaxWatchesOfCredential bound the streams, each of
	// which is a connection with its goroutine.
	MaxWatchesOfTenant     = 1024
	MaxWatchesOfCredential = 128
	// watchRing is how many changes a feed keeps: some 100 KiB.
	watchRing = 1024
	// watchCheck is how often it is looked whether credentials are still good: a
	// part of the second within which a revoked one's streams end.
	watchCheck = 250 * time.Millisecond
	// DefaultHeartbeat is how long a watch is silent at most, unless the policy
	// says otherwise.
	DefaultHeartbeat = 15 * time.Second
	// feedTimeout bounds a look at the changes.
	feedTimeout = 5 * time.Second
	// feedRetry is when a look that failed is repeated.
	feedRetry = 200 * time.Millisecond
)

// ReasonWatches is why a watch too many is refused; see Reason.
const ReasonWatches = "WATCHES"

// watchHub has the watches of a process. Its mutex comes before a feed's.
type watchHub struct {
	service *Service

	mu     sync.Mutex // guards the rest
	feeds  map[uuid.UUID]*watchFeed
	of     map[uuid.UUID]int // watches by credential
	closed bool
	stop   context.CancelFunc // of what runs while there are watches
	all    sync.WaitGroup
}

func newWatchHub(s *Service) *watchHub {
	h := &watchHub{service: s, feeds: map[uuid.UUID]*watchFeed{}, of: map[uuid.UUID]int{}}
	if s.secrets != nil {
		s.secrets.FollowSecrets(h.changed)
	}
	return h
}

// watchFeed is what the watches of one tenant read.
type watchFeed struct {
	tenant uuid.UUID
	dirty  chan struct{} // holds one: there may be changes to read
	stop   context.CancelFunc

	mu sync.Mutex // guards the rest
	// known is up to where the changes were read; ring has the last of them, the
	// newest last.
	known   uint64
	ring    []SecretChange
	watches map[*SecretWatch]struct{}
}

// SecretWatch is one watch. Next is called by one goroutine at a time.
type SecretWatch struct {
	hub  *watchHub
	feed *watchFeed
	by   *Principal
	// revision is the credential's as of the beginning.
	revision uint64
	place    uint64 // the last revision that was told or passed over
	resync   bool   // is told first
	wake     chan struct{}
	ended    chan struct{}
	end      sync.Once
}

// WatchSecrets begins a watch of the secrets that the caller may read: after a
// revision, or, when it does not resume one, now. KindQuotaExceeded when there
// are too many.
func (s *Service) WatchSecrets(ctx context.Context, t *Ticket, from uint64, resume bool) (w *SecretWatch, err error) {
	err = s.run(ctx, t, &task{op: OpWatchSecrets, allowed: reachesSecrets(OpWatchSecrets),
		store: func(ctx context.Context, t *Ticket) error {
			c, err := s.credentials.CredentialForAuthentication(ctx, t.By.Credential)
			if err != nil {
				return err
			}
			w, err = s.watches.open(ctx, t.By, c.Revision, from, resume)
			return err
		}})
	if err != nil {
		w.Close() // the entry could not be written
		return nil, err
	}
	return w, nil
}

// open registers a watch.
func (h *watchHub) open(ctx context.Context, by *Principal, revision, from uint64, resume bool) (*SecretWatch, error) {
	known, err := h.service.secrets.SecretsRevision(ctx, by.Tenant.ID)
	if err != nil {
		return nil, err
	}
	if from > known {
		ctx, cancel := context.WithTimeout(ctx, freshWait)
		defer cancel()
		if known, err = h.service.secrets.AwaitSecretsRevision(ctx, by.Tenant.ID, from); err != nil {
			return nil, err
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	f := h.feeds[by.Tenant.ID]
	switch {
	case h.closed:
		return nil, errWatchesEnd
	case h.of[by.Credential] >= MaxWatchesOfCredential:
		return nil, errTooManyWatches(MaxWatchesOfCredential)
	case f != nil && f.count() >= MaxWatchesOfTenant:
		return nil, errTooManyWatches(MaxWatchesOfTenant)
	case f == nil:
		f = h.newFeedLocked(by.Tenant.ID, known)
	}
	w := &SecretWatch{hub: h, feed: f, by: by, revision: revision, place: from,
		wake: make(chan struct{}, 1), ended: make(chan struct{})}
	h.of[by.Credential]++
	f.mu.Lock()
	defer f.mu.Unlock()
	f.watches[w] = struct{}{}
	switch {
	case !resume:
		w.place = known
	case from > known, // of another database, or of before a restore
		from+1 < f.firstLocked(): // of too long ago
		w.place, w.resync = max(known, f.known), true
	}
	return w, nil
}

var errWatchesEnd = &Error{Kind: KindReducedCapacity, Detail: "the service is stopping", RetryAfter: time.Second}

func errTooManyWatches(limit int64) error {
	return &Error{Kind: KindQuotaExceeded, Detail: "there are too many watches already", RetryAfter: DefaultHeartbeat,
		Reasons: []Reason{{Code: ReasonWatches, Limit: limit, Need: 1, Have: limit, RetryIn: DefaultHeartbeat}}}
}

// newFeedLocked makes a tenant's feed and starts what feeds it. It begins a
// ring's length back, for watches that are resumed.
func (h *watchHub) newFeedLocked(tenant uuid.UUID, known uint64) *watchFeed {
	if len(h.feeds) == 0 {
		ctx, stop := context.WithCancel(context.Background())
		h.stop = stop
		h.all.Go(func() { h.check(ctx) })
	}
	ctx, stop := context.WithCancel(context.Background())
	f := &watchFeed{tenant: tenant, dirty: make(chan struct{}, 1), stop: stop, watches: map[*SecretWatch]struct{}{}}
	f.known = known - min(known, watchRing)
	f.dirty <- struct{}{}
	h.feeds[tenant] = f
	h.all.Go(func() { h.run(ctx, f) })
	return f
}

// changed is called when there may be changes of a tenant, zero for all.
func (h *watchHub) changed(tenant uuid.UUID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if tenant != (uuid.UUID{}) {
		h.feeds[tenant].markDirty()
		return
	}
	for _, f := range h.feeds {
		f.markDirty()
	}
}

func (f *watchFeed) markDirty() {
	if f == nil {
		return
	}
	select {
	case f.dirty <- struct{}{}:
	default: // it will be looked already
	}
}

func (f *watchFeed) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.watches)
}

// run reads a feed's changes whenever there may be some.
func (h *watchHub) run(ctx context.Context, f *watchFeed) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.dirty:
		}
		if err := h.read(ctx, f); err != nil && ctx.Err() == nil {
			h.service.log.Warn("watch: reading changes of secrets", slog.String("tenant", f.tenant.String()), slog.Any("error", err))
			select {
			case <-ctx.Done():
			case <-time.After(feedRetry):
			}
			f.markDirty()
		}
	}
}

// read reads all changes that there are.
func (h *watchHub) read(ctx context.Context, f *watchFeed) error {
	ctx, cancel := context.WithTimeout(ctx, feedTimeout)
	defer cancel()
	for {
		f.mu.Lock()
		after := f.known
		f.mu.Unlock()
		list, gap, err := h.service.secrets.ChangesOfSecrets(ctx, f.tenant, after, watchRing)
		if err != nil {
			return err
		}
		var known uint64
		if gap && len(list) == 0 { // all are gone
			if known, err = h.service.secrets.SecretsRevision(ctx, f.tenant); err != nil {
				return err
			}
		}
		f.take(list, gap, known)
		if len(list) < watchRing {
			return nil
		}
	}
}

// take takes changes into the ring and wakes the watches. After a gap the ring
// begins anew, behind which every watch finds that it has missed something.
func (f *watchFeed) take(list []SecretChange, gap bool, known uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if gap {
		f.ring, f.known = nil, max(f.known, known)
	}
	if len(list) > 0 {
		f.ring = append(f.ring, list...)
		f.known = list[len(list)-1].Revision
	}
	if over := len(f.ring) - watchRing; over > 0 {
		f.ring = append([]SecretChange(nil), f.ring[over:]...)
	}
	for w := range f.watches {
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

// Next returns what there is to tell next, a heartbeat when it is nothing for
// as long as the policy allows. ok is false when the watch has ended: with ctx, because its
// credential is not what it was, or because the service stops.
func (w *SecretWatch) Next(ctx context.Context) (e SecretEvent, ok bool) {
	timer := time.NewTimer(w.hub.service.secretTimes().Heartbeat)
	defer timer.Stop()
	for {
		select {
		case <-w.ended: // before what waits: it may not be the credential's any more
			return SecretEvent{}, false
		default:
		}
		if e, ok := w.next(); ok {
			return e, true
		}
		select {
		case <-ctx.Done():
			return SecretEvent{}, false
		case <-w.ended:
			return SecretEvent{}, false
		case <-w.wake:
		case <-timer.C:
			return SecretEvent{Kind: SecretHeartbeat, Revision: w.place}, true
		}
	}
}

// next returns what the feed has for the watch. Changes of secrets that it may
// not read are passed over.
func (w *SecretWatch) next() (SecretEvent, bool) {
	f := w.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	first := f.firstLocked()
	if w.resync || w.place+1 < first {
		w.resync, w.place = false, max(w.place, f.known)
		return SecretEvent{Kind: SecretResync, Revision: w.place}, true
	}
	for len(f.ring) > 0 && w.place < f.known {
		c := &f.ring[w.place+1-first]
		w.place = c.Revision
		if w.by.AllowedSecret(OpWatchSecrets, c.Path) {
			return SecretEvent{Kind: SecretEventKind(c.Kind), Revision: c.Revision, Path: c.Path}, true
		}
	}
	return SecretEvent{}, false
}

// firstLocked is the revision of the first change that the ring has, or will
// have.
func (f *watchFeed) firstLocked() uint64 {
	if len(f.ring) > 0 {
		return f.ring[0].Revision
	}
	return f.known + 1
}

// Close ends the watch; nil is none.
func (w *SecretWatch) Close() {
	if w == nil {
		return
	}
	w.end.Do(func() {
		close(w.ended)
		h, f := w.hub, w.feed
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.of[w.by.Credential]--; h.of[w.by.Credential] == 0 {
			delete(h.of, w.by.Credential)
		}
		f.mu.Lock()
		delete(f.watches, w)
		last := len(f.watches) == 0
		f.mu.Unlock()
		if last {
			f.stop()
			delete(h.feeds, f.tenant)
		}
		if len(h.feeds) == 0 {
			h.stop()
		}
	})
}

// check ends the watches of credentials that have changed in any way: revoked,
// rotated, with other scopes, of a suspended tenant. Whoever may go on begins
// anew with its last revision.
func (h *watchHub) check(ctx context.Context) {
	tick := time.NewTicker(watchCheck)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		type state struct {
			credential uuid.UUID
			revision   uint64
		}
		good := map[state]bool{}
		for _, w := range h.list() {
			of := state{w.by.Credential, w.revision}
			still, known := good[of]
			if !known {
				still = h.good(ctx, w)
				good[of] = still
			}
			if !still && ctx.Err() == nil {
				w.Close()
			}
		}
	}
}

func (h *watchHub) list() (all []*SecretWatch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, f := range h.feeds {
		f.mu.Lock()
		for w := range f.watches {
			all = append(all, w)
		}
		f.mu.Unlock()
	}
	return all
}

// good tells whether the credential of a watch is what it was. One that cannot
// be asked about any more is not.
func (h *watchHub) good(ctx context.Context, w *SecretWatch) bool {
	s := h.service
	c, err := s.credentials.CredentialForAuthentication(ctx, w.by.Credential)
	if err != nil || c.Revision != w.revision || !c.live(s.clock()) {
		return false
	}
	tenant, err := s.tenants.Tenant(ctx, w.by.Tenant.ID)
	return err == nil && tenant.State == TenantActive
}

// close ends all watches and waits for what feeds them; none can begin any
// more.
func (h *watchHub) close() {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	for _, w := range h.list() {
		w.Close()
	}
	h.all.Wait()
}

// EndWatches ends all watches for good, so that a server that stops need not
// wait for them.
func (s *Service) EndWatches() { s.watches.close() }
