package quota

import (
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

// Retrying is how a tenant obeyed Retry-After in the last one to two minutes.
type Retrying struct {
	Tenant uuid.UUID
	// Calls are its requests, Early those that came before the Retry-After that
	// it was given was over.
	Calls, Early int
}

// Retrying returns the tenants that had a number of calls and of those more
// than a share, in thousandths, of early ones, and the sum over all tenants. It
// looks at every tenant that the engine knows, shard by shard.
func (e *Engine) Retrying(calls, share int) (list []Retrying, all Retrying) {
	for i := range e.shards {
		s := &e.shards[i]
		s.mu.Lock()
		now := e.nowLocked(s).ns
		for _, t := range s.tenants {
			r := t.retries.lately(now)
			all.Calls += r.Calls
			all.Early += r.Early
			if r.Calls >= calls && r.Early*permille > r.Calls*share {
				r.Tenant = t.id
				list = append(list, r)
			}
		}
		s.mu.Unlock()
	}
	return list, all
}

// lately sums the present and the last minute.
func (r *retries) lately(now int64) Retrying {
	r.turn(now)
	return Retrying{Calls: int(r.calls[0]) + int(r.calls[1]), Early: int(r.soon[0]) + int(r.soon[1])}
}
