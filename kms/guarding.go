package kms

import (
	"context"
	"log/slog"
	"sync"
	"time"
	"uuid"
)

// The codes of what a flag leads to.
const (
	ReasonThrottled    = "ABUSE_THROTTLED"
	ReasonSecondFactor = "ABUSE_SECOND_FACTOR"
	ReasonFactorWrong  = "ABUSE_FACTOR_WRONG"
	ReasonFactorTries  = "ABUSE_FACTOR_TRIES"
	ReasonSuspended    = "ABUSE_SUSPENDED"
)

const (
	// factorTries is how many wrong one-time codes of a credential are tried in
	// factorWindow by an API node: of a million codes, three of which are right
	// at a time, 480 a day give one chance in 700 a day.
	factorTries  = 5
	factorWindow = 15 * time.Minute

	// maxGuarded bounds the flagged credentials whose throttles, tries and
	// proofs an API node remembers; with more it begins anew.
	maxGuarded = 10_000
)

// guardBook is what an API node remembers of flagged credentials. It is safe
// for concurrent use; requests of credentials without a flag do not come to it.
type guardBook struct {
	mu  sync.Mutex // guards the rest
	all map[uuid.UUID]*guarded
}

type guarded struct {
	left   Credits // of the throttle
	at     time.Time
	tries  int
	since  time.Time // of the first of tries
	proven time.Time // until when, by this node
	flag   time.Time // that proven is about
}

func (b *guardBook) ofLocked(id uuid.UUID) *guarded {
	g := b.all[id]
	if g == nil {
		if b.all == nil || len(b.all) >= maxGuarded {
			b.all = make(map[uuid.UUID]*guarded)
		}
		g = new(guarded)
		b.all[id] = g
	}
	return g
}

// wait returns for how long a throttled credential has to wait; 0: it may go on
// and pays with charge. It holds a second's credits at most.
func (b *guardBook) wait(id uuid.UUID, perSecond Credits, now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	g := b.ofLocked(id)
	switch passed := now.Sub(g.at); {
	case g.at.IsZero() || passed >= time.Hour:
		g.left, g.at = perSecond, now
	case passed > 0:
		g.left = min(perSecond, g.left+Credits(float64(perSecond)*passed.Seconds()))
		g.at = now
	}
	if g.left > 0 {
		return 0
	}
	return max(time.Duration(float64(1-g.left)/float64(perSecond)*float64(time.Second)), time.Millisecond)
}

func (b *guardBook) charge(id uuid.UUID, cost Credits) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ofLocked(id).left -= cost
}

// mayTry counts a try of a one-time code; false when there were too many, with
// the time until the next one.
func (b *guardBook) mayTry(id uuid.UUID, now time.Time) (ok bool, wait time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	g := b.ofLocked(id)
	if g.since.IsZero() || now.Sub(g.since) >= factorWindow {
		g.tries, g.since = 0, now
	}
	if g.tries >= factorTries {
		return false, g.since.Add(factorWindow).Sub(now)
	}
	g.tries++
	return true, 0
}

func (b *guardBook) prove(id uuid.UUID, flag, until time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	g := b.ofLocked(id)
	g.tries, g.proven, g.flag = 0, until, flag
}

func (b *guardBook) proven(id uuid.UUID, flag, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	g := b.all[id]
	return g != nil && g.flag.Equal(flag) && now.Before(g.proven)
}

// throttled tells whether the caller is a throttled credential.
func (p *Principal) throttled(now time.Time) bool {
	return p.Guard != nil && p.Guard.Action == AbuseThrottle && p.Guard.Open(now)
}

// rulesOfAbuse are the policy's for a tenant.
func (s *Service) rulesOfAbuse(tenant *Tenant) AbuseRules {
	if s.abuseRules == nil {
		return AbuseRules{Action: AbuseAlert}
	}
	return s.abuseRules(tenant)
}

// checkGuard refuses what a flagged credential may not do now.
func (s *Service) checkGuard(ctx context.Context, t *Ticket) error {
	g := t.By.Guard
	if g == nil {
		return nil
	}
	now := s.clock()
	if !g.Open(now) {
		return nil
	}
	switch g.Action {
	case AbuseThrottle:
		wait := s.guards.wait(t.By.Credential, s.rulesOfAbuse(t.By.Tenant).Throttled, now)
		if wait == 0 {
			return nil
		}
		reasons := g.reasons(ReasonThrottled)
		reasons[0].RetryIn = wait
		return &Error{Kind: KindQuotaExceeded, Detail: "the credential was used in an unusual way and gets a part of the rate only",
			Reasons: reasons, RetryAfter: wait}
	case AbuseSecondFactor:
		return s.secondFactor(ctx, t, g, now)
	case AbuseSuspend:
		return &Error{Kind: KindCredentialSuspended,
			Detail: "the credential was used in an unusual way and is suspended; an administrator of the tenant can clear it", Reasons: g.reasons(ReasonSuspended)}
	}
	return nil
}

