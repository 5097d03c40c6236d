package quota

import (
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// HotKey is a key whose hot-spot breaker is open.
type HotKey struct{ Tenant, Key uuid.UUID }

// noteHot notes that a key's breaker is open, if it is. It opens only when a
// request is refused. The shard's lock is held.
func (s *engineShard) noteHot(key *keyState) {
	if key != nil && key.hotSpot.state != breakerClosed {
		s.hot[key] = struct{}{}
	}
}

// HotKeys returns the keys whose hot-spot breaker is open, or half-open, in no
// order. It costs what there are of them.
func (e *Engine) HotKeys() (list []HotKey) {
	for i := range e.shards {
		s := &e.shards[i]
		s.mu.Lock()
		now := e.nowLocked(s).ns
		for key := range s.hot {
			if key.cold(now) {
				delete(s.hot, key)
				continue
			}
			list = append(list, HotKey{Tenant: key.owner.id, Key: key.id})
		}
		s.mu.Unlock()
	}
	return list
}

// cold tells whether a key's breaker is no news any more: it is closed, or has
// been due for a probe for so long that nobody seems to want the key.
func (key *keyState) cold(now int64) bool {
	rules := &key.owner.snapshot.hotSpot
	return key.hotSpot.state == breakerClosed || now >= key.hotSpot.until+rules.window
}

// lately counts requests, those of them that came too early, and those that came
// just when a Retry-After ended, of the last one to two minutes.
type lately struct {
	minute  int32      // the present one
	end     int64      // ns, the end of a Retry-After that was counted last
	present minuteRate // of it
	last    minuteRate // of the one before
}

// minuteRate counts the requests of a minute.
type minuteRate struct {
	calls, early, returned uint32
	ends                   uint32 // of Retry-Afters, that returned are about
}

func (l *lately) count(now, until int64, a arrival) {
	l.turn(now)
	l.present.calls++
	switch a {
	case tooEarly:
		l.present.early++
	case atTheEnd:
		l.present.returned++
		if l.end != until {
			l.end = until
			l.present.ends++
		}
	}
}

// turn begins a new minute when its time has come.
func (l *lately) turn(now int64) {
	minute := int32(now / int64(time.Minute))
	switch minute - l.minute {
	case 0:
		return
	case 1:
		l.present, l.last = minuteRate{}, l.present
	default:
		l.present, l.last = minuteRate{}, minuteRate{}
	}
	l.minute = minute
}

func (l *lately) sum(now int64) (r Retrying) {
	l.turn(now)
	r.Calls = int(l.present.calls) + int(l.last.calls)
	r.Early = int(l.present.early) + int(l.last.early)
	r.Spike = spike(l.present.add(&l.last), time.Duration(now%int64(time.Minute)))
	return r
}

func (m minuteRate) add(o *minuteRate) minuteRate {
	return minuteRate{m.calls + o.calls, m.early + o.early, m.returned + o.returned, m.ends + o.ends}
}

// fewReturned is how many requests must have come at the end of Retry-Afters to
// tell whether they come as a spike.
const fewReturned = 50

// spike is how many times as many requests came in the seconds after a
// Retry-After as in others, of a minute and what has passed of another one; 0 when
// too few did to tell.
func spike(m minuteRate, passed time.Duration) int {
	if m.returned < fewReturned || m.ends == 0 {
		return 0
	}
	other := float64(max(m.calls-m.returned, 1)) / max((time.Minute+passed).Seconds()-float64(m.ends), 1)
	return int(float64(m.returned) / float64(m.ends) / max(other, 1))
}

// came counts a request of a tenant. Only a tenant that came too early, or at
// the end of a Retry-After, has counts of its own, for as long as it does: most
// never do, and there are many. The shard's lock is held.
func (s *engineShard) came(t *tenant, now int64) {
	a := t.retries.came(now)
	s.lately.count(now, t.retries.until, a)
	own := s.early[t]
	if own == nil {
		if a == atWill {
			return
		}
		own = new(lately)
		s.early[t] = own
	}
	own.count(now, t.retries.until, a)
}

// retryContract is how a tenant obeyed Retry-After lately. The shard's lock is
// held.
func (s *engineShard) retryContract(t *tenant, now int64) kms.RetryContract {
	own := s.early[t]
	if own == nil {
		return kms.RetryContract{}
	}
	r := own.sum(now)
	return kms.RetryContract{Calls: r.Calls, Early: r.Early, Spike: r.Spike}
}

// Retrying is how a tenant obeyed Retry-After in the last one to two minutes.
type Retrying struct {
	Tenant uuid.UUID
	// Calls are its requests since the first early one, Early those that came
	// before the Retry-After that it was given was over.
	Calls, Early int
	// Spike is how many times as many came in the second after a Retry-After as
	// in others; 0: too few did to tell.
	Spike int
}

// Retrying returns the tenants that had a number of calls and of those more
// than a share, in thousandths, of early ones, or that came back in spikes, and
// the sum over all tenants. It costs what there are of tenants that came too
// early.
func (e *Engine) Retrying(calls, share int) (list []Retrying, all Retrying) {
	for i := range e.shards {
		s := &e.shards[i]
		s.mu.Lock()
		now := e.nowLocked(s).ns
		sum := s.lately.sum(now)
		all.Calls += sum.Calls
		all.Early += sum.Early
		for t, own := range s.early {
			r := own.sum(now)
			if r.Early == 0 && own.present.returned+own.last.returned == 0 {
				delete(s.early, t)
				continue
			}
			if r.Calls >= calls && (r.Early*permille > r.Calls*share || r.Spike >= kms.SpikeLine) {
				r.Tenant = t.id
				list = append(list, r)
			}
		}
		s.mu.Unlock()
	}
	return list, all
}
