package quota

import (
	"time"

	"github.com/sluice-kms/sluice/kms"
)

// The cost breaker stops a tenant, or one of its components, that is about to
// use up its day or month:
//
//	risk = use of the last minute ÷ what the rest of the period allows a minute × factor
//
// The larger risk of day and month counts. Above the line for a stage's time
// it refuses bulk work, after as long again it marks answers, and after as long
// again it refuses everything. Below the lower line for the time of recovery it
// lets everything through again. What is below is pure: it knows the time from
// its arguments.

// costSpan is what use is counted in, and costSpans how many spans are kept:
// those of a minute and the one that is leaving it.
const (
	costSpan  = 10 * second
	costSpans = 7
	minute    = 60 * second
)

// never stands for a moment that has not come.
const never = -1

// minuteUse is the use of the last minute.
type minuteUse struct {
	span int64 // number of the newest span
	used [costSpans]int64
}

func (m *minuteUse) turn(now int64) {
	span := now / costSpan
	if span-m.span >= costSpans {
		m.used = [costSpans]int64{}
	} else {
		for s := m.span + 1; s <= span; s++ {
			m.used[s%costSpans] = 0
		}
	}
	m.span = max(m.span, span)
}

// add counts a use.
func (m *minuteUse) add(n, now int64) {
	m.turn(now)
	i := m.span % costSpans
	m.used[i] = addCapped(m.used[i], n)
}

// giveBack undoes a part of what was counted in the last minute, the newest
// first.
func (m *minuteUse) giveBack(n, now int64) {
	if m == nil {
		return
	}
	m.turn(now)
	for s := m.span; n > 0 && s > m.span-costSpans && s >= 0; s-- {
		back := min(n, m.used[s%costSpans])
		m.used[s%costSpans] -= back
		n -= back
	}
}

// inside is what of a span's use is in the minute that ends now. Of the span
// that is leaving it the part counts that is still inside, as if its use had
// been even.
func (m *minuteUse) inside(span, now int64) int64 {
	n := m.used[span%costSpans]
	if span > m.span-costSpans+1 {
		return n
	}
	part, _ := mulDiv(n, costSpan-max(now-m.span*costSpan, 0)%costSpan, costSpan)
	return part
}

// first is the oldest span that can be inside the minute.
func (m *minuteUse) first() int64 { return max(m.span-costSpans+1, 0) }

// sum returns the use of the minute that ends now; nil is no use.
func (m *minuteUse) sum(now int64) (sum int64) {
	if m == nil {
		return 0
	}
	m.turn(now)
	for s := m.first(); s <= m.span; s++ {
		sum = addCapped(sum, m.inside(s, now))
	}
	return sum
}

// under returns when, without further use, the sum will be no more than a
// limit.
func (m *minuteUse) under(limit, now int64) int64 {
	at, sum := now, m.sum(now)
	for s := m.first(); s <= m.span && sum > limit; s++ {
		sum -= m.inside(s, now)
		at = max(at, (s+1)*costSpan+minute) // all of it has left
	}
	return at
}

// costRules are the breaker's lines and times.
type costRules struct {
	line    int64 // risk in thousandths: above it a stage is on its way
	recover int64 // thousandths: below it the end of an incident is
	stage   int64 // ns above the line before each stage
	calm    int64 // ns below the lower line
}

func (c CostBreakerRules) inUnits() costRules {
	return costRules{line: c.RiskPercent * 10, recover: c.RecoverPercent * 10, stage: c.WindowSeconds * second, calm: c.RecoverySeconds * second}
}

// The stages. Each has the effects of those before it.
const (
	costCalm   = iota
	costNoBulk // bulk work is refused
	costMarked // answers say when the quota will be used up
	costStopped
)

// allowance is what the rest of a day and a month allows.
type allowance struct {
	perMinute int64    // micro-credits; the smaller one of both
	left      [2]int64 // of day and month
	factor    int64    // thousandths
}

// allow adds a period: 0 is the day, 1 the month.
func (a *allowance) allow(period int, left int64, remaining time.Duration) {
	a.left[period] = left
	perMinute, _ := mulDiv(left, minute, max(int64(remaining), int64(time.Second)))
	if period == 0 || perMinute < a.perMinute {
		a.perMinute = perMinute
	}
}

