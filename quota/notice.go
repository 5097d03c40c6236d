package quota

import (
	"time"
	"uuid"
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

// lately counts requests, and those of them that came too early, of the last
// one to two minutes.
type lately struct {
	minute       int32     // the present one
	calls, early [2]uint32 // of the present and the last minute
}

func (l *lately) count(now int64, early bool) {
	l.turn(now)
	l.calls[0]++
	if early {
		l.early[0]++
	}
}

// turn begins a new minute when its time has come.
func (l *lately) turn(now int64) {
	minute := int32(now / int64(time.Minute))
	switch minute - l.minute {
	case 0:
		return
	case 1:
		l.calls, l.early = [2]uint32{0, l.calls[0]}, [2]uint32{0, l.early[0]}
	default:
		l.calls, l.early = [2]uint32{}, [2]uint32{}
	}
	l.minute = minute
}

func (l *lately) sum(now int64) Retrying {
	l.turn(now)
	return Retrying{Calls: int(l.calls[0]) + int(l.calls[1]), Early: int(l.early[0]) + int(l.early[1])}
}

// came counts a request of a tenant. Only a tenant that came too early has
// counts of its own, for as long as it does: most never do, and there are
// many. The shard's lock is held.
func (s *engineShard) came(t *tenant, now int64) {
	early := t.retries.came(now)
	s.lately.count(now, early)
	own := s.early[t]
	if own == nil {
		if !early {
			return
		}
		own = new(lately)
		s.early[t] = own
	}
	own.count(now, early)
}

// Retrying is how a tenant obeyed Retry-After in the last one to two minutes.
type Retrying struct {
	Tenant uuid.UUID
	// Calls are its requests since the first early one, Early those that came
	// before the Retry-After that it was given was over.
	Calls, Early int
}

// Retrying returns the tenants that had a number of calls and of those more
// than a share, in thousandths, of early ones, and the sum over all tenants. It
// costs what there are of tenants that came too early.
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
			if r.Early == 0 {
				delete(s.early, t)
				continue
			}
			if r.Calls >= calls && r.Early*permille > r.Calls*share {
				r.Tenant = t.id
				list = append(list, r)
			}
		}
		s.mu.Unlock()
	}
	return list, all
}
