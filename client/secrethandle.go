package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sluice-kms/sluice/client/outcome"
)

// Handle is a secret by its path. It is safe for concurrent use, and meant to
// be kept: through it a value is read in nanoseconds.
type Handle struct {
	s    *Secrets
	path string
	e    atomic.Pointer[entry]
}

// Handle returns the handle of a secret, and has it fetched if it is not held.
// It does not wait: see Preload.
func (s *Secrets) Handle(path string) *Handle {
	h := &Handle{s: s, path: path}
	h.e.Store(s.entry(path))
	return h
}

// Get is Handle(path).Get(routingKey) for those who keep no handles.
func (s *Secrets) Get(path, routingKey string) (Value, error) {
	e := s.entry(path)
	st := e.state.Load()
	if st.err != nil {
		return s.Handle(path).Get(routingKey)
	}
	e.touch()
	return st.choose(routingKey).value, nil
}

// Preload waits until all the secrets are held, so that Get has an answer from
// then on, or until one cannot be.
func (s *Secrets) Preload(ctx context.Context, paths ...string) error {
	handles := make([]*Handle, len(paths))
	for i, path := range paths {
		handles[i] = s.Handle(path) // all of them first: they share fetches
	}
	for _, h := range handles {
		if _, err := h.await(ctx, ""); err != nil {
			return err
		}
	}
	return nil
}

// Path is the secret's path.
func (h *Handle) Path() string { return h.path }

// Get returns the value of the version that the routing key, an id of the
// request that its repetitions share, belongs to: each version gets its weight's
// share of the keys, and a key stays with its version. It never waits. Without
// a value it returns ErrNotFound, ErrDenied, ErrRevoked or ErrUnavailable, and
// has the secret fetched.
func (h *Handle) Get(routingKey string) (Value, error) {
	held, err := h.pick(routingKey)
	if err != nil {
		return Value{}, err
	}
	return held.value, nil
}

// Await is Get, but waits for a fetch when there is no value: until ctx ends,
// or fetches have failed as often as a Client's calls are repeated.
func (h *Handle) Await(ctx context.Context, routingKey string) (Value, error) {
	held, err := h.await(ctx, routingKey)
	if err != nil {
		return Value{}, err
	}
	return held.value, nil
}

// Metadata returns what is known of the secret besides its values, such as
// base_url and region; nil when it is not held.
func (h *Handle) Metadata() map[string]string { return maps.Clone(h.e.Load().state.Load().metadata) }

// Provider returns the secret's provider, "" when it is not held.
func (h *Handle) Provider() outcome.Provider {
	return outcome.Provider(h.e.Load().state.Load().provider)
}

// touch notes a use. It writes only the first time: a handle is shared by all
// cores.
func (e *entry) touch() {
	if !e.used.Load() {
		e.used.Store(true)
	}
}

func (h *Handle) pick(routingKey string) (*heldVersion, error) {
	e := h.e.Load()
	st := e.state.Load()
	if st.err != nil {
		return h.missing(routingKey)
	}
	e.touch()
	return st.choose(routingKey), nil
}

// missing is pick for a secret without a value.
func (h *Handle) missing(routingKey string) (*heldVersion, error) {
	e := h.e.Load()
	if e.state.Load() == stateEvicted {
		e = h.s.entry(h.path)
		h.e.Store(e)
	}
	h.s.want(e, false)
	if st := e.state.Load(); st.err != nil {
		return nil, st.err
	} else {
		return st.choose(routingKey), nil
	}
}

// want has a secret without a value fetched, unless it is known to be missing,
// and returns a channel that is closed with the next news of it: nil when there
// is nothing to wait for.
func (s *Secrets) want(e *entry, wait bool) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.entries[e.path] != e {
		return nil
	}
	e.touch()
	if e.state.Load().err != nil {
		if e.holdOff.After(time.Now()) {
			return nil
		}
		if e.flight == nil && !e.queued && e.refresh.IsZero() {
			s.ask(e)
		}
	}
	if !wait {
		return nil
	}
	if e.changed == nil {
		e.changed = make(chan struct{})
	}
	return e.changed
}

func (h *Handle) await(ctx context.Context, routingKey string) (*heldVersion, error) {
	for attempt := 1; ; attempt++ {
		held, err := h.pick(routingKey)
		if err == nil {
			return held, nil
		}
		news := h.s.want(h.e.Load(), true)
		if news == nil || attempt > DefaultMaxAttempts {
			return nil, err
		}
		if held, err = h.pick(routingKey); err == nil {
			return held, nil // it came in between
		}
		select {
		case <-news:
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", err, ctx.Err())
		}
	}
}

// ProviderError is an error of a provider's answer, for functions given to Do.
type ProviderError struct {
	outcome.Verdict
}

// Error names the class and the row that decided.
func (e *ProviderError) Error() string {
	return fmt.Sprintf("the provider's answer: %s (%s)", e.Class, e.Row)
}

// errHeldSecret takes the place of an error that would show a value.
var errHeldSecret = errors.New("an error whose text held the secret's value was dropped")

// Do calls f with the value that Get returns, and reports what came of it:
// success when f returns nil, and of a *ProviderError its class; other errors
// say nothing of the secret. An error whose text shows the value is not passed
// on.
func (h *Handle) Do(routingKey string, f func(Value) error) error {
	held, err := h.pick(routingKey)
	if err != nil {
		return err
	}
	err = f(held.value)
	if err == nil {
		h.report(held, outcome.OK)
	} else if p, ok := errors.AsType[*ProviderError](err); ok {
		h.report(held, p.Class)
	}
	return scrub(err, held.value)
}

// scrub drops an error that shows a value, in the clear or as it stands in a
// URL.
func scrub(err error, v Value) error {
	if err == nil {
		return nil
	}
	text, secret := err.Error(), v.Reveal()
	if secret != "" && (strings.Contains(text, secret) || strings.Contains(text, url.QueryEscape(secret)) || strings.Contains(text, url.PathEscape(secret))) {
		return errHeldSecret
	}
	return err
}

// report counts what came of a use. A key that the provider refuses may have
// been replaced: the secret is fetched, at most once a second.
func (h *Handle) report(held *heldVersion, class outcome.Class) {
	h.s.reports.add(held.secretID, held.version, class)
	if class != outcome.Credential {
		return
	}
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	e, now := h.e.Load(), time.Now()
	if h.s.entries[h.path] == e && now.Sub(e.checked) >= minRefresh {
		e.checked = now
		h.s.ask(e)
	}
}
