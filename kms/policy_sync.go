package kms

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// policySyncInterval is how often the number of the newest version is read: a
// policy is in force on every API node within a second, as everything else is
// (R6), and half of that is left for reading it. It is one row of an index.
const policySyncInterval = 500 * time.Millisecond

// policyHistory bounds how far back a start looks for a version that can be
// applied.
const policyHistory = 100

// followedPolicy is what following the stored policy has come to.
type followedPolicy struct {
	apply   sync.Mutex // held while versions are read and applied, before mu; guards refused
	refused uint64     // the version that the engine did not take; it never will

	mu      sync.Mutex // guards the rest
	stored  uint64     // the newest version, as last read
	problem string     // why it is not in force; "" when it is
}

func (f *followedPolicy) get() (stored uint64, problem string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stored, f.problem
}

// set notes how it stands and tells whether that is news.
func (f *followedPolicy) set(stored uint64, problem string) (news bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	news = f.stored != stored || f.problem != problem
	f.stored, f.problem = stored, problem
	return news
}

// followPolicy puts the newest stored version into force, if it is not. One
// that cannot be applied leaves the version in force as it is, and is told in
// the log and in PolicyState. An error is the store's: nothing is known then.
func (s *Service) followPolicy(ctx context.Context) error {
	f := &s.followed
	f.apply.Lock()
	defer f.apply.Unlock()
	stored, err := s.policies.NewestPolicy(ctx)
	switch {
	case err != nil && KindOf(err) == KindStoreUnavailable:
		return err
	case err != nil:
		s.notePolicy(ctx, stored, err)
		return nil
	}
	inForce := s.engine.PolicyVersion()
	switch {
	case stored == inForce:
		s.notePolicy(ctx, stored, nil)
	case stored < inForce:
		s.notePolicy(ctx, stored, fmt.Errorf("version %d is in force and %d is the newest stored: versions were removed", inForce, stored))
	case stored != f.refused:
		err := s.applyPolicy(ctx, stored)
		if err != nil && KindOf(err) == KindStoreUnavailable {
			return err
		}
		s.notePolicy(ctx, stored, err)
	}
	return nil
}

// errEngine is why a version that can be believed is not in force.
var errEngine = errors.New("it cannot be applied")

// applyPolicy reads a version and puts it into force.
func (s *Service) applyPolicy(ctx context.Context, version uint64) error {
	p, err := s.policies.Policy(ctx, version)
	if err != nil {
		return err
	}
	if err := s.engine.ApplyPolicy(version, p.Document); err != nil {
		s.followed.refused = version
		return fmt.Errorf("%w: %w", errEngine, err)
	}
	return nil
}

func (s *Service) notePolicy(ctx context.Context, stored uint64, err error) {
	problem := ""
	if err != nil {
		problem = err.Error()
		if e, ok := errors.AsType[*Error](err); ok {
			problem = e.Detail // the cause is for the log
		}
	}
	if !s.followed.set(stored, problem) {
		return
	}
	attrs := []slog.Attr{slog.Uint64("stored", stored), slog.Uint64("in_force", s.engine.PolicyVersion())}
	if err != nil {
		s.log.LogAttrs(ctx, slog.LevelError, "policy: the newest version is not in force", append(attrs, slog.Any("error", err))...)
		return
	}
	s.log.LogAttrs(ctx, slog.LevelInfo, "policy: the newest version is in force", attrs...)
}

// startPolicy puts the newest version into force, or, where that cannot be,
// the newest one that can: it was the last good one.
func (s *Service) startPolicy(ctx context.Context) error {
	if err := s.followPolicy(ctx); err != nil {
		return err
	}
	if _, problem := s.followed.get(); problem == "" {
		return nil
	}
	list, _, err := s.policies.ListPolicies(ctx, Page{Size: policyHistory})
	if err != nil {
		return err
	}
	s.followed.apply.Lock()
	defer s.followed.apply.Unlock()
	refused := s.followed.refused
	for _, p := range list {
		if p.Version <= s.engine.PolicyVersion() {
			break
		}
		if p.Version == refused {
			continue
		}
		err := s.applyPolicy(ctx, p.Version)
		if err == nil {
			s.log.LogAttrs(ctx, slog.LevelWarn, "policy: an earlier version is in force", slog.Uint64("version", p.Version))
			break
		}
		if KindOf(err) == KindStoreUnavailable {
			return err
		}
	}
	s.followed.refused = refused
	return nil
}

// PolicyFollowed tells the version in force on this API node, the newest
// stored one as last read, and why they differ, "" when that is no problem.
func (s *Service) PolicyFollowed() (inForce, stored uint64, problem string) {
	stored, problem = s.followed.get()
	return s.engine.PolicyVersion(), stored, problem
}

// PolicySync follows the stored policy. Each API node has one.
type PolicySync struct {
	service *Service
	stop    chan struct{}
	ended   chan struct{}
}

// StartPolicySync puts the stored policy into force and goes on to follow it;
// Close ends that. An error of the first reading is returned.
func (s *Service) StartPolicySync(ctx context.Context) (*PolicySync, error) {
	if err := s.startPolicy(ctx); err != nil {
		return nil, err
	}
	p := &PolicySync{service: s, stop: make(chan struct{}), ended: make(chan struct{})}
	go p.loop()
	return p, nil
}

// Close ends the following and waits for a reading under way.
func (p *PolicySync) Close() error {
	close(p.stop)
	<-p.ended
	return nil
}

func (p *PolicySync) loop() {
	defer close(p.ended)
	tick := time.NewTicker(policySyncInterval)
	defer tick.Stop()
	failed := false
	for {
		select {
		case <-p.stop:
			return
		case <-tick.C:
		}
		ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
		err := p.service.followPolicy(ctx)
		cancel()
		// What a database that is away does to requests is told elsewhere;
		// once is enough here.
		if err != nil && !failed {
			p.service.log.Error("policy: reading the newest version", slog.Any("error", err))
		}
		failed = err != nil
	}
}
