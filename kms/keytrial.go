package kms

import (
	"context"
	"log/slog"
	"time"
	"uuid"
)

// KeyValidation is what a provider said to a key that was tried out.
type KeyValidation struct {
	State ProviderKeyState // KeyOK, KeyInvalid or KeyExhausted; "": it said nothing of the key
	Class string           // of the answer, as client/outcome has it
	At    time.Time
}

// KeyTrials tries keys out.
type KeyTrials interface {
	// TryKey asks a provider for its models with a key, at the address that the
	// operator knows of the provider: never one that a tenant gives, which could
	// be anybody's. ok is false for a provider of which none is known. The key is
	// the caller's, who wipes it.
	TryKey(ctx context.Context, provider string, key []byte) (v KeyValidation, ok bool)
}

// The setting of a secret's metadata by which its versions are tried out.
const (
	ValidateSetting = "validate"
	ValidateModels  = "models"
)

const (
	// trialPause is how long a version that was tried is not tried again: it is
	// refused to all gateways at once.
	trialPause = time.Minute
	trialQueue = 1024
)

// keyTrial asks for a version of a secret to be tried; version 0: all in use.
type keyTrial struct {
	tenant  uuid.UUID
	path    string
	version uint32
}

// try has a version tried out soon. When too many wait it is not: the calls of
// gateways tell the same, later.
func (s *Service) try(tenant uuid.UUID, path string, version uint32) {
	if s.trials == nil {
		return
	}
	select {
	case s.toTry <- keyTrial{tenant, path, version}:
	default:
	}
}

// tryRefused has the versions tried out that a report says were refused.
func (s *Service) tryRefused(r *ProviderRoute, list []RouteOutcome) {
	for i := range list {
		if t := r.Target(list[i].Target); t != nil && t.Secret != "" && list[i].Credential > 0 && list[i].Version > 0 {
			s.try(r.Tenant, t.Secret, list[i].Version)
		}
	}
}

// KeyTrier tries keys of routes out: when they are written, when a route begins
// to use them, and after they were refused.
type KeyTrier struct {
	service *Service
	stop    context.CancelFunc
	ended   chan struct{}
	tried   map[keyTrial]time.Time
}

// StartKeyTrier starts what tries keys out; its Close stops it and waits.
func (s *Service) StartKeyTrier() *KeyTrier {
	ctx, stop := context.WithCancel(context.Background())
	k := &KeyTrier{service: s, stop: stop, ended: make(chan struct{}), tried: map[keyTrial]time.Time{}}
	go k.loop(ctx)
	return k
}

// Close stops it, cuts the trial short that is being made, and waits.
func (k *KeyTrier) Close() error {
	k.stop()
	<-k.ended
	return nil
}

func (k *KeyTrier) loop(ctx context.Context) {
	defer close(k.ended)
	for {
		select {
		case <-ctx.Done():
			return
		case t := <-k.service.toTry:
			if err := k.run(ctx, t); err != nil && ctx.Err() == nil {
				k.service.log.Error("trying a key out", slog.Any("error", err))
			}
		}
	}
}

// run tries the versions of a secret that a route uses and whose secret says so.
func (k *KeyTrier) run(ctx context.Context, t keyTrial) error {
	s := k.service
	secret, err := s.secrets.SecretByPath(ctx, t.tenant, t.path)
	if err != nil && KindOf(err) == KindNotFound || err == nil && secret.Metadata[ValidateSetting] != ValidateModels {
		return nil
	}
	if err != nil {
		return err
	}
	tenant, err := s.tenants.Tenant(ctx, t.tenant)
	if err != nil || tenant.Deleted() {
		return err
	}
	routes, err := s.routesOver(ctx, t.tenant, t.path)
	if err != nil || len(routes) == 0 {
		return err
	}
	for _, v := range secret.Versions {
		if v.State != SecretStaged && v.State != SecretActive || t.version != 0 && v.Number != t.version || !k.due(keyTrial{t.tenant, t.path, v.Number}) {
			continue
		}
		if err := s.tryVersion(ctx, tenant, secret, v, routes); err != nil {
			return err
		}
	}
	return nil
}

// due tells whether a version was not tried lately, and notes that it is.
func (k *KeyTrier) due(t keyTrial) bool {
	now := k.service.clock()
	for other, at := range k.tried {
		if now.Sub(at) >= trialPause {
			delete(k.tried, other)
		}
	}
	if _, lately := k.tried[t]; lately {
		return false
	}
	k.tried[t] = now
	return true
}

// tryVersion tries a version out and stores the answer in the health of the
// routes. It is recorded as a use of the secret.
func (s *Service) tryVersion(ctx context.Context, tenant *Tenant, secret *ProviderSecret, v *SecretVersion, routes []*ProviderRoute) error {
	return s.run(ctx, s.keeperTicket(tenant, DefaultProject), &task{op: OpKeeperTryKey, allowed: always,
		prepare: func(t *Ticket) error {
			t.Resource, t.Version = secret.ID.String(), v.Number
			return nil
		},
		store: func(storing context.Context, _ *Ticket) error {
			key, err := s.openSecretValue(ctx, tenant, secret, v)
			if err != nil {
				return err
			}
			answer, known := s.trials.TryKey(ctx, secret.Provider, key)
			clear(key)
			if !known || ctx.Err() != nil {
				return ctx.Err()
			}
			for _, r := range routes {
				if err := s.noteValidation(storing, r, secret.Path, v.Number, answer); err != nil {
					return err
				}
			}
			return nil
		}})
}

func (s *Service) noteValidation(ctx context.Context, r *ProviderRoute, path string, version uint32, answer KeyValidation) error {
	view, err := s.viewOf(ctx, r, false)
	if err != nil {
		return err
	}
	for i := range r.Targets {
		if r.Targets[i].Secret != path {
			continue
		}
		var events []RouteEvent
		err := s.changeHealth(ctx, r, func(health []byte) (next []byte, err error) {
			next, events, err = s.routing.Validated(view, health, r.Targets[i].Name, version, answer)
			return next, err
		})
		if err != nil {
			return err
		}
		s.publishRoute(r, events)
	}
	return nil
}

// routesOver returns the tenant's routes that use the secret of a path.
func (s *Service) routesOver(ctx context.Context, tenant uuid.UUID, path string) (list []*ProviderRoute, err error) {
	all, _, err := s.routes.ListRoutes(ctx, tenant, Page{Size: MaxRoutes})
	for _, r := range all {
		for i := range r.Targets {
			if r.Targets[i].Secret == path {
				list = append(list, r)
				break
			}
		}
	}
	return list, err
}
