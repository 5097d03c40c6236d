package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"
)

// keep is the goroutine that does what time brings: it fetches what is due and
// ends what is too old.
func (s *Secrets) keep() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		timer.Reset(s.turn(time.Now()))
		select {
		case <-s.ctx.Done():
			return
		case <-s.wake:
		case <-timer.C:
		}
	}
}

// idle is how long the keeper sleeps when nothing is due.
const idle = time.Hour

// turn does what is due and returns for how long nothing will be.
func (s *Secrets) turn(now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.due) > 0 && !s.due[0].at.After(now) {
		s.attend(s.due[0], now)
	}
	s.fetchWaiting(now)
	next := idle
	if len(s.due) > 0 {
		next = min(next, s.due[0].at.Sub(now))
	}
	if len(s.waiting) > 0 && s.pause.After(now) {
		next = min(next, s.pause.Sub(now))
	}
	return max(next, 0)
}

// attend does what is due of one entry, and gives it its next time.
func (s *Secrets) attend(e *entry, now time.Time) {
	if !e.hard.IsZero() && !e.hard.After(now) {
		// Whatever was known is as old as what was held: a service that was
		// restored from a backup starts anew.
		s.drop(e, stateExpired)
		e.asOf, e.floor = 0, 0
		s.tell(e)
	}
	if !e.forget.IsZero() && !e.forget.After(now) {
		if !e.used.Swap(false) {
			s.evict(e)
			return
		}
		e.forget = now.Add(negativeKeep)
	}
	if !e.refresh.IsZero() && !e.refresh.After(now) {
		s.enqueue(e)
	}
	s.schedule(e)
}

// enqueue has an entry wait for a fetch.
func (s *Secrets) enqueue(e *entry) {
	e.refresh = time.Time{}
	if !e.queued && e.flight == nil {
		e.queued = true
		s.waiting = append(s.waiting, e)
	}
	if len(s.waiting) > 2*s.o.MaxSecrets {
		// In an outage evicted ones would pile up.
		s.waiting = slices.DeleteFunc(s.waiting, func(e *entry) bool { return s.entries[e.path] != e })
	}
}

// fetchWaiting starts fetches as long as there is room: one while the service
// does not answer.
func (s *Secrets) fetchWaiting(now time.Time) {
	room := s.o.MaxFetches
	if s.failures > 0 {
		room = 1
	}
	if s.pause.After(now) || s.ctx.Err() != nil {
		return
	}
	for s.fetching < room && len(s.waiting) > 0 {
		// What will be due soon comes along.
		for len(s.waiting) < maxFetchItems && len(s.due) > 0 && s.due[0].at.Before(now.Add(gather)) && s.due[0].at.Equal(s.due[0].refresh) {
			e := s.due[0]
			s.enqueue(e)
			s.schedule(e)
		}
		s.startFetch(now)
	}
}

// startFetch takes what waits, up to a fetch full.
func (s *Secrets) startFetch(now time.Time) {
	n := 1
	for n < min(len(s.waiting), maxFetchItems) && !s.waiting[0].alone && !s.waiting[n].alone {
		n++
	}
	f := &flight{min: max(s.cursor, s.floor), sent: now}
	var in FetchSecretsInput
	batch := make(map[string]*entry, n)
	for _, e := range s.waiting[:n] {
		e.queued = false
		if s.entries[e.path] != e {
			continue // evicted meanwhile
		}
		e.flight = f
		f.min = max(f.min, e.floor, e.asOf)
		batch[e.path] = e
		in.Items = append(in.Items, FetchSecretItem{Path: e.path, HaveRevision: e.state.Load().revision})
	}
	s.waiting = append(s.waiting[:0], s.waiting[n:]...)
	if len(batch) == 0 {
		return
	}
	in.MinRevision = f.min
	s.fetching++
	s.fetches.Add(1)
	s.running.Go(func() { s.fetch(f, in, batch) })
}