// secondFactor lets a request pass whose credential was proven by a second
// factor, or is by one that the request carries.
func (s *Service) secondFactor(ctx context.Context, t *Ticket, g *Guard, now time.Time) error {
	id := t.By.Credential
	if now.Before(g.Proven) && g.Proven.After(g.Flagged) || s.guards.proven(id, g.Flagged, now) {
		return nil
	}
	refuse := func(code, detail string) *Error {
		return &Error{Kind: KindSecondFactor, Detail: detail, Reasons: g.reasons(code)}
	}
	if t.Second == nil && t.OneTimeCode == "" {
		return refuse(ReasonSecondFactor, "the credential was used in an unusual way: send another credential of the tenant as Sluice-Second-Credential, "+
			"or a code as Sluice-One-Time-Code where one is enrolled")
	}
	if t.Second == nil { // nobody guesses a credential
		if ok, wait := s.guards.mayTry(id, now); !ok {
			err := refuse(ReasonFactorTries, "too many one-time codes were wrong")
			err.Reasons[0].RetryIn = wait
			return err
		}
	}
	step, right := s.factorOf(ctx, t, g, now)
	if !right {
		return refuse(ReasonFactorWrong, "the second factor is not right")
	}
	return s.proveCredential(ctx, t, g, step)
}

// factorOf tells whether the request carries a right second factor, and the
// step of its code, 0 of a credential.
func (s *Service) factorOf(ctx context.Context, t *Ticket, g *Guard, now time.Time) (step uint64, right bool) {
	if t.Second != nil {
		by, err := t.Second(ctx)
		return 0, err == nil && by.Tenant.ID == t.By.Tenant.ID && by.Credential != t.By.Credential && !by.Guard.Open(now)
	}
	if g.Code == nil || !validOneTimeCode(t.OneTimeCode) {
		return 0, false
	}
	key, err := s.device.Unseal(ctx, t.By.Tenant.Sealing, OneTimeKeyName(t.By.Credential), g.Code.Version, g.Code.Sealed)
	if err != nil {
		s.log.LogAttrs(ctx, slog.LevelError, "opening the key of one-time codes", slog.String("credential", t.By.Credential.String()), slog.Any("error", err))
		return 0, false
	}
	defer clear(key)
	step = oneTimeStep(key, t.OneTimeCode, now, g.Code.Step)
	return step, step > 0
}

// proveCredential stores, as a change with an entry of its own, that the credential was
// proven. Of two requests with the same code one is refused: the revision lets
// one of them store it.
func (s *Service) proveCredential(ctx context.Context, of *Ticket, g *Guard, step uint64) error {
	until := s.clock().Add(s.rulesOfAbuse(of.By.Tenant).Proven)
	_, err := s.changeGuard(ctx, of.following(s.clock()), &guardChange{op: OpProveCredential, allowed: anyone, id: of.By.Credential.String(), plan: func(_ *Credential, now *Guard) error {
		if !now.Flagged.Equal(g.Flagged) || step > 0 && (now.Code == nil || step <= now.Code.Step) {
			return Errorf(KindSecondFactor, "the second factor is not right")
		}
		now.Proven = until
		if step > 0 {
			code := *now.Code
			code.Step = step
			now.Code = &code
		}
		return nil
	}})
	switch {
	case err == nil:
		s.guards.prove(of.By.Credential, g.Flagged, until)
	case step == 0 && KindOf(err) == KindConflict:
		return nil // another request stores it now, and a credential is good more than once
	}
	return err
}

// guardChange is a change of what is known against a credential.
type guardChange struct {
	op      Op
	allowed func(*Ticket) bool
	ref, id string // of the tenant and the credential
	free    bool   // see task
	// plan changes the copy that it gets, before anything is spent.
	plan func(*Credential, *Guard) error
	// seal completes it with what takes a device; nil: nothing.
	seal func(context.Context, *Credential, *Guard) error
}

func (s *Service) changeGuard(ctx context.Context, t *Ticket, change *guardChange) (c *Credential, err error) {
	guard := new(Guard)
	err = s.run(ctx, t, &task{op: change.op, allowed: change.allowed, free: change.free,
		prepare: func(t *Ticket) (err error) {
			if c, err = s.credential(ctx, t, change.ref, change.id); err != nil {
				return err
			}
			if c.Guard != nil {
				*guard = *c.Guard
			}
			return change.plan(c, guard)
		},
		store: func(ctx context.Context, t *Ticket) (err error) {
			if change.seal != nil {
				if err := change.seal(ctx, c, guard); err != nil {
					return err
				}
			}
			c, err = s.credentials.UpdateCredential(ctx, c.Tenant, c.ID, c.Revision, CredentialChange{Guard: guard})
			return concurrently(err)
		}})
	if err != nil {
		return nil, err
	}
	return c, nil
}

