package quota

import (
	"iter"
	"maps"
	"strings"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

func (t *tenant) credentialLimits(id uuid.UUID) *scopeLimits {
	if limits := t.limits.credentials[id]; limits != nil {
		return limits
	}
	return &t.limits.anyone
}

func (t *tenant) keyLimits(id uuid.UUID) *scopeLimits {
	if limits := t.limits.keys[id]; limits != nil {
		return limits
	}
	return &t.limits.key
}

// credentialOf finds a tenant's credential, or makes it as one that used
// nothing.
func (e *Engine) credentialOf(s *engineShard, t *tenant, id uuid.UUID, since time.Time, now instant) *scope {
	sc := t.lastCredential
	if sc == nil || sc.id != id {
		sc = s.credentials[id]
	}
	if sc == nil || sc.owner != t {
		sc = &scope{owner: t, kind: credentialScope, id: id, limits: t.credentialLimits(id), rampZero: t.rampSince(since, now)}
		e.begin(t, sc, now.ns)
		s.credentials[id] = sc
		t.scopes++
	}
	t.lastCredential = sc
	return sc
}

// keyOf is credentialOf for a key.
func (e *Engine) keyOf(s *engineShard, t *tenant, id uuid.UUID, now instant) *keyState {
	key := t.lastKey
	if key == nil || key.id != id {
		key = s.keys[id]
	}
	if key == nil || key.owner != t {
		key = &keyState{scope: scope{owner: t, kind: keyScope, id: id, limits: t.keyLimits(id), rampZero: longAgo}}
		e.begin(t, &key.scope, now.ns)
		s.keys[id] = key
		t.scopes++
	}
	t.lastKey = key
	return key
}

// projectsOf finds or makes those of a project's path, from the outermost
// inwards, that have limits, with those.
func (e *Engine) projectsOf(t *tenant, path string, now instant) iter.Seq2[*scope, *scopeLimits] {
	return func(yield func(*scope, *scopeLimits) bool) {
		if len(t.limits.projects) == 0 {
			return
		}
		for end := 0; end < len(path); {
			if next := strings.IndexByte(path[end+1:], '/'); next >= 0 {
				end += 1 + next
			} else {
				end = len(path)
			}
			if sc := e.projectOf(t, path[:end], now); sc != nil && !yield(sc, t.limits.projects[path[:end]]) {
				return
			}
		}
	}
}

// projectOf returns nil for a project without limits of its own.
func (e *Engine) projectOf(t *tenant, name string, now instant) *scope {
	limits := t.limits.projects[name]
	if limits == nil {
		return nil
	}
	sc := t.projects[name]
	if sc == nil {
		sc = &scope{owner: t, kind: projectScope, limits: limits, rampZero: longAgo}
		e.begin(t, sc, now.ns)
		if sc.lease != nil {
			sc.lease.name = projectPrefix + name
		}
		if t.projects == nil {
			t.projects = make(map[string]*scope)
		}
		t.projects[strings.Clone(name)] = sc
	}
	return sc
}

// The names of scopes, in what nodes share and in the ledger, begin so.
const (
	projectPrefix    = "p:"
	credentialPrefix = "c:"
	keyPrefix        = "k:"
)

// dayUses are what scopes inside tenants have used of limits that a day has.
type dayUses struct {
	names map[*scope]string
	used  map[*tenant]map[string]kms.Credits
}

// dayUsesLocked reads them from a shard whose tenants were brought to now.
func (s *engineShard) dayUsesLocked() dayUses {
	u := dayUses{make(map[*scope]string), make(map[*tenant]map[string]kms.Credits)}
	for id, sc := range s.credentials {
		u.note(sc, credentialPrefix, id)
	}
	for id, key := range s.keys {
		u.note(&key.scope, keyPrefix, id)
	}
	for _, t := range s.tenants {
		for name, sc := range t.projects {
			u.add(sc, projectPrefix+name)
		}
	}
	return u
}

func (u *dayUses) note(sc *scope, prefix string, id uuid.UUID) {
	if sc.limits.day > 0 { // few have one
		u.add(sc, prefix+id.String())
	}
}

func (u *dayUses) add(sc *scope, name string) {
	t := sc.owner
	if sc.limits.day == 0 || sc.day.window != t.elastic.day || sc.day.used == 0 {
		return
	}
	u.names[sc] = name
	if u.used[t] == nil {
		u.used[t] = make(map[string]kms.Credits)
	}
	u.used[t][name] = kms.Credits(sc.day.used)
}

// takeBack leaves out what an open reservation holds.
func (u *dayUses) takeBack(h *hold) {
	for _, p := range h.parts {
		if name := u.names[p.scope]; p.day && name != "" && h.day == p.scope.day.window {
			u.used[h.tenant][name] -= h.reservation.Cost
		}
	}
}

// of returns what a tenant's scopes have used, nil for nothing.
func (u *dayUses) of(t *tenant) map[string]kms.Credits {
	used := u.used[t]
	maps.DeleteFunc(used, func(_ string, n kms.Credits) bool { return n <= 0 })
	if len(used) == 0 {
		return nil
	}
	return used
}

// restoreScopes gives scopes inside a tenant what they had used of a day. One
// that has no limit of a day any more has nothing to remember.
func (e *Engine) restoreScopes(s *engineShard, t *tenant, day int32, used map[string]kms.Credits, now instant) {
	for name, n := range used {
		if sc := e.scopeNamed(s, t, name, now); sc != nil {
			sc.day = total{day, int64(n)}
		}
	}
}

// scopeNamed finds or makes a scope that has a day's limit; nil for others.
func (e *Engine) scopeNamed(s *engineShard, t *tenant, name string, now instant) *scope {
	if project, ok := strings.CutPrefix(name, projectPrefix); ok {
		return e.projectOf(t, project, now)
	}
	if text, ok := strings.CutPrefix(name, credentialPrefix); ok {
		if id, err := uuid.Parse(text); err == nil && t.credentialLimits(id).day > 0 {
			return e.credentialOf(s, t, id, madeAt(id), now)
		}
	}
	if text, ok := strings.CutPrefix(name, keyPrefix); ok {
		if id, err := uuid.Parse(text); err == nil && t.keyLimits(id).day > 0 {
			return &e.keyOf(s, t, id, now).scope
		}
	}
	return nil
}

// spendScopes counts a charge on the day of the scopes that it was made in.
func (e *Engine) spendScopes(s *engineShard, t *tenant, spent Spent, now instant) {
	count := func(sc *scope) {
		if sc.limits.day > 0 {
			sc.day.turn(t.elastic.day)
			sc.day.used += int64(max(spent.Charged, 0))
		}
	}
	for sc := range e.projectsOf(t, spent.Project, now) {
		count(sc)
	}
	if t.credentialLimits(spent.Credential).day > 0 {
		count(e.credentialOf(s, t, spent.Credential, madeAt(spent.Credential), now))
	}
	if t.keyLimits(spent.Key).day > 0 {
		count(&e.keyOf(s, t, spent.Key, now).scope)
	}
}