// fetch makes one fetch and applies its answer.
func (s *Secrets) fetch(f *flight, in FetchSecretsInput, batch map[string]*entry) {
	ctx, cancel := context.WithTimeout(s.ctx, fetchTimeout)
	answer, err := s.c.fetchDated(ctx, in)
	cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.rouse()
	s.fetching--
	now := time.Now()
	if s.ctx.Err() != nil {
		if answer != nil {
			answer.wipe()
		}
		return
	}
	switch refused := definite(err); {
	case refused != nil:
		s.failures, s.pause = 0, time.Time{}
		for _, e := range batch {
			s.refuse(e, f, refused, now)
		}
	case refusedItem(err):
		for _, e := range batch {
			if e.alone = len(batch) > 1; e.alone {
				s.failed(e, f, unavailable(err), now)
			} else {
				s.refuse(e, f, err, now)
			}
		}
	case err != nil:
		s.failedFetches.Add(1)
		s.failures++
		s.pause = now.Add(min(pause(s.fallenBehind(err, now), s.failures), maxRetryAfter))
		for _, e := range batch {
			s.failed(e, f, unavailable(err), now) // as soon as the pause is over
		}
	default:
		s.receive(f, answer, batch, now)
	}
}

// receive applies the answer to a fetch.
func (s *Secrets) receive(f *flight, answer *datedFetch, batch map[string]*entry, now time.Time) {
	s.failures, s.pause, s.behind = 0, time.Time{}, time.Time{}
	s.begin(answer.Revision)
	for i := range answer.Items {
		item := &answer.Items[i]
		e := batch[item.Path]
		if e == nil {
			item.wipe()
			continue
		}
		e.alone = false
		s.apply(e, f, item, answer, now)
		delete(batch, item.Path)
	}
	for _, e := range batch {
		s.failed(e, f, unavailable(ErrBadAnswer), now.Add(minRefresh)) // the answer lacks it
	}
}

// begin notes the first answer's revision, from which on the watch can tell.
func (s *Secrets) begin(revision uint64) {
	if !s.started {
		s.started = true
		s.cursor, s.base = revision, revision
		close(s.known)
	}
}

// fallenBehind notes that the service knows less than it once did: the node
// lags. It is believed only when that has lasted for so long that nothing is
// left of what was known: then the service was restored from a backup. It
// returns the error by which to pause: a node's own pause does not count for
// the next node, which knows more.
func (s *Secrets) fallenBehind(err error, now time.Time) error {
	if !errors.Is(err, ErrStaleReplica) {
		return err
	}
	if s.behind.IsZero() {
		s.behind = now
	}
	if now.Sub(s.behind) < s.o.HardExpiry {
		return ErrStaleReplica
	}
	s.cursor, s.base, s.floor, s.behind = 0, 0, 0, time.Time{}
	for _, e := range s.entries {
		e.asOf, e.floor = 0, 0
	}
	return ErrStaleReplica
}

// definite is what an error of a whole fetch says of each secret in it, when it
// is the service that refuses the credential. Everything else is an outage: a
// proxy's page, whatever its status, is not the service's word.
func definite(err error) error {
	e, ok := errors.AsType[*Error](err)
	if ok && (e.Code == ErrUnauthenticated && e.Status == http.StatusUnauthorized ||
		e.Code == ErrPermissionDenied && e.Status == http.StatusForbidden) {
		return fmt.Errorf("%w: %w", ErrDenied, e)
	}
	return nil
}

// refusedItem tells whether a fetch was refused for what is in it: one item may
// be to blame, which must not stand in the way of the others.
func refusedItem(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Code == ErrInvalidArgument && e.Status == http.StatusBadRequest
}

// landed ends a fetch of an entry, unless a newer one is under way; then it
// returns false.
func (s *Secrets) landed(e *entry, f *flight) bool {
	if e.flight != f {
		return false
	}
	e.flight = nil
	return true
}

// failed is for an entry of which a fetch has told nothing. What is held stays,
// and it is fetched again at a time.
func (s *Secrets) failed(e *entry, f *flight, err error, at time.Time) {
	if !s.landed(e, f) || s.entries[e.path] != e {
		return
	}
	if e.state.Load().err != nil && e.state.Load() != stateRevoked {
		e.state.Store(&secretState{err: err})
	}
	s.again(e, at)
}