// risk is that of a minute's use, in thousandths.
func (a *allowance) risk(use int64) int64 {
	risk, _ := mulDiv(use, a.factor, max(a.perMinute, 1))
	return risk
}

// most is the largest use of a minute with no more than a risk.
func (a *allowance) most(risk int64) int64 {
	use, _ := mulDiv(max(a.perMinute, 1), risk, max(a.factor, 1))
	return use
}

// exhausted is after how long all is used at a minute's use.
func (a *allowance) exhausted(use int64) time.Duration {
	if use <= 0 {
		return 0
	}
	after, _ := mulDiv(min(a.left[0], a.left[1]), minute, use)
	return time.Duration(after)
}

// costMachine is the stage of a component, or of the tenant without those that
// have one of their own.
type costMachine struct {
	stage int
	since int64 // ns: from when it was above the line without a break, or when the stage began
	calm  int64 // ns: from when it was below the lower line without a break
}

func newCostMachine() costMachine { return costMachine{since: never, calm: never} }

// enter begins the next stage.
func (m *costMachine) enter(now int64) {
	m.stage, m.since, m.calm = m.stage+1, now, never
}

// step takes the machine on by what its risk is. It enters no stage beyond most.
func (m *costMachine) step(now int64, above, below bool, most int, r *costRules) {
	switch {
	case !above:
		m.since = never
	case m.since == never:
		m.since = now
	case m.stage < most && now-m.since >= r.stage:
		m.enter(now)
	}
	switch {
	case !below:
		m.calm = never
	case m.calm == never:
		m.calm = now
	case now-m.calm >= r.calm:
		*m = newCostMachine()
	}
}

// stopsIn is after how long everything will be refused if the use goes on.
func (m *costMachine) stopsIn(now int64, r *costRules) int64 {
	if m.stage >= costStopped {
		return 0
	}
	return max(int64(costStopped-m.stage)*r.stage-(now-max(m.since, 0)), 0)
}

// costParts is how many components of a tenant are told apart; the rest are
// one.
const costParts = 16

// otherComponents is the name of that one. A component that has this name
// counts with it.
const otherComponents = "(others)"

// costPart is a component in an incident.
type costPart struct {
	component string
	use       minuteUse
	machine   costMachine
	stopAt    int64       // ns: when it will stop, as was said at the first stage
	predicted kms.Credits // that it will have used of the incident by then
	used      int64       // admitted since the incident began
}

// costState is a tenant's minute while its risk is above the line, and until it
// has recovered. Tenants whose use is normal have none.
type costState struct {
	began  int64 // ns
	above  int64 // ns: from when the rest was above the line without a break
	whole  costPart
	parts  []*costPart
	lifted bool
	staged bool  // a stage was entered
	scale  int64 // thousandths: use of all nodes ÷ use of this one
	known  int64 // thousandths: use ÷ what of it components are known to have used
	// allowed is what it was at the last look.
	allowed allowance
	story   costStory
}

func newCostState(now instant) *costState {
	c := &costState{began: now.ns, above: never, scale: permille, known: permille, whole: costPart{machine: newCostMachine()}}
	c.story.began = now
	return c
}

// part finds the part of a component, or makes it.
func (c *costState) part(component string) *costPart {
	for _, p := range c.parts {
		if p.component == component {
			return p
		}
	}
	if len(c.parts) == costParts {
		c.parts = append(c.parts, &costPart{component: otherComponents, machine: newCostMachine()})
	}
	if len(c.parts) > costParts {
		return c.parts[costParts]
	}
	p := &costPart{component: component, machine: newCostMachine()}
	c.parts = append(c.parts, p)
	return p
}

// stageOf is the stage that holds for a component.
func (c *costState) stageOf(p *costPart) int { return max(c.whole.machine.stage, p.machine.stage) }

// mostStage is the last stage that may be entered: an incident whose stop was
// lifted goes on marking answers.
func (c *costState) mostStage() int {
	if c.lifted {
		return costMarked
	}
	return costStopped
}

