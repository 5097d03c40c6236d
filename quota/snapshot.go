package quota

import (
	"bytes"
	"encoding/json/jsontext"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// Snapshot is a policy ready for use. It is immutable: a reservation keeps the
// one under which it was made.
type Snapshot struct {
	// Version is the document's, as the store numbers it.
	Version uint64
	// Costs is the price list.
	Costs *CostTable

	policy  *Policy
	since   time.Time // when it came to be the current one
	tiers   tierSet
	tenants map[uuid.UUID]*tierSet

	hotSpot, failures breakerRules
	repay             repayShare
	rampStep          int64 // ns in which a ramp takes one of rampSteps
	refund            int64 // thousandths of the rate
	timeout           int64 // ns
	chargeAfter       int64 // ns
	retryHorizon      int64 // ns
	retryJitter       int64 // thousandths
	soft              int64 // thousandths
	safe, leaveSafe   int64 // thousandths of the slots
	leases            leaseRules
	cost              costRules
}

// tierSet are the limits of one tenant under each tier: its own document may
// set some of the numbers apart.
type tierSet [4]*tenantLimits

func tierIndex(tier kms.Tier) int {
	switch tier { // in the order of kms.Tiers
	case kms.TierPlatinum:
		return 0
	case kms.TierGold:
		return 1
	case kms.TierSilver:
		return 2
	}
	return 3 // what is not known is free
}

// tenantLimits are the limits of a tenant in the units of the decisions.
type tenantLimits struct {
	scopeLimits
	tier      int
	days      dayRules
	month     int64
	bandwidth int64    // bytes a day
	soft      [3]int64 // lines of day, month and bandwidth at which their owner is told
	stored    [objectKinds]int64
	versions  int64
	key       scopeLimits // of a key that has none of its own
	anyone    scopeLimits // of a credential that has none of its own
	ramp      int64       // thousandths at the beginning
	emergency int64       // thousandths
	load      int64       // thousandths above the safe line
	wait      WaitTimes
	// costFactor is that of the cost breaker's risk, in thousandths; 0: it is off.
	costFactor int64
	zone       *time.Location
	packs      []packLimit

	projects    map[string]*scopeLimits
	credentials map[uuid.UUID]*scopeLimits
	keys        map[uuid.UUID]*scopeLimits
}

// scopeLimits are the limits that tenants, projects, credentials and keys can
// all have. 0: none.
type scopeLimits struct {
	credits, requests rate
	day               int64
	concurrency       int64
}

type packLimit struct {
	id      string
	credits int64
	expires time.Time
}

// NewSnapshot makes a snapshot of a valid policy. It keeps p, which must not
// be changed any more.
func NewSnapshot(version uint64, p *Policy) *Snapshot {
	s := &Snapshot{
		Version: version, Costs: NewCostTable(&p.Costs), policy: p,
		tenants: make(map[uuid.UUID]*tierSet, len(p.Tenants)),
		hotSpot: p.HotSpot.inUnits(), failures: p.Failures.inUnits(),
		repay:        repayShare(p.Overdraft.RepayPercent * 10),
		rampStep:     p.Ramp.Hours * int64(time.Hour) / rampSteps,
		refund:       p.Reservations.RefundPercent * 10,
		timeout:      p.Reservations.TimeoutSeconds * second,
		chargeAfter:  p.Reservations.ChargeAfterHours * int64(time.Hour),
		retryHorizon: p.RetryAfter.MaxSeconds * second,
		retryJitter:  p.RetryAfter.JitterPercent * 10,
		soft:         p.Totals.SoftPercent * 10,
		safe:         p.Gate.SafePercent * 10,
		leaveSafe:    (p.Gate.SafePercent - p.Gate.HysteresisPercent) * 10,
		leases:       p.Leases.inUnits(),
		cost:         p.CostBreaker.inUnits(),
	}
	for i, tier := range kms.Tiers() {
		s.tiers[i] = p.limits(i, p.Tiers[tier], &TenantPolicy{})
	}
	for id, t := range p.Tenants {
		set := new(tierSet)
		for i, tier := range kms.Tiers() {
			set[i] = p.limits(i, t.Limits.over(p.Tiers[tier]), t)
		}
		s.tenants[id] = set
	}
	return s
}

// Policy returns the document of the snapshot, which must not be changed.
func (s *Snapshot) Policy() *Policy { return s.policy }

// limits returns what holds for a tenant of a tier.
func (s *Snapshot) limits(tenant uuid.UUID, tier int) *tenantLimits {
	if set := s.tenants[tenant]; set != nil {
		return set[tier]
	}
	return s.tiers[tier]
}

func (p *Policy) limits(tier int, l *TierLimits, t *TenantPolicy) *tenantLimits {
	limits := &tenantLimits{
		tier: tier,
		scopeLimits: scopeLimits{
			credits:     rate{l.CreditsPerSecond * micro, l.BurstCredits * micro, l.OverdraftCredits * micro},
			requests:    rate{perSecond: l.RequestsPerSecond * micro, burst: l.BurstRequests * micro},
			concurrency: l.Concurrency,
		},
		days: dayRules{
			total: l.DayCredits * micro, pool: l.PoolCredits * micro,
			repay: p.Elastic.RepayPercent * 10, notch: p.Elastic.NotchPercent * 10,
		},
		month:      l.DayCredits * p.Totals.MonthDays * micro,
		bandwidth:  l.BandwidthBytes,
		stored:     [objectKinds]int64{Keys: l.Keys, Secrets: l.Secrets, Credentials: l.Credentials},
		versions:   l.VersionsPerKey,
		ramp:       l.RampFromPercent * 10,
		emergency:  l.EmergencyPercent * 10,
		load:       l.LoadPercent * 10,
		wait:       l.MaxWait,
		costFactor: l.CostFactorPermille,
		zone:       time.UTC,

		projects:    inUnits(t.Projects),
		credentials: inUnits(t.Credentials),
		keys:        inUnits(t.Keys),
	}
	limits.anyone.credits = rate{perSecond: limits.credits.perSecond, burst: limits.credits.burst}
	limits.key.credits = rate{
		perSecond: l.CreditsPerSecond * micro / 100 * l.KeyPercent, burst: l.BurstCredits * micro / 100 * l.KeyPercent,
	}
	for i, limit := range [...]int64{limits.days.total, limits.month, limits.bandwidth} {
		limits.soft[i], _ = mulDiv(limit, p.Totals.SoftPercent, 100)
	}
	if zone, err := time.LoadLocation(t.TimeZone); err == nil {
		limits.zone = zone
	}
	for _, pack := range t.Packs {
		limits.packs = append(limits.packs, packLimit{pack.ID, pack.Credits * micro, pack.Expires})
	}
	slices.SortStableFunc(limits.packs, func(a, b packLimit) int { return a.expires.Compare(b.expires) })
	return limits
}

func inUnits[K comparable](m map[K]*ScopeLimits) map[K]*scopeLimits {
	if len(m) == 0 {
		return nil
	}
	limits := make(map[K]*scopeLimits, len(m))
	for key, l := range m {
		limits[key] = &scopeLimits{
			credits:     rate{perSecond: l.CreditsPerSecond * micro, burst: l.BurstCredits * micro},
			requests:    rate{perSecond: l.RequestsPerSecond * micro, burst: l.BurstRequests * micro},
			day:         l.DayCredits * micro,
			concurrency: l.Concurrency,
		}
	}
	return limits
}

func (b BreakerRules) inUnits() breakerRules {
	return breakerRules{
		calls: b.MinCalls, bad: b.MinBad, share: b.BadPercent * 10, window: b.WindowSeconds * second,
		open: b.OpenSeconds * second, maxOpen: b.MaxOpenSeconds * second, probe: b.ProbeMs * int64(time.Millisecond),
	}
}

func (l LeaseRules) inUnits() leaseRules {
	const ms = int64(time.Millisecond)
	return leaseRules{tick: l.TickMs * ms, period: l.PeriodMs * ms, slots: l.SlotsTTLMs * ms, down: l.DownMs * ms}
}

// Policies holds the current snapshot. All methods are safe for concurrent use.
type Policies struct {
	clock   func() time.Time
	current atomic.Pointer[Snapshot]
	swap    sync.Mutex // orders Apply
}

// NewPolicies makes a holder whose first snapshot is of a valid policy.
func NewPolicies(clock func() time.Time, version uint64, p *Policy) (*Policies, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	h := &Policies{clock: clock}
	h.current.Store(h.snapshot(version, p))
	return h, nil
}

func (h *Policies) snapshot(version uint64, p *Policy) *Snapshot {
	s := NewSnapshot(version, p)
	s.since = h.clock()
	return s
}

// Current returns the snapshot that holds now.
func (h *Policies) Current() *Snapshot { return h.current.Load() }

// Apply makes a document the current policy. A document that is not valid or
// not newer changes nothing.
func (h *Policies) Apply(version uint64, document []byte) error {
	p, err := ParsePolicy(document)
	if err != nil {
		return err
	}
	h.swap.Lock()
	defer h.swap.Unlock()
	if was := h.Current().Version; version <= was {
		return mistake("", "version %d is not newer than %d, which holds", version, was)
	}
	h.current.Store(h.snapshot(version, p))
	return nil
}

// Change is a field in which two policies differ. The values are JSON, "" where
// a policy has no such field.
type Change struct {
	Path     string
	From, To string
}

// Diff lists in what b differs from a, ordered by path.
func Diff(a, b *Policy) ([]Change, error) {
	from, err := a.flat()
	if err != nil {
		return nil, err
	}
	to, err := b.flat()
	if err != nil {
		return nil, err
	}
	paths := maps.Clone(from)
	maps.Copy(paths, to)
	var changes []Change
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		if from[path] != to[path] {
			changes = append(changes, Change{path, from[path], to[path]})
		}
	}
	return changes, nil
}

// flat returns the numbers and names of the document by path, as they are
// written in it.
func (p *Policy) flat() (map[string]string, error) {
	document, err := p.Document()
	if err != nil {
		return nil, fmt.Errorf("encode the policy: %w", err)
	}
	leaves := make(map[string]string)
	d := jsontext.NewDecoder(bytes.NewReader(document))
	for {
		token, err := d.ReadToken()
		if err == io.EOF {
			return leaves, nil
		}
		if err != nil {
			return nil, fmt.Errorf("decode the policy: %w", err)
		}
		within, length := d.StackIndex(d.StackDepth())
		isName := within == '{' && length%2 == 1
		if kind := token.Kind(); !isName && !strings.ContainsRune("{}[]", rune(kind)) {
			leaves[dotted(d.StackPointer())] = token.String()
		}
	}
}
