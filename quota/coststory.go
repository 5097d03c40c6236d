package quota

import (
	"cmp"
	"slices"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// costStory is what is told of an incident: of fixed size, however long it
// lasts and whoever takes part.
type costStory struct {
	began instant

	used, refused       int64 // micro-credits
	calls, refusedCalls int64
	early               uint64 // the tenant's count when it began
	bulk                int64  // micro-credits of bulk work and batches
	peak                int64
	peakAt              time.Time
	planned             int64 // a minute, when it began
	stopped             time.Time
	stoppedUsed         int64
	predicted           kms.CostPrediction

	span    int64 // ns of a point
	points  []kms.CostPoint
	changes []kms.CostChange

	components, operations topUses[string]
	keys, credentials      topUses[uuid.UUID]
}

// Bounds of a story.
const (
	// storyPoints is how many points a timeline has at most: when there would be
	// more, every two become one.
	storyPoints = 120
	// storyChanges bounds the changes of stages; later ones are not told.
	storyChanges = 64
	// storyTop is how many of a kind are told apart.
	storyTop = 16
)

// point returns the point of a moment.
func (s *costStory) point(now int64) *kms.CostPoint {
	if s.span == 0 {
		s.span = minute
	}
	i := int(max(now-s.began.ns, 0) / s.span)
	for i >= storyPoints {
		s.halve()
		i = int(max(now-s.began.ns, 0) / s.span)
	}
	for len(s.points) <= i {
		s.points = append(s.points, kms.CostPoint{})
	}
	return &s.points[i]
}

// halve makes one point of every two.
func (s *costStory) halve() {
	s.span *= 2
	for i := range len(s.points) {
		if i%2 == 0 {
			s.points[i/2] = s.points[i]
			continue
		}
		to, from := &s.points[i/2], &s.points[i]
		to.Used, to.Refused, to.Calls = to.Used+from.Used, to.Refused+from.Refused, to.Calls+from.Calls
		to.Risk, to.Stage = max(to.Risk, from.Risk), max(to.Stage, from.Stage)
	}
	s.points = s.points[:(len(s.points)+1)/2]
}

// note counts a request.
func (s *costStory) note(h *hold, r *Request, component string, refused bool) {
	cost := int64(h.reservation.Cost)
	p := s.point(h.now.ns)
	p.Calls++
	if refused {
		s.refused, s.refusedCalls = addCapped(s.refused, cost), s.refusedCalls+1
		p.Refused += h.reservation.Cost
	} else {
		s.used, s.calls = addCapped(s.used, cost), s.calls+1
		p.Used += h.reservation.Cost
	}
	if bulky(r) {
		s.bulk = addCapped(s.bulk, cost)
	}
	s.components.add(component, cost)
	s.operations.add(string(r.Op), cost)
	if r.Key != (uuid.UUID{}) {
		s.keys.add(r.Key, cost)
	}
	if r.Principal.Credential != (uuid.UUID{}) {
		s.credentials.add(r.Principal.Credential, cost)
	}
}

// giveBack undoes a part of what was counted as used.
func (s *costStory) giveBack(n, now int64) {
	s.used = max(s.used-n, 0)
	p := s.point(now)
	p.Used = max(p.Used-kms.Credits(n), 0)
}

// seen notes the risk of a moment and the highest stage.
func (s *costStory) seen(risk int64, stage int, now instant) {
	p := s.point(now.ns)
	p.Risk, p.Stage = max(p.Risk, int(risk)), max(p.Stage, kms.CostStage(stage))
	if risk > s.peak {
		s.peak, s.peakAt = risk, now.wall
	}
}

func (s *costStory) changed(c kms.CostChange) {
	if len(s.changes) < storyChanges {
		s.changes = append(s.changes, c)
	}
	if c.To == kms.CostStopped && s.stopped.IsZero() {
		s.stopped, s.stoppedUsed = c.At, s.used
	}
}

// incident makes the report's model of the story of a tenant.
func (s *costStory) incident(t *tenant, now instant) *kms.CostIncident {
	planned, _ := mulDiv(s.planned, now.ns-s.began.ns, minute)
	i := &kms.CostIncident{
		Tenant: t.id, Began: s.began.wall, Ended: now.wall, Tier: kms.Tiers()[t.limits.tier], PolicyVersion: t.snapshot.Version,
		Factor: int(t.limits.costFactor), Line: int(t.snapshot.cost.line), Recover: int(t.snapshot.cost.recover),
		PeakRisk: int(s.peak), PeakAt: s.peakAt,
		Used: kms.Credits(s.used), Refused: kms.Credits(s.refused), Calls: s.calls, RefusedCalls: s.refusedCalls,
		Planned: kms.Credits(planned), Over: kms.Credits(max(s.used-planned, 0)),
		Stopped: s.stopped, StoppedUsed: kms.Credits(s.stoppedUsed), Predicted: s.predicted,
		SpanSeconds: int(s.span / second), Timeline: s.points, Changes: s.changes,
		Components: shares(&s.components, func(name string) string { return name }),
		Operations: shares(&s.operations, func(name string) string { return name }),
		Keys:       shares(&s.keys, uuid.UUID.String), Credentials: shares(&s.credentials, uuid.UUID.String),
	}
	i.Causes = causes(i, s.bulk, int64(t.retries.early-s.early))
	return i
}

// topUses keeps the names that use most, as the sketches of package watch do:
// one that is new takes the place of the smallest and inherits its use.
type topUses[N comparable] struct{ list []topUse[N] }

type topUse[N comparable] struct {
	name    N
	credits int64
	calls   int64
}

func (t *topUses[N]) add(name N, credits int64) {
	least := 0
	for i := range t.list {
		if u := &t.list[i]; u.name == name {
			u.credits, u.calls = addCapped(u.credits, credits), u.calls+1
			return
		}
		if t.list[i].credits < t.list[least].credits {
			least = i
		}
	}
	if len(t.list) < storyTop {
		t.list = append(t.list, topUse[N]{name, credits, 1})
		return
	}
	u := &t.list[least]
	*u = topUse[N]{name, addCapped(u.credits, credits), u.calls + 1}
}

func shares[N comparable](t *topUses[N], text func(N) string) []kms.CostShare {
	list := make([]kms.CostShare, len(t.list))
	for i, u := range t.list {
		list[i] = kms.CostShare{Name: text(u.name), Credits: kms.Credits(u.credits), Calls: u.calls}
	}
	slices.SortFunc(list, func(a, b kms.CostShare) int {
		return cmp.Or(cmp.Compare(b.Credits, a.Credits), cmp.Compare(a.Name, b.Name))
	})
	return list
}
