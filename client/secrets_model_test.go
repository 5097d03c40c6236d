package client_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-kms/sluice/client"
	"pgregory.net/rapid"
)

// step is an action of the model: what happens, to which path, for how long.
type step struct {
	Do   string
	Path string
	Wait time.Duration
}

var stepKinds = []string{
	"put", "put", "disable", "revoke version", "delete", "deny", "restore",
	"outage", "outage", "recover", "recover", "lag", "catch up", "slow", "fast", "mute", "speak", "cut", "lose events",
	"wait", "wait", "wait", "wait",
}

func genSteps(t *rapid.T) []step {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
		return step{
			Do:   rapid.SampledFrom(stepKinds).Draw(t, "do"),
			Path: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "path"),
			Wait: rapid.SampledFrom([]time.Duration{0, 0, time.Millisecond, 30 * time.Millisecond, time.Second, 10 * time.Second,
				50 * time.Second, 4 * time.Minute, 20 * time.Minute, 50 * time.Minute}).Draw(t, "wait"),
		}
	}), 1, 40).Draw(t, "steps")
}

// model drives a cache and a fake service through steps, and knows from outside
// what the cache may give.
type model struct {
	f       *fakeService
	handles map[string]*client.Handle
	faults  []func(*http.Request) (*http.Response, error)
	turn    int
	version map[string]uint32
	// seen is the newest version that each handle has given.
	seen map[string]uint32
	// endedAt is when the service ended each version of a path.
	endedAt map[string]map[uint32]time.Time
	// held is when, at the earliest, the value that each path has was fetched.
	held map[string]time.Time
	// banned is the newest version of each path that the watch has said is
	// revoked: neither it nor an older one may be given again, whatever happens.
	banned map[string]uint32
	// told: the service can tell of changes at once, since this time.
	told time.Time
}

func newModel(t *testing.T) *model {
	m := &model{f: newFake(), handles: map[string]*client.Handle{}, version: map[string]uint32{}, seen: map[string]uint32{},
		endedAt: map[string]map[uint32]time.Time{"a": {}, "b": {}, "c": {}}, held: map[string]time.Time{}, banned: map[string]uint32{}, told: time.Now()}
	for _, name := range []string{"500", "404 of a proxy", "no connection", "half an answer", "never answered", "503, HSMs", "429"} {
		m.faults = append(m.faults, outages[name])
	}
	s := newSecrets(t, m.f, client.SecretsOptions{})
	for _, path := range []string{"a", "b", "c"} {
		m.put(path)
		m.handles[path] = s.Handle(path)
	}
	preload(t, s, "a", "b", "c")
	synctest.Wait()
	return m
}

// end notes that no version of a path up to now is the service's any more.
func (m *model) end(path string) {
	for v := uint32(1); v <= m.version[path]; v++ {
		if _, ended := m.endedAt[path][v]; !ended {
			m.endedAt[path][v] = time.Now()
		}
	}
	delete(m.held, path)
}

func (m *model) put(path string) {
	m.end(path)
	m.version[path]++
	m.f.set(path, m.version[path])
}

// revoke ends the versions of a path, and notes that the watch has told so when
// it could.
func (m *model) revoke(path, status string, left ...fakeVersion) {
	m.end(path)
	m.f.put(path, "revoked", status, left...)
	m.f.mu.Lock()
	tells := len(m.f.streams) > 0 && !m.f.mute && m.f.lag == 0
	m.f.mu.Unlock()
	if tells {
		m.banned[path] = m.version[path]
	}
}

func (m *model) act(s step) {
	f := m.f
	switch s.Do {
	case "put", "restore":
		m.put(s.Path)
	case "disable":
		m.revoke(s.Path, "disabled")
	case "revoke version": // of two, one is left
		left := m.version[s.Path] + 1
		m.revoke(s.Path, "ok", fakeVersion{left, 100, valueOf(s.Path, left)})
		m.version[s.Path] = left
	case "delete":
		m.revoke(s.Path, "not_found")
	case "deny":
		m.revoke(s.Path, "denied")
	case "outage":
		m.turn++
		fault := m.faults[m.turn%len(m.faults)]
		f.do(func() { f.fault = fault })
	case "recover":
		f.do(func() { f.fault = nil })
	case "lag":
		f.do(func() {
			if f.lag == 0 {
				f.lag, f.lagSince = 2, time.Now()
			}
		})
	case "catch up":
		f.do(func() { f.lag = 0 })
	case "slow":
		f.do(func() { f.delay = 3 * time.Second })
	case "fast":
		f.do(func() { f.delay = 0 })
	case "mute":
		f.do(func() { f.mute = true })
	case "speak":
		f.do(func() { f.mute = false })
	case "cut":
		f.cut()
		m.told = time.Time{}
	case "lose events":
		f.do(func() { f.events = []fakeEvent{{kind: "resync", Revision: f.revision}} })
		f.cut()
	}
	// The bound of a second holds when nothing is wrong for as long as the
	// longest pause between two attempts.
	f.do(func() {
		if f.fault != nil || f.lag != 0 || f.delay != 0 || f.mute || s.Do == "cut" || s.Do == "lose events" {
			m.told = time.Time{}
		} else if m.told.IsZero() {
			m.told = time.Now()
		}
	})
}

