package quota

import (
	"slices"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// CostInterval is how often the cost breakers have to be looked at: stages are
// entered and left at looks only.
const CostInterval = time.Second

// CostEvent tells that a stage has changed, or that an incident is over.
type CostEvent struct {
	Tenant uuid.UUID
	Began  time.Time // of the incident
	// Change is what has changed; of an incident that is over it is zero.
	Change kms.CostChange
	// Predicted is what is expected if the use goes on, and Exhausted when
	// nothing would be left of the day or month.
	Predicted kms.CostPrediction
	Exhausted time.Time
	// Incident is that which is over; nil: it is not.
	Incident *kms.CostIncident
}

// bulky tells whether a request is what the first stage refuses.
func bulky(r *Request) bool { return r.Urgency == kms.UrgencyBulk || r.Batch }

// costStops tells whether the breaker refuses an operation at all. What looks
// after a tenant goes on: quota, credentials and audit, and what disables and
// destroys keys and secrets, or the breaker would keep people from its own
// cause.
func costStops(op kms.Op) bool {
	info := op.Info()
	if info == nil || info.Family != "key" && info.Family != "secret" {
		return false
	}
	switch info.Class {
	case kms.ClassManage, kms.ClassDestroy, kms.ClassReport:
		return false
	}
	return true
}

// allowanceOf is what the rest of a tenant's day and month allows. With a
// Backing it is what was left as this node was told last, without what other
// nodes hold.
func (t *tenant) allowanceOf(now instant) allowance {
	a := allowance{factor: t.limits.costFactor}
	day, month := t.left()
	packs := t.packsRoom(now.wall)
	a.allow(0, addCapped(day, packs), t.dayEnd().Sub(now.wall))
	a.allow(1, addCapped(month, packs), t.monthEnd().Sub(now.wall))
	return a
}

func (t *tenant) left() (day, month int64) {
	if t.lease == nil {
		_, day = t.elastic.room(t.limits.days)
		return day, max(t.limits.month-t.month.used, 0)
	}
	whole := addCapped(t.limits.days.total, t.limits.days.pool)
	return t.lease.day.rest(whole), t.lease.month.rest(t.limits.month)
}

// rest is what a total still has, as far as this node knows.
func (l *totalLease) rest(limit int64) int64 {
	if !l.known {
		return max(limit-l.used, 0)
	}
	return addCapped(max(l.left, 0), max(l.room, 0))
}

// costScale is the use of all nodes ÷ that of this one, in thousandths.
func (t *tenant) costScale(own, now int64) int64 {
	if t.share == nil || own == 0 {
		return permille
	}
	scale, _ := mulDiv(t.share.spent.sum(now), permille, own)
	return max(scale, permille)
}

// spentOf notes by how much less is left of a day than was told before: what
// all nodes have taken.
func (s *tenantShare) spentOf(l *totalLease, now int64) {
	rest := addCapped(max(l.left, 0), max(l.room, 0))
	if s.restOf == l.window {
		if fell := s.rest - rest; fell > 0 {
			s.spent.add(fell, now)
		} else {
			s.spent.giveBack(-fell, now)
		}
	}
	s.rest, s.restOf = rest, l.window
}

// peekCost asks the cost breaker.
func (h *hold) peekCost(f *refusal, r *Request) {
	c := h.tenant.cost
	if c == nil || h.tenant.limits.costFactor == 0 {
		return
	}
	h.cost, h.costPart = c, c.part(r.Principal.Component)
	stage := c.stageOf(h.costPart)
	if c.lifted || stage == costCalm || !costStops(r.Op) {
		return
	}
	code := ReasonCostStopped
	if stage < costStopped {
		if code = ReasonCostBulk; !bulky(r) {
			return
		}
	}
	rules := &h.snapshot.cost
	wait := c.opensIn(h.costPart, h.tenant.minute, h.now.ns, &c.allowed, rules)
	f.costOnly = f.reasons == nil
	f.refuse(code, c.allowed.most(rules.line), int64(h.reservation.Cost), 0, wait)
}

// refusedCost counts as demand what the breaker alone refuses: a loop that goes
// on all the same does not close it.
func (h *hold) refusedCost(r *Request) {
	cost, now := int64(h.reservation.Cost), h.now.ns
	h.tenant.minute.add(cost, now)
	h.costPart.use.add(cost, now)
	h.cost.story.note(h, r, h.costPart.component, true)
}

// countCost counts an admitted request, and begins to watch its tenant closely
// when its risk is above the line.
func (s *engineShard) countCost(h *hold, r *Request) {
	t := h.tenant
	if t.limits.costFactor == 0 {
		return
	}
	cost, now := int64(h.reservation.Cost), h.now.ns
	if t.minute == nil {
		t.minute = new(minuteUse)
	}
	t.minute.add(cost, now)
	if c := h.cost; c != nil {
		h.costPart.use.add(cost, now)
		h.costPart.used = addCapped(h.costPart.used, cost)
		c.whole.used = addCapped(c.whole.used, cost)
		c.story.note(h, r, h.costPart.component, false)
		if c.stageOf(h.costPart) >= costMarked {
			h.reservation.Exhausted = h.now.wall.Add(c.allowed.exhausted(c.scaled(t.minute.sum(now))))
		}
		return
	}
	if now-t.costLooked < int64(CostInterval) {
		return
	}
	t.costLooked = now
	own := t.minute.sum(now)
	scale := t.costScale(own, now)
	use, _ := mulDiv(own, scale, permille)
	if a := t.allowanceOf(h.now); a.risk(use) > h.snapshot.cost.line {
		t.cost = newCostState(h.now)
		t.cost.allowed, t.cost.scale = a, scale
		t.cost.story.planned, t.cost.story.early = a.perMinute, t.retries.early
		s.costly[t] = struct{}{}
	}
}

// giveBackCost undoes a part of what was counted of a request.
func (h *hold) giveBackCost(back int64) {
	t := h.tenant
	if back == 0 || t.limits.costFactor == 0 {
		return
	}
	t.minute.giveBack(back, h.now.ns)
	if c := h.cost; c != nil && c == t.cost {
		h.costPart.use.giveBack(back, h.now.ns)
		h.costPart.used = max(h.costPart.used-back, 0)
		c.whole.used = max(c.whole.used-back, 0)
		c.story.giveBack(back, h.now.ns)
	}
}

// WatchCosts takes the cost breakers on and returns what has happened. It costs
// what there are of tenants whose risk is above the line, or was. To be called
// every CostInterval.
func (e *Engine) WatchCosts() (list []CostEvent) {
	for i := range e.shards {
		list = e.watchCosts(&e.shards[i], list)
	}
	return list
}

func (e *Engine) watchCosts(s *engineShard, list []CostEvent) []CostEvent {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := e.nowLocked(s)
	for t := range s.costly {
		e.advance(t, now)
		var over bool
		if list, over = t.watchCost(list, now); over {
			delete(s.costly, t)
			t.cost = nil
		}
	}
	return list
}

// watchCost takes a tenant's breaker on, and tells whether there is nothing left
// to watch.
func (t *tenant) watchCost(list []CostEvent, now instant) ([]CostEvent, bool) {
	c, rules := t.cost, &t.snapshot.cost
	own := t.minute.sum(now.ns)
	if c.highest() < costStopped { // what is refused is nothing that other nodes hear of
		c.scale = t.costScale(own, now.ns)
	}
	c.allowed = t.allowanceOf(now)
	risk := c.allowed.risk(c.scaled(own))
	for _, step := range c.look(own, now.ns, &c.allowed, rules) {
		c.staged = true
		list = append(list, c.tell(t, step, now))
	}
	c.story.seen(risk, c.highest(), now)
	if !c.over() {
		return list, false
	}
	if !c.staged { // it did not last
		return list, true
	}
	incident := c.story.incident(t, now)
	incident.Lifted = c.lifted
	return append(list, CostEvent{Tenant: t.id, Began: c.story.began.wall, Incident: incident}), true
}

// tell makes the event of a change and notes it in the story.
func (c *costState) tell(t *tenant, step costStep, now instant) CostEvent {
	p, rules := step.part, &t.snapshot.cost
	if step.to == costNoBulk {
		after := p.machine.stopsIn(now.ns, rules)
		more, _ := mulDiv(step.use, after, minute)
		own, _ := mulDiv(more, permille, c.scale) // this node's part
		p.stopAt, p.predicted = now.ns+after, kms.Credits(addCapped(p.used, own))
		if c.story.predicted.StopsAt.IsZero() {
			c.story.predicted = kms.CostPrediction{StopsAt: now.wall.Add(time.Duration(after)), Credits: p.predicted}
		}
	}
	change := kms.CostChange{At: now.wall, Component: p.component, Whole: p == &c.whole,
		From: kms.CostStage(step.from), To: kms.CostStage(step.to), Risk: int(c.allowed.risk(step.use)), PerMinute: kms.Credits(step.use)}
	c.story.changed(change)
	return CostEvent{Tenant: t.id, Began: c.story.began.wall, Change: change, Predicted: p.prediction(now),
		Exhausted: now.wall.Add(c.allowed.exhausted(c.scaled(t.minute.sum(now.ns))))}
}

// prediction is what the first stage said of a part.
func (p *costPart) prediction(now instant) kms.CostPrediction {
	return kms.CostPrediction{StopsAt: now.wall.Add(time.Duration(p.stopAt - now.ns)), Credits: p.predicted}
}

// highest is the highest stage of all.
func (c *costState) highest() int {
	stage := c.whole.machine.stage
	for _, p := range c.parts {
		stage = max(stage, p.machine.stage)
	}
	return stage
}

// CostOpen is an incident under way.
type CostOpen struct {
	Tenant uuid.UUID
	Began  time.Time
}

// OpenCosts returns the incidents in which a stage was entered and that were
// not lifted.
func (e *Engine) OpenCosts() (list []CostOpen) {
	for i := range e.shards {
		s := &e.shards[i]
		s.mu.Lock()
		for t := range s.costly {
			if c := t.cost; c.staged && !c.lifted {
				list = append(list, CostOpen{t.id, c.story.began.wall})
			}
		}
		s.mu.Unlock()
	}
	return list
}

// LiftCost ends the effects of a tenant's incident, if one is under way that
// began before a moment; it goes on marking answers until it is over.
func (e *Engine) LiftCost(id uuid.UUID, at time.Time) bool {
	s := e.shardOf(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tenants[id]
	if t == nil || t.cost == nil || !t.cost.staged || t.cost.story.began.wall.After(at) {
		return false
	}
	t.cost.lift()
	return true
}

// CostStages counts the tenants by the stage that holds for them or for one of
// their components.
func (e *Engine) CostStages() (counts [costStopped + 1]int) {
	for i := range e.shards {
		s := &e.shards[i]
		s.mu.Lock()
		for t := range s.costly {
			counts[t.cost.highest()]++
		}
		s.mu.Unlock()
	}
	return counts
}

// costBreaker is the account of a tenant's breaker.
func (t *tenant) costBreaker(now instant) kms.CostBreaker {
	rules := &t.snapshot.cost
	a := t.allowanceOf(now)
	own := t.minute.sum(now.ns)
	use, _ := mulDiv(own, t.costScale(own, now.ns), permille)
	b := kms.CostBreaker{Factor: int(a.factor), Line: int(rules.line), Recover: int(rules.recover),
		Risk: int(a.risk(use)), PerMinute: kms.Credits(use), Allowed: kms.Credits(a.perMinute)}
	c := t.cost
	if c == nil {
		return b
	}
	b.Lifted, b.Exhausted = c.lifted, now.wall.Add(a.exhausted(use))
	for _, p := range slices.Concat([]*costPart{&c.whole}, c.parts) {
		if p.machine.stage == costCalm {
			continue
		}
		own := c.partUse(p, now.ns)
		if p == &c.whole {
			own = use
		}
		said := p.prediction(now)
		b.Stages = append(b.Stages, kms.CostStaged{Component: p.component, Whole: p == &c.whole, Stage: kms.CostStage(p.machine.stage),
			Risk: int(a.risk(own)), PerMinute: kms.Credits(own), StopsAt: said.StopsAt, StopCredits: said.Credits})
	}
	return b
}