// refuse is for an entry that the service will not give.
func (s *Secrets) refuse(e *entry, f *flight, err error, now time.Time) {
	if !s.landed(e, f) || s.entries[e.path] != e {
		return
	}
	s.negative(e, err, now)
}

// negative ends an entry by the service's word. It is asked for again only when
// somebody asks, or when the watch tells of it.
func (s *Secrets) negative(e *entry, err error, now time.Time) {
	s.drop(e, &secretState{err: err})
	e.failures = 0
	e.refresh = time.Time{}
	e.holdOff = now.Add(s.o.NegativeFreshness)
	e.forget = now.Add(negativeKeep)
	s.tell(e)
	s.schedule(e)
}

// apply makes the state of an entry what the answer tells, unless more is known
// already.
func (s *Secrets) apply(e *entry, f *flight, item *FetchedSecret, answer *datedFetch, now time.Time) {
	newest := s.landed(e, f)
	if s.entries[e.path] != e || answer.Revision < max(e.floor, e.asOf) {
		// It was overtaken by an event or by another answer.
		item.wipe()
		if newest && s.entries[e.path] == e {
			s.again(e, now.Add(minRefresh))
		}
		return
	}
	switch item.Status {
	case statusOK, statusUnchanged:
		if !s.renew(e, f, item, answer, now) {
			item.wipe()
			if newest {
				s.again(e, now.Add(minRefresh))
			}
			return
		}
	case statusNotFound:
		e.asOf = answer.Revision
		s.negative(e, ErrNotFound, now)
	case statusDisabled:
		e.asOf = answer.Revision
		s.negative(e, ErrRevoked, now)
	case statusDenied:
		e.asOf = answer.Revision
		s.negative(e, ErrDenied, now)
	default:
		if newest {
			s.postpone(e, item, now)
		}
		return
	}
	if answer.Revision < s.base {
		// The watch began later than this: what came between is not known.
		s.again(e, now)
	}
}

// again has an entry fetched at a time, and tells those who wait.
func (s *Secrets) again(e *entry, at time.Time) {
	e.refresh = at
	s.tell(e)
	s.schedule(e)
}

// postpone is for a secret that the service cannot open at the moment.
func (s *Secrets) postpone(e *entry, item *FetchedSecret, now time.Time) {
	e.failures++
	err := &Error{RetryAfter: min(time.Duration(item.RetryAfterMS)*time.Millisecond, maxRetryAfter)}
	if st := e.state.Load(); st.err != nil && st != stateRevoked {
		e.state.Store(&secretState{err: ErrSealed})
	}
	s.again(e, now.Add(pause(err, e.failures)))
}

// renew makes an entry hold what was fetched, or hold it for longer. It returns
// false for an answer that cannot be.
func (s *Secrets) renew(e *entry, f *flight, item *FetchedSecret, answer *datedFetch, now time.Time) bool {
	fresh, lease := item.spans(answer.date)
	hard := f.sent.Add(min(lease, s.o.HardExpiry))
	if !hard.After(now) {
		return false
	}
	before := e.state.Load()
	if item.Status == statusUnchanged {
		// Versions in limbo stay there: nothing that was asked for had them.
		if before.err != nil || item.Revision != before.revision {
			return false
		}
	} else {
		st, ok := newState(item, append(before.versions[:len(before.versions):len(before.versions)], e.limbo...))
		if !ok {
			return false
		}
		wipeVersions(e.limbo, st)
		e.limbo = nil
		e.state.Store(st)
	}
	e.asOf, e.failures = answer.Revision, 0
	e.hard, e.forget, e.holdOff = hard, time.Time{}, time.Time{}
	fresh = min(fresh, s.o.Freshness)
	if s.polling {
		fresh = min(fresh, s.o.PollFreshness)
	}
	e.refresh = f.sent.Add(max(jittered(max(fresh, 0)/2), minRefresh))
	s.tell(e)
	s.schedule(e)
	return true
}
