package quota

import (
	"math"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// countAge is for how long a count of stored objects is gone on with: so long
// may other nodes create and destroy unnoticed. countNear is the part of a
// limit, in thousandths, from which on every creation counts anew.
const (
	countAge  = 10 * time.Second
	countNear = 900
)

// Counts are numbers of stored objects, by Object; -1: not known.
type Counts [objectKinds]int64

// Uncounted tells whether a tenant's objects have to be counted in the store
// before one more of a kind is admitted, and how many are being created now,
// which a count may have or not. Between Uncounted and SetStored no creation of
// the tenant may be admitted.
func (e *Engine) Uncounted(id uuid.UUID, kind Object) (creating Counts, due bool) {
	s := e.shardOf(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tenants[id]
	if t == nil {
		return creating, true
	}
	near, _ := mulDiv(t.limits.stored[kind], countNear, permille)
	have, now := int64(t.stored[kind]), e.nowLocked(s)
	if have >= 0 && have < near && now.ns-t.counted < int64(countAge) {
		return creating, false
	}
	for _, h := range s.holds {
		if h.tenant == t {
			creating[h.creates]++
		}
	}
	return creating, true
}

// SetStored tells how many objects a tenant has: those counted in the store and
// those that Uncounted said are being created. Until it is told, the limit does
// not hold.
func (e *Engine) SetStored(of *kms.Tenant, counts Counts) {
	s := e.shardOf(of.ID)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := e.nowLocked(s)
	t := s.tenants[of.ID]
	if t == nil {
		t = e.newTenant(of, e.policies.Current(), now)
		s.tenants[t.id] = t
	}
	t.counted = now.ns
	for kind, n := range counts {
		t.stored[kind] = int32(max(min(n, math.MaxInt32), -1))
	}
}
