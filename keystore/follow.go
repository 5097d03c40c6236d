package keystore

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-kms/sluice/kms"
)

// DefaultStaleness is how old cached state may become when it is not known
// whether another process changed it.
const DefaultStaleness = 30 * time.Second

const (
	// pollInterval is how often the database is asked for changes that nobody
	// announced: as long as a change may take to reach every process.
	pollInterval = time.Second
	// pollTimeout ends a poll of a database that does not answer.
	pollTimeout = 2 * time.Second
	// pollLimit is how many changes are forgotten one by one; when there are
	// more, everything is.
	pollLimit = 10_000
	// firstRetry and lastRetry bound the wait after a failure, which doubles
	// each time. The wait is drawn from its second half, so that processes
	// which lost the database together do not come back together.
	firstRetry = 100 * time.Millisecond
	lastRetry  = 5 * time.Second
	// changesKept is how long changes can be read; a process that could not
	// read for half of that forgets everything.
	changesKept = time.Hour
)

// ChangeDriver is what a Driver offers whose database more than one process
// writes. It must record every change of a tenant, key or credential, of what a
// key name stands for, and every change and creation of a provider secret, in
// the transaction of the change.
type ChangeDriver interface {
	// Changes returns up to Limit of the changes that were committed between
	// two positions: the one that the call before returned, "" for none, and
	// the present one. None may be left out because its transaction was under
	// way at the time of the call before.
	Changes(context.Context, ChangesParams) (*ChangesResult, error)
	// Announcements calls announce when it begins to hear of changes and then
	// after each commit of some. It returns when it hears no more, or with ctx.
	Announcements(ctx context.Context, announce func()) error
	// DeleteOldChanges removes up to Limit changes that were made at or before
	// Before, and returns how many.
	DeleteOldChanges(context.Context, DeleteOldChangesParams) (int, error)
}

// The parameters and rows of changes.
type (
	ChangesParams struct {
		Since string
		Limit int
	}
	ChangesResult struct {
		Position string
		// Server names the run of the database server. When it is another, the
		// position means nothing.
		Server  string
		Changes []ChangeRow
	}
	ChangeRow struct {
		Object     Text
		Tenant, ID Bytes
		Name       Text
		Revision   Integer // of provider secrets
	}
	DeleteOldChangesParams struct {
		Before Timestamp
		Limit  int
	}
)

// follower makes the caches follow what other processes change. Announcements
// make it prompt; that nothing is missed rests on polling alone, so a lost
// announcement, or a proxy that passes none on, costs up to pollInterval.
type follower struct {
	store     *Store
	driver    ChangeDriver
	staleness time.Duration
	log       *slog.Logger

	// began is when time counts from: on the monotonic clock, because a wall
	// clock that is set back must not make old state fresh.
	began time.Time
	// freshUntil is until when cached state may be used, since began.
	freshUntil atomic.Int64
	polled     atomic.Int64 // the beginning of the last poll that succeeded, since began
	failures   atomic.Uint64

	wake chan struct{}
	wait sync.WaitGroup
}

// errStale answers when cached state is too old and cannot be renewed.
var errStale = kms.Errorf(kms.KindStoreUnavailable, "the store cannot be asked whether its state changed")

func newFollower(s *Store, d ChangeDriver, staleness time.Duration) *follower {
	if staleness <= 0 {
		staleness = DefaultStaleness
	}
	f := &follower{store: s, driver: d, staleness: staleness, log: s.log, began: time.Now(), wake: make(chan struct{}, 1)}
	// What is read before the first poll is as fresh as that.
	f.freshUntil.Store(int64(staleness))
	return f
}

// start runs the follower until ctx ends; wait waits for it.
func (f *follower) start(ctx context.Context) {
	f.wait.Go(func() { f.poll(ctx) })
	f.wait.Go(func() { f.listen(ctx) })
}

// fresh tells whether cached state may be used.
func (f *follower) fresh() bool { return int64(time.Since(f.began)) < f.freshUntil.Load() }

// age is how old cached state may be.
func (f *follower) age() time.Duration { return time.Since(f.began) - time.Duration(f.polled.Load()) }

func (f *follower) announce() {
	select {
	case f.wake <- struct{}{}:
	default: // a poll is due already
	}
}

// listen hears announcements and begins again when they end.
func (f *follower) listen(ctx context.Context) {
	var retry backoff
	for {
		err := f.driver.Announcements(ctx, func() {
			retry = backoff{}
			f.announce()
		})
		if ctx.Err() != nil {
			return
		}
		f.failures.Add(1)
		f.log.Warn("announcements of changes are not heard; polling goes on", slog.Any("error", err))
		if !sleep(ctx, retry.next()) {
			return
		}
	}
}

// poll asks for changes, at once when some are announced. Announcements do not
// hurry a database that fails.
func (f *follower) poll(ctx context.Context) {
	var retry backoff
	var at place
	for {
		began := time.Since(f.began)
		next, err := f.advance(ctx, at)
		if err == nil {
			at, retry = next, backoff{}
			f.polled.Store(int64(began))
			f.freshUntil.Store(int64(began + f.staleness))
			if !f.pause(ctx) {
				return
			}
			continue
		}
		if ctx.Err() != nil {
			return
		}
		f.failures.Add(1)
		f.log.Warn("the database was not asked for changes", slog.Any("error", err), slog.Duration("age", f.age()))
		if !sleep(ctx, retry.next()) {
			return
		}
	}
}

// pause waits until the next poll and tells whether ctx goes on.
func (f *follower) pause(ctx context.Context) bool {
	timer := time.NewTimer(pollInterval)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-f.wake:
	case <-timer.C:
	}
	return true
}

// place is how far the changes were read.
type place struct {
	position string
	server   string
}

// advance reads the changes since a place, makes the caches forget what they
// concern, and returns the new place.
func (f *follower) advance(ctx context.Context, from place) (place, error) {
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	r, err := f.driver.Changes(ctx, ChangesParams{Since: from.position, Limit: pollLimit + 1})
	if err != nil {
		return from, err
	}
	to := place{r.Position, r.Server}
	if from.server != r.Server || len(r.Changes) > pollLimit || f.age() > changesKept/2 {
		f.store.forgetAll()
		return to, nil
	}
	for i := range r.Changes {
		f.forget(&r.Changes[i])
	}
	// After all is forgotten: see secretRevisions.
	for i := range r.Changes {
		if c := &r.Changes[i]; Object(c.Object.String) == ObjectProviderSecret {
			f.store.secretRevisions.advance(rowID(c.Tenant), uint64(c.Revision.Int64))
		}
	}
	return to, nil
}

// forget makes the caches forget what one change concerns; what cannot be read
// could concern anything.
func (f *follower) forget(r *ChangeRow) {
	object := Object(r.Object.String)
	switch object {
	case ObjectTenant, ObjectKey, ObjectCredential:
		f.store.Invalidate(object, rowID(r.Tenant), rowID(r.ID))
	case ObjectProviderSecret:
		f.store.dropSecret(rowID(r.Tenant), rowID(r.ID), r.Name.String)
	case ObjectKeyName:
		f.store.InvalidateName(rowID(r.Tenant), r.Name.String)
	default:
		f.store.forgetAll()
	}
}

// backoff is the wait between attempts.
type backoff struct{ last time.Duration }

func (b *backoff) next() time.Duration {
	b.last = min(max(2*b.last, firstRetry), lastRetry)
	return b.last/2 + rand.N(b.last/2)
}

// sleep waits and tells whether ctx goes on.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