// check holds what the cache gives against what it may.
func (m *model) check() error {
	for path, h := range m.handles {
		v, err := h.Get("request")
		if err != nil {
			if since, held := m.held[path]; held && time.Since(since) < time.Hour-2*time.Second {
				return fmt.Errorf("%s: a good value is lost after %v: %w", path, time.Since(since), err)
			}
			if now := m.state(path); m.healthy() && now == "ok" {
				return fmt.Errorf("%s: all is well, and there is no value: %w", path, err)
			}
			continue
		}
		version, err := parseVersion(path, v.Reveal())
		if err != nil {
			return err
		}
		if version < m.seen[path] {
			return fmt.Errorf("%s: version %d after %d", path, version, m.seen[path])
		}
		m.seen[path] = version
		if version <= m.banned[path] {
			return fmt.Errorf("%s: version %d is given although the watch has told of its end", path, version)
		}
		ended, over := m.endedAt[path][version]
		switch {
		case over && time.Since(ended) > time.Hour+maxLag: // a node that lags gives leases too
			return fmt.Errorf("%s: version %d is given %v after its end", path, version, time.Since(ended))
		case over && m.healthy() && time.Since(ended) > time.Second:
			return fmt.Errorf("%s: version %d is given %v after its end, and nothing is wrong", path, version, time.Since(ended))
		case !over:
			if m.healthy() {
				m.held[path] = time.Now().Add(-client.DefaultFreshness)
			} else if _, known := m.held[path]; !known {
				m.held[path] = time.Now().Add(-leaseSpent)
			}
		}
	}
	return nil
}

// leaseSpent is how much of a version's lease may be over when the model sees
// it first: it looks every 20 s, and a fetch may take 10 s.
const leaseSpent = 30 * time.Second

// healthy tells whether nothing has been wrong for so long that the cache must
// know all.
func (m *model) healthy() bool {
	return !m.told.IsZero() && time.Since(m.told) > 2*maxPause
}

func (m *model) state(path string) string {
	m.f.mu.Lock()
	defer m.f.mu.Unlock()
	h := m.f.history[path]
	return h[len(h)-1].status
}

func parseVersion(path, value string) (uint32, error) {
	var v uint32
	if _, err := fmt.Sscanf(strings.TrimPrefix(value, "sk-canary-"+path+"-"), "%d", &v); err != nil || value != valueOf(path, v) {
		return 0, fmt.Errorf("%s: %q is not its value", path, value)
	}
	return v, nil
}

// Whatever the order in which secrets are changed and disabled, nodes lag,
// answers are late, and the service and its watch come and go: a value that the
// service has ended is not given after its bound, an older one never after a
// newer one, and a good one is never lost.
func TestNoInterleavingGivesARevokedValueOrLosesAGoodOne(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		steps := genSteps(rt)
		var failure error
		synctest.Test(t, func(t *testing.T) {
			m := newModel(t)
			for i, s := range steps {
				m.act(s)
				synctest.Wait()
				for waited := time.Duration(0); ; {
					if failure = m.check(); failure != nil {
						failure = fmt.Errorf("step %d, %v, after %v: %w", i, s, waited, failure)
					}
					if failure != nil || waited == s.Wait {
						break
					}
					piece := 20 * time.Second
					if waited < 10*time.Second { // when answers come that are late
						piece = 500 * time.Millisecond
					}
					piece = min(piece, s.Wait-waited)
					time.Sleep(piece)
					waited += piece
					synctest.Wait()
				}
				if failure != nil {
					return
				}
			}
		})
		if failure != nil {
			rt.Fatal(failure)
		}
	})
}