// costStep is a change of a stage.
type costStep struct {
	part     *costPart
	from, to int
	use      int64 // of its minute
}

// look takes all machines on by the use of the minute that ends now, and
// returns what has changed.
func (c *costState) look(use, now int64, a *allowance, r *costRules) (steps []costStep) {
	rest := c.scaled(use)
	c.attribute(use, now)
	for _, p := range c.parts {
		if p.machine.stage > costCalm {
			rest = max(rest-c.partUse(p, now), 0)
		}
	}
	for _, p := range c.parts {
		if p.machine.stage > costCalm {
			own := c.partUse(p, now)
			steps = c.step(steps, p, own, now, a.risk(addCapped(rest, own)) > r.line, a.risk(own) < r.recover, r)
		}
	}
	above := a.risk(rest) > r.line
	if c.whole.machine.stage > costCalm {
		return c.step(steps, &c.whole, rest, now, above, a.risk(rest) < r.recover, r)
	}
	switch {
	case !above:
		c.above = never
	case c.above == never:
		c.above = now
	case now-c.above >= r.stage:
		c.above = never
		p, own := c.culprit(rest, now, a, r)
		p.machine.enter(now)
		steps = append(steps, costStep{p, costCalm, costNoBulk, own})
	}
	return steps
}

func (c *costState) step(steps []costStep, p *costPart, use, now int64, above, below bool, r *costRules) []costStep {
	from := p.machine.stage
	p.machine.step(now, above, below, c.mostStage(), r)
	if to := p.machine.stage; to != from {
		steps = append(steps, costStep{p, from, to, use})
	}
	return steps
}

// culprit returns the component without which the rest would be at the line or
// below it, and the use of its minute; the whole tenant when no single one is
// to blame.
func (c *costState) culprit(rest, now int64, a *allowance, r *costRules) (*costPart, int64) {
	var most *costPart
	var use int64
	for _, p := range c.parts {
		if own := c.partUse(p, now); p.machine.stage == costCalm && own > use {
			most, use = p, own
		}
	}
	if most != nil && a.risk(max(rest-use, 0)) <= r.line && a.risk(use) > r.recover {
		return most, use
	}
	return &c.whole, rest
}

// attribute spreads what was used in the minute before the incident began over
// the components that are known since.
func (c *costState) attribute(use, now int64) {
	var known int64
	for _, p := range c.parts {
		known = addCapped(known, p.use.sum(now))
	}
	c.known = permille
	if 0 < known && known < use {
		c.known, _ = mulDiv(use, permille, known)
	}
}

// partUse is the use of a part's minute, on all nodes.
func (c *costState) partUse(p *costPart, now int64) int64 {
	n, _ := mulDiv(c.scaled(p.use.sum(now)), c.known, permille)
	return n
}

// scaled makes of this node's use that of all.
func (c *costState) scaled(use int64) int64 {
	n, _ := mulDiv(use, c.scale, permille)
	return n
}

// over tells that nothing of the incident is left.
func (c *costState) over() bool {
	if c.above != never || c.whole.machine.stage > costCalm {
		return false
	}
	for _, p := range c.parts {
		if p.machine.stage > costCalm {
			return false
		}
	}
	return true
}

// lift ends the effects of the stages, to the end of the incident.
func (c *costState) lift() {
	c.lifted = true
	c.whole.machine.stage = min(c.whole.machine.stage, costMarked)
	for _, p := range c.parts {
		p.machine.stage = min(p.machine.stage, costMarked)
	}
}

// opensIn is after how long a component is let through again if nothing is sent
// until then: by the component, or by the tenant whose minute all is.
func (c *costState) opensIn(p *costPart, all *minuteUse, now int64, a *allowance, r *costRules) time.Duration {
	m, use := &p.machine, &p.use
	if c.whole.machine.stage >= m.stage {
		m, use = &c.whole.machine, all
	}
	calm := m.calm
	if calm == never {
		limit, _ := mulDiv(a.most(r.recover), permille, c.scale)
		calm = use.under(limit-1, now) + int64(CostInterval) // until it is seen
	}
	return time.Duration(max(calm+r.calm-now, 0)) + CostInterval
}
