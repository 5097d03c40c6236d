package watch

import (
	"cmp"
	"slices"
	"sync"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

const (
	// tenantShards is the number of locks, and shardTenants how many tenants
	// are watched under each: 512 in all, in 400 KiB. Whoever uses more than a
	// thirty-second of what falls to a shard is among them.
	tenantShards = 16
	shardTenants = 32

	// span is the length of a period. What is told covers the present one and
	// the one before: the last one to two minutes.
	span = time.Minute

	// fewCalls is how many calls of a tenant tell something of it.
	fewCalls = 100

	// refusedLine is the part of a tenant's calls, in thousandths, from which
	// it counts as refused.
	refusedLine = 10
)

// Tenants watches those tenants that use the HSMs most. It is safe for
// concurrent use.
type Tenants struct {
	shards [tenantShards]tenantShard
}

type tenantShard struct {
	mu     sync.Mutex // guards the rest
	period int64      // of the clock, in spans
	used   int
	ids    [shardTenants]uuid.UUID
	ranks  [shardTenants]int64 // ns of slot time of both periods, inherited ones too
	kept   [shardTenants]kept

	_ [40]byte // keeps two locks off one 64-byte cache line
}

// kept is what is kept of a tenant.
type kept struct{ now, before period }

// period is a tenant's use of one span.
type period struct {
	slot, inherited     int64 // ns
	calls, ran, refused uint32
	low, high           uint8 // of latency: nothing else was written to
	latency             latency
}

// took notes the time of a request that ran and succeeded.
func (p *period) took(d time.Duration) {
	class := uint8(latencyClass(d))
	if p.ran == 0 {
		p.low, p.high = class, class
	}
	p.low, p.high = min(p.low, class), max(p.high, class)
	p.ran++
	p.latency[class]++
}

// reset makes it that of a tenant that inherits a use. It clears what was
// written to and no more: in a flood of tenants that is most of what they cost.
func (p *period) reset(inherited int64) {
	clear(p.latency[p.low : p.high+1])
	p.slot, p.inherited, p.calls, p.ran, p.refused, p.low, p.high = 0, inherited, 0, 0, 0, 0, 0
}

func (k *kept) rank() int64 { return k.now.slot + k.now.inherited + k.before.slot + k.before.inherited }

// Refused tells whether the service refused a request that it could have
// served: by quota or because the HSMs were too busy.
func Refused(err error) bool {
	if err == nil {
		return false
	}
	switch kms.KindOf(err) {
	case kms.KindQuotaExceeded, kms.KindQuotaExhausted, kms.KindUnsatisfiable, kms.KindReducedCapacity, kms.KindWaitExceeded:
		return true
	}
	return false
}

// Note counts a request that is over. One that has no tenant is not counted.
func (w *Tenants) Note(t *kms.Ticket, err error) {
	if t.By == nil || t.By.Tenant == nil {
		return
	}
	id := &t.By.Tenant.ID
	s := &w.shards[id[15]%tenantShards]
	at := periodOf(t.Received.Add(t.Elapsed))
	s.mu.Lock()
	s.turn(at)
	i := s.find(id)
	now := &s.kept[i].now
	now.calls++
	if t.Attempts > 0 {
		now.slot += int64(t.SlotTime)
		s.ranks[i] += int64(t.SlotTime)
		if err == nil {
			now.took(t.Elapsed)
		}
	}
	if Refused(err) {
		now.refused++
	}
	s.mu.Unlock()
}

func periodOf(t time.Time) int64 { return t.UnixNano() / int64(span) }

// turn begins a new period when its time has come, and forgets who did nothing
// in the last two. What is noted late counts in the present one.
func (s *tenantShard) turn(to int64) {
	if to <= s.period {
		return
	}
	next := to == s.period+1
	s.period = to
	left := 0
	for i := range s.used {
		k := &s.kept[i]
		if next {
			k.before = k.now
		} else {
			k.before = period{}
		}
		k.now = period{}
		if k.before.calls == 0 {
			continue
		}
		s.ids[left], s.ranks[left] = s.ids[i], k.rank()
		if left != i {
			s.kept[left] = *k
		}
		left++
	}
	s.used = left
}

// find returns a tenant's place. One that has none takes a free one, or that of
// the tenant with the least use.
func (s *tenantShard) find(id *uuid.UUID) int {
	least := 0
	for i := range s.used {
		if s.ids[i] == *id {
			return i
		}
		if s.ranks[i] < s.ranks[least] {
			least = i
		}
	}
	i, inherited := least, int64(0)
	if s.used < shardTenants {
		i = s.used
		s.used++
	} else {
		inherited = s.ranks[least]
	}
	s.ids[i], s.ranks[i] = *id, inherited
	s.kept[i].now.reset(inherited)
	s.kept[i].before.reset(0)
	return i
}

// TenantUse is a tenant's use of the last one to two minutes.
type TenantUse struct {
	Tenant  uuid.UUID
	Slots   float64       // that it held on average
	PerSec  float64       // its requests a second
	Calls   int           // its requests
	Refused int           // of those, the refused ones
	P99     time.Duration // of those that ran; 0: too few
	rank    int64
}

// TenantsSeen is what Tenants tells.
type TenantsSeen struct {
	// Top are the largest users of slot time, the largest first.
	Top []TenantUse
	// Watched is how many tenants are watched.
	Watched int
	// Refused are those of which a hundredth of their calls or more was
	// refused, of those with enough calls, the most refused first.
	Refused []TenantUse
	// Spread is the largest P99 of a tenant over the median of those of all with
	// enough calls; 1 when there is nothing to compare.
	Spread float64
}

// Seen tells what was seen as of now, with up to top tenants by name.
func (w *Tenants) Seen(now time.Time, top int) TenantsSeen {
	all := make([]TenantUse, 0, tenantShards*shardTenants)
	for i := range w.shards {
		all = w.shards[i].uses(now, all)
	}
	seen := TenantsSeen{Watched: len(all), Spread: spread(all)}
	for _, u := range all {
		if u.Calls >= fewCalls && u.Refused*1000 >= u.Calls*refusedLine {
			seen.Refused = append(seen.Refused, u)
		}
	}
	slices.SortFunc(seen.Refused, func(a, b TenantUse) int {
		return cmp.Or(cmp.Compare(b.Refused, a.Refused), a.Tenant.Compare(b.Tenant))
	})
	slices.SortFunc(all, func(a, b TenantUse) int { return cmp.Or(cmp.Compare(b.rank, a.rank), a.Tenant.Compare(b.Tenant)) })
	seen.Top = all[:min(top, len(all))]
	return seen
}

func (s *tenantShard) uses(now time.Time, list []TenantUse) []TenantUse {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turn(periodOf(now))
	over := (span + time.Duration(now.UnixNano()-s.period*int64(span))).Seconds()
	for i := range s.used {
		k := &s.kept[i]
		u := TenantUse{Tenant: s.ids[i], rank: s.ranks[i],
			Slots:   time.Duration(k.now.slot+k.before.slot).Seconds() / over,
			Calls:   int(k.now.calls) + int(k.before.calls),
			Refused: int(k.now.refused) + int(k.before.refused)}
		u.PerSec = float64(u.Calls) / over
		if k.now.ran+k.before.ran >= fewCalls {
			u.P99 = percentile(&k.now.latency, &k.before.latency, 99)
		}
		list = append(list, u)
	}
	return list
}

// spread is how much longer than the median tenant's the worst tenant's P99 is.
func spread(all []TenantUse) float64 {
	var list []time.Duration
	for _, u := range all {
		if u.P99 > 0 {
			list = append(list, u.P99)
		}
	}
	if len(list) < 2 {
		return 1
	}
	slices.Sort(list)
	return float64(list[len(list)-1]) / float64(list[(len(list)-1)/2])
}