// FlagCredential notes that a credential is suspicious, acts by the policy, and
// tells people. Nothing but an alert follows when learnt is false, as it is not
// known what is usual, nor to operators, whom nobody could clear. KindConflict when a
// flag is open already.
func (s *Service) FlagCredential(ctx context.Context, tenantID, id uuid.UUID, readings []AbuseReading, learnt bool) error {
	tenant, err := s.tenants.Tenant(ctx, tenantID)
	if err != nil {
		return err
	}
	rules, now := s.rulesOfFlag(tenant, learnt), s.clock()
	t := s.keeperTicket(tenant, DefaultProject)
	for i := range readings {
		t.Reasons = append(t.Reasons, readings[i].Reason())
	}
	flagged, err := s.changeGuard(ctx, t, &guardChange{op: OpKeeperFlag, allowed: always, free: true, id: id.String(), plan: func(c *Credential, g *Guard) error {
		if !c.live(now) {
			return Errorf(KindConflict, "the credential is revoked or expired")
		}
		if g.Open(now) {
			return Errorf(KindConflict, "the credential is flagged already")
		}
		g.flag(rules, now, readings)
		return nil
	}})
	if err != nil {
		return err
	}
	s.events.Publish(Event{Type: EventSuspicious, Tenant: tenantID,
		Once:   string(EventSuspicious) + "/" + id.String() + "/" + now.UTC().Format(time.RFC3339Nano),
		Fields: suspicionFields(id, flagged.Guard)})
	return nil
}

// rulesOfFlag are what follows of a flag: nothing but an alert when learnt is
// false, and of operators.
func (s *Service) rulesOfFlag(tenant *Tenant, learnt bool) AbuseRules {
	rules := s.rulesOfAbuse(tenant)
	if !learnt || tenant.Name == SystemTenantName {
		rules.Action = AbuseAlert
	}
	return rules
}

// flag opens a flag.
func (g *Guard) flag(rules AbuseRules, now time.Time, readings []AbuseReading) {
	// The node that cleared it last may be ahead in time.
	g.Flagged = later(now, g.Cleared.Add(time.Microsecond))
	g.Action, g.Readings, g.Ends, g.Proven = rules.Action, readings, time.Time{}, time.Time{}
	if rules.Action == AbuseAlert && rules.AlertEnds > 0 {
		g.Ends = now.Add(rules.AlertEnds)
	}
}

// later is the later one of two times.
func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// suspicionFields say of a flag what it is about.
func suspicionFields(id uuid.UUID, g *Guard) []EventField {
	signals, text := "", ""
	for i := range g.Readings {
		if i > 0 {
			signals, text = signals+" ", text+"; "
		}
		r := g.Readings[i].Reason()
		what, _ := r.Explain()
		signals, text = signals+string(g.Readings[i].Signal), text+what
	}
	return []EventField{{"credential", id.String()}, {"action", string(g.Action)}, {"signals", signals}, {"text", text}}
}

// ClearCredential ends an open flag of a credential of the tenant that ref names, "" for
// the own: what was unusual is usual from now on. No credential clears itself.
// KindConflict when no flag is open.
func (s *Service) ClearCredential(ctx context.Context, t *Ticket, ref, id string) (c *Credential, err error) {
	return s.changeGuard(ctx, t, &guardChange{op: OpClearCredential, allowed: administers(OpClearCredential, ref), ref: ref, id: id, plan: func(old *Credential, g *Guard) error {
		if old.ID == t.By.Credential {
			return &Error{Kind: KindPermissionDenied, Detail: "a credential cannot clear itself"}
		}
		if !g.Open(s.clock()) {
			return Errorf(KindConflict, "no flag of the credential is open")
		}
		g.Cleared = later(s.clock(), g.Flagged)
		return nil
	}})
}

// EnrolledCode is a new key of one-time codes, shown this once.
type EnrolledCode struct {
	Key string // base32
	URI string // otpauth
}

// EnrolCode gives a credential of the tenant that ref names, "" for the own, a key
// of one-time codes in place of the one that it may have. KindConflict while a
// flag is open: whoever holds the credential then would prove himself with it.
func (s *Service) EnrolCode(ctx context.Context, t *Ticket, ref, id string) (c *Credential, code EnrolledCode, err error) {
	var tenant *Tenant
	change := &guardChange{op: OpEnrolCode, allowed: administers(OpEnrolCode, ref), ref: ref, id: id}
	change.plan = func(old *Credential, g *Guard) (err error) {
		switch {
		case !old.live(s.clock()):
			return Errorf(KindConflict, "the credential is revoked or expired")
		case g.Open(s.clock()):
			return Errorf(KindConflict, "a flag of the credential is open; clear it first")
		}
		tenant, err = s.livingTarget(ctx, t, ref)
		return err
	}
	change.seal = func(ctx context.Context, old *Credential, g *Guard) (err error) {
		key := newOneTimeKey()
		defer clear(key)
		next := &OneTimeKey{Version: 1, Created: s.clock()}
		if g.Code != nil {
			next.Version = g.Code.Version + 1
		}
		if next.Sealed, err = s.device.Seal(ctx, tenant.Sealing, OneTimeKeyName(old.ID), next.Version, key); err != nil {
			return err
		}
		g.Code = next
		code = EnrolledCode{Key: oneTimeKeyText(key), URI: oneTimeURI(key, old.Name)}
		return nil
	}
	if c, err = s.changeGuard(ctx, t, change); err != nil {
		return nil, EnrolledCode{}, err
	}
	return c, code, nil
}
